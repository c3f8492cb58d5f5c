"""Leaf package: batches, masks and the masked softmax; it knows nothing of the rest."""
