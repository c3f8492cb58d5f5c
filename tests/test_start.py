"""What a training on the included corpus imports before its first update."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs import ROOT, composed
from omegaconf import OmegaConf

# Packages of other corpora, loggers, metrics, exports and drawings; none of them is needed for the first update.
# Lightning imports matplotlib and sympy in any case.
UNNEEDED = {
    "comet", "ctranslate2", "datasets", "eflomal", "google", "optuna", "pandas", "plotly", "pyarrow",
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


def test_a_training_on_the_included_corpus_imports_no_package_before_it_needs_it() -> None:
    config = OmegaConf.to_container(composed("attention=bahdanau"))
    reached = dict.fromkeys(["seq2seq_attn.cli.train", "seq2seq_attn.training.run", *targets(config)], "")
    waiting = list(reached)
    while waiting:
        module = waiting.pop()
        parts = module.split(".")
        if parts[0] != "seq2seq_attn":
            assert parts[0] not in UNNEEDED, (
                f"{reached[module]} imports {module}; import it in the function that needs it"
            )
            continue
        parents = [".".join(parts[:n]) for n in range(1, len(parts))]
        new = [name for name in (*parents, *imported_at_start(module)) if name not in reached]
        reached |= dict.fromkeys(new, module)
        waiting += new
    assert len([name for name in reached if name.startswith("seq2seq_attn.")]) > 100
