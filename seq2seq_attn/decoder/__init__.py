"""Decoders, which compute hidden states from a target prefix and the memory of the source."""
