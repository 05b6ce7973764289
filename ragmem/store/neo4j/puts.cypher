// Records as another store held them, put in their place, many at once.
// Times of turns and calls come as text: the driver takes 0.1 ms for each of its own.

// :put_sessions
UNWIND $sessions AS given
OPTIONAL MATCH (p:Project {projectId: given.properties.projectId})
WITH given, coalesce(p.joinedInto, given.properties.projectId) AS projectId
MERGE (s:ConversationSession {sessionId: given.sessionId})
ON CREATE SET s += given.properties, s.projectId = projectId
SET s.revision = randomUUID()
WITH s, given, projectId
WHERE s.updatedAt <= given.updatedAt
SET s += given.changeable,
    s.projectId = projectId,
    s.lastActivity =
      CASE WHEN s.lastActivity > given.lastActivity THEN s.lastActivity ELSE given.lastActivity END;

// :places
UNWIND $ids AS id
MATCH (held:ConversationTurn {uuid: id})
RETURN collect(held{.uuid, .sessionId, .turnIndex, .status}) AS found;

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
