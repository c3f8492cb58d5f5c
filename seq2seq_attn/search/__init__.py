"""Searches: greedy, beam, diverse beam, sampling and minimum Bayes risk."""
