"""Scores of query-key pairs."""
