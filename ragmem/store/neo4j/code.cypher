// Code as the memory knows it: see `ragmem.store`.
//
// A File with a `hash` is one of the code index; others are files that tools touched, or that one
// of the index imports. A File of the index belongs to the project of its own folder, while
// accesses are at the File of the project that the folder was joined to; for a project that was
// never joined both are the same node. A Scope has the path of the file that it is in or, without
// DEFINES, was in last.
//
// Whoever changes what is known of a project's code locks its CodeProject, before any sessions. A
// turn has `referencesKnown`, or its entry has `referencesDue`: never both.

// :lock_code
UNWIND $ids AS id
MERGE (c:CodeProject {projectId: id})
SET c.revision = randomUUID();

// :put_files
UNWIND $files AS given
MERGE (f:File {projectId: given.projectId, path: given.path})
SET f.language = given.language, f.hash = given.hash;

// :let_scopes_go
UNWIND $files AS given
MATCH (f:File {projectId: given.projectId, path: given.path})-[d:DEFINES]->(s:Scope)
WHERE NOT s.scopeId IN given.scopeIds
DELETE d
RETURN collect(s.scopeId) AS found;

// :let_imports_go
UNWIND $files AS given
MATCH (f:File {projectId: given.projectId, path: given.path})-[r:IMPORTS]->(g:File)
WHERE NOT g.path IN given.imports
DELETE r
RETURN collect(DISTINCT [g.projectId, g.path]) AS found;

// :put_scopes
// Each as a list: names of fields took half of the time.
UNWIND $files AS given
UNWIND given.scopes AS v
MERGE (s:Scope {scopeId: v[0]})
SET s.kind = v[1], s.name = v[2], s.qualifiedName = v[3], s.signature = v[4], s.docstring = v[5],
    s.startLine = v[6], s.endLine = v[7], s.hash = v[8],
    s.nameKey = v[9], s.qualifiedKey = v[10], s.tailKey = v[11],
    s.projectId = given.projectId, s.path = given.path;

// :define_scopes
UNWIND $files AS given
MATCH (f:File {projectId: given.projectId, path: given.path})
UNWIND range(0, size(given.scopeIds) - 1) AS i
MATCH (s:Scope {scopeId: given.scopeIds[i]})
WITH s, f, given.orders[i] AS place
CALL (s, f) {
  MATCH (other:File)-[d:DEFINES]->(s)
  WHERE other <> f
  DELETE d
}
MERGE (f)-[d:DEFINES]->(s)
SET d.order = place;

// :put_imports
UNWIND $files AS given
MATCH (f:File {projectId: given.projectId, path: given.path})
UNWIND range(0, size(given.imports) - 1) AS i
MERGE (g:File {projectId: given.projectId, path: given.imports[i]})
MERGE (f)-[r:IMPORTS]->(g)
SET r.order = i;

// :drop_files
UNWIND $files AS given
MATCH (f:File {projectId: given[0], path: given[1]})
REMOVE f.hash, f.language;

// :forget_scopes
// Those that no file defines and no turn refers to.
UNWIND $ids AS id
MATCH (s:Scope {scopeId: id})
WHERE NOT EXISTS { (s)<-[:DEFINES]-() } AND NOT EXISTS { (s)<-[:REFERENCES_CODE]-() }
DETACH DELETE s;

// :forget_files
// Those that are not in the index, that no turn accessed, and that no file imports.
UNWIND $files AS given
MATCH (f:File {projectId: given[0], path: given[1]})
WHERE f.hash IS NULL AND NOT EXISTS { (f)<-[:ACCESSED]-() } AND NOT EXISTS { (f)<-[:IMPORTS]-() }
DETACH DELETE f;

// :projects_of_scopes
CALL () {
  UNWIND $ids AS id
  MATCH (s:Scope {scopeId: id})
  RETURN s
  UNION
  UNWIND $turnIds AS id
  MATCH (:ConversationTurn {uuid: id})-[:REFERENCES_CODE]->(s:Scope)
  RETURN s
}
RETURN collect(DISTINCT s.projectId) AS found;

// :forget_references
UNWIND $turnIds AS id
MATCH (:ConversationTurn {uuid: id})-[r:REFERENCES_CODE]->(s:Scope)
DELETE r
RETURN collect(DISTINCT s.scopeId) AS found;

// :put_references
UNWIND $references AS given
MATCH (t:ConversationTurn {uuid: given.turnId})
MATCH (s:Scope {scopeId: given.scopeId})
CREATE (t)-[:REFERENCES_CODE {how: given.how}]->(s);

// :references_are_known
UNWIND $turnIds AS id
MATCH (t:ConversationTurn {uuid: id})
SET t.referencesKnown = true
WITH t
MATCH (e:SearchEntry {recordId: t.uuid})
SET e.referencesDue = null;

// :scopes_of_session
MATCH (:ConversationTurn {sessionId: $sessionId})-[:REFERENCES_CODE]->(s:Scope)
RETURN collect(DISTINCT [s.scopeId, s.projectId]) AS found;

// :code_projects
MATCH (c:CodeProject)
WHERE EXISTS { MATCH (f:File) WHERE f.projectId = c.projectId AND f.hash IS NOT NULL }
WITH c.projectId AS id
ORDER BY id
RETURN collect(id) AS found;

// :family
// The projects, with all that were joined to the same ones.
UNWIND $projectIds AS given
OPTIONAL MATCH (p:Project {projectId: given})
WITH DISTINCT coalesce(p.joinedInto, given) AS root
OPTIONAL MATCH (other:Project {joinedInto: root})
WITH root, collect(other.projectId) AS others
UNWIND [root] + others AS id
RETURN collect(DISTINCT id) AS found;

// :files_after
MATCH (f:File)
WHERE f.projectId = $projectId AND f.path > $after AND f.hash IS NOT NULL
WITH f
ORDER BY f.projectId, f.path
LIMIT $limit

// :files_of_paths
UNWIND $paths AS path
MATCH (f:File {projectId: $projectId, path: path})
WHERE f.hash IS NOT NULL
WITH f
ORDER BY f.path

// :code_files
/* which */
// Each scope as one text, as with memories: see memories.cypher.
CALL (f) {
  MATCH (f)-[d:DEFINES]->(s:Scope)
  WITH d, s
  ORDER BY s.startLine, d.order, s.scopeId
  WITH [
    s.scopeId, s.kind, s.name, s.qualifiedName, s.signature, s.docstring,
    toString(s.startLine), toString(s.endLine), s.hash
  ] AS fields
  RETURN collect(reduce(text = fields[0], field IN fields[1..] | text + '\u0000' + field)) AS scopes
}
CALL (f) {
  MATCH (f)-[r:IMPORTS]->(g:File)
  WITH r, g
  ORDER BY r.order, g.path
  RETURN collect(g.path) AS imports
}
WITH f, scopes, imports
ORDER BY f.path
RETURN collect([f.path, f.language, f.hash, scopes, imports]) AS found;

// :scopes_by_name
CALL () {
  MATCH (s:Scope)
  WHERE s.nameKey = $nameKey /* conditions */
  RETURN s
  UNION
  MATCH (s:Scope)
  WHERE s.tailKey = $tailKey /* conditions */
    AND (s.qualifiedKey = $qualifiedKey OR s.qualifiedKey ENDS WITH '.' + $qualifiedKey)
  RETURN s
}

// :scopes_by_place
MATCH (s:Scope)
WHERE s.path IS NOT NULL /* conditions */

// :find_scopes
/* which */
WITH s
ORDER BY s.path, s.startLine, s.scopeId
LIMIT $limit
RETURN collect(s.scopeId) AS found;

// :scopes_by_id
UNWIND range(0, size($ids) - 1) AS i
MATCH (s:Scope {scopeId: $ids[i]})
WITH i, s, EXISTS { (s)<-[:DEFINES]-(:File) } AS defined, [
  s.scopeId, s.kind, s.name, s.qualifiedName, s.signature, s.docstring,
  toString(s.startLine), toString(s.endLine), s.hash
] AS fields
WITH i, s, defined,
     reduce(text = fields[0], field IN fields[1..] | text + '\u0000' + field) AS text
ORDER BY i
RETURN collect([s.projectId, s.path, defined, text]) AS found;

// :code_turns
CALL () {
  UNWIND $scopeIds AS id
  MATCH (:Scope {scopeId: id})<-[r:REFERENCES_CODE]-(t:ConversationTurn)
  RETURN t, r.how AS how, null AS access
  UNION
  UNWIND $projectIds AS projectId
  UNWIND $paths AS path
  MATCH (:File {projectId: projectId, path: path})<-[a:ACCESSED]-(t:ConversationTurn)
  RETURN t, null AS how, a.type AS access
}
WITH t, collect(DISTINCT how) AS hows, collect(DISTINCT access) AS accesses
ORDER BY t.timestamp DESC, t.turnIndex DESC, t.uuid DESC
LIMIT $limit
RETURN collect([
  t.uuid, t.sessionId, t.turnIndex, toString(t.timestamp), hows, accesses
]) AS found;

// :changed_with
UNWIND $projectIds AS projectId
MATCH (:File {projectId: projectId, path: $path})<-[:ACCESSED {type: 'write'}]-(t:ConversationTurn)
WITH DISTINCT t
CALL (t) {
  MATCH (t)-[:ACCESSED {type: 'write'}]->(f:File)
  RETURN collect(DISTINCT f.path) AS paths
}
WITH t, paths
WHERE size(paths) <= $most
UNWIND paths AS path
WITH t, path
WHERE path <> $path
WITH path, count(t) AS turns, count(DISTINCT t.sessionId) AS sessions, max(t.timestamp) AS last
ORDER BY turns DESC, last DESC, path
LIMIT $limit
RETURN collect([path, turns, sessions, toString(last)]) AS found;

// :references_of
UNWIND range(0, size($ids) - 1) AS i
MATCH (t:ConversationTurn {uuid: $ids[i]})-[r:REFERENCES_CODE]->(s:Scope)
WITH i, t, r, s
ORDER BY i
RETURN collect([t.uuid, s.scopeId, r.how]) AS found;
