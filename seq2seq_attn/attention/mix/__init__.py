"""Maps over the heads of scores and weights."""
