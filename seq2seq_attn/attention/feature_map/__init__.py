"""Feature maps, one per module: each replaces score and normalizer by an inner product of features."""
