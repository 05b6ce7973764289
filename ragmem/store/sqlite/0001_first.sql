-- Columns have the names of the records' fields. Times are ISO 8601 in UTC with microseconds, so
-- that text order is time order; lists and usage are JSON. In `turns` and `tool_calls` the long
-- texts come last: SQLite reads the columns before them without touching their pages.

PRAGMA application_id = 0x7261676d;  -- "ragm"

CREATE TABLE migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT;

CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    remote TEXT,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    cwd TEXT NOT NULL,
    project_id TEXT NOT NULL,
    project_path TEXT,
    title TEXT NOT NULL,
    title_key TEXT NOT NULL,  -- casefolded, to be found by
    summary TEXT,
    tags TEXT NOT NULL,
    status TEXT NOT NULL,
    started_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    last_activity_at TEXT NOT NULL,
    turn_count INTEGER NOT NULL,  -- also the newest turn_index; a fork starts at forked_at_index
    completed_count INTEGER NOT NULL DEFAULT 0,  -- own turns only
    parent_session_id TEXT REFERENCES sessions,
    forked_at_index INTEGER
) STRICT;

CREATE INDEX sessions_by_activity ON sessions (last_activity_at, session_id);
CREATE INDEX sessions_by_cwd ON sessions (cwd, last_activity_at, session_id);
CREATE INDEX sessions_by_project ON sessions (project_id, last_activity_at, session_id);
CREATE INDEX sessions_by_title ON sessions (title_key);

CREATE TABLE turns (
    turn_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions,
    turn_index INTEGER NOT NULL,
    status TEXT NOT NULL,
    char_count INTEGER NOT NULL,
    owner_id TEXT,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    model TEXT,
    usage TEXT NOT NULL,
    user_message TEXT NOT NULL,
    assistant_message TEXT NOT NULL DEFAULT '',
    reasoning TEXT,
    UNIQUE (session_id, turn_index)
) STRICT;

CREATE INDEX turns_running ON turns (owner_id) WHERE status = 'running';

CREATE TABLE tool_calls (
    tool_call_id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns,
    "order" INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    tool_name TEXT NOT NULL,
    success INTEGER NOT NULL,
    origin TEXT NOT NULL,
    started_at TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    result_size_bytes INTEGER NOT NULL,
    error TEXT,
    preamble TEXT NOT NULL,
    arguments TEXT NOT NULL,
    result TEXT NOT NULL
) STRICT;

CREATE INDEX tool_calls_by_turn ON tool_calls (turn_id, "order");

CREATE TABLE file_accesses (
    tool_call_id TEXT NOT NULL REFERENCES tool_calls,
    path TEXT NOT NULL,
    access_type TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    accessed_at TEXT NOT NULL,
    PRIMARY KEY (tool_call_id, path, access_type)
) STRICT, WITHOUT ROWID;

CREATE TABLE summaries (
    summary_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions,
    level INTEGER NOT NULL,
    turn_count INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    extractive INTEGER NOT NULL,
    files_mentioned TEXT NOT NULL,
    key_findings TEXT NOT NULL,
    tools_used TEXT NOT NULL,
    topics TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;

CREATE INDEX summaries_by_session ON summaries (session_id, level, created_at);

-- The turns that a level-1 summary covers, and the summaries that one of level 2 and up covers.
CREATE TABLE summarized_turns (
    summary_id TEXT NOT NULL REFERENCES summaries,
    covered_id TEXT NOT NULL REFERENCES turns,
    position INTEGER NOT NULL,
    PRIMARY KEY (summary_id, covered_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX summarized_turns_by_turn ON summarized_turns (covered_id);

CREATE TABLE summarized_summaries (
    summary_id TEXT NOT NULL REFERENCES summaries,
    covered_id TEXT NOT NULL REFERENCES summaries,
    position INTEGER NOT NULL,
    PRIMARY KEY (summary_id, covered_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX summarized_summaries_by_summary ON summarized_summaries (covered_id);

-- Which processes are attached to which sessions; lock files show whether they are alive.
CREATE TABLE owners (
    owner_id TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions,
    PRIMARY KEY (owner_id, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX owners_by_session ON owners (session_id);
