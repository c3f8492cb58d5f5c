"""Encoders, which compute the memory of a source sentence."""
