"""docs/translating.md: the commands that rerank translations run, and compose."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from child import done
from configs import ROOT
from small_run import write_pairs

from seq2seq_attn.evaluation import rerank

SECTION = (ROOT / "docs" / "translating.md").read_text("utf-8").partition("## Rerank by another model\n")[2]
LINES = "".join(re.findall(r"^```\n(.*?)^```", SECTION.partition("\n## ")[0], re.MULTILINE | re.DOTALL)).splitlines()


@pytest.mark.slow
def test_the_lines_run_with_models_of_both_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    columns = "data.source_column={} data.target_column={} data.source_language={} data.target_language={}"
    small = "debug=fast tokenizer.vocab_size=40 model.embedding_dim=12 model.decoder.dim=12 paths.cache_dir=cache"
    for folder, order in (("mine", (1, 2, "en", "fr")), ("fr_en", (2, 1, "fr", "en"))):
        given = f"data=parallel data.train=train.tsv data.val=val.tsv data.test=test.tsv {columns.format(*order)}"
        run_line(f"python train.py {given} {small} model.encoder.dim=12 hydra.run.dir=runs/train/{folder}", tmp_path)
    text = "".join(line.split("\t")[1] + "\n" for line in Path("train.tsv").read_text("utf-8").splitlines())
    Path("french.txt").write_text(text, encoding="utf-8")
    language_model = f"model=lm data=text data.train=french.txt {small} hydra.run.dir=runs/train/french"
    run_line(f"python train.py {language_model}", tmp_path)
    for name, split, sides in (("english.txt", "test", (0,)), ("val.{}", "val", (0, 1))):
        for side in sides:
            rows = [line.split("\t") for line in Path(f"{split}.tsv").read_text("utf-8").splitlines()]
            rows.insert(3, ["", ""])  # has no translation to choose
            text = "".join(f"{row[side]}\n" for row in rows)
            Path(name.format(("en", "fr")[side])).write_text(text, encoding="utf-8")
    for line in LINES:
        run_line(line.replace("ckpt_path=model.ckpt", "ckpt_path=runs/train/mine"), tmp_path)
    for source, reranked in (("english.txt", "reranked.txt"), ("val.en", "val_reranked.fr")):
        assert len(Path(reranked).read_text("utf-8").splitlines()) == len(Path(source).read_text("utf-8").splitlines())


def run_line(line: str, folder: Path) -> None:
    words = shlex.split(line)
    if words[0] == "seq2seq-attn":
        assert words[1] == "rerank"
        rerank.main(words[2:])
        return
    ran = done(ROOT / words[1], *words[2:], folder=folder)
    assert (ran.returncode, ran.stderr) == (0, "")
