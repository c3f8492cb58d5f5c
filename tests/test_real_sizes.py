"""Crossings of architectures and commands of the pages with their real sizes: one step on a few pairs."""

from __future__ import annotations

import gzip
import json
import math
import re
import shlex
import shutil
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF, ROOT, options
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from test_readme import COMMANDS, OTHERS, jobs

from seq2seq_attn.data import demo
from seq2seq_attn.training.run import train

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation.evaluate import evaluate
    from seq2seq_attn.inference.translate import translate

pytestmark = pytest.mark.usefixtures("quiet", "folder")
RUN = "runs/train/2026-01-31_12-00-00"
FEW = {
    "batch_tokens": 200, "trainer.max_steps": 1, "trainer.limit_val_batches": 1, "trainer.limit_test_batches": 1,
    "trainer.enable_progress_bar": False, "tokenizer.vocab_size": 150, "data.val_sentences": 3,
    "data.test_sentences": 3, "search.limits.max_length": 3, "logger.wandb.offline": True, "bootstrap": 40,
    "search.num_samples": 3, "search.candidates.num_samples": 3,
}  # fmt: skip
PAIRS = {"train": 150, "val": 3, "test": 3, "unseen": 3}  # the shortest of the demo corpus
CAPTIONS = {"train": "train", "val": "val", "test": "test_2016_flickr", "unseen": "test_2017_flickr"}
SAME = re.compile(r"(seed|resume|num_threads|hydra\.\w+(\.\w+)?)=")  # with or without it, it is the same model


def models(commands: list[str]) -> list[list[str]]:
    """Overrides of what the commands train, each once, whatever its seed."""
    found = [[o for o in job if not SAME.match(o)] for command in commands for job in jobs(command)]
    return [list(job) for job in dict.fromkeys(map(tuple, found))]


def of_page(name: str) -> list[list[str]]:
    """What the page's commands train; those that search a range are left out."""
    lines = re.findall(r"^python train\.py .+$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return models([line for line in lines if "interval(" not in line and "glob(" not in line])


def covering(jobs: list[list[str]]) -> list[list[str]]:
    """A few of the jobs, among which every override of all of them is at least once."""
    found, missing = [], {override for job in jobs for override in job}
    while missing:
        found.append(max(jobs, key=lambda job: len(missing & set(job))))
        missing -= set(found[-1])
    return found


CROSSINGS = [
    [f"encoder@model.encoder={encoder}", f"decoder@model.decoder={decoder}"]
    for encoder in options("encoder")
    for decoder in options("decoder")
]  # nine of the three kinds, and two more recurrent decoders
TAKEN = models(COMMANDS) + of_page("docs/architectures.md")
TRIED = [list(job) for job in dict.fromkeys(map(tuple, [*CROSSINGS, *TAKEN]))]
PAGES = [f"docs/{name}.md" for name in ("attention", "recipes", "sweeps")]
PAGES += [f"docs/benchmarks/{name}.md" for name in ("regularisers", "synthesizer")]
COVERING = covering(TRIED)
ARCHITECTURE = ("model", "encoder", "decoder", "attention", "position", "feed_forward")
# What other options do is tested elsewhere, in small models; `make test-slow` trains with all of them.
ARCHITECTURES = [job for job in COVERING if all(re.split("[=@./]", override)[0] in ARCHITECTURE for override in job)]
FAST = ARCHITECTURES[::3]  # the contract of models tests the others in small ones
READERS = [pair for pair in OTHERS if "interactive" not in pair[1]]
OTHER_DATA = [pair for pair in READERS if pair[0] == "evaluate" and "data=" in pair[1]][1:]  # one of them is enough
BESIDE = [job for page in PAGES for job in of_page(page) if job not in TRIED]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, and with corpora as if they had been fetched."""
    folder = tmp_path_factory.mktemp("corpora")
    for name in ("demo", "FOLDER", "cache/multi30k", "cache/tatoeba"):
        (folder / name).mkdir(parents=True)
    for split, count in PAIRS.items():
        lines = (ROOT / f"data/demo/{split}.tsv").read_text(encoding="utf-8").splitlines(True)
        lines = sorted(lines, key=len)[:count]
        (folder / f"demo/{split}.tsv").write_text("".join(lines), encoding="utf-8")
        for side, language in enumerate(("en", "fr")):
            text = "".join(line.rstrip("\n").split("\t")[side] + "\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
            captions = f"{CAPTIONS[split]}.{language}"
            (folder / f"cache/multi30k/{captions}.gz").write_bytes(gzip.compress(text.encode()))
            for suffix in ("", ".lc.norm.tok"):
                name = f"{CAPTIONS[split]}{suffix}.{language}"
                (folder / "FOLDER" / name).write_text(text.lower(), encoding="utf-8")
    pairs = (folder / "demo/train.tsv").read_text(encoding="utf-8")
    for name in ("pairs.tsv", "fra.txt", "cache/tatoeba/fra.txt"):
        (folder / name).write_text(pairs, encoding="utf-8")
    for name in ("news.tsv", "test.tsv", "web.tsv", "wmt14.tsv"):  # test sets
        (folder / name).write_text("".join(pairs.splitlines(True)[:20]), encoding="utf-8")
    rows = [json.dumps(dict(zip(("english", "french"), p.split("\t")[:2], strict=True))) for p in pairs.splitlines()]
    (folder / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "english.txt").write_text("Sophie hates tea.\n\nThe singer runs.\n", encoding="utf-8")
    (folder / "english.txt.gz").write_bytes(gzip.compress((folder / "english.txt").read_bytes()))
    return folder


@pytest.fixture
def folder(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a command is typed; data=demo is its first few hundred pairs.

    The folder of a run stays: a logger may write into it for a moment longer.
    """
    monkeypatch.chdir(corpora)
    Path("run").symlink_to(tmp_path)
    monkeypatch.setattr(demo, "demo_directory", lambda: corpora / "demo")
    yield corpora
    (corpora / "run").unlink()


def shortened(name: str, overrides: list[str]) -> DictConfig:
    """Its configuration with few updates, sentences and tokens; all else is as it was typed."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(name, overrides)
    for option, value in FEW.items():
        if OmegaConf.select(config, option) is not None:
            OmegaConf.update(config, option, value)
    if "paths" in config:
        config.paths.run_dir, config.paths.cache_dir = "run", "cache"
        config.choices = dict.fromkeys(config.choices)
    return config


def one_step(overrides: list[str], run_dir: str = "run", shallow: bool = False) -> dict[str, Any]:
    config = shortened("train", overrides)
    for side in ("encoder", "decoder") if shallow else ():
        if OmegaConf.select(config, f"model.{side}.num_layers", default=0) > 2:
            config.model[side].num_layers = 2
    config.paths.run_dir = str(Path(run_dir).resolve())
    with open_dict(config):
        config.callback.pop("attention_map")  # to draw one takes longer than all the rest
    return train(config)


def assert_takes_a_step(overrides: list[str], shallow: bool = False) -> None:
    results = one_step(overrides, shallow=shallow)
    assert results["steps"] == 1
    assert math.isfinite(results["test/loss"])


@pytest.mark.parametrize(
    "overrides", [pytest.param(job, marks=[] if job in FAST else pytest.mark.slow) for job in COVERING], ids=" ".join
)
def test_every_override_of_the_readme_and_of_the_crossings_trains_at_its_width(overrides: list[str]) -> None:
    assert_takes_a_step(overrides, shallow=True)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", TRIED, ids=" ".join)
def test_every_crossing_and_every_command_of_the_readme_trains_as_it_is_typed(overrides: list[str]) -> None:
    assert_takes_a_step(overrides)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", BESIDE, ids=" ".join)
def test_a_command_of_another_page_trains_as_it_is_typed(overrides: list[str]) -> None:
    assert_takes_a_step(overrides)


def overrides_of(jobs: Iterable[list[str]]) -> set[str]:
    return {override for job in jobs for override in job}


def test_the_commands_are_found() -> None:
    assert (len(CROSSINGS), len(TAKEN), len(BESIDE)) >= (15, 27, 15)
    assert overrides_of(COVERING) == overrides_of(TRIED)
    assert overrides_of(CROSSINGS) <= overrides_of(ARCHITECTURES)


@pytest.fixture
def checkpoints(quiet: None, folder: Path) -> None:
    """Those that the commands of the README name: one model under all of their names."""
    if not (folder / "model.ckpt").exists():
        one_step([], RUN)
        for name in ("a", "b", "fr_en"):
            shutil.copytree(folder / RUN, folder / "runs/train" / name)
        shutil.copy(folder / RUN / "checkpoints/best.ckpt", folder / "model.ckpt")


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize(
    ("name", "typed"), [pytest.param(*pair, marks=pytest.mark.slow if pair in OTHER_DATA else []) for pair in READERS]
)
def test_a_command_of_the_readme_that_reads_a_checkpoint_runs_as_it_is_typed(name: str, typed: str) -> None:
    if name == "evaluate":
        for job in jobs(f"python evaluate.py {typed}"):
            evaluate(shortened(name, job))
            assert list(Path("run").glob("*"))
    else:
        config = shortened(name, shlex.split(typed))
        config.input, config.output = config.input or "english.txt", config.output or "french.txt"
        translate(config)
        raw = Path(config.output).read_bytes()
        text = (gzip.decompress(raw) if config.output.endswith(".gz") else raw).decode()
        assert len(text.splitlines()) == 3
