"""Scores by the length of the source are those of the run's own metric and of all references."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from comparison.made_runs import METRIC, REFERENCES, SOURCES, bleu_of, spoilt, write_run
from comparison.test_runs_left_out import OWN_METRIC

from seq2seq_attn.comparison import lengths as script
from seq2seq_attn.comparison.system import System
from seq2seq_attn.metric.bleu import BLEU


def say(run: Path, *lines: tuple[str, str, str]) -> None:
    """Replace the source, reference and translation of each line of its test set."""
    (run / "translations.references").unlink()
    (run / "translations.tsv").write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def row_of(said: str, name: str) -> list[str]:
    (line,) = [line for line in said.splitlines() if f" {name} " in line]
    return [cell.strip() for cell in line.strip("│").split("│")][1:]  # without the run


def test_a_third_has_the_score_of_its_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", "sparse", spoilt(4))
    write_run(tmp_path / "b", "none", spoilt(2))
    script.main([str(tmp_path / "a"), str(tmp_path / "b")])
    said = capsys.readouterr().out
    rows = sorted(range(len(SOURCES)), key=lambda row: len(SOURCES[row].split()))
    for name, every in (("sparse", 4), ("none", 2)):
        hypotheses = spoilt(every)
        expected = [bleu_of(hypotheses)]
        for start, end in ((0, 8), (8, 16), (16, 25)):
            third = rows[start:end]
            expected.append(bleu_of([hypotheses[row] for row in third], [REFERENCES[row] for row in third]))
        assert row_of(said, name) == [name, "bleu", *(f"{score:.1f}" for score in expected), ""]


def test_the_metric_and_the_words_are_those_of_the_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references = ["他们 在 公园 里 玩".replace(" ", ""), "猫" * 30, "一只狗在雪地里跑", "我们明天去"]
    hypotheses = ["他们在公园玩", "猫" * 30, "一只狗在雪里跑", "我们今天去"]
    sources = ["字" * count for count in (9, 3, 6, 12)]
    metric = {"bleu": {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": False, "tokenize": "zh"}}
    run = write_run(tmp_path / "a", "sparse", spoilt(4), options={"metric": metric})
    say(run, *zip(sources, references, hypotheses, strict=True))
    script.main([str(run)])
    scorer = BLEU(lowercase=False, tokenize="zh")
    scorer.update(hypotheses, [[reference] for reference in references])
    found = row_of(capsys.readouterr().out, "sparse")
    assert found[2] == f"{scorer.compute().item():.1f}"
    assert found[3] == "100.0"  # the shortest source


def test_a_third_without_sentences_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a", "sparse", spoilt(4))
    say(run, ("a b", "une phrase de six mots ici", "une phrase de six mots ici"))
    script.main([str(run)])
    assert row_of(capsys.readouterr().out, "sparse") == ["sparse", "bleu", "100.0", "", "", "100.0", ""]


def test_a_metric_of_all_sentences_counts_those_of_a_third_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metric = {"distinct1": {"_target_": "seq2seq_attn.metric.distinct.Distinct", "n": 1, "tokenize": "words"}}
    run = write_run(tmp_path / "a", "sparse", spoilt(4), options={"metric": metric}, **{"test/distinct1": 1.0})
    said = ["a b", "a b", "a b c", "a b c", "a b c d", "a b c d"]
    say(run, *((text, "x", text) for text in said))
    script.main([str(run)])
    found = row_of(capsys.readouterr().out, "sparse")
    assert found[1] == "distinct1"
    assert [float(cell) for cell in found[2:6]] == pytest.approx([400 / 18, 50, 50, 50], abs=0.05)


def test_a_run_without_a_metric_of_which_more_is_better_has_bleu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "a", "sparse", spoilt(4), options={"metric": {}})
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    damaged = write_run(tmp_path / "runs" / "c", "none", spoilt(4))
    (damaged / "results.json").write_text("{", encoding="utf-8")
    no_yaml = write_run(tmp_path / "runs" / "d", "none", spoilt(4))
    (no_yaml / "config.yaml").write_text("seed: [1", encoding="utf-8")
    script.main([str(tmp_path / "runs")])
    said = capsys.readouterr()
    for folder in (damaged, no_yaml):
        assert f"left out: {folder}: results.json or config.yaml is damaged (" in said.err
    assert row_of(said.out, "sparse")[1:3] == ["bleu", f"{bleu_of(spoilt(4)):.1f}"]
    assert f"left out: {tmp_path / 'runs' / 'b'}: stopped before anything was logged" in said.err


def test_a_run_without_translations_is_left_out_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", "sparse", spoilt(4))
    other = write_run(tmp_path / "b", "none", spoilt(2))
    (other / "translations.tsv").unlink()
    script.main([str(tmp_path)])
    said = capsys.readouterr()
    assert row_of(said.out, "sparse")[2] == f"{bleu_of(spoilt(4)):.1f}"
    assert said.err.startswith(f"left out: {other}: {other / 'translations.tsv'} cannot be read")


@pytest.mark.parametrize("results", [["test/bleu"], {"attention": 5}])
def test_a_run_with_damaged_results_is_left_out_alone(
    results: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "a", "sparse", spoilt(4))
    file = write_run(tmp_path / "b", "none", spoilt(2)) / "results.json"
    whole = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(whole | results if isinstance(results, dict) else results), encoding="utf-8")
    script.main([str(tmp_path)])
    assert f"left out: {tmp_path / 'b'}: results.json or config.yaml is damaged (" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["a b", None])
def test_rows_name_their_runs_and_another_test_set_is_left_out(
    source: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("here/a", "here/b", "there/a"):
        write_run(tmp_path / folder, "sparse", spoilt(4))
    other = "une phrase de six mots ici"
    say(tmp_path / "there" / "a", *([(source, other, other)] if source else [(text, other, other) for text in SOURCES]))
    script.main([str(tmp_path)])
    said = capsys.readouterr()
    assert [line.split("│")[1].strip() for line in said.out.splitlines() if "sparse" in line] == ["here/a", "here/b"]
    first = tmp_path / "here" / "a"
    assert said.err == f"left out: {tmp_path / 'there' / 'a'}: its test set is not that of {first}\n"


def test_a_run_whose_metric_has_other_options_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"metric": {"bleu": METRIC["bleu"] | {"lowercase": True}}}
    for number, own in enumerate(({}, options, {})):
        write_run(tmp_path / str(number), f"a{number}", spoilt(4), options=own)
    script.main([str(tmp_path)])
    said = capsys.readouterr()
    assert [name for name in ("a0", "a1", "a2") if f" {name} " in said.out] == ["a0", "a2"]
    reason = r"its bleu \(nrefs:1\|case:lc\|\S+\) has other options than that of"
    assert re.fullmatch(rf"left out: {tmp_path}/1: {reason} {tmp_path}/0\n", said.err)


@pytest.mark.parametrize("options", [{}, {"tokenize": "auto", "language": "fr"}, {"tokenize": "13a", "language": "fr"}])
@pytest.mark.parametrize(("language", "reference"), [("zh", "The cat."), ("fr", "我喜欢狗。"), ("fr", "The cat.")])
def test_bleu_is_by_the_language_of_the_run_and_of_its_references_unless_the_run_chose(
    options: dict[str, str], language: str, reference: str, tmp_path: Path
) -> None:
    own = {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": False} | options
    if "language" in options:
        own["language"] = language
    config = {"metric": {"bleu": own} if options else {}, "data": {"target_language": language}}
    test = System("a", ["a"], [reference], [[reference]], {}, None)
    scorer = script.scorer_of(tmp_path, "bleu", config, (), test)
    scorer.update(["any"], [[reference]])
    expected = "13a" if options.get("tokenize") == "13a" or (language, reference) == ("fr", "The cat.") else "zh"
    assert f"|tok:{expected}|" in scorer.signature()


def test_a_run_with_a_metric_of_ones_own_is_left_out_until_its_package_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    (tmp_path / "own_lengths_metric.py").write_text(OWN_METRIC, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    metric = {"bleu": {"_target_": "own_lengths_metric.MyBLEU", "lowercase": False, "tokenize": "13a"}}
    write_run(tmp_path / "runs" / "1", "local", spoilt(4), options={"metric": metric})
    script.main([str(tmp_path / "runs")])
    said = capsys.readouterr()
    assert row_of(said.out, "sparse")[1] == "bleu"
    assert "own_lengths_metric.MyBLEU" in said.err
    script.main([str(tmp_path / "runs"), "--trust", "own_lengths_metric"])
    said = capsys.readouterr()
    assert row_of(said.out, "local")[1:] == row_of(said.out, "sparse")[1:]
    assert not said.err


def test_a_metric_of_ones_own_of_which_less_is_better_gives_way_to_bleu_once_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "class MyBLEU(CorpusMetric):\n"
    source = OWN_METRIC.replace(head, f"{head}    higher_is_better = False\n")
    (tmp_path / "own_error_rate.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    rate = {"_target_": "own_error_rate.MyBLEU", "lowercase": False, "tokenize": "13a"}
    options = {"metric": METRIC | {"rate": rate}, "monitor": "val/rate"}
    run = write_run(tmp_path / "run", "sparse", spoilt(4), options=options, **{"test/rate": 3.0})
    script.main([str(run), "--trust", "own_error_rate"])
    assert row_of(capsys.readouterr().out, "sparse")[1] == "bleu"
