-- The code index of one project. All of it is derived from the files, except the ids of scopes,
-- which the store has too; a database of another version is emptied and rebuilt.

CREATE TABLE files (
    file INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    seen_ns INTEGER NOT NULL,  -- when it was read; if within 2 s of mtime_ns, it is read again
    hash TEXT NOT NULL,
    language TEXT NOT NULL,
    line_count INTEGER NOT NULL,
    left_out TEXT NOT NULL,  -- why it is not cut; empty if it is
    written TEXT NOT NULL,  -- its imports in the notation of the language, JSON
    resolved INTEGER NOT NULL,  -- whether the table `imports` is current for it
    to_mirror INTEGER NOT NULL  -- epoch since when the store lacks its state; 0: it has it
) STRICT;

CREATE INDEX files_to_mirror ON files (file) WHERE to_mirror;
CREATE INDEX files_to_resolve ON files (file) WHERE NOT resolved;

-- Deleted files, which the store has to be told of.
CREATE TABLE gone (
    path TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- `scope` is its row id in the text index: a sequence number, then 8 bits of its length, as in
-- ragmem/store/sqlite/documents.py. If its file changes, it gets a new row with the next number.
CREATE TABLE scopes (
    scope INTEGER PRIMARY KEY,
    scope_id TEXT NOT NULL UNIQUE,
    file INTEGER NOT NULL REFERENCES files,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    qualified_name TEXT NOT NULL,
    signature TEXT NOT NULL,
    docstring TEXT NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    hash TEXT NOT NULL,
    name_key TEXT NOT NULL,  -- casefolded
    term_count INTEGER NOT NULL,
    embed_hash TEXT NOT NULL  -- hash of the text to embed: the key of its vector in `vectors`
) STRICT;

CREATE INDEX scopes_by_file ON scopes (file, start_line);
CREATE INDEX scopes_by_name ON scopes (name_key);
CREATE INDEX scopes_by_embedded ON scopes (embed_hash);

-- Terms are computed in Python (ragmem.terms) and joined with spaces.
CREATE VIRTUAL TABLE texts USING fts5 (
    names, paths, about, body,
    content = '', contentless_delete = 1, tokenize = "ascii tokenchars '_./\:@+#-|'"
);
CREATE VIRTUAL TABLE text_terms USING fts5vocab (texts, row);
CREATE VIRTUAL TABLE text_places USING fts5vocab (texts, instance);

CREATE TABLE calls (
    name_key TEXT NOT NULL,  -- the called name, casefolded
    scope INTEGER NOT NULL,  -- the caller
    PRIMARY KEY (name_key, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_by_scope ON calls (scope);

CREATE TABLE imports (
    file INTEGER NOT NULL,
    imported TEXT NOT NULL,  -- path of another file of the project
    PRIMARY KEY (file, imported)
) STRICT, WITHOUT ROWID;
CREATE INDEX imports_by_imported ON imports (imported);

-- Keyed by the hash of the embedded text: a scope that returns (branch switched) has its vector at
-- once. `to_embed` keeps the texts, so that no file is read again if the embedder changes.
-- Both are written by ragmem/index/vectors.py alone.
CREATE TABLE vectors (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    embed_hash TEXT NOT NULL UNIQUE,
    packed BLOB NOT NULL  -- see ragmem/similarity.py
) STRICT;
CREATE TABLE to_embed (
    place INTEGER PRIMARY KEY,
    embed_hash TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    waits INTEGER NOT NULL  -- whether it has no vector of the current embedder
) STRICT;
CREATE INDEX to_embed_waiting ON to_embed (place) WHERE waits;

CREATE TABLE state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    version INTEGER NOT NULL,  -- of this schema, the cutting and the terms together
    born INTEGER NOT NULL,  -- when it was created, in ns: identifies the index
    epoch INTEGER NOT NULL,  -- starts at `born`, goes up whenever scopes or vectors change
    sequence INTEGER NOT NULL,  -- the last number used in a scope's row id: none is used twice
    refreshed_at TEXT NOT NULL,
    left_out TEXT NOT NULL,  -- numbers of files that have no row here, by reason, JSON
    seeded INTEGER NOT NULL,  -- whether the ids that the store has were taken over
    told_file INTEGER NOT NULL DEFAULT 0,  -- the last file mirrored to the store
    model_id TEXT NOT NULL,  -- of the embedder; empty before there is a vector
    dimension INTEGER NOT NULL,
    document_count INTEGER NOT NULL,  -- number of scopes
    term_count INTEGER NOT NULL  -- number of their terms
) STRICT;
