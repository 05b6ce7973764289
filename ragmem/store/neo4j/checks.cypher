// Each statement returns the ids of what breaks a guarantee; its name is the guarantee. Checks that
// are the same for every kind of node are in repair.py.

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
WITH s, a, last_seen(a) AS last
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

// :a_tool_call_belongs_to_a_turn
MATCH (c:ToolCall)
WHERE COUNT { (c)<-[:HAS_TOOL_CALL]-(:ConversationTurn) } <> 1
RETURN collect(c.uuid) AS found;

// :a_file_was_touched_by_a_tool_call
MATCH (t:ConversationTurn)-[a:ACCESSED]->(f:File)
WHERE NOT EXISTS { (t)-[:HAS_TOOL_CALL]->(:ToolCall {uuid: a.toolCallId}) }
RETURN collect(DISTINCT t.uuid) AS found;

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

// :a_memory_says_what_took_its_place
// The memory that superseded it may be missing: a chain can be moved in parts.
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

// :a_scope_is_of_the_file_that_defines_it
MATCH (s:Scope)
WHERE COUNT { (s)<-[:DEFINES]-() } > 1
   OR EXISTS { MATCH (f)-[:DEFINES]->(s) WHERE f.projectId <> s.projectId OR f.path <> s.path }
RETURN collect(coalesce(s.scopeId, '?')) AS found;

// :a_scope_is_defined_or_referred_to
MATCH (s:Scope)
WHERE NOT EXISTS { (s)<-[:DEFINES]-() } AND NOT EXISTS { (s)<-[:REFERENCES_CODE]-() }
RETURN collect(coalesce(s.scopeId, '?')) AS found;

// :a_file_with_scopes_says_of_what_they_were_read
MATCH (f:File)
WHERE (f.hash IS NULL OR f.language IS NULL)
  AND (EXISTS { (f)-[:DEFINES]->() } OR EXISTS { (f)-[:IMPORTS]->() } OR f.hash IS NOT NULL)
RETURN collect(coalesce(f.path, '?')) AS found;

// :a_project_with_code_is_known
MATCH (f:File)
WHERE f.projectId IS NOT NULL AND f.hash IS NOT NULL
WITH DISTINCT f.projectId AS id
WHERE NOT EXISTS { (:CodeProject {projectId: id}) }
RETURN collect(id) AS found;

// :a_turn_refers_to_a_scope_once_and_says_how
MATCH (t:ConversationTurn)-[r:REFERENCES_CODE]->(s:Scope)
WITH t, s, collect(r.how) AS hows, count(r) AS times
WHERE times > 1 OR size(hows) = 0 OR NOT hows[0] IN ['edited', 'read', 'found', 'named']
RETURN collect(DISTINCT coalesce(t.uuid, '?')) AS found;

// :a_turn_that_refers_to_code_was_looked_at
MATCH (t:ConversationTurn)
WHERE t.referencesKnown IS NULL AND EXISTS { (t)-[:REFERENCES_CODE]->() }
RETURN collect(coalesce(t.uuid, '?')) AS found;
