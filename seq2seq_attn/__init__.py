"""Sequence-to-sequence translation with any attention, chosen by one override."""
