// As repair.cypher, of memories, the profile and insights.

// :gave_a_memory_an_id_of_its_own
MATCH (n:Memory)
WITH n.uuid AS id, n
ORDER BY COUNT { (n)--() } DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.uuid = randomUUID()
RETURN collect(coalesce(id, '?') + ' is ' + n.uuid + ' now') AS found;

// :filled_in_the_fields_of_a_memory
MATCH (m:Memory)
WHERE m.kind IS NULL OR m.content IS NULL OR m.subjects IS NULL
   OR m.trust IS NULL OR m.source IS NULL OR m.pinned IS NULL OR m.createdAt IS NULL
   OR m.updatedAt IS NULL OR m.evidence IS NULL OR m.sessionIds IS NULL OR m.scope IS NULL
   OR (m.scope = 'user') = (m.projectId IS NOT NULL)
SET m.kind = coalesce(m.kind, 'fact'),
    m.content = coalesce(m.content, ''),
    m.subjects = coalesce(m.subjects, []),
    // As little as can be: nobody knows any more who vouches for it.
    m.trust = coalesce(m.trust, 'tool'),
    m.source = coalesce(m.source, 'conversation'),
    m.pinned = coalesce(m.pinned, false),
    m.createdAt = coalesce(m.createdAt, m.updatedAt, $at),
    m.updatedAt = coalesce(m.updatedAt, m.createdAt),
    m.evidence = coalesce(m.evidence, []),
    m.sessionIds = coalesce(m.sessionIds, []),
    m.scope = CASE WHEN m.projectId IS NULL THEN 'user' ELSE 'project' END
RETURN collect(m.uuid) AS found;

// :filled_in_where_a_memory_comes_from
MATCH (t:ConversationTurn)-[r:REMEMBERS]->(m:Memory)
WHERE r.position IS NULL OR r.sessionId IS NULL OR r.turnIndex IS NULL OR r.toolCallId IS NULL
   OR r.toolName IS NULL OR r.path IS NULL OR r.quote IS NULL OR r.at IS NULL
SET r.position = coalesce(r.position, COUNT { (m)<-[:REMEMBERS]-() } + size(m.evidence)),
    r.sessionId = coalesce(r.sessionId, t.sessionId),
    r.turnIndex = coalesce(r.turnIndex, t.turnIndex),
    r.toolCallId = coalesce(r.toolCallId, ''),
    r.toolName = coalesce(r.toolName, ''),
    r.path = coalesce(r.path, ''),
    r.quote = coalesce(r.quote, ''),
    r.at = coalesce(r.at, t.timestamp)
RETURN collect(DISTINCT m.uuid) AS found;

// :noted_the_sessions_of_a_memory
MATCH (:ConversationTurn)-[r:REMEMBERS]->(m:Memory)
WHERE r.sessionId <> '' AND NOT r.sessionId IN m.sessionIds
WITH m, collect(DISTINCT r.sessionId) AS others
SET m.sessionIds = m.sessionIds + others
RETURN collect(m.uuid) AS found;

// :wrote_on_a_memory_what_took_its_place
MATCH (by:Memory)-[:SUPERSEDES]->(m:Memory)
WHERE by <> m
  AND (m.supersededBy IS NULL OR NOT EXISTS { (:Memory {uuid: m.supersededBy})-[:SUPERSEDES]->(m) })
WITH m, by
ORDER BY by.createdAt, by.uuid
WITH m, head(collect(by)) AS by
WHERE m.supersededBy IS NULL OR NOT EXISTS { (:Memory {uuid: m.supersededBy}) }
SET m.supersededBy = by.uuid, m.validUntil = coalesce(m.validUntil, by.createdAt)
RETURN collect(m.uuid) AS found;

// :linked_a_memory_to_what_took_its_place
MATCH (m:Memory)
WHERE m.supersededBy IS NOT NULL
MATCH (by:Memory {uuid: m.supersededBy})
WHERE NOT EXISTS { (by)-[:SUPERSEDES]->(m) }
CREATE (by)-[:SUPERSEDES]->(m)
RETURN collect(m.uuid) AS found;

// :parted_a_memory_from_what_did_not_take_its_place
MATCH (by:Memory)-[r:SUPERSEDES]->(m:Memory)
WHERE by = m AND m.supersededBy IS NULL
   OR by.uuid <> m.supersededBy AND EXISTS { (:Memory {uuid: m.supersededBy})-[:SUPERSEDES]->(m) }
DELETE r
RETURN collect(m.uuid) AS found;

// :set_a_double_insight_aside
MATCH (n:Insight)
WITH n.sessionId AS id, n
ORDER BY n.createdAt IS NULL, n.createdAt DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
REMOVE n:Insight
SET n:SalvagedInsight
RETURN collect(coalesce(id, '?')) AS found;

// :filled_in_the_fields_of_an_insight
MATCH (n:Insight)
WHERE n.mainTopic IS NULL OR n.keyFindings IS NULL OR n.actionItems IS NULL OR n.createdAt IS NULL
SET n.mainTopic = coalesce(n.mainTopic, ''),
    n.keyFindings = coalesce(n.keyFindings, []),
    n.actionItems = coalesce(n.actionItems, []),
    n.createdAt = coalesce(n.createdAt, $at)
RETURN collect(n.sessionId) AS found;

// :made_a_session_for_insights_whose_own_is_lost
MATCH (n:Insight)
WHERE NOT EXISTS { (:ConversationSession {sessionId: n.sessionId}) }
CREATE (s:ConversationSession {sessionId: n.sessionId})
SET s += $made, s.startTime = n.createdAt, s.updatedAt = n.createdAt, s.lastActivity = n.createdAt
RETURN collect(n.sessionId) AS found;

// :put_an_insight_into_its_session
MATCH (n:Insight)
MATCH (s:ConversationSession {sessionId: n.sessionId})
WHERE NOT EXISTS { (s)-[:HAS_INSIGHT]->(n) }
CREATE (s)-[:HAS_INSIGHT]->(n)
RETURN collect(n.sessionId) AS found;

// :took_an_insight_out_of_sessions_that_are_not_its_own
MATCH (n:Insight)<-[h:HAS_INSIGHT]-(s)
WHERE EXISTS { (:ConversationSession {sessionId: n.sessionId})-[:HAS_INSIGHT]->(n) }
WITH n, h ORDER BY s:ConversationSession AND s.sessionId = n.sessionId DESC
WITH n, collect(h) AS held
WHERE size(held) > 1
FOREACH (h IN held[1..] | DELETE h)
RETURN collect(n.sessionId) AS found;

// :set_a_double_profile_aside
MATCH (u:UserProfile)
WITH u.userId AS id, u
ORDER BY u.updatedAt IS NULL, u.updatedAt DESC, elementId(u)
WITH id, collect(u) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS u
REMOVE u:UserProfile
SET u:SalvagedProfile
RETURN collect(coalesce(id, '?')) AS found;
