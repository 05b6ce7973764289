-- Names of the owners of sessions, memories and profiles.

CREATE TABLE owner_names (
    owner TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
