"""Scores to weights."""
