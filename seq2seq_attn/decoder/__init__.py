"""A target prefix and a memory to the next hidden states."""
