"""The documentation: its pages are listed and linked, their commands compose, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import torch
from configs import CONF, ROOT, composed, options
from hydra import compose, initialize_config_dir
from test_readme import jobs

from scripts.docs import __main__ as site
from scripts.docs import attention_pages, reference_pages, site_links, worked_example
from seq2seq_attn.cli import choices
from seq2seq_attn.cli.command import SUBCOMMANDS

TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in [*site_links.pages(), PurePosixPath("README.md")]}
WRITTEN_HERE = ("tutorial", "questions", "choosing_attention", "serving", "runs")
COMMANDS = [
    (page, *found)
    for page in WRITTEN_HERE
    for found in re.findall(
        r"\bpython (train|translate|evaluate)\.py ([^<>|\n]+)", TEXTS[PurePosixPath(f"docs/{page}.md")]
    )
]
BUILT_BY = ("sphinx", "myst_parser", "furo", "latex2mathml")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as forges and the site form them."""
    headings = re.findall(r"^#+ (.+)$", site_links.CODE.sub(lambda code: code[0].strip("`"), text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_table_of_contents() -> None:
    assert site_links.unlisted() == []


@pytest.mark.parametrize("page", TEXTS, ids=str)
def test_links_lead_somewhere(page: PurePosixPath) -> None:
    for target, anchor in site_links.links(TEXTS[page], page):
        assert (ROOT / target).exists(), f"{page} links to {target}, which does not exist"
        if anchor and target.suffix == ".md":
            text = TEXTS.get(target) or (ROOT / target).read_text(encoding="utf-8")
            assert anchor[1:] in anchors(text), f"{page} links to {target}{anchor}, which is no heading"


def test_links_are_those_of_the_site() -> None:
    page, place, copied = PurePosixPath("docs/a.md"), PurePosixPath("a.md"), set()
    text = "[1](b.md#c) [2](../README.md) [3](#here) [4](benchmarks/x.html) [5](https://a.b) `[6](b.md)`"
    assert site_links.relink(text, page, place, copied) == (
        "[1](b.md#c) [2](repository/README.md) [3](#here) [4](site:benchmarks/x.html) [5](https://a.b) `[6](b.md)`"
    )
    assert copied == {PurePosixPath("README.md")}
    moved = site_links.relink("[1](b.md) [3](#here)", page, PurePosixPath("attentions/x.md"), copied)
    assert moved == "[1](../b.md) [3](../a.md#here)"


def test_every_part_has_its_formula() -> None:
    formulas = attention_pages.latex_of()
    assert {part: sorted(names) for part, names in formulas.items()} == {
        part: options(f"attention/{part}") for part in attention_pages.SECTIONS
    }


@pytest.mark.parametrize("preset", options("attention"))
def test_a_page_of_an_attention_has_what_it_promises(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_pages, "worked", str)  # 0.1 s each
    text = attention_pages.attention_page(preset, set())
    for section in ("Formula", "Parts", "A worked number", "Where it runs", "Cost", "Code and configuration"):
        assert re.search(rf"^## {section}\n\n\S", text, re.MULTILINE), section
    assert text.startswith(f"# {preset}\n")
    assert re.findall(r"^- `model=(\w+)`: \S", text, re.MULTILINE) == ["rnn", "conv", "transformer"]
    assert f"../images/attention/{preset}.png" in text
    assert f"attention={preset}" in text


def test_the_page_of_the_delta_rule_has_its_decay_and_not_what_the_strength_replaces() -> None:
    plain, gated = (attention_pages.formulas(parts) for parts in ({}, {"decay": "gate"}))
    assert "f_t = 1\n" in plain
    assert r"f_t = \sigma(w" in gated
    assert "g_t" not in gated


@pytest.mark.parametrize("preset", ["alternating", "coverage", "performer"])
def test_the_worked_number_of_an_attention_is_a_table(preset: str) -> None:
    check_table(attention_pages.worked(preset))


@pytest.mark.slow
def test_every_attention_has_a_worked_number() -> None:
    for preset in options("attention"):
        check_table(attention_pages.worked(preset))


def test_the_lengths_of_a_cost_are_in_order() -> None:
    assert re.findall(r"^\| ([\d,]+) \|", attention_pages.cost("bahdanau"), re.MULTILINE) == ["128", "512", "2,048"]


def test_the_pages_of_options_have_every_group_and_choice() -> None:
    assert set(reference_pages.GROUPS) == set(choices.groups())
    index = reference_pages.index_page(set())
    for group, page in reference_pages.GROUPS.items():
        section = index.partition(f"\n`{page.override}`")[2].partition("\n## ")[0]
        assert re.findall(r"^- `(\w+)`: \S", section, re.MULTILINE) == options(group)
        text = reference_pages.group_page(group, set())
        assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == options(group)
    text = reference_pages.group_page("optimizer", set())
    assert "{py:class}`~seq2seq_attn.optimizer.muon.Muon`" in text
    assert (CONF / "optimizer/muon.yaml").read_text("utf-8") in text
    assert "`optimizer=NAME`, default: `adam`" in text


def test_the_overrides_of_the_pages_of_options_compose() -> None:
    for group, page in reference_pages.GROUPS.items():
        name = "ema" if group == "callback" else options(group)[-1]
        assert composed(*page.override.replace("NAME", name).split()).model, group


def test_the_page_of_commands_has_the_help_of_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reference_pages, "help_of", lambda name: f"usage of {name}")
    reference_pages.write_reference_pages(tmp_path, set())
    text = (tmp_path / "commands.md").read_text("utf-8")
    assert re.findall(r"^## seq2seq-attn (.+)$", text, re.MULTILINE) == list(SUBCOMMANDS)
    assert re.findall(r"^usage of (.+)$", text, re.MULTILINE) == list(SUBCOMMANDS)
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= anchors(text)
    assert len(list((tmp_path / "options").iterdir())) == len(reference_pages.GROUPS)


@pytest.mark.slow
def test_the_help_of_a_subcommand_is_what_it_prints() -> None:
    assert reference_pages.help_of("average").startswith("usage: seq2seq-attn average")
    assert "Examples\nseq2seq-attn train attention=luong_general\n" in reference_pages.help_of("train")


def check_table(text: str) -> None:
    numbers = re.findall(r"^\| (\d) \| (.+) \|$", text, re.MULTILINE)
    assert [int(query) for query, _ in numbers] == list(range(6))
    weights = [[float(weight) for weight in row.split(" | ")] for _, row in numbers]
    assert all(len(row) == 6 and any(row) for row in weights)
    assert not any(math.isnan(weight) for row in weights for weight in row)


def test_the_worked_number_is_that_of_the_formula() -> None:
    tokens = torch.tensor(worked_example.TOKENS)
    hidden = (tokens[:, None] + tokens).tanh().sum(-1)
    torch.testing.assert_close(worked_example.weights("bahdanau"), hidden.softmax(-1))


@pytest.mark.parametrize(("page", "name", "overrides"), COMMANDS)
def test_a_command_composes(page: str, name: str, overrides: str) -> None:
    check(name, overrides)


def test_the_subcommands_of_the_pages_exist() -> None:
    for page in (*WRITTEN_HERE, "coming_from"):
        text = TEXTS[PurePosixPath(f"docs/{page}.md")]
        for command in re.findall(r"\bseq2seq-attn ([a-z]+(?: (?!runs/|ckpt)[a-z0-9]+)?)", text):
            assert command in SUBCOMMANDS or command.split()[0] in SUBCOMMANDS, command


def options_of_others() -> list[tuple[str, str]]:
    """Return the program and the overrides of each cell of docs/coming_from.md."""
    found, name, rows = [], "train", 0
    for line in TEXTS[PurePosixPath("docs/coming_from.md")].splitlines():
        if line.startswith("### "):
            name = {"### Training": "train", "### Translation": "translate", "### Server": "serve"}[line]
        elif line.startswith("| "):
            rows += 1
            found += [(name, overrides) for overrides in re.findall(r"`([^`]+=[^`]*)`", line.split(" | ")[1])]
    assert rows > 100
    assert len(found) > rows - 10
    return found


def test_every_option_for_those_who_come_from_elsewhere_is_one_of_conf() -> None:
    keys = {
        key for file in CONF.rglob("*.yaml") for key in re.findall(r"^ *(\w+):", file.read_text("utf-8"), re.MULTILINE)
    }
    for _, overrides in options_of_others():
        for override in shlex.split(overrides):
            key, _, value = override.partition("=")
            group = CONF / key.partition("@")[0]
            chosen = re.findall(r"\w+", value)
            assert (
                all((group / f"{choice}.yaml").is_file() for choice in chosen)
                if group.is_dir()
                else key.rpartition(".")[2] in keys
            ), override


@pytest.mark.slow
def test_every_option_for_those_who_come_from_elsewhere_composes() -> None:
    for name, overrides in options_of_others():
        check(name, overrides)


def check(name: str, overrides: str) -> None:
    if name == "train":
        assert [composed(*job).model for job in jobs(f"python train.py {overrides}")]
        return
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose(name, shlex.split(overrides)).ckpt_path


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    (tmp_path / "english.txt").write_text("The pilot likes the red house.\n", encoding="utf-8")
    for number, (page, name, overrides) in enumerate(COMMANDS):
        if page == "tutorial":
            small = ["debug=fast"] if name == "train" else ["bootstrap=0"] if name == "evaluate" else []
            words = [
                re.sub(r"runs/|english\.txt|french\.txt", rf"{tmp_path}/\g<0>", word) for word in shlex.split(overrides)
            ]
            folder = [f"hydra.run.dir={tmp_path}/{name}_{number}"] if "hydra.run.dir" not in overrides else []
            given = (tmp_path / "english.txt").read_bytes()
            command = [sys.executable, f"{name}.py", *words, *small, *(folder if name != "translate" else [])]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, input=given, timeout=600)
            assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in BUILT_BY), reason="needs the extra [docs]: make docs"
)
def test_the_site_builds_without_a_warning_and_loads_nothing() -> None:
    done = subprocess.run([sys.executable, "-m", "scripts.docs"], cwd=ROOT, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stderr.decode()
    html = site.BUILD / "html"
    assert len(list((html / "attentions").glob("*.html"))) == len(options("attention")) + 1
    page = (html / "attentions/bahdanau.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert 'href="../api/seq2seq_attn.attention.score.html#seq2seq_attn.attention.score.additive.AdditiveScore"' in page
    assert (html / "compare_attentions.html").is_file()


def test_what_a_page_loads_from_the_network_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://x.y">x</a><script src="local.js"></script>', encoding="utf-8")
    assert site.loaded_from_network(tmp_path) == []
    (tmp_path / "b.html").write_text('<script async src="https://x.y/z.js"></script>', encoding="utf-8")
    (tmp_path / "c.css").write_text("@import url(//x.y/font.css);", encoding="utf-8")
    (tmp_path / "d.html").write_text('<link rel="stylesheet" href="https://x.y/z.css"/>', encoding="utf-8")
    assert [text.rpartition(" in ")[2] for text in site.loaded_from_network(tmp_path)] == ["b.html", "c.css", "d.html"]
