// The statements of the graph store, each after its name.
//
// A writer first locks the session's node, in a statement of its own, so that the next statement
// reads the session's latest state. Locking and counting in one statement would deadlock, or assign
// an index twice; and only a value that really changes takes the lock, hence the random one.
//
// A reader returns its list as one value: the driver takes 0.1 ms for each row.

// :lock_session
MATCH (s:ConversationSession {sessionId: $sessionId})
SET s.revision = randomUUID()
RETURN s.sessionId AS sessionId;

// :lock_sessions
UNWIND $ids AS id
MATCH (s:ConversationSession {sessionId: id})
SET s.revision = randomUUID()
RETURN collect(s{.sessionId, .projectId, .turnCount}) AS found;

// :server
CALL dbms.components() YIELD name, versions
WHERE name = 'Neo4j Kernel'
OPTIONAL MATCH (v:RagmemSchema {name: 'ragmem'})
OPTIONAL MATCH (r:RagmemRepair {name: 'ragmem'})
RETURN versions[0] AS server, v.version AS version, r.kept AS repairs,
       coalesce(r.storeId, v.storeId) AS storeId,
       v.dimension AS dimension, v.termsVersion AS terms, v.foundWhole AS foundWhole,
       coalesce(v.dropping, false) AS dropping;

// :store_id
MATCH (v:RagmemSchema {name: 'ragmem'}) RETURN v.storeId AS storeId;

// :set_store_id
MERGE (v:RagmemSchema {name: 'ragmem'})
SET v.storeId = coalesce(v.storeId, $storeId)
RETURN v.storeId AS storeId;

// :drop_double_attempts
MATCH (a:Attempt)
WITH a ORDER BY a.count DESC
WITH a.item AS item, collect(a) AS held
FOREACH (double IN held[1..] | DETACH DELETE double);

// :memories_due
UNWIND $ids AS id
MATCH (t:ConversationTurn {uuid: id, status: 'completed'})
SET t.memoriesDue = t.timestamp;

// :set_found_whole
MATCH (v:RagmemSchema {name: 'ragmem'}) SET v.foundWhole = $whole;

// :set_schema_version
MERGE (v:RagmemSchema {name: 'ragmem'})
SET v.version = CASE WHEN v.version > $version THEN v.version ELSE $version END;

// :counts
RETURN
  COUNT { (:ConversationSession) } AS sessions,
  COUNT { (:ConversationTurn) } AS turns,
  COUNT { (:ToolCall) } AS tool_calls,
  COUNT { (:ConversationSummary) } AS summaries,
  COUNT { (:Memory) } AS memories,
  COUNT { (f:File) WHERE EXISTS { (f)<-[:ACCESSED]-() } } AS files,
  COUNT { (:Project) } AS projects,
  COUNT { (:Scope) } AS scopes;

// :summaries_per_level
MATCH (s:ConversationSummary)
RETURN s.level AS level, count(*) AS summaries
ORDER BY level;

// :project_exists
MATCH (p:Project {projectId: $projectId}) RETURN p.projectId AS projectId;

// :register_project
MERGE (p:Project {projectId: $projectId})
ON CREATE SET p.createdAt = $createdAt
SET p.path = $path, p.remote = $remote;

// :join_projects
// Locked by the registration before: a session that is being created sees the join, or is seen.
MATCH (p:Project {projectId: $projectId})
WHERE p.joinedInto IS NULL OR ($chosen AND p.joinedInto = p.projectId)
OPTIONAL MATCH (target:Project {projectId: $joinedInto})
WITH p, coalesce(target.joinedInto, $joinedInto) AS into
WHERE into <> p.projectId
SET p.joinedInto = into
WITH p.projectId AS id, into
CALL (id, into) { MATCH (other:Project {joinedInto: id}) SET other.joinedInto = into }
CALL (id, into) { MATCH (s:ConversationSession {projectId: id}) SET s.projectId = into }
CALL (id, into) {
  // A split finds the project's own memories by `joinedFrom`.
  MATCH (m:Memory {projectId: id})
  SET m.projectId = into, m.joinedFrom = coalesce(m.joinedFrom, id)
}
CALL (id, into) {
  // What a file defines stays with the project of its own folder.
  MATCH (f:File {projectId: id})
  WHERE EXISTS { (f)<-[:ACCESSED]-() }
  MERGE (g:File {projectId: into, path: f.path})
  WITH f, g
  CALL (f, g) {
    MATCH (t:ConversationTurn)-[a:ACCESSED]->(f)
    MERGE (t)-[b:ACCESSED {toolCallId: a.toolCallId, type: a.type}]->(g)
    SET b = properties(a)
    DELETE a
  }
  WITH f
  WHERE f.hash IS NULL AND NOT EXISTS { (f)<-[:IMPORTS]-() }
  DETACH DELETE f
}
RETURN [id, into] AS joined;

// :projects
MATCH (p:Project)
WITH p
ORDER BY p.createdAt, p.projectId
RETURN collect(p{.projectId, .path, .remote, .createdAt, .joinedInto}) AS found;

// :session_exists
MATCH (s:ConversationSession {sessionId: $sessionId}) RETURN s.sessionId AS sessionId;

// :create_session
OPTIONAL MATCH (p:Project {projectId: $properties.projectId})
WITH coalesce(p.joinedInto, $properties.projectId) AS projectId
MERGE (s:ConversationSession {sessionId: $sessionId})
ON CREATE SET s += $properties, s.projectId = projectId;

// :branch_session
MATCH (parent:ConversationSession {sessionId: $parentId})
MATCH (s:ConversationSession {sessionId: $sessionId})
MERGE (parent)-[:HAS_BRANCH]->(s);

// :shared_turns
UNWIND $spans AS span
OPTIONAL MATCH (t:ConversationTurn)
WHERE t.sessionId = span.sessionId AND t.turnIndex <= span.last
WITH t
ORDER BY t.turnIndex DESC
WITH collect(t{.uuid, .turnIndex, .status}) AS shared
RETURN coalesce(shared[0].turnIndex, 0) AS last,
       shared[0].uuid AS lastTurnId,
       2 * size([turn IN shared WHERE turn.status = 'completed']) AS messageCount;

// :update_session
MATCH (s:ConversationSession {sessionId: $sessionId})
SET s += $properties,
    s.updatedAt = CASE WHEN s.updatedAt > $at THEN s.updatedAt ELSE $at END;

// :begin_turn
MATCH (s:ConversationSession {sessionId: $sessionId})
MERGE (t:ConversationTurn {uuid: $turnId})
ON CREATE SET
  s.turnCount = s.turnCount + 1,
  s.lastTurnId = $turnId,
  t += $properties,
  t.turnIndex = s.turnCount
// The user may add to the message while it runs.
FOREACH (
  _ IN CASE WHEN t.status = 'running' AND t.userCharCount < $properties.userCharCount
       THEN [1] ELSE [] END |
  SET t.charCount = t.charCount - t.userCharCount + $properties.userCharCount,
      t.userMessage = $properties.userMessage,
      t.userCharCount = $properties.userCharCount
)
SET s.lastActivity = CASE WHEN $at < s.lastActivity <= $horizon THEN s.lastActivity ELSE $at END,
    s.updatedAt = CASE WHEN s.updatedAt > $at THEN s.updatedAt ELSE $at END
MERGE (s)-[h:HAS_TURN]->(t)
SET h.index = t.turnIndex
RETURN t.turnIndex AS turnIndex;

// :record_tool_call
MATCH (s:ConversationSession {sessionId: $sessionId})
MATCH (t:ConversationTurn {uuid: $turnId})
WHERE t.sessionId = $sessionId
MERGE (c:ToolCall {uuid: $toolCallId})
// A start replaces no finish.
FOREACH (_ IN CASE WHEN $properties.toolResult = '' AND c.toolResult <> '' THEN [] ELSE [1] END |
  SET c += $properties
)
MERGE (t)-[h:HAS_TOOL_CALL]->(c)
SET h.order = $order
WITH t, s
CALL (t, s) {
  UNWIND $accesses AS access
  MERGE (f:File {projectId: s.projectId, path: access.path})
  MERGE (t)-[a:ACCESSED {toolCallId: $toolCallId, type: access.type}]->(f)
  SET a.at = access.at, a.toolName = access.toolName, a.order = $order
}
RETURN t.uuid AS uuid, t.status AS status;

// :record_answer
MATCH (t:ConversationTurn {uuid: $turnId})
WHERE t.sessionId = $sessionId
FOREACH (_ IN CASE WHEN t.status = 'running' THEN [1] ELSE [] END |
  SET t.assistantMessage = $text, t.charCount = t.userCharCount + $charCount
)
RETURN t.uuid AS uuid;

// :finish_turn
MATCH (s:ConversationSession {sessionId: $sessionId})
MATCH (t:ConversationTurn {uuid: $turnId})
WHERE t.sessionId = $sessionId
WITH s, t, t.status AS before
CALL (s, t) {
  WITH s, t
  WHERE t.status <> 'completed'
  SET t += $properties,
      t.model = coalesce($model, t.model),
      t.charCount = t.userCharCount + $charCount,
      s.lastActivity = CASE WHEN $at < s.lastActivity <= $horizon THEN s.lastActivity ELSE $at END,
      s.updatedAt = CASE WHEN s.updatedAt > $at THEN s.updatedAt ELSE $at END
  WITH t, s
  WHERE t.status = 'completed'
  SET t.memoriesDue = t.timestamp
  WITH t, s
  MATCH path = (s)-[:HAS_BRANCH*0..]->(reader:ConversationSession)
  WHERE all(fork IN nodes(path)[1..] WHERE fork.forkedAtIndex >= t.turnIndex)
  SET reader.messageCount = reader.messageCount + 2
}
RETURN before;

// :add_summaries
UNWIND $summaries AS given
MATCH (s:ConversationSession {sessionId: given.sessionId})
MERGE (m:ConversationSummary {uuid: given.summaryId})
ON CREATE SET m.waitsIn = given.sessionId
SET m += given.properties
MERGE (s)-[h:HAS_SUMMARY]->(m)
SET h.level = given.level;

// :cover_turns
UNWIND $covers AS cover
MATCH (m:ConversationSummary {uuid: cover.summaryId})
MATCH (t:ConversationTurn {uuid: cover.id})
MERGE (m)-[r:SUMMARIZES]->(t)
SET r.level = cover.level, r.order = cover.order
RETURN collect(cover.id) AS found;

// :cover_summaries
UNWIND $covers AS cover
MATCH (m:ConversationSummary {uuid: cover.summaryId})
MATCH (below:ConversationSummary {uuid: cover.id})
MERGE (m)-[r:SUMMARIZES]->(below)
SET r.level = cover.level, r.order = cover.order
FOREACH (_ IN CASE WHEN below.sessionId = m.sessionId THEN [1] ELSE [] END |
  REMOVE below.waitsIn
)
RETURN collect(cover.id) AS found;

// :sessions
MATCH (s:ConversationSession)
/* conditions */
WITH s
ORDER BY s.lastActivity > $horizon, s.lastActivity DESC, s.sessionId DESC
LIMIT $limit
OPTIONAL MATCH (t:ConversationTurn {uuid: s.lastTurnId})
CALL (s) {
  OPTIONAL MATCH (f:ConversationTurn)
  WHERE s.title = 'New Conversation' AND f.sessionId = s.sessionId
    AND NOT EXISTS { (f)-[:HAS_TOOL_CALL]->(:ToolCall {origin: 'person'}) }
  RETURN f
  ORDER BY f.turnIndex
  LIMIT 1
}
WITH s, t, f
ORDER BY s.lastActivity > $horizon, s.lastActivity DESC, s.sessionId DESC
RETURN collect(s{
  .*, summaryVector: null, summaryEmbedding: null, summaryVectorsDue: null,
  firstMessage: left(toString(f.userMessage), 16777216),
  lastMessage: left(toString(t.userMessage), 16777216)
}) AS found;

// :lineage
MATCH path = (:ConversationSession {sessionId: $sessionId})<-[:HAS_BRANCH*0..]-(a:ConversationSession)
RETURN a.sessionId AS sessionId, last_seen(a) AS last;

// :choose_turns
MATCH path = (:ConversationSession {sessionId: $sessionId})<-[:HAS_BRANCH*0..]-(a:ConversationSession)
WITH a.sessionId AS sessionId, last_seen(a) AS last
WITH collect({sessionId: sessionId, last: CASE WHEN $last < last THEN $last ELSE last END}) AS spans
CALL (spans) {
  UNWIND spans AS span
  MATCH (t:ConversationTurn)
  WHERE t.sessionId = span.sessionId AND t.turnIndex <= span.last
    AND ($statuses = [] OR t.status IN $statuses)
  WITH t
  ORDER BY t.turnIndex DESC
  LIMIT $limit
  RETURN collect({id: t.uuid, chars: t.charCount}) AS chosen
}
WITH size(spans) > 0 AS exists, chosen, reduce(fit = {count: 0, chars: 0}, turn IN chosen |
  CASE WHEN fit.count = 0 OR fit.chars + turn.chars <= $maxChars
       THEN {count: fit.count + 1, chars: fit.chars + turn.chars}
       ELSE {count: fit.count, chars: $maxChars + 1} END).count AS fitting
WITH exists, [turn IN chosen[..fitting] | turn.id] AS ids

// :turns
UNWIND ids AS id
MATCH (t:ConversationTurn {uuid: id})
OPTIONAL MATCH (t)-[h:HAS_TOOL_CALL]->(c:ToolCall)
WHERE $withToolCalls
WITH t, h, c
ORDER BY h.order, c.uuid
WITH t, collect(CASE WHEN c IS NULL THEN null ELSE c{.*, bounded(c), order: h.order} END) AS calls
ORDER BY t.turnIndex
RETURN collect(t{.*, bounded(t), embedding: null, memoriesDue: null, calls: calls}) AS found;

// :file_accesses
UNWIND ids AS id
MATCH (t:ConversationTurn {uuid: id})-[a:ACCESSED]->(f:File)
WITH t, a, f
ORDER BY t.turnIndex DESC, a.order DESC, f.path
RETURN collect(a{.toolName, .type, .at, .order, path: f.path, turnIndex: t.turnIndex}) AS found;

// :find_tool_call
UNWIND $spans AS span
MATCH (t:ConversationTurn)-[h:HAS_TOOL_CALL]->(c:ToolCall)
WHERE t.sessionId = span.sessionId AND t.turnIndex <= span.last
  AND replace(c.uuid, '-', '') ENDS WITH $reference
RETURN c{.*, bounded(c), order: h.order} AS call, t.uuid AS turnId
ORDER BY t.turnIndex DESC
LIMIT 1;

// :summaries_of_session
MATCH (s:ConversationSession {sessionId: $sessionId})-[:HAS_SUMMARY]->(m:ConversationSummary)
WHERE ($level IS NULL OR m.level = $level)
  AND (NOT $notRolledUp OR NOT EXISTS { (m)<-[:SUMMARIZES]-(:ConversationSummary {sessionId: $sessionId}) })
WITH m
ORDER BY m.timestamp DESC, m.uuid DESC
LIMIT $limit

// :summaries_by_id
UNWIND $ids AS id
MATCH (m:ConversationSummary {uuid: id})

// :summaries
/* which */
OPTIONAL MATCH (m)-[r:SUMMARIZES]->(covered)
WITH m, r, covered
ORDER BY r.order
WITH m, collect(covered.uuid) AS covers
ORDER BY m.timestamp DESC, m.uuid DESC
RETURN collect(m{.*, embedding: null, covers: covers}) AS found;

// :raw_history_chars
UNWIND $spans AS span
MATCH (t:ConversationTurn)
WHERE t.sessionId = span.sessionId AND t.turnIndex <= span.last AND t.status = 'completed'
  AND NOT EXISTS { (t)<-[:SUMMARIZES]-(:ConversationSummary {level: 1}) }
RETURN sum(t.charCount) AS chars;

// :name_processes
// Before owners were nodes of the graph, processes attached to sessions were labelled Owner.
MATCH (o:Owner)
WHERE o.leaseUntil IS NOT NULL OR EXISTS { (o)-[:ATTACHED_TO]->() }
REMOVE o:Owner
SET o:Process;

// :attach_owner
MATCH (s:ConversationSession {sessionId: $sessionId})
MERGE (o:Process {ownerId: $ownerId})
SET o.leaseUntil = datetime.realtime() + duration({seconds: $leaseSeconds})
MERGE (o)-[:ATTACHED_TO]->(s);

// :other_owners
MATCH (o:Process)-[:ATTACHED_TO]->(:ConversationSession {sessionId: $sessionId})
WHERE o.ownerId <> $ownerId AND o.leaseUntil > datetime.realtime()
RETURN o.ownerId AS ownerId
ORDER BY ownerId;

// :forget_old_owners
MATCH (o:Process)
WHERE o.leaseUntil < datetime.realtime() - duration({days: 1})
DETACH DELETE o;

// :heartbeat
// Created again if others have deleted it: a process may be suspended for days.
MERGE (o:Process {ownerId: $ownerId})
SET o.leaseUntil = datetime.realtime() + duration({seconds: $leaseSeconds});

// :remove_owner
MATCH (o:Process {ownerId: $ownerId})
DETACH DELETE o;

// :sessions_with_unowned_turns
MATCH (t:ConversationTurn {status: 'running'})
WHERE NOT EXISTS {
  MATCH (o:Process {ownerId: t.ownerId}) WHERE o.leaseUntil > datetime.realtime()
}
RETURN DISTINCT t.sessionId AS sessionId;

// :interrupt_unowned_turns
MATCH (t:ConversationTurn {status: 'running'})
WHERE t.sessionId IN $sessionIds AND NOT EXISTS {
  MATCH (o:Process {ownerId: t.ownerId}) WHERE o.leaseUntil > datetime.realtime()
}
SET t.status = 'interrupted', t.finishedAt = $at
REMOVE t.ownerId
RETURN collect(t.uuid) AS found;

// --- records as another store held them, put in their place, many at once
// Times of turns and calls come as text: the driver takes 0.1 ms for each of its own.

// :put_sessions
UNWIND $sessions AS given
OPTIONAL MATCH (p:Project {projectId: given.properties.projectId})
WITH given, coalesce(p.joinedInto, given.properties.projectId) AS projectId
MERGE (s:ConversationSession {sessionId: given.sessionId})
ON CREATE SET s += given.properties, s.projectId = projectId
SET s.revision = randomUUID()
WITH s, given
WHERE s.updatedAt <= given.updatedAt
SET s += given.changeable,
    s.lastActivity =
      CASE WHEN s.lastActivity > given.lastActivity THEN s.lastActivity ELSE given.lastActivity END;

// :places
UNWIND $ids AS id
MATCH (held:ConversationTurn {uuid: id})
RETURN collect(held{.uuid, .sessionId, .turnIndex, .status, .userCharCount}) AS found;

// :calls_of_others
UNWIND $ids AS given
MATCH (c:ToolCall {uuid: given[0]})<-[:HAS_TOOL_CALL]-(t:ConversationTurn)
WHERE t.uuid <> given[1]
RETURN collect(c.uuid) AS found;

// :put_turns
UNWIND $turns AS given
MATCH (s:ConversationSession {sessionId: given.sessionId})
MERGE (t:ConversationTurn {uuid: given.turnId})
SET t += given.properties,
    t.timestamp = datetime(given.times.timestamp),
    t.finishedAt = datetime(given.times.finishedAt)
MERGE (s)-[h:HAS_TURN]->(t)
SET h.index = t.turnIndex;

// :put_tool_calls
UNWIND $calls AS given
MATCH (t:ConversationTurn {uuid: given.turnId})
MERGE (c:ToolCall {uuid: given.toolCallId})
FOREACH (
  _ IN CASE WHEN given.properties.toolResult = '' AND c.toolResult <> '' THEN [] ELSE [1] END |
  SET c += given.properties, c.timestamp = datetime(given.times.timestamp)
)
MERGE (t)-[h:HAS_TOOL_CALL]->(c)
SET h.order = given.order;

// :put_accesses
UNWIND $accesses AS given
MATCH (t:ConversationTurn {uuid: given.turnId})
MERGE (f:File {projectId: given.projectId, path: given.path})
MERGE (t)-[a:ACCESSED {toolCallId: given.toolCallId, type: given.type}]->(f)
SET a.at = datetime(given.times.at), a.toolName = given.toolName, a.order = given.order;

// :count_turns
UNWIND $lasts AS given
MATCH (s:ConversationSession {sessionId: given.sessionId})
WHERE s.turnCount < given.turnIndex
SET s.turnCount = given.turnIndex, s.lastTurnId = given.turnId;

// :count_completed
UNWIND $completed AS given
MATCH path = (:ConversationSession {sessionId: given.sessionId})
             -[:HAS_BRANCH*0..]->(reader:ConversationSession)
WHERE all(fork IN nodes(path)[1..] WHERE fork.forkedAtIndex >= given.turnIndex)
WITH reader, count(*) AS turns
SET reader.messageCount = reader.messageCount + 2 * turns;
