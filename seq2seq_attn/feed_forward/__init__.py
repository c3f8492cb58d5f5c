"""What a Transformer layer does at each position by itself."""
