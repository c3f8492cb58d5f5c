"""Every optimizer of conf/optimizer learns, and a run that was stopped and resumed is the run that never was."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import built, composed, options
from small_run import rows, run_here, stopped_and_resumed, weights
from torch import Tensor, nn

from seq2seq_attn.errors import UserError
from seq2seq_attn.optimizer.muon import Muon, hidden_matrices
from seq2seq_attn.training.translation_module import TranslationModule

RATES = {"sgd": 0.05, "adafactor": 0.1}  # of the small problem; others: 0.02
SIZES = ("model.source_vocab_size=23", "model.target_vocab_size=29", "model.embedding_dim=8")
WIDTHS = ("model.encoder.dim=8", "model.decoder.dim=8")


class Problem(nn.Module):
    """A regression on tokens: an embedding, a hidden layer and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed_target = nn.Embedding(11, 7)
        self.hidden, self.output = nn.Linear(7, 13), nn.Linear(13, 1)
        self.tokens, self.values = torch.arange(11), torch.linspace(-1, 1, 11)

    def loss(self) -> Tensor:
        return (self.output(self.hidden(self.embed_target(self.tokens)).tanh())[:, 0] - self.values).square().mean()


def optimizer_of(name: str, model: Any) -> torch.optim.Optimizer:
    factory = built(composed(f"optimizer={name}", f"optimizer.lr={RATES.get(name, 0.02)}").optimizer)
    matrices = {"hidden_matrices": [model.hidden.weight]} if name == "muon" else {}
    return factory(model.parameters(), **matrices)


def train(model: Problem, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """The loss before each step."""
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", options("optimizer"))
def test_an_optimizer_learns_and_its_saved_state_continues_bit_for_bit(name: str) -> None:
    model = Problem()
    optimizer = optimizer_of(name, model)
    losses = train(model, optimizer, 20)
    saved = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "model": model.state_dict()}, saved)
    losses += train(model, optimizer, 20)
    assert losses[-1] < 0.2 * losses[0]

    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    again = Problem()
    resumed = optimizer_of(name, again)
    again.load_state_dict(state["model"])
    resumed.load_state_dict(state["optimizer"])
    assert train(again, resumed, 20) == losses[20:]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ["muon", *(pytest.param(n, marks=pytest.mark.slow) for n in ("adafactor", "sgd"))])
def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(
    name: str, pairs: list[str], tmp_path: Path
) -> None:
    given = [
        *pairs,
        f"optimizer={name}",
        "scheduler=wsd",
        "scheduler.decay_share=0.5",
        "callback.autosave.every_steps=2",
    ]
    given += ["trainer.max_steps=6", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]
    run_here(tmp_path / "whole", *given)
    assert stopped_and_resumed(tmp_path / "stopped", given, ("backward", 5)) == [0, 4]
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")
    ours, theirs = (weights(tmp_path / run, "last.ckpt") for run in ("stopped", "whole"))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_muon_is_torch_s_muon_for_hidden_matrices_and_torch_s_adamw_for_all_else() -> None:
    ours, theirs = Problem(), Problem()
    common = {"lr": 0.03, "weight_decay": 0.1, "eps": 1e-9}
    ours_at_once = Muon(
        ours.parameters(), hidden_matrices=[ours.hidden.weight], momentum=0.8, ns_steps=4, betas=[0.7, 0.9], **common
    )
    muon = torch.optim.Muon([theirs.hidden.weight], momentum=0.8, ns_steps=4, adjust_lr_fn="match_rms_adamw", **common)
    others = [parameter for name, parameter in theirs.named_parameters() if name != "hidden.weight"]
    adamw = torch.optim.AdamW(others, betas=(0.7, 0.9), fused=True, **common)
    for _ in range(5):
        train(ours, ours_at_once, 1)
        theirs.zero_grad()
        theirs.loss().backward()
        muon.step()
        adamw.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_copy_of_muon_and_one_read_from_a_pickle_go_on_as_it_would() -> None:
    whole = Problem()
    optimizer = Muon(
        whole.parameters(), hidden_matrices=[whole.hidden.weight], momentum=0.8, ns_steps=4, betas=[0.7, 0.9],
        lr=0.03, weight_decay=0.1, eps=1e-9,
    )  # fmt: skip
    train(whole, optimizer, 2)
    copies = [copy.deepcopy((whole, optimizer)), pickle.loads(pickle.dumps((whole, optimizer)))]
    train(whole, optimizer, 2)
    for model, own in copies:
        train(model, own, 2)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))
    with pytest.raises(UserError, match="Muon has two groups of parameters"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})


def test_both_groups_of_muon_have_every_option_so_that_a_resumed_run_can_change_it() -> None:
    chosen = composed("optimizer=muon").optimizer
    groups = built(chosen)([nn.Parameter(torch.zeros(()))], hidden_matrices=[]).param_groups
    assert [len(group["params"]) for group in groups] == [0, 1]
    assert all(set(chosen) - {"_target_", "_partial_"} <= set(group) for group in groups)


@pytest.mark.parametrize(
    ("overrides", "some", "none"),
    [
        (
            ("model=rnn", "attention=bahdanau", *WIDTHS),
            ("encoder.layers.0.weight_ih_l0", "decoder.attention.score.project_query"),
            ("embed_source.weight", "output.weight", "decoder.attention.score.vector", "encoder.layers.0.bias_ih_l0"),
        ),
        (
            ("model=transformer", "attention=multihead", "position=learned", "model.tie_embeddings=target", *WIDTHS),
            ("encoder.layers.0.feed_forward.expand.weight", "decoder.layers.0.cross_attention.project_values.weight"),
            ("embed_target.weight", "encoder.position.table", "encoder.norm.weight"),
        ),
        (
            ("model=conv", "attention=multihead", *WIDTHS),
            ("decoder.layers.0.attention.score.project_query", "decoder.layers.0.attention.project_values.weight"),
            ("embed_target.weight", "output.weight", "encoder.widen.parametrizations.weight.original1"),
        ),
    ],
)
def test_hidden_matrices_are_those_of_linear_and_recurrent_layers(
    overrides: Sequence[str], some: Sequence[str], none: Sequence[str]
) -> None:
    model = built(composed(*SIZES, *overrides).model)
    chosen = {id(weight) for weight in hidden_matrices(model)}
    names = {name: id(weight) in chosen for name, weight in model.named_parameters()}
    assert all(any(found and key.startswith(name) for key, found in names.items()) for name in some), names
    assert not any(names[name] for name in none if name in names)
    assert {name for name in none if name in names}
    assert all(weight.ndim == 2 for weight in hidden_matrices(model))


@pytest.mark.parametrize(
    ("overrides", "frozen"),
    [(("model=conv", "attention=luong_dot", *WIDTHS), False), (("model=rnn", "attention=bahdanau", *WIDTHS), True)],
)
def test_muon_is_refused_without_a_hidden_matrix_to_train(overrides: Sequence[str], frozen: bool) -> None:
    module = module_of("optimizer=muon", built(composed(*SIZES, *overrides).model))
    for matrix in hidden_matrices(module.model):
        assert frozen
        matrix.requires_grad = False
    with pytest.raises(
        UserError,
        match=r"^optimizer=muon finds no matrix of a linear or recurrent layer to train; use optimizer=adamw$",
    ):
        module.configure_optimizers()


def module_of(optimizer: str, model: nn.Module) -> Any:
    """A module to be trained that has no more than its optimizer reads."""
    module: Any = TranslationModule.__new__(TranslationModule)
    nn.Module.__init__(module)
    module.model, module.optimizer = model, built(composed(optimizer).optimizer)
    module.scheduler = built(composed("scheduler=constant").scheduler)
    module.config = {}
    module._trainer, module._fabric, module._jit_is_scripting = SimpleNamespace(), None, False
    return module
