"""The contract of a metric that `metric=` may name."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

from torchmetrics import Metric

from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class ChosenMetric(Metric, ABC):
    """A metric that is logged under its name at each validation and test.

    Attributes:
        higher_is_better: whether more is better.
        scores_whole_test: whether it is given all sentences of a test at once, with their sources, and is left out of
            validations.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    scores_whole_test: ClassVar[bool] = False

    def check(self, model: EncoderDecoder | Ensemble, config: dict[str, Any]) -> None:
        """Refuse a model that the metric cannot read, before it is trained or tested.

        Args:
            config: of the run.
        """

    def check_lengths(
        self, model: EncoderDecoder | Ensemble, tokenizer: SentencePieceTokenizer, config: dict[str, Any]
    ) -> None:
        """Refuse texts of its own that are longer than the model can read, before it is trained or tested."""
