"""docs/translating.md: the lines that rerank translations take the best of a weighted sum."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from child import done
from configs import ROOT
from small_run import write_pairs

SECTION = (ROOT / "docs" / "translating.md").read_text("utf-8").partition("## Rerank by another model\n")[2]
LINES = re.findall(r"^```\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)[0].splitlines()
BEST = """0 ||| le chat ||| -2.000000 ||| -0.500000
0 ||| un chat ||| -2.400000 ||| -0.600000
1 ||| oui ||| -1.000000 ||| -0.500000
1 |||  ||| -3.000000 ||| -3.000000
2 ||| les deux mots ||| -4.000000 ||| -0.800000
"""
SCORES = """-9.000000\t3\t-3.000000
-3.000000\t3\t-1.000000
-2.000000\t2\t-1.000000
-2.000000\t2\t-1.000000
-8.000000\t4\t-2.000000
"""


def run_line(line: str, folder: Path) -> None:
    if line.startswith("python "):
        _, program, *words = shlex.split(line)
        ran = done(ROOT / program, *words, folder=folder)
        assert (ran.returncode, ran.stderr) == (0, "")
    else:
        subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def test_the_best_of_the_weighted_sum_is_taken(tmp_path: Path) -> None:
    (tmp_path / "english.txt").write_text("a cat\nyes\ntwo words\n", encoding="utf-8")
    (tmp_path / "best.txt").write_text(BEST, encoding="utf-8")
    (tmp_path / "runs" / "rerank").mkdir(parents=True)
    (tmp_path / "runs" / "rerank" / "scores.tsv").write_text(SCORES, encoding="utf-8")
    pair, rerank = (line for line in LINES if "awk" in line)
    run_line(pair, tmp_path)
    written = (tmp_path / "pairs.tsv").read_text("utf-8")
    assert written == "le chat\ta cat\nun chat\ta cat\noui\tyes\n\tyes\nles deux mots\ttwo words\n"
    forward = re.findall(r"`(\{print .+?\})`", SECTION)[0]
    run_line(re.sub(r"\{print .+?\}", lambda _: forward, pair), tmp_path)
    assert (tmp_path / "pairs.tsv").read_text("utf-8").splitlines()[1] == "a cat\tun chat"
    run_line(rerank, tmp_path)  # -0.6 - 0.5 > -0.5 - 1.5
    assert (tmp_path / "reranked.txt").read_text("utf-8") == "un chat\noui\nles deux mots\n"
    run_line(rerank.replace("0.5 *", "0 *"), tmp_path)
    assert (tmp_path / "reranked.txt").read_text("utf-8") == "le chat\noui\nles deux mots\n"


@pytest.mark.slow
def test_the_lines_run_with_models_of_both_directions(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    columns = "data.source_column={} data.target_column={} data.source_language={} data.target_language={}"
    for folder, order in (("mine", (1, 2, "en", "fr")), ("fr_en", (2, 1, "fr", "en"))):
        given = f"data=parallel data.train=train.tsv data.val=val.tsv data.test=test.tsv {columns.format(*order)}"
        small = "debug=fast tokenizer.vocab_size=40 model.embedding_dim=12 model.encoder.dim=12 model.decoder.dim=12"
        where = f"paths.cache_dir=cache hydra.run.dir=runs/train/{folder}"
        run_line(f"python train.py {given} {small} {where}", tmp_path)
    sources = [line.split("\t")[0] for line in (tmp_path / "test.tsv").read_text("utf-8").splitlines()]
    sources.insert(3, "")  # has no translation to choose
    (tmp_path / "english.txt").write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
    for line in LINES:
        run_line(line.replace("ckpt_path=model.ckpt", "ckpt_path=runs/train/mine"), tmp_path)
    best = [line.split(" ||| ") for line in (tmp_path / "best.txt").read_text("utf-8").splitlines()]
    scores = (tmp_path / "runs" / "rerank" / "scores.tsv").read_text("utf-8").splitlines()
    sums: dict[int, tuple[float, str]] = {}
    for (number, text, _, score), other in zip(best, scores, strict=True):
        total = float(score) + 0.5 * float(other.split("\t")[2])
        sums[int(number)] = max(sums.get(int(number), (float("-inf"), "")), (total, text), key=lambda pair: pair[0])
    chosen = (tmp_path / "reranked.txt").read_text("utf-8").splitlines()
    assert chosen == [sums[number][1] for number in range(len(sources))]
