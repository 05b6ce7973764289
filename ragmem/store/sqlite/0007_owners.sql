-- Owners of sessions, memories and profiles: a user's id, empty until somebody takes them.

ALTER TABLE sessions ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE memories ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_by_owner ON sessions (owner, cwd, last_activity_at);

ALTER TABLE profile RENAME TO profile_before;
CREATE TABLE profile (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT;
INSERT INTO profile (owner, key, value) SELECT '', key, value FROM profile_before ORDER BY rowid;
DROP TABLE profile_before;

ALTER TABLE profile_state RENAME TO profile_state_before;
CREATE TABLE profile_state (
    owner TEXT PRIMARY KEY,
    updated_at TEXT NOT NULL
) STRICT;
INSERT INTO profile_state (owner, updated_at) SELECT '', updated_at FROM profile_state_before;
DROP TABLE profile_state_before;
