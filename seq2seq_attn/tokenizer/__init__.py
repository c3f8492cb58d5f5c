"""Subword tokenizers."""
