// As repair.cypher, of code and what turns have to do with it.

// :gave_a_scope_an_id_of_its_own
MATCH (n:Scope)
WITH n.scopeId AS id, n
ORDER BY COUNT { (n)<-[:REFERENCES_CODE]-() } DESC, COUNT { (n)<-[:DEFINES]-() } DESC, elementId(n)
WITH id, collect(n) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
SET n.scopeId = randomUUID()
RETURN collect(coalesce(id, '?') + ' is ' + n.scopeId + ' now') AS found;

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

// :filled_in_the_fields_of_a_scope
MATCH (s:Scope)
WHERE s.kind IS NULL OR s.name IS NULL OR s.qualifiedName IS NULL OR s.nameKey IS NULL
   OR s.qualifiedKey IS NULL OR s.tailKey IS NULL OR s.signature IS NULL OR s.docstring IS NULL
   OR s.startLine IS NULL OR s.endLine IS NULL OR s.hash IS NULL OR s.projectId IS NULL
   OR s.path IS NULL
SET s.kind = coalesce(s.kind, 'text'),
    s.name = coalesce(s.name, ''),
    s.qualifiedName = coalesce(s.qualifiedName, s.name),
    s.nameKey = coalesce(s.nameKey, toLower(s.name)),
    s.qualifiedKey = coalesce(s.qualifiedKey, toLower(s.qualifiedName)),
    s.tailKey = coalesce(s.tailKey, last(split(s.qualifiedKey, '.'))),
    s.signature = coalesce(s.signature, ''),
    s.docstring = coalesce(s.docstring, ''),
    s.startLine = coalesce(s.startLine, s.endLine, 1),
    s.endLine = coalesce(s.endLine, s.startLine),
    // No text has this one: the next look at the file puts the right one.
    s.hash = coalesce(s.hash, ''),
    s.projectId = coalesce(s.projectId, 'salvaged'),
    s.path = coalesce(s.path, '')
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

// :set_a_double_project_with_code_aside
MATCH (c:CodeProject)
WITH c.projectId AS id, c
ORDER BY elementId(c)
WITH id, collect(c) AS nodes
UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS c
REMOVE c:CodeProject
SET c:SalvagedCodeProject
RETURN collect(coalesce(id, '?')) AS found;

// :wrote_down_a_project_with_code
MATCH (f:File)
WHERE f.projectId IS NOT NULL AND f.hash IS NOT NULL
WITH DISTINCT f.projectId AS id
WHERE NOT EXISTS { (:CodeProject {projectId: id}) }
CREATE (c:CodeProject {projectId: id})
RETURN collect(id) AS found;
