"""From a model to translations."""
