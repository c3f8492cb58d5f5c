"""What a query thinks of a key, or of a position."""
