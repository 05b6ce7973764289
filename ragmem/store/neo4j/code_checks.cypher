// As checks.cypher, of code and what turns have to do with it.

// :a_scope_has_all_of_its_fields
MATCH (s:Scope)
WHERE s.scopeId IS NULL OR s.kind IS NULL OR s.name IS NULL OR s.qualifiedName IS NULL
   OR s.nameKey IS NULL OR s.qualifiedKey IS NULL OR s.tailKey IS NULL OR s.signature IS NULL
   OR s.docstring IS NULL OR s.startLine IS NULL OR s.endLine IS NULL OR s.hash IS NULL
   OR s.projectId IS NULL OR s.path IS NULL
RETURN collect(coalesce(s.scopeId, '?')) AS found;

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
