"""Gates of the context by the query."""
