-- The code that turns refer to, as in the code index, and the turns that are still to be linked
-- with it. A scope is defined by its file or referred to by a turn; otherwise it is deleted.

CREATE TABLE code_files (
    file INTEGER PRIMARY KEY,
    project_id TEXT NOT NULL,  -- of the folder itself
    path TEXT NOT NULL,
    language TEXT NOT NULL,
    hash TEXT NOT NULL,
    imports TEXT NOT NULL,
    UNIQUE (project_id, path)
) STRICT;

CREATE TABLE code_scopes (
    scope INTEGER PRIMARY KEY,
    scope_id TEXT NOT NULL UNIQUE,
    project_id TEXT NOT NULL,
    path TEXT NOT NULL,  -- of the file that defines it, or did last
    defined INTEGER NOT NULL,  -- whether that file defines it still
    place INTEGER NOT NULL,  -- among the file's scopes
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    qualified_name TEXT NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    hash TEXT NOT NULL,
    name_key TEXT NOT NULL,  -- casefolded
    tail_key TEXT NOT NULL,  -- the qualified name casefolded, backwards: found by its last parts
    signature TEXT NOT NULL,
    docstring TEXT NOT NULL
) STRICT;

CREATE INDEX code_scopes_by_file ON code_scopes (project_id, path, start_line, place);
CREATE INDEX code_scopes_by_name ON code_scopes (name_key);
CREATE INDEX code_scopes_by_tail ON code_scopes (tail_key);

CREATE TABLE code_references (
    turn_id TEXT NOT NULL REFERENCES turns,
    scope INTEGER NOT NULL REFERENCES code_scopes,
    how TEXT NOT NULL,
    PRIMARY KEY (turn_id, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX code_references_by_scope ON code_references (scope, turn_id);

-- For finding the turns that accessed a file.
CREATE INDEX file_accesses_by_path ON file_accesses (path, access_type);

-- Completed turns without known references to code, those from before this migration included.
-- Turns of a project without code wait in their own range of the index, out of the others' way.
ALTER TABLE documents ADD COLUMN to_link INTEGER NOT NULL DEFAULT 0;
UPDATE documents SET to_link = 1
    WHERE level = 0 AND record_id IN (SELECT turn_id FROM turns WHERE status = 'completed');
CREATE INDEX documents_to_link ON documents (number, at, document) WHERE to_link;

-- Goes up by one with each transaction that changes memories.
ALTER TABLE recall_state ADD COLUMN memories_revision INTEGER NOT NULL DEFAULT 0;
