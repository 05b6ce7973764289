-- The project that the person joined this one to: the sessions of both are that one's.
-- Never a project that is joined itself.

ALTER TABLE projects ADD COLUMN joined_into TEXT;
