// Splitting off a project that was joined to another: see `ragmem.store.neo4j.belonging`.

// :joined_into
MATCH (p:Project {projectId: $projectId})
RETURN p.joinedInto AS root;

// :lock_known_code
UNWIND $ids AS id
MATCH (c:CodeProject {projectId: id})
SET c.revision = randomUUID();

// :stay_apart
MATCH (p:Project {projectId: $projectId})
SET p.joinedInto = $projectId;

// :sessions_to_split
// Of its folder, or with turns indexed before the join.
MATCH (p:Project {projectId: $projectId})
MATCH (s:ConversationSession {projectId: $root})
WHERE coalesce(nullIf(s.projectPath, ''), s.cwd) = p.path
   OR EXISTS { (:SearchEntry {sessionId: s.sessionId, projectId: $projectId}) }
RETURN collect(s.sessionId) AS found;

// :split_sessions
UNWIND $ids AS id
MATCH (s:ConversationSession {sessionId: id})
SET s.projectId = $projectId;

// :entries_to_split
UNWIND $ids AS id
MATCH (e:SearchEntry {sessionId: id})
WHERE e.projectId <> $projectId
RETURN collect(e.recordId) AS found;

// :entries_as_they_are
UNWIND $ids AS id
MATCH (e:SearchEntry {recordId: id})
RETURN collect(e{.recordId, .projectId, .terms}) AS found;

// :split_entries
UNWIND $entries AS given
MATCH (e:SearchEntry {recordId: given.recordId})
SET e += given;

// :split_files
// The reverse of joining.
UNWIND $ids AS id
MATCH (t:ConversationTurn {sessionId: id})-[a:ACCESSED]->(f:File)
WHERE f.projectId <> $projectId
MERGE (g:File {projectId: $projectId, path: f.path})
MERGE (t)-[b:ACCESSED {toolCallId: a.toolCallId, type: a.type}]->(g)
SET b = properties(a)
DELETE a
RETURN collect(DISTINCT [f.projectId, f.path]) AS found;

// :memories_to_split
// What was its own before the join, and what was said in its sessions.
MATCH (m:Memory {projectId: $root})
WHERE m.joinedFrom = $projectId
   OR (m.joinedFrom IS NULL AND any(id IN m.sessionIds WHERE id IN $ids))
RETURN collect([m.uuid, m.joinedFrom IS NOT NULL, m.sessionIds, m.evidence]) AS found;

// :split_memories
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
SET m.projectId = $projectId, m.joinedFrom = null;

// :parted_memories
// Those superseded by one of another project.
CALL () {
  MATCH (old:Memory {projectId: $projectId})
  MATCH (m:Memory {uuid: old.supersededBy})
  WHERE m.projectId <> $projectId
  RETURN old
  UNION
  MATCH (m:Memory {projectId: $projectId})
  MATCH (old:Memory {supersededBy: m.uuid})
  WHERE old.projectId <> $projectId
  RETURN old
}
RETURN collect([old.uuid, old.projectId = $projectId, old.supersededBy]) AS found;

// :place_of_memory
MATCH (m:Memory {uuid: $id})
RETURN coalesce(m.projectId = $projectId, $own) AS own, m.supersededBy AS by;

// :part_memories
UNWIND $ids AS id
MATCH (:Memory)-[r:SUPERSEDES]->(:Memory {uuid: id})
DELETE r;

// :part_references
// Turns that refer to code of the other side lose their references, and are linked again later.
CALL () {
  MATCH (:ConversationSession {projectId: $projectId})-[:HAS_TURN]->(t:ConversationTurn)
  WHERE EXISTS { MATCH (t)-[:REFERENCES_CODE]->(s:Scope) WHERE s.projectId <> $projectId }
  RETURN t
  UNION
  MATCH (:Scope {projectId: $projectId})<-[:REFERENCES_CODE]-(t:ConversationTurn)
  MATCH (c:ConversationSession {sessionId: t.sessionId})
  WHERE c.projectId <> $projectId
  RETURN t
}
WITH DISTINCT t
MATCH (t)-[r:REFERENCES_CODE]->(s:Scope)
OPTIONAL MATCH (e:SearchEntry {recordId: t.uuid})
DELETE r
SET t.referencesKnown = null,
    e.referencesDue = CASE WHEN t.status = 'completed' THEN t.timestamp END
RETURN collect(DISTINCT s.scopeId) AS found;
