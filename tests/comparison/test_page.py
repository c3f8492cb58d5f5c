"""The page that compares attentions: it is whole, and shows every row in every part."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from comparison.made_runs import METRIC, only_group, runs_of, spoilt, write_log, write_map, write_run, write_sweep
from configs import CONF, options
from hydra import compose, initialize_config_dir
from markdown_it import MarkdownIt

from seq2seq_attn.attention.build import option_reads_history
from seq2seq_attn.comparison import draw as drawing
from seq2seq_attn.comparison import maps
from seq2seq_attn.comparison import runs as script


def test_names_at_points_cover_neither_points_nor_each_other() -> None:
    centres = [(2.0 + 0.2 * number, 2.0 + 0.03 * number) for number in range(7)]
    found = [box for _, box in drawing.arrange(centres, [(1.1, 0.1)] * 7, drawing.Box(0, 0, 7, 5))]
    marks = [drawing.Box(x - 0.05, y - 0.05, x + 0.05, y + 0.05) for x, y in centres]
    taken = [*found, *marks]
    assert sum(box.overlap(other) for i, box in enumerate(found) for other in taken[i + 1 :]) < 1e-9
    assert all(box.left >= 0 and box.right <= 7 for box in found)


@pytest.mark.slow
def test_the_map_is_of_the_last_layer_at_the_validation_that_chose_the_checkpoint(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "0", "sparse", spoilt(4))
    weights = np.random.default_rng(1).random((3, 5, 7))
    for step in ("step_000010", "step_000020", "step_000030"):
        for layer in (0, 1):
            for sentence in (0, 1):
                right = (step, layer, sentence) == ("step_000020", 1, 1)  # after 20 updates BLEU was 60
                name = f"attention_maps/{step}/encoder_{layer}_{sentence}.npz"
                write_map(folder, name, weights if right else np.zeros((3, 5, 7)))
    (run,) = runs_of(tmp_path)
    found = maps.map_of(run, "encoder", 1)
    assert found.weights == pytest.approx(weights.mean(0))
    assert (found.layer, found.heads, found.rows[4], found.columns[6]) == (1, 3, "▁t4", "▁s6")
    assert maps.map_of(run, "cross", 1) is None
    write_log(folder, [(9, 20.0), (19, 60.0), (29, 70.0)])
    (run,) = runs_of(tmp_path)
    assert maps.best_maps(run).name == "step_000030"
    write_log(folder, [(9, 20.0), (19, 60.0)])
    (run,) = runs_of(tmp_path)
    for weights in (np.float64(1.0), np.array(["a"]), np.zeros((2, 3)), np.zeros((1, 6_000, 6_000))):
        file = folder / "attention_maps/step_000020/encoder_1_1.npz"
        np.savez_compressed(file, weights=weights, source_tokens=["a"], target_tokens=["b"])
        assert maps.map_of(run, "encoder", 1) is None
    (folder / "attention_maps/step_000020/encoder_1_1.npz").write_bytes(b"cut off")
    assert maps.map_of(run, "encoder", 1) is None


def test_a_validation_within_an_update_has_the_folder_of_the_updates_before_it(tmp_path: Path) -> None:
    """As val_check_interval=5 with accumulate_grad_batches=4 logs them: the fourth of five ends an update."""
    folder = write_run(tmp_path / "0", "sparse", spoilt(4))
    folders = {1: "1", 2: "2", 3: "3", 4: "5", 6: "6"}
    for updates in folders.values():
        (folder / "attention_maps" / f"step_00000{updates}").mkdir(parents=True)
    for best, updates in folders.items():
        write_log(folder, [(step, 60.0 if step == best else 20.0) for step in folders])
        (run,) = runs_of(tmp_path)
        assert maps.best_maps(run).name == f"step_00000{updates}"
    write_log(folder, [(1, float("nan")), (3, 60.0)])
    (run,) = runs_of(tmp_path)
    assert maps.best_maps(run).name == "step_000003"


def test_maps_are_of_one_sentence_whatever_its_number_in_a_run(tmp_path: Path) -> None:
    said = {"good": ["a b c", "d e f"], "fair": ["d e f", "a b <unk>"], "poor": ["d e f", "g h <unk>"]}
    for every, (name, sentences) in zip((9, 4, 2), said.items(), strict=True):
        folder = write_run(tmp_path / "runs" / name, name, spoilt(every))
        for number, sentence in enumerate(sentences):
            for kind in ("cross", "self"):
                weights = np.full((1, 4, 4), number / 2)
                source = sentence if kind == "cross" else "le chat dort"
                write_map(folder, f"attention_maps/step_000020/{kind}_0_{number}.npz", weights, source)
    rows = only_group(tmp_path / "runs").rows
    for kind in ("cross", "self"):
        found, others = maps.maps_of(rows, kind, 0)
        assert {label: (one.sentence, one.weights.max()) for label, one in found.items()} == {
            "good": ("a b c", 0.0),
            "fair": ("a b <unk>", 0.5),
        }
        assert others == ["poor"]
    script.main([str(tmp_path / "runs"), "--output", str(tmp_path / "page.html"), "--resamples", "50"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<q>a b c</q>") == text.count("since their maps are of other sentences: poor.") == 2


class Checker(HTMLParser):
    """Every element is closed, and what is referred to stands in the page, once."""

    VOID = ("meta", "path", "use", "image", "rect", "wbr", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert value is not None or name == "open", name
            self.ids += [value] if name == "id" else []
            self.links += [value] if name in ("href", "xlink:href", "src") else []
            self.links += re.findall(r"url\(([^)]+)\)", value or "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page with maps, an odd name and a second group."""
    folder = tmp_path_factory.mktemp("made")
    write_sweep(folder / "sweep")
    write_run(folder / "sweep" / "odd", "<odd> & $x$", spoilt(3), model="rnn")
    for run in ("0", "1"):
        for kind in ("cross", "encoder"):
            name = f"attention_maps/step_000020/{kind}_0_0.npz"
            write_map(folder / "sweep" / run, name, np.eye(5, 7)[None])
    script.main([str(folder / "sweep"), "--output", str(folder / "page.html"), "--resamples", "50"])
    return folder


def test_the_page_is_whole_and_asks_for_nothing_beside_it(made: Path) -> None:
    text = (made / "page.html").read_text(encoding="utf-8")
    found = Checker(text)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids)) > 100
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in found.links)
    assert len([link for link in found.links if link.startswith("data:")]) == 6  # 2 × 2 maps, 2 keys
    assert not re.search(r"https?://|@import|<link|<iframe", text)
    assert "default-src 'none'" in text
    assert "&lt;odd&gt; &amp; $x$" in text
    assert "<odd>" not in text


def test_the_page_names_no_position_of_the_machine_and_is_made_alike_twice(made: Path, tmp_path: Path) -> None:
    text = (made / "page.html").read_text(encoding="utf-8")
    assert str(made.parent) not in text
    assert str(made.parent) not in (made / "page.md").read_text(encoding="utf-8")
    script.main([str(made / "sweep"), "--output", str(tmp_path / "new" / "page.html"), "--resamples", "50"])
    assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == text


def test_every_row_is_in_every_part_of_the_page(made: Path) -> None:
    text = (made / "page.html").read_text(encoding="utf-8").partition("<h2>rnn on demo</h2>")[0]
    parts = dict(zip(re.findall("<h3>(.*?)</h3>", text), re.split("<h3>.*?</h3>", text)[1:], strict=True))
    for label in ("good", "fair", "poor"):
        for title in ("Difference from the baseline", "BLEU against speed of training", "All figures"):
            assert f">{label}<" in parts[title], title
        assert parts["BLEU against size, decoding and entropy"].count(f">{label}</text>") == 3
        assert parts["Learning curves"].count(f"<figcaption>{label}</figcaption>") == 2
        assert f">{label}</th>" in parts["BLEU by sentence length"]
    seen = [title for title in parts if "one sentence in every run" in title]
    assert len(seen) == 2
    assert all(parts[title].count("<figcaption>") == 2 for title in seen)
    table = (made / "page.md").read_text(encoding="utf-8")
    assert [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")] == [
        ["| attention", "seeds"],
        ["| good", "2"],
        ["| fair", "1"],
        ["| poor", "1"],
        ["| attention", "seeds"],
        ["| &lt;odd&gt; &amp; &#36;x&#36;", "1"],
    ]


def test_no_value_of_a_run_becomes_markup_in_the_page_or_its_table(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> | `b` [x](http://a.b)\n\n# **head**"
    line = " ".join(evil.split())
    options = {"callback": {"x": evil}, evil: evil, "paths": {"run_dir": "/nowhere"}}
    for number, every in enumerate((9, 4)):
        folder = write_run(
            tmp_path / "runs" / f"<script>{number}",
            evil,
            [f"{line} {text}" for text in spoilt(every)],
            model=evil,
            data=evil,
            options=options | {evil: number},
            references=[f"{line} {text}" for text in spoilt(5)],
            **{f"test_{evil}/bleu": 1.0 + number, "num_parameters": evil, "train_seconds": evil, "steps": evil},
        )
        origin = {"commit": evil, "threads": evil, "platform": f"{evil}{number}", "versions": {"torch": evil}}
        (folder / "provenance.json").write_text(json.dumps(origin), encoding="utf-8")
        write_map(folder, "attention_maps/step_000020/cross_0_0.npz", np.eye(5, 7)[None])
    (tmp_path / "runs" / "[2](x)").mkdir()
    (tmp_path / "runs" / "[2](x)" / "config.yaml").write_text(evil, encoding="utf-8")
    (tmp_path / "runs" / "[2](x)" / "output.log").write_text(evil, encoding="utf-8")
    output = tmp_path / "a (b) <i>.html"
    script.main([str(tmp_path / "runs"), "--output", str(output), "--resamples", "50"])
    text = output.read_text(encoding="utf-8")
    assert Checker(text).open == []
    assert re.findall("<script.*?>", text, re.DOTALL) == ["<script>"]  # the page's own, which sorts
    assert not re.search(r"<(b|i|a|img)\b", text.replace("<b>runs/[2](x)</b>", ""))
    (policy,) = re.findall("script-src '(.*?)'", text)
    (script_text,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    assert policy == f"sha256-{b64encode(sha256(script_text.encode()).digest()).decode()}"
    table = output.with_suffix(".md").read_text(encoding="utf-8")
    assert "alert(1)" in table
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(table)
    known = ["h1", "h2", "ul", "li", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "a"]
    assert set(re.findall(r"<(\w+)", html)) == set(known)
    assert re.findall("<a .*?>", html) == ['<a href="a%20%28b%29%20%3Ci%3E.html">']
    assert "<script" not in table


def test_the_name_of_a_metric_becomes_no_markup(tmp_path: Path) -> None:
    evil = "<img src=x>"
    for number, every in enumerate((9, 4)):
        options = {"metric": {evil: METRIC["bleu"]}}
        write_run(
            tmp_path / str(number), f"a{number}", spoilt(every), options=options,
            **{f"test/{evil}": 1.0 + number, "tokens_per_second": 100.0 + number, "num_parameters": 10 * (number + 1)},
        )  # fmt: skip
    script.main([str(tmp_path), "--output", str(tmp_path / "page.html"), "--resamples", "50"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "&lt;img src=x&gt; by sentence length" in text
    assert "<img" not in text


def test_models_made_equally_large_are_not_plotted_by_size_nor_told_apart_by_it(tmp_path: Path) -> None:
    write_run(tmp_path / "0", "good", spoilt(9), num_parameters=1_500_100)
    write_run(tmp_path / "1", "fair", spoilt(4), num_parameters=1_500_000)
    script.main([str(tmp_path), "--output", str(tmp_path / "page.html"), "--resamples", "50"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    plots = text.partition("BLEU against size, decoding and entropy")[2].partition("<h3>")[0]
    assert plots.count(">good</text>") == 2
    assert "**1.50**" not in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_too_few_resamples_are_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([str(sweep), "--resamples", "39"])
    assert "--resamples 39 gives no interval of 95 %; give 40 or more" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sentence_without_maps_is_refused(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = [str(sweep), "--output", str(tmp_path / "page.html"), "--resamples", "50", "--sentence"]
    with pytest.raises(SystemExit, match="2"):
        script.main([*typed, "3"])
    assert "--sentence 3 has no maps, because no run has any; leave --sentence out" in capsys.readouterr().err
    script.main([*typed, "0"])
    for sentence in (0, 1, 11):
        write_map(sweep / "0", f"attention_maps/step_000020/cross_0_{sentence}.npz", np.eye(5, 7)[None])
    (sweep / "0" / "attention_maps/step_000020/own_file.npz").touch()
    for number in ("2", "-1"):
        with pytest.raises(SystemExit, match="2"):
            script.main([*typed, number])
        assert f"no run has maps of --sentence {number}; choose from: 0, 1, 11" in capsys.readouterr().err
    script.main([*typed, "11"])


def test_a_run_whose_folder_is_not_utf_8_is_compared(tmp_path: Path) -> None:
    for name in (b"lat\xe9", b"ok"):
        write_run(tmp_path / "runs" / os.fsdecode(name), name.decode(errors="replace"), spoilt(4))
    (tmp_path / "runs" / os.fsdecode(b"no\xe9") / ".hydra").mkdir(parents=True)
    script.main([str(tmp_path / "runs"), "--output", str(tmp_path / "page.html"), "--resamples", "40"])
    text = (tmp_path / "page.html").read_text("utf-8")
    assert ("runs/lat\ufffd" in text, "runs/no\ufffd" in text) == (True, True)


def test_runs_on_changed_files_are_told_from_those_on_other_data(tmp_path: Path) -> None:
    def run(seed: int, train: str, fingerprint: str | None) -> None:
        folder = write_run(tmp_path / f"{seed}", "sparse", spoilt(4), seed=seed, options={"data": {"train": train}})
        origin = {} if fingerprint is None else {"data_fingerprint": fingerprint}
        (folder / "provenance.json").write_text(json.dumps(origin), encoding="utf-8")

    def told() -> bool:
        return any("read different sentences" in note for note in only_group(tmp_path).notes)

    run(1, "a.tsv", "a")
    run(2, "a.tsv", "a")
    run(3, "a.tsv", None)
    run(4, "b.tsv", "b")
    assert not told()
    run(5, "a.tsv", "c")
    assert told()


def test_a_page_that_its_table_would_overwrite_is_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([str(sweep), "--output", str(sweep / "page.md")])
    assert "page.md does not end in .html; give page.html" in capsys.readouterr().err


def test_a_file_of_the_users_beside_the_page_is_not_overwritten(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "README.md"
    mine.write_text("# Two houses compared\n")
    with pytest.raises(SystemExit, match="2"):
        script.main([str(sweep), "--output", str(tmp_path / "README.html"), "--resamples", "40"])
    assert f"{mine} would be written beside" in capsys.readouterr().err
    assert not (tmp_path / "README.html").exists()
    assert mine.read_text() == "# Two houses compared\n"
    mine.unlink()
    for _ in range(2):
        script.main([str(sweep), "--output", str(tmp_path / "README.html"), "--resamples", "40"])


def test_compare_attentions_runs_every_preset_for_three_epochs_of_the_demo_corpus() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["experiment=compare_attentions"], return_hydra_config=True)
    assert config.hydra.mode.name == "MULTIRUN"
    left_out = ",".join(preset for preset in options("attention") if option_reads_history(preset))
    assert config.hydra.sweeper.params == {"attention": f"glob(*,exclude=[{left_out}])"}
    chosen = config.hydra.runtime.choices
    assert (chosen["data"], chosen["model"]) == ("demo", "transformer")
    assert (config.trainer.max_epochs, config.trainer.max_time) == (3, None)
    assert len(options("attention")) >= 26
