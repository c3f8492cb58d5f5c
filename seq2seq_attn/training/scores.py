"""The figures of a run's validations and tests: metrics of every set, and the translations that they score."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn

from seq2seq_attn.attention.pattern.wait_k import WaitKPattern
from seq2seq_attn.batch import Batch
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.decoder.decoder import Decoded
from seq2seq_attn.distributed.collectives import gather_from_ranks, others_wait
from seq2seq_attn.metric.average_lagging import average_lagging, tokens_read
from seq2seq_attn.metric.chosen_metric import ChosenMetric
from seq2seq_attn.metric.text_metric import TextMetric
from seq2seq_attn.metric.token_mean import TokenMean
from seq2seq_attn.training.loss import Loss

MEANS = ("loss", "nll", "accuracy")  # over target tokens; beside the text metrics


@final
class Scores(nn.Module):
    """Takes the batches of a validation or a test, and returns its figures.

    `loss`, in nats, is a mean over target tokens, end tokens included, and `ppl` is exp of the loss without smoothing.
    `accuracy` is the share of these tokens that the model ranks first, given the reference up to there. A language
    model also has `nats_per_token`, `bits_per_token` and `bits_per_character`, in which each line has one character for
    its end; a simultaneous translation has `average_lagging`, a mean over sentences.

    Figures are the same to the last digit, however many processes share the batches.

    Args:
        metrics: text metrics, and the alignment error rate, by name, copied for every set that is scored.
        test_names: of the test sets; what is validated on is `val`.
        reads_source: whether the model does; False: a language model.
        waiting: the patterns of a simultaneous translation's attention to the source; else empty.

    Attributes:
        translations: hypothesis by row, for each test set scored; of all processes, once the test is over.
        tested: the test sets that have figures.
        figures, signatures: of all metrics and of the text metrics, by set and name, as last computed.
        decode_seconds, entropy: of the test sets: time spent in the search, of the slowest process, and the mean
            entropy of a target token's attention, in nats, of all processes; NaN before a test.
    """

    def __init__(
        self,
        metrics: dict[str, ChosenMetric],
        test_names: list[str],
        *,
        reads_source: bool,
        waiting: list[WaitKPattern],
    ) -> None:
        super().__init__()
        self.reads_source, self.test_names, self.waiting = reads_source, test_names, waiting
        means = MEANS if self.reads_source else (*MEANS, "bits_per_character")
        lagging = ("average_lagging",) if self.waiting else ()
        self.metrics = nn.ModuleDict(
            {
                stage: nn.ModuleDict(
                    {name: TokenMean() for name in means}
                    | {n: m.clone() for n, m in metrics.items() if stage in test_names or not m.scores_whole_test}
                    | {name: TokenMean() for name in lagging}
                )
                for stage in ["val", *test_names]
            }
        )
        self.translations: dict[str, dict[int, str]] = {}
        self.tested: list[str] = []
        self.figures: dict[str, dict[str, float]] = {}
        self.signatures: dict[str, dict[str, str]] = {}
        self.attention_entropy = TokenMean()
        self.entropy = math.nan
        self.decode_seconds = 0.0

    def metrics_of(self, stage: str) -> dict[str, Any]:
        """Return the metrics of `val` or of a test set by name: the means, then the others."""
        metrics: Any = self.metrics[stage]
        return dict(metrics.items())

    def update(
        self, stage: str, batch: Batch, split: Split, loss: Loss, token_ids: list[list[int]], hypotheses: list[str]
    ) -> None:
        """Give a batch to all metrics but those that want a whole test set at once.

        Args:
            split: where the batch is from.
            token_ids, hypotheses: its translations; empty if sentences are not translated.
        """
        assert loss.correct is not None
        correct = loss.correct.double()  # or the quotient would have torch's default type: 8 bits in bf16-true
        sums = dict(zip(MEANS, (loss.smoothed, loss.nll, correct), strict=True))
        rows = batch.index.tolist()
        references = [split.references[row] for row in rows]
        for name, metric in self.metrics_of(stage).items():
            if name in MEANS:
                metric.update(sums[name] / loss.tokens, weight=loss.tokens)
            elif name == "bits_per_character":
                characters = sum(len(split.targets[row]) + 1 for row in rows)
                metric.update(loss.nll / math.log(2) / characters, weight=characters)
            elif name == "average_lagging" and self.waiting:
                metric.update(self._lagging(batch.source_lengths.tolist(), token_ids))
            elif isinstance(metric, TextMetric) and not metric.scores_whole_test:
                metric.update(hypotheses, references)

    def _lagging(self, source_lengths: list[int], token_ids: list[list[int]]) -> Tensor:
        """Return the Average Lagging of each translation; its end token counts, as that of the source does."""
        pairs = zip(source_lengths, token_ids, strict=True)
        laggings = [average_lagging(tokens_read(self.waiting, n, len(target) + 1), n) for n, target in pairs]
        return torch.tensor(laggings, dtype=torch.float64)

    def start_test(self) -> None:
        """Forget what an earlier test has found."""
        self.translations = {name: {} for name in self.test_names}
        self.tested = []
        self.decode_seconds = 0.0
        self.attention_entropy.reset()

    def keep(self, name: str, batch: Batch, hypotheses: list[str], decoded: Decoded) -> None:
        """Keep the translations of a batch of a test set, and add the entropy of its attention to the source."""
        self.translations[name] |= dict(zip(batch.index.tolist(), hypotheses, strict=True))
        for slot, weights in decoded.weights.items():
            if slot.startswith("cross/"):
                entropy = torch.special.entr(weights.float()).sum(-1).mean(1)
                self.attention_entropy.update(entropy[batch.target_mask])

    def gather(self) -> None:
        """Bring together what the processes of a test have kept; every rank calls it."""
        shares = gather_from_ranks((self.translations, self.decode_seconds))
        self.decode_seconds = max(seconds for _, seconds in shares)
        self.entropy = float(self.attention_entropy.compute())
        for name in self.test_names:
            self.translations[name] = {
                row: text for translations, _ in shares for row, text in translations[name].items()
            }

    def score_whole_set(self, name: str, split: Split, *, is_first: bool) -> None:
        """Give all sentences of a test set to the metrics that want them at once, on the first rank; others wait."""
        metrics = [one for one in self.metrics_of(name).values() if isinstance(one, TextMetric)]
        metrics = [metric for metric in metrics if metric.scores_whole_test]
        rows = sorted(self.translations[name])
        with others_wait() if metrics else nullcontext():
            for metric in metrics if is_first else ():
                hypotheses = [self.translations[name][row] for row in rows]
                metric.update(hypotheses, [split.references[row] for row in rows], [split.sources[row] for row in rows])

    def compute(self, stage: str, *, is_test: bool) -> dict[str, Tensor]:
        """Return the figures of a set by name, keep them, and start its metrics anew; every rank calls it."""
        computed: dict[str, Tensor] = {}
        signatures = self.signatures.setdefault(stage, {})
        for name, metric in self.metrics_of(stage).items():
            if isinstance(metric, TextMetric) and metric.scores_whole_test and not is_test:
                continue  # of the test of the whole validation set
            computed |= self._named(name, metric.compute())
            if isinstance(metric, TextMetric):
                signatures[name] = metric.signature()
            metric.reset()
        self.figures.setdefault(stage, {}).update({name: float(figure) for name, figure in computed.items()})
        return computed

    def _named(self, name: str, value: Tensor) -> dict[str, Tensor]:
        """Return what is reported of a metric, by name: of the negative log-likelihood, the perplexity."""
        if name != "nll":
            return {name: value}
        per_token = {} if self.reads_source else {"nats_per_token": value, "bits_per_token": value / math.log(2)}
        return {"ppl": value.exp()} | per_token
