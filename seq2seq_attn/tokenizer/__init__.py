"""Text to pieces and back."""
