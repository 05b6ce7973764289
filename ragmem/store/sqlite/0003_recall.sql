-- What recall searches, and its pending work. All of it is derived from the other tables, except
-- vectors, which take long to compute.

ALTER TABLE sessions ADD COLUMN summarized_count INTEGER NOT NULL DEFAULT 0;

-- Small numbers for projects, for the terms of the text index. Documents keep theirs when their
-- project is joined to another.
CREATE TABLE project_numbers (
    number INTEGER PRIMARY KEY,
    project_id TEXT NOT NULL UNIQUE,
    document_count INTEGER NOT NULL DEFAULT 0,
    term_count INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0  -- goes up when vectors were removed
) STRICT;

-- One for each turn that has ended and each summary. `document` is its row in the text index: a
-- sequence number, then 3 bits of the level, then 8 of the length (see text_index.py).
CREATE TABLE documents (
    document INTEGER PRIMARY KEY,
    record_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions,
    number INTEGER NOT NULL REFERENCES project_numbers,
    level INTEGER NOT NULL,  -- 0 for a turn
    turn_index INTEGER NOT NULL,  -- 0 for a summary
    at TEXT NOT NULL,
    term_count INTEGER NOT NULL,
    digest INTEGER NOT NULL,  -- of the terms
    to_embed INTEGER NOT NULL,
    to_summarize INTEGER NOT NULL,
    to_roll_up INTEGER NOT NULL
) STRICT;

CREATE INDEX documents_by_session ON documents (session_id, level, turn_index);
CREATE INDEX documents_by_time ON documents (number, at) WHERE level = 0;
CREATE INDEX documents_to_embed ON documents (at, document) WHERE to_embed;
CREATE INDEX documents_to_summarize ON documents (at, document) WHERE to_summarize;
CREATE INDEX documents_to_roll_up ON documents (session_id, level) WHERE to_roll_up;
CREATE INDEX sessions_to_digest ON sessions (last_activity_at, session_id)
    WHERE 2 * completed_count > summarized_count OR parent_session_id IS NOT NULL;

-- Terms are made in Python, each as `term|project number`, joined with spaces.
CREATE VIRTUAL TABLE texts USING fts5 (
    terms, content = '', contentless_delete = 1, tokenize = "ascii tokenchars '_./\:@+#-|'"
);
CREATE VIRTUAL TABLE text_terms USING fts5vocab (texts, row);
CREATE VIRTUAL TABLE text_places USING fts5vocab (texts, instance);

-- `place` is the project number times 2^40, plus a number that grows with each row of the project:
-- what is new since a place is one range of the table.
CREATE TABLE vectors (
    place INTEGER PRIMARY KEY,
    document INTEGER NOT NULL UNIQUE REFERENCES documents,
    text_hash TEXT NOT NULL,
    packed BLOB NOT NULL  -- see ragmem/store/vectors.py; empty when there was no text
) STRICT;

CREATE TABLE recall_state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    terms_version INTEGER NOT NULL,
    model_id TEXT,  -- of the embedder
    dimension INTEGER
) STRICT;

CREATE TABLE leases (
    key TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    until TEXT NOT NULL
) STRICT, WITHOUT ROWID;
