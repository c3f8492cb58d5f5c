"""Decays of linear attention, one per module: how much of the past each token keeps."""
