-- What is known apart from the conversations, the users' profiles, insights; and what is derived
-- from them. `superseded_by` and evidence may refer to missing records: moved later, or deleted.

CREATE TABLE memories (
    memory_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    trust TEXT NOT NULL,
    source TEXT NOT NULL,
    project_id TEXT,  -- none: it is the person's
    pinned INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    at TEXT,
    expires_at TEXT,
    valid_until TEXT,
    superseded_by TEXT,
    to_embed INTEGER NOT NULL,
    subjects TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT;

CREATE INDEX memories_by_project ON memories (project_id, created_at, memory_id)
    WHERE superseded_by IS NULL;
CREATE INDEX memories_superseded ON memories (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX memories_to_embed ON memories (updated_at, memory_id) WHERE to_embed;

CREATE TABLE evidence (
    memory_id TEXT NOT NULL REFERENCES memories,
    position INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    turn_index INTEGER NOT NULL,
    tool_call_id TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    path TEXT NOT NULL,
    quote TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (memory_id, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX evidence_by_session ON evidence (session_id);

CREATE TABLE profile (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE profile_state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    updated_at TEXT NOT NULL
) STRICT;

CREATE TABLE insights (
    session_id TEXT PRIMARY KEY REFERENCES sessions,
    main_topic TEXT NOT NULL,
    key_findings TEXT NOT NULL,
    action_items TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

-- Of memories (level -1) and sessions (level -2), of the embedder of `recall_state`: one each,
-- float32; empty if there was no text.
CREATE TABLE small_vectors (
    level INTEGER NOT NULL,
    record_id TEXT NOT NULL,
    text_hash TEXT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (level, record_id)
) STRICT;

ALTER TABLE sessions ADD COLUMN to_embed INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET to_embed = 1 WHERE summary <> '';
CREATE INDEX sessions_to_embed ON sessions (last_activity_at, session_id) WHERE to_embed;

-- Turns that were completed before this are not looked through for memories.
ALTER TABLE documents ADD COLUMN to_extract INTEGER NOT NULL DEFAULT 0;
CREATE INDEX documents_to_extract ON documents (at, document) WHERE to_extract;
