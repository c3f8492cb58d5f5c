"""The tables of a comparison for a paper: the figures of the page as LaTeX, and all their digits as CSV."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from statistics import stdev

import pytest
from comparison.made_runs import bleu_of, only_group, spoilt, write_run

from seq2seq_attn.comparison import runs as script
from seq2seq_attn.comparison.table import csv_table, latex, latex_tables


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    """Two attentions with two seeds each; the second has no speed of training."""
    for seed, every in ((1, 9), (2, 7)):
        folder = tmp_path / "runs" / f"good{seed}"
        write_run(folder, "good_one", spoilt(every), seed=seed, tokens_per_second=1000.0 * seed)
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"poor{seed}", "poor", spoilt(2), seed=seed, tokens_per_second=None)
    return tmp_path / "runs"


def test_a_latex_table_has_the_cells_of_the_page(seeds: Path) -> None:
    text = latex_tables([only_group(seeds, baseline="poor")])
    lines = text.splitlines()
    assert lines[0].startswith("% Made by seq2seq-attn compare runs")
    assert "% transformer on demo" in lines
    assert any("Holm's correction for 1 comparison" in line for line in lines if line.startswith("% "))
    head, good, poor = (line.removesuffix(r" \\").split(" & ") for line in lines if line.endswith(r" \\"))
    assert lines[lines.index(r"\toprule") - 1] == rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert len(head) == len(good) == len(poor)
    assert (head[0], head[2], head[4]) == ("attention", "BLEU", r"95 \%")
    scores = [bleu_of(spoilt(every)) for every in (9, 7)]
    assert good[:3] == [r"good\_one", "2", rf"\textbf{{{sum(scores) / 2:.1f} $\pm$ {stdev(scores):.1f}}}"]
    assert poor[:4] == ["poor", "2", f"{bleu_of(spoilt(2)):.1f}", "baseline"]
    assert good[head.index("training, tokens/s")] == r"1,500 $\pm$ 707"
    assert poor[head.index("training, tokens/s")] == "--"


def test_no_name_is_latex(tmp_path: Path) -> None:
    assert latex(r"50% of a_b & {c} #1 $x$ ~ ^ \d <e> |f| [g]* −1") == (
        r"50\% of a\_b \& \{c\} \#1 \$x\$ \textasciitilde{} \textasciicircum{} \textbackslash{}d "
        r"\textless{}e\textgreater{} \textbar{}f\textbar{} {[}g]{*} $-$1"
    )
    evil = "[1cm] \\input{x}\n%"
    write_run(tmp_path / "0", evil, spoilt(9), model=f"{evil}\nb")
    lines = latex_tables([only_group(tmp_path)]).splitlines()
    assert [line for line in lines if "input" in line] == [
        r"% [1cm] \input{x} % b on demo",
        next(line for line in lines if line.startswith(r"{[}1cm] \textbackslash{}input\{x\} \% & 1 & ")),
    ]


def test_a_csv_table_has_all_digits_of_the_means_and_deviations(seeds: Path) -> None:
    group = only_group(seeds, baseline="poor")
    good, poor = csv.DictReader(csv_table([group]).splitlines())
    scores = [run.results["test/bleu"] for run in group.rows[0].runs]
    assert (good["group"], good["attention"], good["seeds"]) == ("transformer on demo", "good_one", "2")
    assert (float(good["test/bleu"]), float(good["test/bleu deviation"])) == (sum(scores) / 2, stdev(scores))
    assert (good["num_parameters"], good["tokens_per_second"]) == ("1500000.0", "1500.0")
    assert (poor["tokens_per_second"], poor["tokens_per_second deviation"]) == ("", "")
    one = group.differences["good_one"]
    values = [float(good[name]) for name in ("difference", "low", "high", "p")]
    assert (values, good["significant"]) == ([one.value, one.low, one.high, one.p], str(one.significant))
    assert {poor[name] for name in ("difference", "low", "high", "p", "significant")} == {""}


def test_several_groups_make_one_csv_file_and_several_latex_tables(seeds: Path) -> None:
    write_run(seeds / "rnn", "good_one", spoilt(4), model="rnn")
    groups, _ = script.compare([seeds], None, 50)
    rows = list(csv.DictReader(csv_table(groups).splitlines()))
    titles = ["transformer on demo"] * 2 + ["rnn on demo"]
    assert [(row["group"], row["attention"]) for row in rows] == list(
        zip(titles, ["good_one", "poor", "good_one"], strict=True)
    )
    assert (rows[2]["test/bleu deviation"], rows[2]["difference"]) == ("", "")
    assert latex_tables(groups).count(r"\begin{tabular}") == 2


@pytest.mark.parametrize("name", ["table.tex", "table.csv"])
def test_a_table_is_written_beside_the_page_and_replaces_its_own_alone(
    name: str, seeds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "new" / name
    typed = [str(seeds), "--output", str(tmp_path / "page.html"), "--resamples", "50", "--table", str(table)]
    for by in ("attention", "folder"):
        script.main([str(seeds / "good1"), *typed[1:], "--by", by])
    script.main(typed)
    assert f"wrote {table}\n" in capsys.readouterr().out
    table.write_text("my thesis")
    page = (tmp_path / "page.html").read_bytes()
    with pytest.raises(SystemExit, match="2"):
        script.main(typed)
    said = f"{table} already exists and is not a table of seq2seq-attn compare runs; give another --table"
    assert said in capsys.readouterr().err
    assert table.read_text() == "my thesis"
    assert (tmp_path / "page.html").read_bytes() == page


def test_a_table_that_cannot_be_written_is_refused_before_the_runs_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        script.main(["no-runs", "--output", str(tmp_path / "page.html"), "--table", str(tmp_path / "file" / "a.csv")])
    assert capsys.readouterr().err.endswith(f"nothing can be written in {tmp_path / 'file'}; give another --table\n")


def test_a_table_of_another_format_is_refused(seeds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([str(seeds), "--table", "table.xlsx"])
    assert "--table table.xlsx ends in neither .tex nor .csv; give table.tex or table.csv" in capsys.readouterr().err


def test_a_row_has_the_metrics_of_its_results_and_less_ter_is_better(tmp_path: Path) -> None:
    figures = {"test/ter": 30.0, "test/tokenized_bleu": 41.0, "test/distinct1": 20.0, "test/distinct2": 50.0}
    write_run(tmp_path / "0", "good", spoilt(9), **figures)
    write_run(tmp_path / "1", "poor", spoilt(2), **{name: value + 1 for name, value in figures.items()})
    group = only_group(tmp_path)
    titles = [column.title for column in group.columns.values()]
    assert titles[:6] == ["BLEU", "chrF", "TER", "tokenized BLEU", "distinct-1", "distinct-2"]
    page = script.markdown_page([group], [], "page.html")
    assert re.search(r"\| good \|.*\| \*\*30\.0\*\* \| 41\.0 \| 20\.0 \| 50\.0 \|", page)
    assert re.search(r"\| poor \|.*\| 31\.0 \| \*\*42\.0\*\* \| \*\*21\.0\*\* \| \*\*51\.0\*\* \|", page)
