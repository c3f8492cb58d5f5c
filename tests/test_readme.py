"""The README and the pages that it leads to: every command is composed always, and run as a smoke test if slow."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from configs import CONF, ROOT, composed, options
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.checks import architecture_table as script

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("install", "training", "translating", "evaluating")]
TEXTS = [README, *(page.read_text(encoding="utf-8") for page in PAGES)]
BLOCKS = re.findall(r"^```(?:\w+)?\n(.*?)^```$", "\n".join(TEXTS), re.MULTILINE | re.DOTALL)
OTHERS = list(dict.fromkeys(re.findall(r"\bpython (translate|evaluate)\.py ([^<>|\n]+)", "".join(BLOCKS))))
LINES = [line for block in BLOCKS for line in block.splitlines()]
TRAINED = dict.fromkeys(line for line in LINES if line.startswith("python train.py"))
COMMANDS = [line for line in TRAINED if "--config-dir" not in line]  # test_training_page.py has the others
RESULTS = [line.strip("| ").split(" | ") for line in README.splitlines() if line.startswith("|")][2:]
FLAGS = ("-m", "--help", "--cfg", "job", "--resolve")
PAIRS = [(f"Sentence number {n} is here.", f"La phrase numéro {n} est ici.") for n in range(3000)]
TSV = "".join(f"{english}\t{french}\n" for english, french in PAIRS)
FILES = {
    "fra.txt": TSV,
    "pairs.tsv": TSV,
    "pairs.jsonl": "".join(json.dumps({"english": e, "french": f}) + "\n" for e, f in PAIRS),
    **{
        f"{split}.{language}": "".join(pair[side] + "\n" for pair in PAIRS)
        for split in ("train", "val", "test")
        for side, language in enumerate(("en", "fr"))
    },
}


def jobs(command: str) -> list[list[str]]:
    """Overrides of each job that a command starts."""
    overrides = [word for word in shlex.split(command)[2:] if word not in FLAGS]
    found: list[list[str]] = [[]]
    for override in OverridesParser.create().parse_overrides(overrides):
        values = list(override.sweep_string_iterator()) if override.is_sweep_override() else None
        texts = [f"{override.key_or_group}={v}" for v in values] if values else [override.input_line]
        found = [[*job, text] for job in found for text in texts]
    return found


def test_there_are_commands_to_try() -> None:
    assert len(COMMANDS) >= 10
    assert {name for name, _ in OTHERS} == {"translate", "evaluate"}
    assert README.split("```")[1].split("\n")[1:3] == ["make train", 'make translate TEXT="Where is the library?"']
    assert "`make test`" in README  # which CI runs
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", "".join(TEXTS))) <= set(targets)
    assert {"train", "translate", "test", "dist"} <= set(targets)


def test_the_number_of_attentions_is_that_of_the_presets() -> None:
    presets = options("attention")
    page = (ROOT / "docs/choosing_attention.md").read_text("utf-8")
    assert f"takes one of {len(presets)} presets" in page
    assert f"any of {len(presets) - 1} attention mechanisms" in README  # `none` is no attention


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row[0])
def test_a_figure_of_the_readme_is_on_the_page_of_its_row(row: list[str]) -> None:
    _, result, _, page = row
    path = ROOT / page.partition("](")[2].partition(")")[0].partition("#")[0]
    numbers = re.findall(r"\d[\d,]*\.?\d*", result.replace("JoeyNMT 2.3", "JoeyNMT"))
    on_page = re.findall(r"\d[\d,]*\.?\d*", path.read_text("utf-8"))
    assert [number for number in numbers if not any(is_rounded(number, other) for other in on_page)] == []
    assert numbers


def is_rounded(number: str, other: str) -> bool:
    """Whether a number is another one, with as many decimals or fewer."""
    decimals = len(number.partition(".")[2])
    value = float(other.replace(",", ""))
    return len(other.partition(".")[2]) >= decimals and f"{value:,.{decimals}f}" == number


def test_the_table_of_extras_has_a_row_for_each() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    assert set(re.findall(r"^\| `(\w+)` \|", PAGES[0].read_text("utf-8"), re.MULTILINE)) == extras


def test_every_document_names_the_same_version_and_authors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = project["version"]
    assert (citation["version"], citation["license"]) == (version, project["license"])
    assert citation["authors"] == project["authors"]
    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_every_document_counts_the_attentions() -> None:
    counted = f"any of {len(options('attention')) - 1} attention mechanisms"  # all but none
    for name in ("README.md", "docs/index.md", "pyproject.toml", "CITATION.cff"):
        assert counted in (ROOT / name).read_text("utf-8")


def test_the_package_names_the_versions_of_python_that_ci_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    tested = ci["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])) == tested
    assert project["requires-python"] == f">={tested[0]}"


@pytest.mark.parametrize(("name", "overrides"), OTHERS)
def test_a_command_that_uses_a_checkpoint_composes(name: str, overrides: str) -> None:
    for job in jobs(f"python {name}.py {overrides}"):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            paths = compose(name, job).ckpt_path
        for path in [paths] if isinstance(paths, str) else paths:
            assert path.startswith(("runs/train/", "model.ckpt", "exported/"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_composes(command: str) -> None:
    for overrides in jobs(command):
        decoder = composed(*overrides).model.decoder
        slot = "attention" if "attention" in decoder else "cross_attention"
        assert decoder[slot]._target_.endswith("Attention")


def test_no_documented_command_needs_a_plus() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *CONF.rglob("*.yaml")]
    assert len(pages) > 100
    needing = re.compile(r"""(?:^|[\s`'"])\+\+?[a-z_/@.]+=""", re.MULTILINE)
    found = {
        str(page): needing.findall(page.read_text(encoding="utf-8")) for page in pages if page.name != "CHANGELOG.md"
    }
    assert {page: words for page, words in found.items() if words} == {}


def test_the_table_of_architectures_is_the_one_that_the_config_makes() -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.with_table(page) == page


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs_under_debug(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if "data=multi30k" in words or ("data=tatoeba" in words and "data.path=fra.txt" not in words):
        pytest.skip("fetches from the network")
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        words = [re.sub(rf"(?<=[=,\[]){re.escape(name)}", str(tmp_path / name), word) for word in words]
    folder = f"hydra.{'sweep' if '-m' in words else 'run'}.dir={tmp_path}/run"
    small = ["debug=fast", *(["tokenizer.vocab_size=50"] if "data=" in command else [])]
    done = subprocess.run([sys.executable, *words[1:], *small, folder], cwd=ROOT, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
