"""A logger whose package is an extra that is not installed: one sentence, before anything is read."""

from __future__ import annotations

import ast
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from configs import CONF, ROOT, composed, options

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.check_config import check_config


@pytest.mark.parametrize("logger", options("logger"))
def test_the_sentence_names_the_extra(logger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ModuleType(logger)
    there.__spec__ = ModuleSpec(logger, None, origin="there")
    monkeypatch.setitem(sys.modules, logger, there)
    check_config(composed(f"logger={logger}"))
    monkeypatch.setitem(sys.modules, logger, None)
    sentence = (
        rf"^logger={logger} needs the package {logger}, which is not installed; pip install "
        rf"'seq2seq_attn\[{logger}\]', or leave it out, as every run writes metrics\.csv$"
    )
    with pytest.raises(UserError, match=sentence):
        check_config(composed(f"logger={logger}"))
    check_config(composed())


def test_the_folder_that_wandb_leaves_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UserError, match=r"^logger=wandb needs the package wandb"):
        check_config(composed("logger=wandb"))


def test_no_logger_imports_its_package_before_it_is_used() -> None:
    packages = {path.stem for path in (CONF / "logger").glob("*.yaml")}
    for path in (ROOT / "seq2seq_attn" / "logger").glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & packages, path
