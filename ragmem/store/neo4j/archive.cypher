// Everything that is stored, by span and by id; and the deletion of a session.

// :spans
MATCH (s:ConversationSession)
WITH s
ORDER BY s.sessionId
RETURN collect(s{.sessionId, .forkedAtIndex, .turnCount, .parentSessionId}) AS found;

// Times as text: the driver takes 0.2 ms for each of its own.
// :own_turns
UNWIND range(0, size($spans) - 1) AS i
WITH i, $spans[i] AS span
MATCH (t:ConversationTurn)
WHERE t.sessionId = span.sessionId AND t.turnIndex >= span.first AND t.turnIndex <= span.last
CALL (t) {
  OPTIONAL MATCH (t)-[h:HAS_TOOL_CALL]->(c:ToolCall)
  WITH h, c
  ORDER BY h.order, c.uuid
  RETURN collect(c{.*, bounded(c), order: h.order, timestamp: toString(c.timestamp)}) AS calls
}
CALL (t) {
  OPTIONAL MATCH (t)-[a:ACCESSED]->(f:File)
  WITH a, f
  ORDER BY f.path, a.type
  RETURN collect(a{.*, path: f.path, at: toString(a.at)}) AS accesses
}
WITH i, t, calls, accesses
ORDER BY i, t.turnIndex
RETURN collect(t{
  .*, bounded(t), embedding: null, memoriesDue: null, calls: calls, accesses: accesses,
  toExtract: t.memoriesDue IS NOT NULL,
  timestamp: toString(t.timestamp), finishedAt: toString(t.finishedAt)
}) AS found;

// :summary_ids
MATCH (m:ConversationSummary)
WITH m
ORDER BY m.level, m.uuid
RETURN collect(m.uuid) AS found;

// :branches
MATCH (:ConversationSession {sessionId: $sessionId})-[:HAS_BRANCH]->(s:ConversationSession)
WITH s
ORDER BY s.startTime, s.sessionId
RETURN collect(s.sessionId) AS found;

// :delete_files_of
MATCH (t:ConversationTurn {sessionId: $sessionId})-[:ACCESSED]->(f:File)
WITH DISTINCT f
WHERE NOT EXISTS {
  MATCH (f)<-[:ACCESSED]-(other:ConversationTurn) WHERE other.sessionId <> $sessionId
} AND f.hash IS NULL AND NOT EXISTS { (f)<-[:IMPORTS]-() }
DETACH DELETE f;

// :delete_entries_of
MATCH (e:SearchEntry {sessionId: $sessionId})
DETACH DELETE e;

// :delete_leases_of
MATCH (l:Lease)
WHERE any(id IN $ids WHERE l.key ENDS WITH ':' + id)
DELETE l;

// :covered_elsewhere
MATCH (m:ConversationSummary {sessionId: $sessionId, level: 1})-[:SUMMARIZES]->(t:ConversationTurn)
WHERE t.sessionId <> $sessionId
RETURN collect(DISTINCT t.uuid) AS found;

// :records_of
MATCH (e:SearchEntry {sessionId: $sessionId})
RETURN [$sessionId] + collect(e.recordId) AS found;
