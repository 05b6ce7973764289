// Each statement mends one kind of damage and returns what it changed; its name says what was done.
// Nothing is deleted: what belongs to nothing is put into a session made for it, what is there
// twice gets an id of its own. Each finds nothing to do the second time. They run in this order,
// again and again until none of them changes anything.

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

// :gave_a_turn_an_id_of_its_own
MATCH (n:ConversationTurn)
WITH n.uuid AS id, n
ORDER BY COUNT { (n)<-[:HAS_TURN]-() } DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.uuid = randomUUID()
RETURN collect(coalesce(id, '?') + ' is ' + n.uuid + ' now') AS found;

// :gave_a_tool_call_an_id_of_its_own
MATCH (n:ToolCall)
WITH n.uuid AS id, n
ORDER BY COUNT { (n)<-[:HAS_TOOL_CALL]-() } DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.uuid = randomUUID()
RETURN collect(coalesce(id, '?') + ' is ' + n.uuid + ' now') AS found;

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

// :gave_a_project_an_id_of_its_own
MATCH (n:Project)
WITH n.projectId AS id, n
ORDER BY n.createdAt, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.projectId = randomUUID()
RETURN collect(coalesce(id, '?') + ' is ' + n.projectId + ' now') AS found;

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

// :filled_in_the_fields_of_a_session
MATCH (s:ConversationSession)
WHERE s.cwd IS NULL OR s.projectId IS NULL OR s.title IS NULL OR s.titleFolded IS NULL
   OR s.tags IS NULL OR s.status IS NULL OR s.startTime IS NULL OR s.updatedAt IS NULL
   OR s.lastActivity IS NULL OR s.turnCount IS NULL OR s.messageCount IS NULL
WITH s, coalesce(s.startTime, s.updatedAt, s.lastActivity, $at) AS at
SET s.cwd = coalesce(s.cwd, '/'),
    s.projectId = coalesce(s.projectId, 'salvaged'),
    s.title = coalesce(s.title, $title),
    s.titleFolded = coalesce(s.titleFolded, toLower(s.title)),
    s.tags = coalesce(s.tags, []),
    s.status = coalesce(s.status, 'active'),
    s.startTime = at,
    s.updatedAt = coalesce(s.updatedAt, at),
    s.lastActivity = coalesce(s.lastActivity, at),
    s.turnCount = coalesce(s.turnCount, 0),
    s.messageCount = coalesce(s.messageCount, 0)
RETURN collect(s.sessionId) AS found;

// :filled_in_the_fields_of_a_turn
MATCH (t:ConversationTurn)
WHERE t.sessionId IS NULL OR t.turnIndex IS NULL OR t.userMessage IS NULL
   OR t.assistantMessage IS NULL OR t.status IS NULL OR t.timestamp IS NULL
   OR t.charCount IS NULL OR t.userCharCount IS NULL OR t.modelCalls IS NULL OR t.apiMs IS NULL
OPTIONAL MATCH (s:ConversationSession)-[h:HAS_TURN]->(t)
WITH t, head(collect(s)) AS s, head(collect(h.index)) AS place
SET t.sessionId = coalesce(t.sessionId, s.sessionId, $salvagedId),
    t.turnIndex = coalesce(t.turnIndex, place, 0),
    t.userMessage = coalesce(t.userMessage, ''),
    t.assistantMessage = coalesce(t.assistantMessage, ''),
    t.status = coalesce(t.status, CASE WHEN t.finishedAt IS NULL THEN 'interrupted' ELSE 'completed' END),
    t.timestamp = coalesce(t.timestamp, t.finishedAt, s.startTime, $at),
    t.level = coalesce(t.level, 0),
    t.userCharCount = size(t.userMessage),
    t.charCount = size(t.userMessage) + size(t.assistantMessage),
    t.modelCalls = coalesce(t.modelCalls, 0),
    t.apiMs = coalesce(t.apiMs, 0)
RETURN collect(t.uuid) AS found;

// :filled_in_the_fields_of_a_tool_call
MATCH (c:ToolCall)
WHERE c.toolName IS NULL OR c.toolArgs IS NULL OR c.toolResult IS NULL OR c.success IS NULL
   OR c.durationMs IS NULL OR c.timestamp IS NULL OR c.iteration IS NULL OR c.origin IS NULL
   OR c.preamble IS NULL
   OR EXISTS { (c)<-[h:HAS_TOOL_CALL]-() WHERE h.order IS NULL }
SET c.toolName = coalesce(c.toolName, 'unknown'),
    c.toolArgs = coalesce(c.toolArgs, '{}'),
    c.toolResult = coalesce(c.toolResult, '{}'),
    c.success = coalesce(c.success, false),
    c.durationMs = coalesce(c.durationMs, 0),
    c.timestamp = coalesce(c.timestamp, $at),
    c.iteration = coalesce(c.iteration, 0),
    c.origin = coalesce(c.origin, 'model'),
    c.preamble = coalesce(c.preamble, '')
WITH c
CALL (c) {
  MATCH (c)<-[h:HAS_TOOL_CALL]-(t)
  WHERE h.order IS NULL
  SET h.order = COUNT { (t)-[:HAS_TOOL_CALL]->() } - 1
}
RETURN collect(c.uuid) AS found;

// :filled_in_the_fields_of_a_summary
MATCH (m:ConversationSummary)
WHERE m.sessionId IS NULL OR m.summary IS NULL OR m.level IS NULL OR m.turnCount IS NULL
   OR m.filesMentioned IS NULL OR m.keyFindings IS NULL OR m.toolsUsed IS NULL
   OR m.topics IS NULL OR m.timestamp IS NULL OR m.extractive IS NULL
OPTIONAL MATCH (s:ConversationSession)-[:HAS_SUMMARY]->(m)
WITH m, head(collect(s.sessionId)) AS sessionId
SET m.sessionId = coalesce(m.sessionId, sessionId, $salvagedId),
    m.summary = coalesce(m.summary, ''),
    m.level = coalesce(m.level, 1),
    m.turnCount = coalesce(m.turnCount, COUNT { (m)-[:SUMMARIZES]->() }),
    m.filesMentioned = coalesce(m.filesMentioned, []),
    m.keyFindings = coalesce(m.keyFindings, []),
    m.toolsUsed = coalesce(m.toolsUsed, []),
    m.topics = coalesce(m.topics, []),
    m.timestamp = coalesce(m.timestamp, $at),
    m.extractive = coalesce(m.extractive, true)
RETURN collect(m.uuid) AS found;

// :made_a_session_for_turns_whose_own_is_lost
MATCH (t:ConversationTurn)
WHERE NOT EXISTS { (:ConversationSession {sessionId: t.sessionId}) }
WITH t.sessionId AS sessionId, min(t.timestamp) AS at
CREATE (s:ConversationSession {sessionId: sessionId})
SET s += $made, s.startTime = at, s.updatedAt = at, s.lastActivity = at
RETURN collect(sessionId) AS found;

// :made_a_session_for_summaries_whose_own_is_lost
MATCH (m:ConversationSummary)
WHERE NOT EXISTS { (:ConversationSession {sessionId: m.sessionId}) }
WITH m.sessionId AS sessionId, min(m.timestamp) AS at
CREATE (s:ConversationSession {sessionId: sessionId})
SET s += $made, s.startTime = at, s.updatedAt = at, s.lastActivity = at
RETURN collect(sessionId) AS found;

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

// :put_a_turn_into_its_session
MATCH (t:ConversationTurn)
MATCH (s:ConversationSession {sessionId: t.sessionId})
WHERE NOT EXISTS { (s)-[:HAS_TURN]->(t) }
CREATE (s)-[:HAS_TURN {index: t.turnIndex}]->(t)
RETURN collect(t.uuid) AS found;

// :took_a_turn_out_of_sessions_that_are_not_its_own
MATCH (t:ConversationTurn)<-[h:HAS_TURN]-(s)
WHERE EXISTS { (:ConversationSession {sessionId: t.sessionId})-[:HAS_TURN]->(t) }
WITH t, h ORDER BY s:ConversationSession AND s.sessionId = t.sessionId DESC
WITH t, collect(h) AS held
WHERE size(held) > 1
FOREACH (h IN held[1..] | DELETE h)
RETURN collect(t.uuid) AS found;

// :put_a_summary_into_its_session
MATCH (m:ConversationSummary)
MATCH (s:ConversationSession {sessionId: m.sessionId})
WHERE NOT EXISTS { (s)-[:HAS_SUMMARY]->(m) }
CREATE (s)-[:HAS_SUMMARY {level: m.level}]->(m)
RETURN collect(m.uuid) AS found;

// :took_a_summary_out_of_sessions_that_are_not_its_own
MATCH (m:ConversationSummary)<-[h:HAS_SUMMARY]-(s)
WHERE EXISTS { (:ConversationSession {sessionId: m.sessionId})-[:HAS_SUMMARY]->(m) }
WITH m, h ORDER BY s:ConversationSession AND s.sessionId = m.sessionId DESC
WITH m, collect(h) AS held
WHERE size(held) > 1
FOREACH (h IN held[1..] | DELETE h)
RETURN collect(m.uuid) AS found;

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

// :set_a_double_owner_aside
MATCH (o:Owner)
WITH o.ownerId AS id, o
ORDER BY o.updatedAt IS NULL, o.updatedAt DESC, elementId(o)
WITH id, collect(o) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS o
REMOVE o:Owner
SET o:SalvagedOwner
RETURN collect(coalesce(id, '?')) AS found;

// :forgot_a_double_count_of_attempts
MATCH (a:Attempt)
WITH a.item AS id, a
ORDER BY a.count DESC, elementId(a)
WITH id, collect(a) AS nodes
UNWIND nodes[1..] AS a
DELETE a
RETURN collect(id) AS found;

// :forgot_attempts_at_nothing
MATCH (a:Attempt)
WHERE a.item IS NULL
DELETE a
RETURN collect('?') AS found;

// :set_a_double_mark_of_the_schema_aside
MATCH (v:RagmemSchema)
WITH v
ORDER BY v.version DESC, elementId(v)
WITH collect(v) AS nodes
UNWIND nodes[1..] AS v
REMOVE v:RagmemSchema
SET v:SalvagedSchema
RETURN collect(toString(v.version)) AS found;
