"""The contract of a normalizer: scores and a mask to weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn


class Normalized(NamedTuple):
    """The output of a normalizer.

    Attributes:
        weights: exactly 0 where a key is hidden, all 0 in a row that sees nothing.
        log_prob, entropy: of a normalizer that samples: the log-probability of its choice and the entropy of the
            distribution, in nats, 0 in a row that sees nothing.
    """

    weights: Float[Tensor, "*rows keys"]
    log_prob: Float[Tensor, "*rows"] | None = None
    entropy: Float[Tensor, "*rows"] | None = None


class Normalizer(nn.Module, ABC):
    """A map from scores to weights.

    Attributes:
        is_softmax: whether the weights are a softmax over the keys, and over one more key where `sink_logits` gives
            its score; fused kernels compute these.
        sums_to_one: whether the weights of a row are a distribution over the keys. Where they are not, entropies, maps
            and alignments divide the positive part of a row by its sum (`Attended.distribution`).
        needs_positive: whether only positive scores give a positive weight.
        is_identity: whether the weights are the scores, divided by the number of keys that the row may attend to.
    """

    is_softmax: ClassVar[bool] = False
    sums_to_one: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False
    is_identity: ClassVar[bool] = False

    @property
    def keeps(self) -> int | None:
        """How many of the best keys of a row alone decide its weights, the first of equal ones; None: all do."""
        return None

    def sink_logits(self, keys: Float[Tensor, "*batch source width"]) -> Float[Tensor, "#heads"] | None:
        """Return the score of one more key, whose value is 0, for each head, in the dtype and on the device of `keys`.

        None: there is no such key.
        """
        return None

    def query_scale(self, visible: Float[Tensor, "#batch 1 #target 1"]) -> Float[Tensor, "#batch heads #target 1"]:
        """Return the factors by which queries are multiplied so that a softmax of inner products gives these weights.

        A normalizer that defines it is served by the fused kernel of all pairs.

        Args:
            visible: how many keys each query may attend to, at least 1.
        """
        raise NotImplementedError

    def alignment_loss(
        self,
        scores: Float[Tensor, "*rows keys"],
        weights: Float[Tensor, "*rows keys"],
        allowed: Bool[Tensor, "*#rows keys"] | None,
        target: Float[Tensor, "*rows keys"],
        head: int,
    ) -> Float[Tensor, "*rows"]:
        """Return the loss of each row against a target distribution, in nats for a cross-entropy.

        A normalizer that defines it can be guided by word links. Its gradient reaches the scores.

        Args:
            scores: at least in float32.
            weights: of these scores, as `forward` returned them.
            target: a distribution over allowed keys, or all 0 in a row whose loss is not used.
            head: number of the head that the rows are of.
        """
        raise NotImplementedError

    @abstractmethod
    def forward(self, scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None) -> Normalized:
        """Return the weights of the keys, the last dimension; `allowed` None: all keys are allowed."""
