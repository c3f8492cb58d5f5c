"""What a model learns from one-sided text: to restore it from noise."""
