"""docs/articles.md: every article has its section, and every command composes and runs under debug=fast."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from configs import CONF, ROOT, compose_here, composed
from hydra import compose, initialize_config_dir

from seq2seq_attn.cli.command import SUBCOMMANDS
from seq2seq_attn.training.run import train

PAGE = (ROOT / "docs" / "articles.md").read_text("utf-8")
SMALL = ["debug=fast", "trainer=cpu", "trainer.enable_progress_bar=false", "num_threads=1"]
HEADINGS = [
    "Seq2seq with attention", "Soft, hard, global and local attention", "Attention of vision Transformers",
    "Attention is all you need (Su)", "Masks",
]  # fmt: skip
TYPED = re.findall(r"(?:^|`)((?:python|seq2seq-attn) [^`\n]+)", PAGE, re.MULTILINE)


def typed(start: str) -> list[str]:
    found = [command.removeprefix(start).strip() for command in TYPED if command.startswith(start)]
    assert found, start
    return found


def test_every_article_has_its_section() -> None:
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("overrides", typed("python train.py"))
def test_a_training_composes(overrides: str) -> None:
    assert composed(*(word for word in shlex.split(overrides) if not word.startswith("hydra."))).model


@pytest.mark.parametrize("overrides", typed("python evaluate.py"))
def test_an_evaluation_composes_and_its_file_is_there(overrides: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", shlex.split(overrides))
    assert (ROOT / config.data.test).is_file()


@pytest.mark.parametrize("words", typed("seq2seq-attn"))
def test_a_command_exists(words: str) -> None:
    assert any(words.startswith(f"{name} ") for name in SUBCOMMANDS)


@pytest.mark.parametrize("words", sorted(set(typed("python -m"))))
def test_a_program_is_there(words: str) -> None:
    assert find_spec(words.split()[0]) is not None


@pytest.mark.parametrize("path", re.findall(r"`((?:tests|examples|conf)/[\w./]+)`", PAGE))
def test_a_file_that_is_named_is_there(path: str) -> None:
    assert Path(ROOT / path).exists()


def test_the_examples_in_python_run() -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        exec(example, {})


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("overrides", sorted(set(typed("python train.py"))))
def test_a_training_runs_under_debug(overrides: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    words = [word for word in shlex.split(overrides) if not word.startswith("hydra.")]
    if "d2l" in overrides:
        pairs = "".join(f"The cat {n} sleeps.\tLe chat {n} dort.\n" for n in range(300))
        (tmp_path / "fra.txt").write_text(pairs, encoding="utf-8")
        words += [f"data.path={tmp_path / 'fra.txt'}", "data.num_pairs=null"]
    here = [f"paths.run_dir={tmp_path / 'run'}", f"paths.cache_dir={tmp_path_factory.getbasetemp() / 'articles'}"]
    names = [f"choices.{name}=null" for name in ("attention", "model", "data")]
    results = train(compose_here(*words, *SMALL, *here, *names))
    assert results["steps"] == 2
