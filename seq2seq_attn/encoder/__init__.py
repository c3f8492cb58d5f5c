"""A source sentence to a memory."""
