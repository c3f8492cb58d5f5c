"""What a training on the included corpus imports before its first update, and what --help and a layer import."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torchmetrics.utilities.imports as torchmetrics_imports
from configs import ROOT, composed
from lightning_utilities.core.imports import RequirementCache
from omegaconf import OmegaConf

from seq2seq_attn.cli import entry
from seq2seq_attn.cli.entry import metrics_without_plots
from seq2seq_attn.process import let_idle_threads_sleep

# Packages of other corpora, loggers, metrics, exports and drawings; none of them is needed for the first update.
# Lightning imports sympy in any case, as a part of torch._dynamo, which torch's optimizers import in their first step.
UNNEEDED = {
    "comet", "ctranslate2", "datasets", "eflomal", "google", "matplotlib", "optuna", "pandas", "plotly", "pyarrow",
    "scipy", "starlette", "tensorboard", "uvicorn", "wandb", "zstandard",
}  # fmt: skip


def targets(node: Any) -> Iterator[str]:
    """Yield the modules of the classes that a configuration builds."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield node["_target_"].rpartition(".")[0]
        for value in node.values():
            yield from targets(value)


def imported_at_start(module: str) -> Iterator[str]:
    """Yield the absolute imports at the top level of a module of the package; those in functions come later."""
    path = ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text("utf-8")).body if path.is_file() else []:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached_from(*modules: str) -> dict[str, str]:
    """Return what these modules import, each with its importer; packages of others are not looked into."""
    reached = dict.fromkeys(modules, "")
    waiting = list(reached)
    while waiting:
        module = waiting.pop()
        parts = module.split(".")
        if parts[0] != "seq2seq_attn":
            continue
        parents = [".".join(parts[:n]) for n in range(1, len(parts))]
        new = [name for name in (*parents, *imported_at_start(module)) if name not in reached]
        reached |= dict.fromkeys(new, module)
        waiting += new
    return reached


def test_a_training_on_the_included_corpus_imports_no_package_before_it_needs_it() -> None:
    config = OmegaConf.to_container(composed("attention=bahdanau"))
    reached = reached_from("seq2seq_attn.cli.train", "seq2seq_attn.training.run", *targets(config))
    for module, importer in reached.items():
        assert module.partition(".")[0] not in UNNEEDED, (
            f"{importer} imports {module}; import it in the function that needs it"
        )
    assert len([name for name in reached if name.startswith("seq2seq_attn.")]) > 100


def test_how_threads_wait_is_chosen_before_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "translate", "evaluate", "explore", "serve", "align", "prepare"):
        assert "torch" not in {module.split(".")[0] for module in reached_from(f"seq2seq_attn.cli.{name}")}
    for variable, value, expected in (
        ("GOMP_SPINCOUNT", "", "10000"),
        ("GOMP_SPINCOUNT", "7", "7"),
        ("OMP_WAIT_POLICY", "active", None),
    ):
        for unset in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
            monkeypatch.setenv(unset, "")  # recorded, so that it is unset again after the test
            monkeypatch.delenv(unset)
        if value:
            monkeypatch.setenv(variable, value)
        let_idle_threads_sleep()
        assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_a_command_chooses_how_threads_wait_before_its_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str | None] = []

    def command() -> None:
        chosen.append(os.environ.get("GOMP_SPINCOUNT"))

    for variable in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as `main` sets it
    for change in ("keep_freed_memory", "leave_on_signals", "import_from_current_folder", "find_own_plugins"):
        monkeypatch.setattr(entry, change, lambda: None)
    monkeypatch.setattr(entry, "UNTIL_EXIT", ExitStack())
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(entry.hydra, "main", lambda **_: lambda job: command)
    entry.main(print, "train")
    assert chosen == ["10000"]


def test_torchmetrics_finds_no_matplotlib_while_it_is_imported() -> None:
    """Of lightning_utilities 0.15.3 the method is private; torchmetrics 1.9.0 asks so before it imports matplotlib."""
    with metrics_without_plots():
        absent, present = RequirementCache("matplotlib"), RequirementCache("torch")
        assert not absent
        assert present
    assert not absent
    assert RequirementCache("matplotlib")
    asked = Path(torchmetrics_imports.__file__).read_text("utf-8")
    assert '_MATPLOTLIB_AVAILABLE = RequirementCache("matplotlib")' in asked


@pytest.mark.parametrize(
    ("module", "packages"),
    [("seq2seq_attn.cli.command", set()), ("seq2seq_attn.attention", {"torch", "jaxtyping", "numpy"})],
)
def test_a_list_of_commands_and_a_layer_import_little(module: str, packages: set[str]) -> None:
    found = {name.partition(".")[0] for name in reached_from(module)}
    assert found - set(sys.stdlib_module_names) == packages | {"seq2seq_attn"}
