"""Position-wise feed-forward parts of a Transformer layer."""
