// Each statement mends one kind of damage and returns what it changed; its name says what was done.
// Nothing is deleted: what belongs to nothing is put into a session made for it, what is there
// twice gets an id of its own. Each finds nothing to do the second time. They run in this order,
// again and again until none of them changes anything, with those of repair.py that do the same to
// every kind of node.

// :gave_a_session_an_id_of_its_own
MATCH (n:ConversationSession)
WITH n.sessionId AS id, n
ORDER BY COUNT { (n)-[:HAS_TURN]->() } DESC, n.turnCount DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.sessionId = randomUUID()
WITH id, n
CALL (id, n) {
  MATCH (n)-[:HAS_TURN]->(t:ConversationTurn)
  WHERE NOT EXISTS { (t)<-[:HAS_TURN]-(:ConversationSession {sessionId: id}) }
  SET t.sessionId = n.sessionId
}
CALL (id, n) {
  MATCH (n)-[:HAS_SUMMARY]->(m:ConversationSummary)
  WHERE NOT EXISTS { (m)<-[:HAS_SUMMARY]-(:ConversationSession {sessionId: id}) }
  SET m.sessionId = n.sessionId
}
CALL (id, n) {
  MATCH (n)-[:HAS_BRANCH]->(f:ConversationSession)
  WHERE NOT EXISTS { (f)<-[:HAS_BRANCH]-(:ConversationSession {sessionId: id}) }
  SET f.parentSessionId = n.sessionId
}
RETURN collect(coalesce(id, '?') + ' is ' + n.sessionId + ' now') AS found;

// :gave_a_summary_an_id_of_its_own
MATCH (n:ConversationSummary)
WITH n.uuid AS id, n
ORDER BY COUNT { (n)-[:SUMMARIZES]->() } DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.uuid = randomUUID()
WITH id, nodes, n
CALL (id, nodes, n) {
  WITH nodes[0] AS first, n
  WHERE id IS NOT NULL AND NOT EXISTS { (n)-[:SUMMARIZES]->() }
  MATCH (first)-[r:SUMMARIZES]->(covered)
  CREATE (n)-[same:SUMMARIZES]->(covered)
  SET same = properties(r)
}
RETURN collect(coalesce(id, '?') + ' is ' + n.uuid + ' now') AS found;

// :brought_together_a_file_that_was_there_twice
MATCH (f:File)
WITH f.projectId AS project, f.path AS path, f
ORDER BY elementId(f)
WITH project, path, collect(f) AS nodes
UNWIND nodes[1..] AS double
CALL (nodes, double) {
  WITH nodes[0] AS kept, double
  MATCH (t)-[a:ACCESSED]->(double)
  CREATE (t)-[b:ACCESSED]->(kept)
  SET b = properties(a)
  DELETE a
}
CALL (nodes, double) {
  WITH nodes[0] AS kept, double
  MATCH (double)-[d:DEFINES]->(s)
  MERGE (kept)-[e:DEFINES]->(s)
  SET e = properties(d)
  DELETE d
}
CALL (nodes, double) {
  WITH nodes[0] AS kept, double
  MATCH (double)-[r:IMPORTS]->(g)
  MERGE (kept)-[e:IMPORTS]->(g)
  SET e = properties(r)
  DELETE r
}
CALL (nodes, double) {
  WITH nodes[0] AS kept, double
  MATCH (f)-[r:IMPORTS]->(double)
  MERGE (f)-[e:IMPORTS]->(kept)
  SET e = properties(r)
  DELETE r
}
CALL (nodes, double) {
  WITH nodes[0] AS kept, double
  SET kept.hash = coalesce(kept.hash, double.hash),
      kept.language = coalesce(kept.language, double.language)
}
REMOVE double:File
SET double:SalvagedFile
RETURN collect(coalesce(path, '?')) AS found;

// :made_a_turn_for_tool_calls_whose_own_is_lost
MATCH (c:ToolCall)
WHERE NOT EXISTS { (c)<-[:HAS_TOOL_CALL]-(:ConversationTurn) }
WITH c
ORDER BY c.timestamp, c.uuid
WITH collect(c) AS calls
WHERE size(calls) > 0
MERGE (s:ConversationSession {sessionId: $salvagedId})
ON CREATE SET s += $made, s.startTime = $at, s.updatedAt = $at, s.lastActivity = $at
CREATE (s)-[:HAS_TURN {index: s.turnCount + 1}]->(t:ConversationTurn {
  uuid: randomUUID(), sessionId: $salvagedId, turnIndex: s.turnCount + 1, userMessage: $title,
  assistantMessage: '', status: 'interrupted', timestamp: $at, finishedAt: $at, level: 0,
  userCharCount: size($title), charCount: size($title), modelCalls: 0, apiMs: 0
})
SET s.turnCount = s.turnCount + 1, s.lastTurnId = t.uuid
WITH t, calls
UNWIND range(0, size(calls) - 1) AS i
WITH t, i, calls[i] AS c
CREATE (t)-[:HAS_TOOL_CALL {order: i}]->(c)
RETURN collect(c.uuid) AS found;

// :gave_a_turn_its_own_copy_of_a_tool_call
MATCH (c:ToolCall)<-[h:HAS_TOOL_CALL]-(t:ConversationTurn)
WITH c, h, t
ORDER BY t.timestamp, t.uuid, elementId(h)
WITH c, collect([h, t]) AS holders
UNWIND holders[1..] AS holder
WITH c, holder[0] AS h, holder[1] AS t
CREATE (t)-[own:HAS_TOOL_CALL]->(copy:ToolCall)
SET own = properties(h), copy = c{.*, uuid: randomUUID()}
DELETE h
WITH c, t, copy
CALL (c, t, copy) {
  MATCH (t)-[a:ACCESSED {toolCallId: c.uuid}]->()
  SET a.toolCallId = copy.uuid
}
RETURN collect(c.uuid + ' is ' + copy.uuid + ' in ' + t.uuid) AS found;

// :made_a_tool_call_for_files_whose_own_is_lost
MATCH (t:ConversationTurn)-[a:ACCESSED]->(f:File)
WHERE NOT EXISTS { (t)-[:HAS_TOOL_CALL]->(:ToolCall {uuid: a.toolCallId}) }
WITH t, a.toolCallId AS lost, collect(a) AS accesses
CREATE (c:ToolCall {
  uuid: CASE WHEN lost IS NULL OR EXISTS { (:ToolCall {uuid: lost}) } THEN randomUUID() ELSE lost END,
  toolName: coalesce(accesses[0].toolName, 'unknown'), toolArgs: '{}', toolResult: '{}',
  success: true, durationMs: 0, timestamp: coalesce(accesses[0].at, t.timestamp), iteration: 0,
  resultSizeBytes: 2, origin: 'model', preamble: ''
})
CREATE (t)-[:HAS_TOOL_CALL {
  order: coalesce(accesses[0].order, COUNT { (t)-[:HAS_TOOL_CALL]->() })
}]->(c)
FOREACH (a IN accesses |
  SET a.toolCallId = c.uuid, a.toolName = coalesce(a.toolName, 'unknown'),
      a.type = coalesce(a.type, 'read'), a.at = coalesce(a.at, t.timestamp),
      a.order = coalesce(a.order, 0)
)
RETURN collect(t.uuid) AS found;

// :let_a_fork_stand_by_itself_whose_parent_is_lost
MATCH (s:ConversationSession)
WHERE s.parentSessionId IS NOT NULL
  AND NOT EXISTS { (:ConversationSession {sessionId: s.parentSessionId}) }
WITH s, s.sessionId + ' was forked from ' + s.parentSessionId AS said
SET s.parentSessionId = null, s.forkedAtIndex = null
RETURN collect(said) AS found;

// :put_a_fork_beside_its_parent
MATCH (s:ConversationSession)
MATCH (p:ConversationSession {sessionId: s.parentSessionId})
WHERE NOT EXISTS { (p)-[:HAS_BRANCH]->(s) }
CREATE (p)-[:HAS_BRANCH]->(s)
RETURN collect(s.sessionId) AS found;

// :numbered_the_turns_of_a_session_anew
MATCH (s:ConversationSession)
CALL (s) {
  OPTIONAL MATCH (t:ConversationTurn) WHERE t.sessionId = s.sessionId
  WITH t
  ORDER BY t.turnIndex, t.timestamp, t.uuid
  RETURN collect(t) AS turns
}
WITH s, turns, coalesce(s.forkedAtIndex, 0) AS shared
WHERE s.turnCount <> shared + size(turns)
   OR any(i IN range(1, size(turns)) WHERE turns[i - 1].turnIndex <> shared + i)
WITH s, turns, shared, s.turnCount > shared + size(turns) AS lost
SET s.turnCount = shared + size(turns)
WITH s, turns, shared, lost
CALL (s, turns, shared, lost) {
  // Where turns are lost, a fork goes on sharing those of the others that it shared.
  MATCH (s)-[:HAS_BRANCH]->(f:ConversationSession)
  WHERE lost AND f.forkedAtIndex > shared
  SET f.forkedAtIndex = shared + size([t IN turns WHERE t.turnIndex <= f.forkedAtIndex])
}
FOREACH (i IN range(1, size(turns)) | FOREACH (t IN [turns[i - 1]] | SET t.turnIndex = shared + i))
RETURN collect(s.sessionId + ' has ' + s.turnCount) AS found;

// :let_a_fork_begin_where_its_parent_ends
MATCH (p:ConversationSession)-[:HAS_BRANCH]->(s:ConversationSession {parentSessionId: p.sessionId})
CALL (p) {
  OPTIONAL MATCH (t:ConversationTurn) WHERE t.sessionId = p.sessionId
  RETURN count(t) AS own
}
WITH s, own + coalesce(p.forkedAtIndex, 0) AS last
WHERE s.forkedAtIndex IS NULL OR s.forkedAtIndex > last
WITH s, last, s.sessionId + ' at ' + last + ', not ' + coalesce(s.forkedAtIndex, '?') AS said
SET s.forkedAtIndex = last
RETURN collect(said) AS found;

// :put_the_place_of_a_turn_on_its_relationship
MATCH (:ConversationSession)-[h:HAS_TURN]->(t:ConversationTurn)
WHERE h.index <> t.turnIndex OR h.index IS NULL
SET h.index = t.turnIndex
RETURN collect(t.uuid) AS found;

// :found_the_newest_turn_of_a_session
MATCH (s:ConversationSession)
WHERE s.turnCount > 0
  AND NOT EXISTS { (:ConversationTurn {uuid: s.lastTurnId, turnIndex: s.turnCount}) }
MATCH path = (s)<-[:HAS_BRANCH*0..]-(a:ConversationSession)
WITH s, a, length(path) AS far
CALL (s, a) {
  MATCH (t:ConversationTurn)
  WHERE t.sessionId = a.sessionId AND t.turnIndex = s.turnCount
  RETURN t
}
WITH s, t
ORDER BY far
WITH s, head(collect(t)) AS t
SET s.lastTurnId = t.uuid
RETURN collect(s.sessionId) AS found;

// :counted_the_completed_turns_of_a_session
MATCH path = (s:ConversationSession)<-[:HAS_BRANCH*0..]-(a:ConversationSession)
WITH s, a, reduce(last = a.turnCount, fork IN nodes(path)[0..-1] |
  CASE WHEN fork.forkedAtIndex < last THEN fork.forkedAtIndex ELSE last END) AS last
CALL (a, last) {
  MATCH (t:ConversationTurn)
  WHERE t.sessionId = a.sessionId AND t.turnIndex <= last AND t.status = 'completed'
  RETURN count(t) AS turns
}
WITH s, sum(turns) AS turns
WHERE s.messageCount <> 2 * turns
SET s.messageCount = 2 * turns
RETURN collect(s.sessionId + ' has ' + turns) AS found;

// :wrote_down_when_a_turn_ended
MATCH (t:ConversationTurn)
WHERE t.status <> 'running' AND t.finishedAt IS NULL
SET t.finishedAt = t.timestamp
RETURN collect(t.uuid) AS found;

// :ended_a_turn_that_says_when
MATCH (t:ConversationTurn {status: 'running'})
WHERE t.finishedAt IS NOT NULL
SET t.status = 'interrupted'
REMOVE t.ownerId
RETURN collect(t.uuid) AS found;

// :counted_the_characters_of_a_turn
MATCH (t:ConversationTurn)
WHERE t.charCount <> size(t.userMessage) + size(t.assistantMessage)
SET t.charCount = size(t.userMessage) + size(t.assistantMessage),
    t.userCharCount = size(t.userMessage)
RETURN collect(t.uuid) AS found;

// :set_a_double_process_aside
MATCH (o:Process)
WITH o.ownerId AS id, o
ORDER BY o.leaseUntil DESC, elementId(o)
WITH id, collect(o) AS nodes
UNWIND nodes[1..] AS o
REMOVE o:Process
SET o:SalvagedProcess
RETURN collect(id) AS found;

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

// :took_a_scope_out_of_files_that_are_not_its_own
MATCH (f)-[d:DEFINES]->(s:Scope)
WITH s, d, f
ORDER BY coalesce(f:File AND f.projectId = s.projectId AND f.path = s.path, false) DESC, elementId(d)
WITH s, collect(d) AS held
WHERE size(held) > 1
FOREACH (d IN held[1..] | DELETE d)
RETURN collect(s.scopeId) AS found;

// :wrote_on_a_scope_which_file_it_is_of
MATCH (f:File)-[:DEFINES]->(s:Scope)
WHERE s.projectId IS NULL OR s.path IS NULL OR f.projectId <> s.projectId OR f.path <> s.path
SET s.projectId = f.projectId, s.path = f.path
RETURN collect(s.scopeId) AS found;

// :wrote_on_a_file_that_its_scopes_are_to_be_read_again
MATCH (f:File)
WHERE (f.hash IS NULL OR f.language IS NULL)
  AND (EXISTS { (f)-[:DEFINES]->() } OR EXISTS { (f)-[:IMPORTS]->() } OR f.hash IS NOT NULL)
SET f.hash = coalesce(f.hash, ''), f.language = coalesce(f.language, 'text')
RETURN collect(coalesce(f.path, '?')) AS found;

// :kept_the_strongest_of_what_a_turn_has_to_do_with_a_scope
MATCH (t:ConversationTurn)-[r:REFERENCES_CODE]->(s:Scope)
WITH t, s, r, ['edited', 'read', 'found', 'named'] AS known
// Whatever stands there: as little as can be.
WITH t, s, r, CASE WHEN r.how IN known THEN r.how ELSE 'named' END AS how, known
ORDER BY CASE how WHEN known[0] THEN 0 WHEN known[1] THEN 1 WHEN known[2] THEN 2 ELSE 3 END
WITH t, s, collect(r) AS held, collect(how) AS hows
WHERE size(held) > 1 OR held[0].how IS NULL OR held[0].how <> hows[0]
FOREACH (r IN held[1..] | DELETE r)
FOREACH (r IN held[..1] | SET r.how = hows[0])
RETURN collect(t.uuid) AS found;

// :noted_that_a_turn_was_looked_at_for_code
MATCH (t:ConversationTurn)
WHERE t.referencesKnown IS NULL AND EXISTS { (t)-[:REFERENCES_CODE]->() }
SET t.referencesKnown = true
RETURN collect(t.uuid) AS found;

// :set_a_scope_aside_that_nothing_has_to_do_with
MATCH (s:Scope)
WHERE NOT EXISTS { (s)<-[:DEFINES]-() } AND NOT EXISTS { (s)<-[:REFERENCES_CODE]-() }
REMOVE s:Scope
SET s:SalvagedScope
RETURN collect(s.scopeId) AS found;

// :wrote_down_a_project_with_code
MATCH (f:File)
WHERE f.projectId IS NOT NULL AND f.hash IS NOT NULL
WITH DISTINCT f.projectId AS id
WHERE NOT EXISTS { (:CodeProject {projectId: id}) }
CREATE (c:CodeProject {projectId: id})
RETURN collect(id) AS found;

// :gave_a_tool_call_its_place
MATCH (c:ToolCall)<-[h:HAS_TOOL_CALL]-(t)
WHERE h.order IS NULL
SET h.order = COUNT { (t)-[:HAS_TOOL_CALL]->() } - 1
RETURN collect(c.uuid) AS found;

// :said_where_a_memory_is_known
MATCH (n:Memory)
WHERE (n.scope = 'user') = (n.projectId IS NOT NULL)
SET n.scope = CASE WHEN n.projectId IS NULL THEN 'user' ELSE 'project' END
RETURN collect(n.uuid) AS found;
