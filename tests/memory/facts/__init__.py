"""Facts: what is kept, compared, found and forgotten."""
