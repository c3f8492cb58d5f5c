"""What the length of a translation does to its rank."""
