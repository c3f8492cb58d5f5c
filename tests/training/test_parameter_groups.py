"""Options of the optimizer for some parameters: who is in which group, and what a resumed run makes of them."""

from __future__ import annotations

import logging
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from configs import built, compose_train, composed, model_of
from small_run import KilledError, begun, rows, run_here, weights

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.training.freeze import freeze
from seq2seq_attn.training.parameter_groups import parameter_groups

ENCODER: dict[str, Any] = {"names": ["encoder"], "lr": 0.01}
RUN = ("paths.run_dir=run", *(f"choices.{name}=null" for name in ("attention", "model", "data")))
VECTORS: dict[str, Any] = {"names": ["vectors"], "weight_decay": 0.0}


def grouped(model: torch.nn.Module, *entries: dict[str, Any], optimizer: str = "adamw") -> list[dict[str, Any]]:
    return parameter_groups(model, entries, built(composed(f"optimizer={optimizer}", "optimizer.lr=0.1").optimizer))


def test_without_an_entry_all_that_is_trained_is_one_group() -> None:
    model = model_of("model.tie_embeddings=target")
    freeze(model, ["encoder"])
    (group,) = grouped(model)
    assert list(group) == ["params"]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert [*map(id, group["params"])] == [*map(id, trained)]


def test_a_parameter_of_two_entries_has_the_options_of_both_and_the_later_value() -> None:
    model = model_of()
    late = {"names": ["encoder.layers.0.bias_hh_l0"], "lr": 0.02}
    groups = grouped(model, ENCODER, VECTORS, late)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {
        names[id(parameter)]: {option: value for option, value in group.items() if option != "params"}
        for group in groups
        for parameter in group["params"]
    }
    assert sum(len(group["params"]) for group in groups) == len(found) == len(names)
    for name, parameter in model.named_parameters():
        expected = {"lr": 0.01} if name.startswith("encoder.") else {}
        expected |= {"weight_decay": 0.0} if parameter.squeeze().ndim < 2 or "bias" in name else {}
        expected |= {"lr": 0.02} if name == late["names"][0] else {}
        assert found[name] == expected
    assert len(groups) == 5
    assert list(groups[0]) == ["params"]


def test_a_group_of_everything_leaves_none_without_options() -> None:
    groups = grouped(model_of(), {"names": ["encoder", "decoder", "embed_source", "embed_target", "output"], "lr": 1.0})
    assert [group["lr"] for group in groups] == [1.0]


@pytest.mark.parametrize(
    ("entry", "optimizer", "why"),
    [
        ({"names": ["encoder"]}, "adamw", "{names:[encoder]} must have a list of names and an option of the optimizer"),
        ({"lr": 0.1}, "adamw", "{lr:0.1} must have a list of names"),
        ({"names": "encoder", "lr": 0.1}, "adamw", "{names:encoder,lr:0.1} must have a list of names"),
        ({"names": [], "lr": 0.1}, "adamw", "must have a list of names"),
        ({"names": ["encodre"], "lr": 0.1}, "adamw", "parameter_groups=[{names:[encodre]}] names no module or param"),
        (
            {"names": ["encoder"], "rate": 0.1},
            "adamw",
            "rate is no option of AdamW that some parameters can have; choose from: amsgrad, betas, eps, lr, m",
        ),
        ({"names": ["encoder"], "lr": -1}, "adamw", "{names:[encoder],lr:-1}: optimizer.lr=-1 must be "),
        ({"names": ["encoder"], "lr": "high"}, "adamw", "{names:[encoder],lr:high}: optimizer.lr=high must be "),
        ({"names": ["embed_source"], "lr": 0.1}, "adamw", "{names:[embed_source],lr:0.1} names only frozen parameters"),
        (
            {"names": ["encoder"], "betas": [0.9]},
            "adamw",
            "{names:[encoder],betas:[0.9]}: optimizer.betas=[0.9] must be",
        ),
        ({"names": ["encoder"], "lr": True}, "adamw", "{names:[encoder],lr:true}: optimizer.lr=true must be"),
        ({"names": ["encoder"], "momentum": 1.5}, "sgd", "optimizer.momentum=1.5 must be "),
        (
            {"names": ["encoder"], "momentum": 0.0, "nesterov": True},
            "sgd",
            "{names:[encoder],momentum:0.0,nesterov:true}: Nesterov momentum requires a momentum",
        ),
        ({"names": ["encoder"], "eps": [1e-12]}, "adafactor", "optimizer.eps=[1e-12] must be "),
        ({"names": ["encoder"], "fused": False}, "adam", "fused is no option of Adam that some parameters can have"),
        ({"names": ["encoder"], "decoupled_weight_decay": False}, "adamw", "decoupled_weight_decay is no option of A"),
        (ENCODER, "muon", "optimizer=muon makes groups of its own, so parameter_groups must be empty"),
    ],
)
def test_a_wrong_entry_is_refused(entry: dict[str, Any], optimizer: str, why: str) -> None:
    model = model_of()
    freeze(model, ["embed_source"])
    with pytest.raises(UserError) as error:
        grouped(model, entry, optimizer=optimizer)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (
            ("model=transformer", "attention=synthesizer_dense", "attention.num_heads=2"),
            "encoder.layers.0.attention.score.hidden.bias",
        ),
        (("model=rnn", "attention=monotonic"), "decoder.attention.normalizer.offset"),
        (("model=conv", "attention=luong_dot"), "encoder.widen.parametrizations.weight.original0"),
    ],
)
def test_vectors_are_biases_of_each_head_numbers_and_gains_too(overrides: tuple[str, ...], name: str) -> None:
    model = model_of(*overrides)
    _, group = grouped(model, VECTORS)
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    chosen = [names[id(parameter)] for parameter in group["params"]]
    assert name in chosen
    assert {key for key in names.values() if "bias" in key} <= set(chosen)
    assert all(
        1 in model.get_parameter(key).shape or "bias" in key or model.get_parameter(key).ndim < 2 for key in chosen
    )


def test_a_list_in_the_list_is_no_entry() -> None:
    for value in ("[[]]", "[[encoder]]", "[encoder]"):
        with pytest.raises(UserError, match=r"^parameter_groups=.* must be list\[dict\[str, Any\]\]"):
            check_options(compose_train(*RUN, f"parameter_groups={value}"), TRAIN)


GROUPS = "parameter_groups=[{names:[encoder],lr:0.001},{names:[vectors],weight_decay:0.0}]"
SHORT = (
    "optimizer=adamw", "scheduler=linear", "scheduler.warmup_steps=1", "callback.autosave.every_steps=2",
    "trainer.max_steps=6", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0",
)  # fmt: skip


def saved_groups(folder: Path) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = read_checkpoint(folder / "checkpoints" / "last.ckpt")["optimizer_states"][0][
        "param_groups"
    ]
    return groups


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_each_rate_follows_the_schedule_and_a_resumed_run_keeps_the_groups(
    pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        run_here(tmp_path / "whole", *pairs, *SHORT, GROUPS)
    said = [line for line in caplog.messages if line.startswith("parameter_groups: ")]
    assert [line.split(" for ")[0].removeprefix("parameter_groups: ") for line in said] == [
        "lr=0.001", "lr=0.001, weight_decay=0.0", "weight_decay=0.0",
    ]  # fmt: skip
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:5}"
    with pytest.raises(KilledError):
        run_here(tmp_path / "stopped", *pairs, *SHORT, GROUPS, killer)
    with pytest.raises(UserError, match=r"^parameter_groups=\[\] cannot .* \[{names:\[encoder\],lr:0.001},{n"):
        run_here(tmp_path / "stopped", *pairs, *SHORT, "resume=auto")
    for last in (tmp_path / "stopped" / "checkpoints").glob("*.ckpt"):  # as one from before there were groups
        old = read_checkpoint(last)
        del old["config"]["parameter_groups"]
        torch.save(old, tmp_path / "old.ckpt")
    with pytest.raises(UserError, match=r"^parameter_groups=\[{names:.* was trained with \[\]; "):
        run_here(tmp_path / "new", *pairs, *SHORT, GROUPS, f"ckpt_path={tmp_path / 'old.ckpt'}")
    copytree(tmp_path / "stopped", tmp_path / "changed")
    run_here(tmp_path / "stopped", *pairs, *SHORT, GROUPS, "resume=auto")
    assert begun[-1] == 4
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")
    ours, theirs = (weights(tmp_path / run, "last.ckpt") for run in ("stopped", "whole"))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)

    # With another rate and decay, the groups keep theirs.
    longer = ("trainer.max_steps=9", "optimizer.lr=0.03", "optimizer.weight_decay=0.3", "resume=auto")
    run_here(tmp_path / "changed", *pairs, *SHORT, GROUPS, *longer)
    assert begun[-1] == 4
    factor = saved_groups(tmp_path / "changed")[0]["lr"] / 0.03
    assert [(group["lr"], group["weight_decay"]) for group in saved_groups(tmp_path / "changed")] == [
        (0.03 * factor, 0.3),
        (pytest.approx(0.001 * factor), 0.3),
        (pytest.approx(0.001 * factor), 0.0),
        (0.03 * factor, 0.0),
    ]
