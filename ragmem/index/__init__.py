"""The code of a project: cut into scopes, found by words and meaning, kept current."""
