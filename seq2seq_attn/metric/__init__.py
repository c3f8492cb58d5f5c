"""Figures that can be cited."""
