"""An evaluation whose references have no spaces, and one of empty sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import composed
from evaluation.learned import columns, evaluated
from omegaconf import OmegaConf
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.inference.translator import Translator

pytestmark = pytest.mark.usefixtures("quiet")
LAYERS = [f"model.{side}.num_layers=1" for side in ("encoder", "decoder")]
OF_RUN = ("metric", "choices", "seed", "batch_tokens", "label_smoothing")


def write_run(file: Path, *overrides: str) -> Path:
    """A checkpoint with all that an evaluation takes from its run."""
    write_checkpoint(file, "model=transformer", *LAYERS, *overrides, scale=1.5)
    checkpoint = torch.load(file, weights_only=True)
    fixed = ["choices.attention=none", "choices.model=transformer", "choices.data=demo", "paths.run_dir=run"]
    config: Any = OmegaConf.to_container(composed(*overrides, *fixed), resolve=True)
    checkpoint["config"] |= {name: config[name] for name in OF_RUN}
    checkpoint["config"]["trainer"] = {"precision": "32-true"}
    torch.save(checkpoint, file)
    return file


@pytest.mark.parametrize("search", ["greedy", "sampling", pytest.param("mbr", marks=pytest.mark.slow)])
def test_the_translations_are_those_of_translate_and_an_empty_source_has_the_empty_one(
    search: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run.ckpt", f"search={search}")
    sources = [SENTENCES[0], "", SENTENCES[1], "  ", SENTENCES[2]]
    rows = "".join(f"{source}\t{SENTENCES[20 + row]}\n" for row, source in enumerate(sources))
    (tmp_path / "test.tsv").write_text(rows, encoding="utf-8")
    found = evaluated(
        tmp_path / "evaluation", f"ckpt_path={run}", "data=parallel", f"data.test={tmp_path / 'test.tsv'}",
        f"paths.cache_dir={tmp_path / 'cache'}", "bootstrap=0",
    )["splits"]["test"]  # fmt: skip
    assert found["sentences"] == len(sources)
    written = (tmp_path / "evaluation" / "translations.hypotheses").read_text("utf-8").split("\n")[:-1]
    assert written == [one.text for one in Translator.load(run, device="cpu").translate(sources)]
    assert [bool(text) for text in written] == [True, False, True, False, True]


@pytest.mark.slow  # metric/test_language.py has the languages alone
def test_references_in_chinese_are_scored_as_chinese_whatever_the_language_is_called(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run.ckpt")
    rows = "".join(f"{SENTENCES[row]}\t我们明天去公园里玩。\n" for row in range(3))
    (tmp_path / "test.tsv").write_text(rows, encoding="utf-8")
    given = [f"ckpt_path={run}", "data=parallel", f"data.test={tmp_path / 'test.tsv'}", "bootstrap=0"]
    given.append(f"paths.cache_dir={tmp_path / 'cache'}")
    found = evaluated(tmp_path / "a", *given)["splits"]["test"]["signatures"]
    assert "|tok:zh|" in found["bleu"]
    assert "|asian:yes|" in found["ter"]
    chosen = evaluated(tmp_path / "b", *given, "metric.bleu.tokenize=char")["splits"]["test"]["signatures"]
    assert "|tok:char|" in chosen["bleu"]
    assert columns(tmp_path / "a" / "translations.references") == [["我们明天去公园里玩。"] * 3]
