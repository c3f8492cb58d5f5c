"""What a Transformer layer does at each place by itself."""
