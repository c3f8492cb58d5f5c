"""The benchmark of statistical aligners: what it writes, and the pairs that it measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks import alignment as benchmark
from seq2seq_attn.data.corpus import Split

TRAIN = [("a dog", "un chien"), ("the cat sleeps", "le chat dort"), ("go", "va")]
LINKS = [[(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 2)], [(0, 0)]]


def test_links_of_all_pairs_are_written_and_those_of_the_gold_standard_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alignments").mkdir()
    lines = "The cat sleeps ||| le chat dort  1-1 2-2 3p3\n"
    (tmp_path / "alignments/enfr-dev.src-tgt").write_text(lines, encoding="utf-8")
    train = benchmark.as_words(TRAIN)
    monkeypatch.setattr(benchmark, "read_bitext", lambda *folders: {"train": train, "val": train[:1]})

    def align(sources: list[list[str]], targets: list[list[str]]) -> Any:
        assert list(zip(sources, targets, strict=True)) == train
        return LINKS, [[], [(0, 0), (2, 1)], []]

    monkeypatch.setitem(benchmark.ALIGNERS, "eflomal", align)
    output = tmp_path / "output"
    benchmark.main(["--data", str(tmp_path), "--output", str(output), "--aligners", "eflomal"])
    assert (output / "train.fr").read_text("utf-8").splitlines() == [target for _, target in TRAIN]
    assert (output / "val.en").read_text("utf-8") == "a dog\n"
    assert (output / "eflomal.forward").read_text("utf-8").splitlines() == ["0-0 1-1", "0-0 1-1 2-2", "0-0"]
    assert (output / "eflomal.reverse").read_text("utf-8").splitlines() == ["", "0-0 2-1", ""]
    found = json.loads((output / "alignment.json").read_text("utf-8"))
    assert found["pairs"] == 3
    assert found["alignment"]["eflomal, forward"] == {"links": 3, "precision": 100, "recall": 100, "error_rate": 0}
    assert found["alignment"]["eflomal, reverse"]["error_rate"] == 50  # one of two links is right, one of two found
    assert [rates["reverse"] for rates in found["error_rates"]["eflomal"]] == [50]


def test_further_runs_of_eflomal_are_measured_and_the_links_of_the_first_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "alignments").mkdir()
    lines = "The cat sleeps ||| le chat dort  1-1 2-2 3-3\n"
    (tmp_path / "alignments/enfr-dev.src-tgt").write_text(lines, encoding="utf-8")
    monkeypatch.setattr(benchmark, "read_bitext", lambda *folders: {"train": benchmark.as_words(TRAIN)})
    runs = iter([LINKS, [[], [(0, 2)], []], [[], [(0, 0)], []]])
    monkeypatch.setitem(benchmark.ALIGNERS, "eflomal", lambda *sides: (next(runs), LINKS))
    typed = ["--data", str(tmp_path), "--output", str(tmp_path / "output"), "--aligners", "eflomal", "--repeats"]
    benchmark.main([*typed, "3"])
    found = json.loads((tmp_path / "output/alignment.json").read_text("utf-8"))
    rates = [(one["forward"], one["reverse"]) for one in found["error_rates"]["eflomal"]]
    assert rates == [(0, 0), (100, 0), (50, 0)]  # in the third, one of three links
    assert found["alignment"]["eflomal, forward"]["error_rate"] == 0
    assert (tmp_path / "output/eflomal.forward").read_text("utf-8").splitlines() == ["0-0 1-1", "0-0 1-1 2-2", "0-0"]
    with pytest.raises(SystemExit, match=r"^2$"):
        benchmark.main([*typed, "0"])
    assert "--repeats 0: give 1 or more" in capsys.readouterr().err


def test_a_tatoeba_sentence_that_is_also_trained_in_lower_case_is_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alignments").mkdir()
    (tmp_path / "alignments/enfr-all.src-tgt").write_text("The House . ||| la Chambre .\n", encoding="utf-8")

    def split(source: str, target: str) -> Split:
        return Split([source], [target], [[target]])

    corpora = {
        "tatoeba": {
            "train": split("Go!", "Va !"),
            "test": Split(["GO!", "I'm here."], ["Va !", "J'y suis."], [[], []]),
        },
        "multi30k_tok": {name: split(f"a {name}", f"un {name}") for name in ("train", "val", "test")},
    }
    monkeypatch.setattr(benchmark, "load_splits", lambda name, *folders: corpora[name])
    splits = benchmark.read_bitext(tmp_path, tmp_path / "cache")
    assert [" ".join(source) for source, _ in splits["train"]] == ["go !", "a train", "the house ."]
    assert splits["test_2016"] == [(["a", "test"], ["un", "test"])]
    assert [source for source, _ in splits["test_tatoeba"]] == [["i", "'m", "here", "."]]
