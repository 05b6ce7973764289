-- The project that the user joined this one to, which has the sessions of both. Never a project
-- that is joined itself.

ALTER TABLE projects ADD COLUMN joined_into TEXT;
