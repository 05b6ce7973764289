-- The code index of one project's folder. All of it follows from the files, but for the ids of
-- scopes, which the store has too; a file of another version is thrown away and made anew.

CREATE TABLE files (
    file INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    seen_ns INTEGER NOT NULL,  -- when it was read: what changed within the clock's tick is read again
    hash TEXT NOT NULL,
    language TEXT NOT NULL,
    line_count INTEGER NOT NULL,
    left_out TEXT NOT NULL,  -- why it is not cut; empty when it is
    written TEXT NOT NULL,  -- its imports as the language writes them, JSON
    resolved INTEGER NOT NULL,  -- `imports` follows from them
    to_mirror INTEGER NOT NULL  -- the epoch since when the store does not know it as it is; 0: it does
) STRICT;

CREATE INDEX files_to_mirror ON files (file) WHERE to_mirror;
CREATE INDEX files_to_resolve ON files (file) WHERE NOT resolved;

-- What the store has to be told of too: that they define nothing any more.
CREATE TABLE gone (
    path TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- `scope` is its row in the text index: a sequence number, then 8 bits of its length, as in
-- ragmem/store/sqlite/text_index.py. Where its file changes, it gets a new row with the next number.
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
    embed_hash TEXT NOT NULL  -- of the text that is embedded: its vector is `vectors` of that
) STRICT;

CREATE INDEX scopes_by_file ON scopes (file, start_line);
CREATE INDEX scopes_by_name ON scopes (name_key);
CREATE INDEX scopes_by_embedded ON scopes (embed_hash);

-- Terms are made in Python (ragmem.terms), joined with spaces.
CREATE VIRTUAL TABLE texts USING fts5 (
    names, paths, about, body,
    content = '', contentless_delete = 1, tokenize = "ascii tokenchars '_./\:@+#-|'"
);
CREATE VIRTUAL TABLE text_terms USING fts5vocab (texts, row);
CREATE VIRTUAL TABLE text_places USING fts5vocab (texts, instance);

CREATE TABLE calls (
    name_key TEXT NOT NULL,  -- of what is called
    scope INTEGER NOT NULL,  -- that calls it
    PRIMARY KEY (name_key, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_by_scope ON calls (scope);

CREATE TABLE imports (
    file INTEGER NOT NULL,
    imported TEXT NOT NULL,  -- path of a file of the project
    PRIMARY KEY (file, imported)
) STRICT, WITHOUT ROWID;
CREATE INDEX imports_by_imported ON imports (imported);

-- By the hash of what was embedded: a scope that comes back (another branch) has its vector at
-- once. `to_embed` keeps the texts, so that no file is read again when the embedder is another.
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
    waits INTEGER NOT NULL  -- it has no vector of this embedder
) STRICT;
CREATE INDEX to_embed_waiting ON to_embed (place) WHERE waits;

CREATE TABLE state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    version INTEGER NOT NULL,  -- of this schema, the cutting and the terms together
    born INTEGER NOT NULL,  -- when it was made: another one is another index
    epoch INTEGER NOT NULL,  -- from then on goes up whenever scopes or vectors change
    sequence INTEGER NOT NULL,  -- the last one of a scope's row: none is given twice
    refreshed_at TEXT NOT NULL,
    left_out TEXT NOT NULL,  -- files that have no row here, by the reason, JSON
    seeded INTEGER NOT NULL,  -- scopes have the ids that the store had for them
    told_file INTEGER NOT NULL DEFAULT 0,  -- the last one that the store was told of
    model_id TEXT NOT NULL,  -- of the embedder; empty before there is a vector
    dimension INTEGER NOT NULL,
    document_count INTEGER NOT NULL,  -- scopes, and their terms
    term_count INTEGER NOT NULL
) STRICT;
