"""The one encoder-decoder."""
