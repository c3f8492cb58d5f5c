"""Evaluation metrics; BLEU, chrF and TER have sacreBLEU signatures to cite."""
