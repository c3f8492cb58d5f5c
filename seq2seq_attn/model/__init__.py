"""The encoder-decoder model, and ensembles of it."""
