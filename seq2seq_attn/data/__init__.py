"""Corpus readers, cleaning, batches within a token budget, and the Lightning data module."""
