"""Corpora of any size on disk: cleaned text in Arrow shards, prepared once in bounded memory."""
