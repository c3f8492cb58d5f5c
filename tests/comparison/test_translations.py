"""Two systems on one test set: as the `sacrebleu` command compares them, and refused on two test sets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from seq2seq_attn.comparison import translations as script
from seq2seq_attn.comparison.system import read_system, read_systems
from seq2seq_attn.errors import UserError

SUBJECTS = {"le chat": "un chat", "la fille": "une fille", "un homme": "l'homme", "le vieux chien": "ce chien"}
VERBS = ("dort", "mange", "court vite", "regarde la mer", "lit un livre")
REFERENCES = [[f"{a.capitalize()} {verb}.", f"{b.capitalize()} {verb}."] for a, b in SUBJECTS.items() for verb in VERBS]
SOURCES = [f"Sentence {number}." for number in range(len(REFERENCES))]
GOOD = [options[row % 2] for row, options in enumerate(REFERENCES)]
POOR = [text if row % 3 else text.replace(" ", " pas ", 1) for row, text in enumerate(GOOD)]
BAD = [" ".join(text.split()[::-1]) for text in GOOD]


def write(
    folder: Path,
    hypotheses: list[str],
    references: list[list[str]] = REFERENCES,
    sources: list[str] = SOURCES,
    suffix: str = "",
) -> Path:
    """As train.py and evaluate.py write."""
    folder.mkdir(exist_ok=True)
    most = max(map(len, references))
    rows = zip(sources, references, hypotheses, strict=True)
    (folder / f"translations{suffix}.tsv").write_text(
        "".join(f"{source}\t{options[0]}\t{hypothesis}\n" for source, options, hypothesis in rows), encoding="utf-8"
    )
    filled = ["\t".join(options + options[:1] * (most - len(options))) for options in references]
    (folder / f"translations{suffix}.references").write_text("\n".join(filled) + "\n", encoding="utf-8")
    (folder / f"translations{suffix}.hypotheses").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("method", "flag", "resamples", "metrics"),
    [
        ("bootstrap", "bs", 1000, {"bleu": "BLEU"}),
        ("bootstrap", "bs", 400, {"bleu": "BLEU"}),
        ("randomisation", "ar", 500, {"bleu": "BLEU", "chrf": "chrF2"}),
    ],
)
def test_p_values_and_intervals_are_those_of_the_sacrebleu_command_but_for_ties(
    tmp_path: Path, method: str, flag: str, resamples: int, metrics: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bootstrap, the command cannot write chrF's interval as JSON."""
    folders = [write(tmp_path / name, rows) for name, rows in (("good", GOOD), ("poor", POOR), ("bad", BAD))]
    systems = [read_system(folder, "test") for folder in folders]
    drawn = 0 if resamples == 1000 else resamples
    tied = script.compare(systems, list(metrics), method, drawn)
    monkeypatch.setattr(script, "ties_counted", nullcontext)
    found = script.compare(systems, list(metrics), method, drawn)
    files = [shutil.copy(folder / "translations.hypotheses", tmp_path / f"{folder.name}.txt") for folder in folders]
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(folders[0] / "translations.references"),
        "--num-refs",
        "2",
        "-i",
        *files,
        "-m",
        *metrics,
        f"--paired-{flag}",
        f"--paired-{flag}-n",
        str(resamples),
        "-f",
        "json",
        "-w",
        "4",
        "--force",
    ]
    environment = {**os.environ, "PYTHONUTF8": "1", "SACREBLEU_SEED": "12345"}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, check=True)
    theirs = json.loads(done.stdout)
    assert len(theirs) == 3
    for position, of_system in enumerate(theirs):
        for ours, name in metrics.items():
            result, said = found.results[ours][position], of_system[name]
            assert result.score == pytest.approx(said["score"], abs=1e-4)
            assert result.p_value == (None if position == 0 else pytest.approx(said["p_value"], abs=1e-4))
            if method == "bootstrap":
                assert result.ci == pytest.approx(said["ci"], abs=1e-4)
            assert result.ci is not None
            if position > 0:
                counted = tied.results[ours][position].p_value
                assert counted >= result.p_value
                assert (counted > result.p_value) == (method == "randomisation" and position == 1)  # of few sentences
    assert found.results["bleu"][2].p_value < 0.05
    intervals = "" if method == "bootstrap" else "bs:1000|"
    assert f"|{intervals}{flag}:{resamples}|seed:12345|" in found.signatures["bleu"]


@pytest.mark.parametrize("metric", script.METRICS)
def test_a_difference_in_one_sentence_may_always_be_chance(metric: str, tmp_path: Path) -> None:
    """Whichever system has which translation of that sentence, the difference is the same."""
    other = [*GOOD[:7], "Non.", *GOOD[8:]]
    systems = [read_system(write(tmp_path / name, rows), "test") for name, rows in (("good", GOOD), ("other", other))]
    found = script.compare(systems, [metric], "randomisation", 100)
    baseline, result = found.results[metric]
    assert abs(result.score - baseline.score) > 1
    assert result.p_value == 1.0


def test_a_difference_that_rounds_to_nothing_is_not_marked_by_any_metric() -> None:
    baseline, near, far = (script.Result(score, 0.001) for score in (50.0, 50.04, 50.06))
    for metric in script.METRICS:
        assert script.shown(near, baseline, metric)[1] == "0.0010"
        assert script.shown(far, baseline, metric)[1] == "0.0010*"


def test_a_system_that_says_the_same_is_no_better(tmp_path: Path) -> None:
    system = read_system(write(tmp_path / "good", GOOD), "test")
    found = script.compare([system, system], ["bleu", "chrf", "ter"], "bootstrap", 50)
    assert {name: results[1].p_value for name, results in found.results.items()} == dict.fromkeys(
        ("bleu", "chrf", "ter")
    )


def test_versions_that_fill_up_a_line_count_once(tmp_path: Path) -> None:
    ragged = [options[: 1 + row % 2] for row, options in enumerate(REFERENCES)]
    system = read_system(write(tmp_path / "ragged", GOOD, ragged), "test")
    assert system.references == ragged
    found = script.compare([system, system], ["ter"], "bootstrap", 50)
    assert found.signatures["ter"].startswith("nrefs:var|")


def test_equal_versions_count_if_every_sentence_has_as_many(tmp_path: Path) -> None:
    twice = [[*options, options[0]] for options in REFERENCES]
    folder = write(tmp_path / "twice", GOOD, twice)
    assert read_system(folder, "test").references == REFERENCES
    (folder / "results.json").write_text('{"test/ter_signature": "nrefs:3|case:lc|tok:tercom"}')
    system = read_system(folder, "test")
    assert system.references == twice
    found = script.compare([system, system], ["ter"], "bootstrap", 50)
    assert found.signatures["ter"].startswith("nrefs:3|")


def test_a_file_with_the_references_of_an_evaluation_is_compared_with_it_though_two_of_them_are_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = [[*options, options[0]] for options in REFERENCES]
    folder, other = write(tmp_path / "a", GOOD, twice), write(tmp_path / "b", POOR, twice)
    (folder / "results.json").write_text('{"test/ter_signature": "nrefs:3|case:lc|tok:tercom"}')
    for paths in ([folder, other / "translations.tsv"], [other / "translations.tsv", folder]):
        script.main([*map(str, paths), "--metrics", "ter", "--resamples", "50"])
        assert "ter: nrefs:3|" in capsys.readouterr().out
    ragged = [options[: 1 + row % 2] for row, options in enumerate(REFERENCES)]
    (write(folder, GOOD, ragged) / "results.json").write_text('{"test/ter_signature": "nrefs:var|case:lc"}')
    assert [system.references for system in read_systems([folder, write(other, POOR, ragged)], "test")] == [ragged] * 2


@pytest.mark.parametrize("split", ["2016_flickr", "test_2016_flickr"])
def test_a_split_has_its_signatures_with_and_without_test_in_its_name(split: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", GOOD, suffix="_2016_flickr")
    (folder / "results.json").write_text('{"test_2016_flickr/bleu_signature": "case:lc|tok:none"}')
    assert read_system(folder, split).signatures == {"bleu": "case:lc|tok:none"}
    evaluated = {"splits": {"test_2016_flickr": {"signatures": {"bleu": "case:lc|tok:char"}}}}
    (folder / "evaluation.json").write_text(json.dumps(evaluated))
    assert read_system(folder, split).signatures == {"bleu": "case:lc|tok:char"}


def test_a_file_alone_has_the_reference_of_its_second_column(tmp_path: Path) -> None:
    folder = write(tmp_path / "good", GOOD, suffix="_val")
    assert read_system(folder / "translations_val.tsv", "test") == read_system(folder, "val")._replace(
        name=str(folder / "translations_val.tsv")
    )
    (folder / "translations_val.references").unlink()
    assert read_system(folder, "val").references == [options[:1] for options in REFERENCES]


def test_the_table_has_a_row_for_each_system_and_marks_what_chance_would_hardly_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for name, rows in (("good", GOOD), ("bad", BAD)):
        write(Path(name), rows)
    script.main(["good", "bad", "good", "--metrics", "bleu", "--resamples", "100"])
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in printed.splitlines() if line[:1] == "│"]
    assert [row[0] for row in rows] == ["good", "bad", "good"]
    assert rows[0] == ["good", "100.00 ± 0.00", ""]
    assert rows[1][2] == "0.0099*"  # 1 / (100 + 1), the least there is
    assert rows[2][1:] == ["100.00 ± 0.00", "same"]
    assert "20 sentences; the baseline is good" in printed
    assert "bleu: nrefs:2|bs:1000|ar:100|seed:12345|" in printed


def test_a_metric_counts_once_and_too_few_resamples_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [str(write(tmp_path / name, rows)) for name, rows in (("good", GOOD), ("bad", BAD))]
    script.main([*typed, "--metrics", "chrf", "bleu", "chrf", "--resamples", "50"])
    said = capsys.readouterr().out
    assert said.count("chrf: nrefs:2|") == said.count("bleu: nrefs:2|") == 1
    for number in ("-5", "1", "39"):
        with pytest.raises(SystemExit, match="2"):
            script.main([*typed, "--resamples", number])
        assert f"--resamples {number} gives no interval of 95 %; give 40 or more, or 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sources": ["Another.", *SOURCES[1:]]}, "other sources in line 1"),
        ({"references": [*REFERENCES[:4], ["Oui."], *REFERENCES[5:]]}, "other references in line 5"),
    ],
)
def test_another_test_set_is_refused(tmp_path: Path, changes: dict[str, list[str]], why: str) -> None:
    systems = [
        read_system(write(tmp_path / "a", GOOD), "test"),
        read_system(write(tmp_path / "b", POOR, **changes), "test"),
    ]
    with pytest.raises(
        UserError, match=rf"a and .*b have translated different test sets \({why}\); compare systems on"
    ):
        script.compare(systems, ["bleu"], "bootstrap", 50)


def test_another_number_of_lines_is_refused(tmp_path: Path) -> None:
    short = write(tmp_path / "b", GOOD[:7], REFERENCES[:7], SOURCES[:7])
    systems = [read_system(folder, "test") for folder in (write(tmp_path / "a", GOOD), short)]
    with pytest.raises(UserError, match=r"different test sets \(20 and 7 lines\); compare systems on the same data"):
        script.compare(systems, ["bleu"], "bootstrap", 50)


def test_what_is_no_translation_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"none/?\S* cannot be read \(No such file or directory\); give a folder of"):
        read_system(tmp_path / "none", "test")
    folder = write(tmp_path / "a", GOOD)
    (folder / "pairs.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"pairs.tsv, line 1: 2 tab-separated columns instead of source, reference"):
        read_system(folder / "pairs.tsv", "test")
    (folder / "translations.references").write_text("other\n" * 20)
    with pytest.raises(UserError, match=r"translations.references does not belong to .*translations.tsv; give the"):
        read_system(folder, "test")


def test_a_folders_name_is_no_markup_of_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    folders = [write(tmp_path / name, GOOD) for name in ("[bold]x", "y[", ":smile:")]
    script.main([*map(str, folders), "--metrics", "bleu", "--resamples", "50"])
    said = capsys.readouterr().out
    assert all(said.count(str(folder)) == 1 + (folder == folders[0]) for folder in folders)


def test_the_tokenizer_of_a_strangers_evaluation_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path / "models"))
    folder = write(tmp_path / "a", GOOD)
    (folder / "results.json").write_text('{"test/bleu_signature": "case:lc|tok:flores200"}')
    with pytest.raises(UserError, match=r"tokenizer flores200, which .* was not downloaded; .*, give --tokenize"):
        script.metric_of("bleu", [read_system(folder, "test")])
