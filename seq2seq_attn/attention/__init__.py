"""Score, pattern and normalizer, met in one module."""
