"""The logged entropy is the mean over target tokens of a few sentences, cut into batches that memory bears."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq_attn.callback.attention_entropy import AttentionEntropy
from seq2seq_attn.data.encoded import EncodedSplit, open_encoded, write_shard


class Even(nn.Module):
    """Looks at all real source tokens alike, and remembers how many sentences it was given at once."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    def forward(self, source: Tensor, mask: Tensor, target: Tensor, need_weights: bool) -> Any:
        assert need_weights
        self.given.append(len(source))
        weights = (mask / mask.sum(-1, keepdim=True))[:, None, None].expand(-1, 3, target.shape[1], -1)
        return SimpleNamespace(weights={"cross/0": weights, "encoder/0": weights[:, :, :1] * 0 + 0.5})


def split_of(folder: Path, lengths: list[tuple[int, int]]) -> EncodedSplit:
    """Pairs of so many source and target tokens."""
    source, target = (np.array(side) for side in zip(*lengths, strict=True))
    arrays = {
        "source_ids": np.full(source.sum(), 5, np.int32),
        "target_ids": np.full(target.sum(), 7, np.int32),
        "source_offsets": np.concatenate([[0], np.cumsum(source)]).astype(np.int64),
        "target_offsets": np.concatenate([[0], np.cumsum(target)]).astype(np.int64),
    }
    write_shard(folder, 0, arrays)
    return open_encoded(folder)


def logged(
    folder: Path, lengths: list[tuple[int, int]], num_sentences: int, budget: int = 1000
) -> tuple[float, list[int]]:
    """The figure, and how many sentences were read at once."""
    model, found = Even(), {}
    module = SimpleNamespace(
        translates=True,
        model=model,
        device=torch.device("cpu"),
        tokenizer=SimpleNamespace(pad_id=0, bos_id=2, eos_id=3),
        log=lambda name, value, batch_size: found.update({name: value}),
    )
    datamodule = SimpleNamespace(encoded=lambda name: split_of(folder, lengths), eval_batch_tokens=budget)
    AttentionEntropy(num_sentences=num_sentences).on_validation_epoch_end(
        SimpleNamespace(sanity_checking=False, datamodule=datamodule), module
    )
    assert list(found) == ["val/attention_entropy"]
    return found["val/attention_entropy"], model.given


def test_it_is_a_mean_over_target_tokens_with_the_end_token_on_both_sides(tmp_path: Path) -> None:
    entropy, _ = logged(tmp_path, [(1, 4), (7, 1)], num_sentences=64)
    assert entropy == pytest.approx((5 * math.log(2) + 2 * math.log(8)) / 7)


def test_sentences_are_spread_over_the_validation_set(tmp_path: Path) -> None:
    lengths = [(1, 2), (99, 1), (99, 1), (7, 2), (99, 1), (99, 1)]
    assert logged(tmp_path, lengths, num_sentences=2)[0] == pytest.approx((math.log(2) + math.log(8)) / 2)


def test_batches_keep_to_the_budget_of_evaluation_and_change_nothing(tmp_path: Path) -> None:
    lengths = [(length, length) for length in (3, 5, 7, 11, 13)]
    whole, at_once = logged(tmp_path, lengths, num_sentences=5)
    cut, one_by_one = logged(tmp_path, lengths, num_sentences=5, budget=30)
    assert at_once == [5]
    assert len(one_by_one) > 2
    assert cut == pytest.approx(whole)
