-- What the people are called whose sessions, memories and profiles there are.

CREATE TABLE owner_names (
    owner TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
