"""Callbacks of a training run, one in each file."""
