"""Layers that encoders and decoders share."""
