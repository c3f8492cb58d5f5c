"""BLEU of lower-cased, normalised and tokenised text, as papers on Multi30k report it. Koehn et al. 2007 (Moses)."""

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import final

import sacrebleu
import torch
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from torch import Tensor
from torchmetrics import Metric

from seq2seq_attn.metric.corpus import NUM_HEADER, corpus_score, corpus_signature, sentence_counts


@final
class TokenizedBLEU(Metric):
    """Takes detokenized sentences, and tokenizes hypotheses and references alike; its state is a few integers.

    Args:
        language: of the target, as in `fr`; one that Moses has no abbreviations for is tokenized as English.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    counts: Tensor

    def __init__(self, *, language: str) -> None:
        super().__init__()
        self.language = language
        self.scorer = sacrebleu.BLEU(lowercase=True, tokenize="none", force=True)
        self.scorer.tokenizer = partial(moses_tokenized, language=language)  # type: ignore[assignment]
        self.scorer.tokenizer_signature = f"moses-{language}"
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
        """sacrebleu's signature, and behind it what was done before sacrebleu saw the text."""
        own = f"norm:moses-{self.language}|escape:yes|sacremoses:{version('sacremoses')}"
        return f"{corpus_signature(self.scorer, self.counts.tolist())}|{own}"


@lru_cache(maxsize=2**15)  # references come again at every validation
def moses_tokenized(text: str, language: str) -> str:
    """lowercase.perl, normalize-punctuation.perl and tokenizer.perl of Moses, one after the other."""
    normalizer, tokenizer = moses(language)
    # The line end counts: the script reads it, and so moves a last quotation mark before the full stop.
    normalized = normalizer.normalize(text.lower() + "\n")
    return tokenizer.tokenize(normalized, return_str=True, escape=True)


@cache
def moses(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    """perl_parity: as Multi30k's files have it, where ’ is a quotation mark unless ASCII letters are on both sides."""
    return MosesPunctNormalizer(language, perl_parity=True), MosesTokenizer(language)
