// Each statement returns the ids of what breaks a promise; its name says the promise.

// :turns_are_counted_from_1_without_gaps
MATCH (s:ConversationSession)
CALL (s) {
  OPTIONAL MATCH (t:ConversationTurn) WHERE t.sessionId = s.sessionId
  RETURN count(t) AS turns, count(DISTINCT t.turnIndex) AS places,
         min(t.turnIndex) AS first, max(t.turnIndex) AS last
}
WITH s, turns, places, first, last, coalesce(s.forkedAtIndex, 0) AS shared
WHERE turns <> s.turnCount - shared OR places <> turns
   OR (turns > 0 AND (first <> shared + 1 OR last <> s.turnCount))
RETURN collect(s.sessionId) AS found;

// :completed_turns_are_counted
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
RETURN collect(s.sessionId) AS found;

// :the_newest_turn_of_a_session_is_known
MATCH (s:ConversationSession)
WHERE s.turnCount > 0
  AND NOT EXISTS { (:ConversationTurn {uuid: s.lastTurnId, turnIndex: s.turnCount}) }
RETURN collect(s.sessionId) AS found;

// :the_place_of_a_turn_is_on_its_relationship_too
MATCH (:ConversationSession)-[h:HAS_TURN]->(t:ConversationTurn)
WHERE h.index <> t.turnIndex OR h.index IS NULL
RETURN collect(t.uuid) AS found;

// :a_turn_belongs_to_its_session
MATCH (t:ConversationTurn)
WHERE COUNT { (t)<-[:HAS_TURN]-() } <> 1
   OR NOT EXISTS { (t)<-[:HAS_TURN]-(:ConversationSession {sessionId: t.sessionId}) }
RETURN collect(t.uuid) AS found;

// :a_tool_call_belongs_to_a_turn
MATCH (c:ToolCall)
WHERE COUNT { (c)<-[:HAS_TOOL_CALL]-(:ConversationTurn) } <> 1
RETURN collect(c.uuid) AS found;

// :a_file_was_touched_by_a_tool_call
MATCH (t:ConversationTurn)-[a:ACCESSED]->(f:File)
WHERE NOT EXISTS { (t)-[:HAS_TOOL_CALL]->(:ToolCall {uuid: a.toolCallId}) }
RETURN collect(DISTINCT t.uuid) AS found;

// :a_summary_belongs_to_its_session
MATCH (m:ConversationSummary)
WHERE COUNT { (m)<-[:HAS_SUMMARY]-() } <> 1
   OR NOT EXISTS { (m)<-[:HAS_SUMMARY]-(:ConversationSession {sessionId: m.sessionId}) }
RETURN collect(m.uuid) AS found;

// :a_summary_says_what_it_digests
MATCH (m:ConversationSummary)
WHERE NOT EXISTS { (m)-[:SUMMARIZES]->() }
RETURN collect(m.uuid) AS found;

// :a_fork_shares_turns_that_exist
MATCH (s:ConversationSession)
WHERE s.parentSessionId IS NOT NULL AND NOT EXISTS {
  MATCH (p:ConversationSession {sessionId: s.parentSessionId})-[:HAS_BRANCH]->(s)
  WHERE p.turnCount >= s.forkedAtIndex
}
RETURN collect(s.sessionId) AS found;

// :a_turn_that_has_ended_says_when
MATCH (t:ConversationTurn)
WHERE t.status <> 'running' AND t.finishedAt IS NULL
RETURN collect(t.uuid) AS found;

// :a_turn_that_runs_has_not_ended
MATCH (t:ConversationTurn {status: 'running'})
WHERE t.finishedAt IS NOT NULL
RETURN collect(t.uuid) AS found;

// :characters_of_turns_are_counted
MATCH (t:ConversationTurn)
WHERE t.charCount <> size(t.userMessage) + size(t.assistantMessage)
RETURN collect(t.uuid) AS found;

// The Community edition can't ask for properties to be there.
// :a_session_has_all_of_its_fields
MATCH (s:ConversationSession)
WHERE s.cwd IS NULL OR s.projectId IS NULL OR s.title IS NULL OR s.titleFolded IS NULL
   OR s.tags IS NULL OR s.status IS NULL OR s.startTime IS NULL OR s.updatedAt IS NULL
   OR s.lastActivity IS NULL OR s.turnCount IS NULL OR s.messageCount IS NULL
RETURN collect(coalesce(s.sessionId, '?')) AS found;

// :a_turn_has_all_of_its_fields
MATCH (t:ConversationTurn)
WHERE t.sessionId IS NULL OR t.turnIndex IS NULL OR t.userMessage IS NULL
   OR t.assistantMessage IS NULL OR t.status IS NULL OR t.timestamp IS NULL
   OR t.charCount IS NULL OR t.userCharCount IS NULL OR t.modelCalls IS NULL OR t.apiMs IS NULL
RETURN collect(coalesce(t.uuid, '?')) AS found;

// :a_tool_call_has_all_of_its_fields
MATCH (c:ToolCall)
WHERE c.toolName IS NULL OR c.toolArgs IS NULL OR c.toolResult IS NULL OR c.success IS NULL
   OR c.durationMs IS NULL OR c.timestamp IS NULL OR c.iteration IS NULL OR c.origin IS NULL
   OR c.preamble IS NULL
   OR EXISTS { (c)<-[h:HAS_TOOL_CALL]-() WHERE h.order IS NULL }
RETURN collect(coalesce(c.uuid, '?')) AS found;

// :a_summary_has_all_of_its_fields
MATCH (m:ConversationSummary)
WHERE m.sessionId IS NULL OR m.summary IS NULL OR m.level IS NULL OR m.turnCount IS NULL
   OR m.filesMentioned IS NULL OR m.keyFindings IS NULL OR m.toolsUsed IS NULL
   OR m.topics IS NULL OR m.timestamp IS NULL OR m.extractive IS NULL
RETURN collect(coalesce(m.uuid, '?')) AS found;

// :no_id_is_there_twice
CALL () {
  MATCH (n:ConversationSession) WITH n.sessionId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:ConversationTurn) WITH n.uuid AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:ToolCall) WITH n.uuid AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:ConversationSummary) WITH n.uuid AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:Project) WITH n.projectId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:Owner) WITH n.ownerId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:Memory) WITH n.uuid AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:Insight) WITH n.sessionId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:UserProfile) WITH n.userId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:Scope) WITH n.scopeId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:CodeProject) WITH n.projectId AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:Attempt) WITH n.item AS id, count(*) AS nodes
  WHERE nodes > 1 OR id IS NULL RETURN id
  UNION ALL
  MATCH (n:File) WITH n.path AS id, n.projectId AS project, count(*) AS nodes
  WHERE nodes > 1 RETURN id
}
RETURN collect(coalesce(id, '?')) AS found;
