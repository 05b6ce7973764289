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
MATCH (s:ConversationSession)
WHERE s.parentSessionId IS NULL
CALL (s) {
  OPTIONAL MATCH (t:ConversationTurn) WHERE t.sessionId = s.sessionId AND t.status = 'completed'
  RETURN count(t) AS turns
}
WITH s, turns
WHERE s.messageCount <> 2 * turns
RETURN collect(s.sessionId) AS found;

// :a_turn_belongs_to_its_session
MATCH (t:ConversationTurn)
WHERE NOT EXISTS { (t)<-[:HAS_TURN]-(:ConversationSession {sessionId: t.sessionId}) }
RETURN collect(t.uuid) AS found;

// :a_tool_call_belongs_to_a_turn
MATCH (c:ToolCall)
WHERE COUNT { (c)<-[:HAS_TOOL_CALL]-(:ConversationTurn) } <> 1
RETURN collect(c.uuid) AS found;

// :a_summary_belongs_to_its_session
MATCH (m:ConversationSummary)
WHERE NOT EXISTS { (m)<-[:HAS_SUMMARY]-(:ConversationSession {sessionId: m.sessionId}) }
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

// :characters_of_turns_are_counted
MATCH (t:ConversationTurn)
WHERE t.charCount < t.userCharCount
RETURN collect(t.uuid) AS found;
