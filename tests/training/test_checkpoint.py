"""A checkpoint's configuration names classes of ours, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.checkpoint import check_targets

OURS = "seq2seq_attn.search.greedy.GreedySearch"
FOREIGN = ["os.mkdir", "seq2seq_attn.training.checkpoint.torch.load", "seq2seq_attn.nowhere.Search", 3]


@pytest.mark.parametrize("target", FOREIGN)
def test_a_foreign_target_is_refused_at_any_depth(target: Any) -> None:
    for node in ({"_target_": target}, {"_target_": OURS, "parts": [{"a": {"_target_": target}}]}):
        with pytest.raises(UserError, match=r"which is not a class of seq2seq_attn; it was not run$"):
            check_targets(node, Path("a.ckpt"))


def test_a_reference_is_refused_since_it_could_become_a_target() -> None:
    hidden = "${oc.create:'{_target_: os.mkdir, path: here}'}"
    for node in ({"_target_": OURS, "max_length": hidden}, {"parts": [{"_target_": OURS}, hidden]}):
        with pytest.raises(
            UserError, match=r"^a.ckpt holds the reference \$\{oc.create:.+\}, which no run saves; it was"
        ):
            check_targets(node, Path("a.ckpt"))


def test_plain_data_and_targets_of_ours_pass() -> None:
    check_targets(
        {"_target_": OURS, "_partial_": True, "max_length": 7, "names": ["a", None, "$b"]}, Path("a.ckpt")
    )
