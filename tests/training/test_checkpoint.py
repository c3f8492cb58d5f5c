"""A checkpoint's configuration names classes of ours, and nothing else, and a file from a stranger runs no code."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from small_checkpoint import write_checkpoint
from torch import nn
from training.test_checkpoint_io import Hostile

from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.checkpoint import check_targets, find_checkpoint, load, read_checkpoint
from seq2seq_attn.training.checkpoint_file import write_checkpoint as write_whole

OURS = "seq2seq_attn.search.greedy.GreedySearch"
FOREIGN = ["os.mkdir", "seq2seq_attn.training.checkpoint.torch.load", "seq2seq_attn.nowhere.Search", 3]


@pytest.mark.parametrize("target", FOREIGN)
def test_a_foreign_target_is_refused_at_any_depth(target: Any) -> None:
    for node in ({"_target_": target}, {"_target_": OURS, "parts": [{"a": {"_target_": target}}]}):
        with pytest.raises(UserError, match=r"which is not a class of seq2seq_attn; it was not run$"):
            check_targets(node, Path("a.ckpt"))


@pytest.mark.parametrize("key", ["_args_", "encoder"])
@pytest.mark.parametrize("wrapped", [lambda node: [[node]], lambda node: {"a": node}], ids=["list", "dict"])
def test_no_place_hides_a_foreign_target(key: str, wrapped: Any, tmp_path: Path) -> None:
    call = {"_target_": "os.mkdir", "_args_": [str(tmp_path / "ran")]}
    refuses(
        tmp_path,
        key,
        wrapped(call),
        r"asks for os.mkdir, which is not a class of seq2seq_attn; it was not run$",
    )


@pytest.mark.parametrize(
    "hide", [lambda node: (node,), lambda node: OrderedDict(node)], ids=["tuple", "ordered"]
)
def test_what_no_run_saves_hides_nothing(hide: Any, tmp_path: Path) -> None:
    call = {"_target_": "os.mkdir", "_args_": [str(tmp_path / "ran")]}
    refuses(
        tmp_path, "encoder", hide(call), r"holds a (tuple|OrderedDict) among its options, which no run saves$"
    )


def refuses(folder: Path, key: str, node: Any, sentence: str) -> None:
    """`load`, of a whole checkpoint with this node in its model; nothing runs."""
    checkpoint = write_checkpoint(folder / "a.ckpt")
    checkpoint["config"]["model"][key] = node
    torch.save(checkpoint, folder / "a.ckpt")
    with pytest.raises(UserError, match=sentence):
        load(str(folder / "a.ckpt"))
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code_is_refused_and_nothing_runs(legacy: bool, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt") | {"more": [Hostile(tmp_path / "ran")]}
    torch.save(checkpoint, tmp_path / "a.ckpt", _use_new_zipfile_serialization=not legacy)
    says = (
        "is not a readable checkpoint"
        if legacy
        else "asks for posix.mkdir, which is no plain data; it was not run"
    )
    with pytest.raises(UserError, match=rf"a.ckpt {says}"):
        load(str(tmp_path / "a.ckpt"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_module_and_a_torchscript_are_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": nn.Linear(2, 3)}, tmp_path / "module.ckpt")
    with pytest.raises(
        UserError, match=r"module.ckpt asks for torch.nn.modules.linear.Linear, which is no plain"
    ):
        read_checkpoint(tmp_path / "module.ckpt")
    if sys.version_info < (3, 14):  # where torch.jit is gone
        torch.jit.script(nn.Linear(2, 3)).save(tmp_path / "script.ckpt")
        with pytest.raises(UserError, match=r"script.ckpt is not a readable checkpoint"):
            read_checkpoint(tmp_path / "script.ckpt")


def test_another_format_and_a_file_of_another_program_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    torch.save(checkpoint | {"format": 97}, tmp_path / "b.ckpt")
    with pytest.raises(
        UserError, match=r"b.ckpt has format 97, this version reads 2; use the version that wrote"
    ):
        load(str(tmp_path / "b.ckpt"))
    for key in ("format", "config", "tokenizer", "state_dict"):
        torch.save({k: v for k, v in checkpoint.items() if k != key}, tmp_path / "c.ckpt")
        with pytest.raises(
            UserError, match=r"c.ckpt is not a checkpoint of seq2seq-attn; give one that train.py"
        ):
            load(str(tmp_path / "c.ckpt"))
    torch.save([checkpoint], tmp_path / "d.ckpt")
    with pytest.raises(UserError, match=r"d.ckpt is not a checkpoint of seq2seq-attn"):
        load(str(tmp_path / "d.ckpt"))


def test_a_broken_best_is_named_and_no_other_model_takes_its_place(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    best = tmp_path / "checkpoints" / "best.ckpt"
    write_whole(checkpoint, best)
    assert find_checkpoint(str(tmp_path)) == best
    load(str(tmp_path))
    os.truncate(best, best.stat().st_size - 1)
    with pytest.raises(
        UserError, match=rf"^{best} is damaged: its SHA-256 is not the one in best.ckpt.sha256; use"
    ):
        load(str(tmp_path))


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
