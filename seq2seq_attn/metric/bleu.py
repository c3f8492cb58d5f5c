"""Corpus BLEU, to the digit of the `sacrebleu` command. Papineni et al. 2002; Post 2018, arXiv:1804.08771."""

from collections.abc import Sequence
from typing import final

import sacrebleu
import torch
from torch import Tensor
from torchmetrics import Metric

from seq2seq_attn.metric.corpus import NUM_HEADER, corpus_score, corpus_signature, sentence_counts
from seq2seq_attn.tensors.error import UserError


@final
class BLEU(Metric):
    """Takes detokenized sentences; its state is a few integers, whatever the size of the corpus.

    Args:
        lowercase: score without regard to case.
        tokenize: sacrebleu's name of a tokenizer; papers on European languages report `13a`.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    counts: Tensor

    def __init__(self, *, lowercase: bool, tokenize: str) -> None:
        super().__init__()
        if tokenize not in sacrebleu.BLEU.TOKENIZERS:
            raise UserError(
                f"BLEU has no tokenizer {tokenize!r}; choose from: {', '.join(sacrebleu.BLEU.TOKENIZERS)}"
            )
        # force: the hint "you forgot to detokenize" would depend on how the corpus is cut into batches
        self.scorer = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
        width = NUM_HEADER + 2 + 2 * self.scorer.max_ngram_order  # two lengths; matches and totals per order
        self.add_state("counts", torch.zeros(width, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Adds sentences; each hypothesis comes with its own list of references."""
        rows = sentence_counts(self.scorer, hypotheses, references)
        if rows:
            self.counts = self.counts + torch.tensor(rows, device=self.counts.device).sum(0)

    def compute(self) -> Tensor:
        """BLEU of all sentences so far, 0-100, in float64."""
        return torch.tensor(corpus_score(self.scorer, self.counts.tolist()), dtype=torch.float64)

    def signature(self) -> str:
        """sacrebleu's signature for the sentences that this process saw since the last reset."""
        return corpus_signature(self.scorer, self.counts.tolist())
