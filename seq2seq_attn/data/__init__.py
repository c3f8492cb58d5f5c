"""Corpus readers, cleaning, token-budget batches and the data module."""
