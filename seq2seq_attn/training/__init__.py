"""The Lightning module and the run around it."""
