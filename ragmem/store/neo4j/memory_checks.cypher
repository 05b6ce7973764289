// As checks.cypher, of memories and insights.

// :a_memory_has_all_of_its_fields
MATCH (m:Memory)
WHERE m.uuid IS NULL OR m.kind IS NULL OR m.content IS NULL OR m.subjects IS NULL
   OR m.trust IS NULL OR m.source IS NULL OR m.pinned IS NULL OR m.createdAt IS NULL
   OR m.updatedAt IS NULL OR m.evidence IS NULL OR m.sessionIds IS NULL OR m.scope IS NULL
   OR (m.scope = 'user') = (m.projectId IS NOT NULL)
RETURN collect(coalesce(m.uuid, '?')) AS found;

// :a_memory_says_what_took_its_place
// What took it may be elsewhere: a chain can be moved in parts.
CALL () {
  MATCH (by:Memory)-[:SUPERSEDES]->(m:Memory)
  WHERE m.supersededBy IS NULL OR m.supersededBy <> by.uuid
  RETURN m
  UNION
  MATCH (m:Memory)
  WHERE m.supersededBy IS NOT NULL
  MATCH (by:Memory {uuid: m.supersededBy})
  WHERE NOT EXISTS { (by)-[:SUPERSEDES]->(m) }
  RETURN m
}
RETURN collect(coalesce(m.uuid, '?')) AS found;

// :a_memory_knows_where_it_comes_from
MATCH (:ConversationTurn)-[r:REMEMBERS]->(m:Memory)
WHERE r.position IS NULL OR r.sessionId IS NULL OR r.turnIndex IS NULL OR r.toolCallId IS NULL
   OR r.toolName IS NULL OR r.path IS NULL OR r.quote IS NULL OR r.at IS NULL
   OR (r.sessionId <> '' AND NOT r.sessionId IN m.sessionIds)
RETURN collect(DISTINCT coalesce(m.uuid, '?')) AS found;

// :an_insight_belongs_to_its_session
MATCH (n:Insight)
WHERE COUNT { (n)<-[:HAS_INSIGHT]-() } <> 1
   OR NOT EXISTS { (n)<-[:HAS_INSIGHT]-(:ConversationSession {sessionId: n.sessionId}) }
RETURN collect(coalesce(n.sessionId, '?')) AS found;

// :an_insight_has_all_of_its_fields
MATCH (n:Insight)
WHERE n.sessionId IS NULL OR n.mainTopic IS NULL OR n.keyFindings IS NULL
   OR n.actionItems IS NULL OR n.createdAt IS NULL
RETURN collect(coalesce(n.sessionId, '?')) AS found;
