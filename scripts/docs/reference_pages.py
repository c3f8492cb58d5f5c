"""Pages of every command, with its help, and of every group of options, with its choices and their files."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from scripts.conf_files import CONF, parsed
from scripts.docs.attention_pages import linked, write_changed
from scripts.docs.site_links import ROOT, relink
from seq2seq_attn.cli.choices import choices, purpose
from seq2seq_attn.cli.command import SUBCOMMANDS
from seq2seq_attn.errors import UserError

FOLDER = PurePosixPath("options")
HELP_COLUMNS = 90


class Group(NamedTuple):
    """A group of options.

    Attributes:
        title: heading of its page.
        override: how a choice is made.
        guide: page of `docs/` that explains it.
    """

    title: str
    override: str
    guide: str


GROUPS = {
    "experiment": Group("Experiments", "experiment=NAME", "recipes.md"),
    "model": Group("Models", "model=NAME", "architectures.md"),
    "encoder": Group("Encoders", "encoder@model.encoder=NAME", "architectures.md"),
    "decoder": Group("Decoders", "decoder@model.decoder=NAME", "architectures.md"),
    "position": Group("Position encodings", "position=NAME", "architectures.md"),
    "feed_forward": Group("Feed-forward networks", "feed_forward=NAME", "architectures.md"),
    "attention": Group("Attention presets", "attention=NAME", "attention.md"),
    "attention/score": Group("Attention: scores", "attention/score=NAME", "attention.md"),
    "attention/pattern": Group("Attention: patterns", "attention/pattern=NAME", "attention.md"),
    "attention/normalizer": Group("Attention: normalizers", "attention/normalizer=NAME", "attention.md"),
    "attention/mix": Group("Attention: mixes over heads", "attention/mix=NAME", "attention.md"),
    "attention/gate": Group("Attention: gates", "attention/gate=NAME", "attention.md"),
    "attention/feature_map": Group(
        "Attention: feature maps", "attention=linear attention/feature_map=NAME", "attention.md"
    ),
    "attention/decay": Group("Attention: decays", "attention=linear attention/decay=NAME", "attention.md"),
    "data": Group("Data", "data=NAME", "data.md"),
    "data/cleaning": Group("Cleaning", "data/cleaning=NAME", "data.md"),
    "tokenizer": Group("Tokenizers", "tokenizer=NAME", "data.md"),
    "objective": Group("Pre-training objectives", "objective=NAME", "tasks.md"),
    "optimizer": Group("Optimizers", "optimizer=NAME", "optimizers.md"),
    "scheduler": Group("Schedules of the learning rate", "scheduler=NAME", "optimizers.md"),
    "recipe": Group("Recipes", "recipe=NAME", "training.md"),
    "trainer": Group("Trainers", "trainer=NAME", "devices.md"),
    "callback": Group("Callbacks", "callback=[default,NAME]", "training.md"),
    "logger": Group("Loggers", "logger=[NAME]", "loggers.md"),
    "search": Group("Searches", "search=NAME", "translating.md"),
    "search/length_penalty": Group("Length penalties", "search=beam search/length_penalty=NAME", "translating.md"),
    "metric": Group("Metrics", "metric=[NAME]", "evaluating.md"),
    "sweep": Group("Sweeps", "sweep=NAME", "sweeps.md"),
    "debug": Group("Smoke test", "debug=NAME", "training.md"),
    "paths": Group("Folders", "paths=NAME", "runs.md"),
}


def write_reference_pages(folder: Path, copied: set[PurePosixPath]) -> None:
    """Write the pages into the folder of the site's sources."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        helps = dict(zip(SUBCOMMANDS, pool.map(help_of, SUBCOMMANDS), strict=True))
    write_changed(folder / "commands.md", commands_page(helps))
    write_changed(folder / FOLDER / "index.md", index_page(copied))
    for group in GROUPS:
        if group != "attention":  # whose presets have pages of their own
            write_changed(folder / FOLDER / f"{page_of(group)}.md", group_page(group, copied))


def help_of(name: str) -> str:
    """Return what a subcommand prints for `--help`.

    Raises:
        UserError: if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "seq2seq_attn", *name.split(), "--help"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(HELP_COLUMNS), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode != 0:
        raise UserError(f"seq2seq-attn {name} --help fails: {done.stderr.strip()}")
    return done.stdout.rstrip()


def commands_page(helps: dict[str, str]) -> str:
    """Return the page of the subcommands, from the help of each."""
    listed = "\n".join(
        f"- [`{name}`](#seq2seq-attn-{name.replace(' ', '-')}): {text}" for name, (_, text) in SUBCOMMANDS.items()
    )
    intro = (
        "# Every command\n\nWhat each subcommand of `seq2seq-attn` prints for `--help`. "
        "[Every option](options/index.md) says what the choices of a group are."
    )
    sections = [f"## seq2seq-attn {name}\n\n```text\n{text}\n```" for name, text in helps.items()]
    return "\n\n".join([intro, listed, *sections]) + "\n"


def page_of(group: str) -> str:
    return group.replace("/", "_")


def index_page(copied: set[PurePosixPath]) -> str:
    """Return the page of all groups, each with what its choices are."""
    text = (
        "# Every option\n\nA folder of `conf/` is a group of options, and a file in it is a choice. The heading of a "
        "group leads to its files, in which every value is an option: `optimizer.lr=0.001`. "
        "`seq2seq-attn --help GROUP` prints the list of a group, also where only the package is installed, and "
        "`seq2seq-attn train --cfg job --resolve` prints all options with their values. An option without a group, "
        "such as `seed`, is in [`conf/train.yaml`](../conf/train.yaml).\n"
    )
    for group, (title, override, _) in GROUPS.items():
        heading = f"[{title}]({'attentions/index' if group == 'attention' else f'{FOLDER}/{page_of(group)}'}.md)"
        lines = "\n".join(f"- `{name}`: {linked(purpose(file))}" for name, file in choices(group).items())
        text += f"\n## {heading}\n\n`{override}`{chosen(group)}\n\n{lines}\n"
    entries = "\n".join(page_of(group) for group in GROUPS if group != "attention")
    text += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    return relink(text, PurePosixPath("docs/training.md"), FOLDER / "index.md", copied)


def chosen(group: str) -> str:
    """Return what `conf/train.yaml` chooses of a group; nothing if it chooses none."""
    defaults: dict[str, Any] = {}
    for entry in parsed(CONF / "train.yaml")["defaults"]:
        defaults |= entry if isinstance(entry, dict) else {}
    names = defaults.get(group) or []
    listed = [names] if isinstance(names, str) else names
    return f", default: {' and '.join(f'`{name}`' for name in listed)}" if listed else ""


def group_page(group: str, copied: set[PurePosixPath]) -> str:
    """Return the page of a group: each choice with its class and its file."""
    title, override, guide = GROUPS[group]
    text = f"# {title}\n\n`{override}`{chosen(group)}. [{guide}]({guide}) explains them.\n"
    for name, file in choices(group).items():
        target = target_of(file)
        made = f"\n\n{{py:class}}`~{target}`" if target.startswith("seq2seq_attn.") else ""
        text += f"\n## {name}\n\n{linked(purpose(file))}{made}\n\n```yaml\n{file.read_text(encoding='utf-8')}```\n"
    return relink(text, PurePosixPath("docs/training.md"), FOLDER / f"{page_of(group)}.md", copied)


def target_of(file: Path) -> str:
    """Return the class that a choice builds, also under the one key of a choice of several; empty if it builds none."""
    config = parsed(file)
    nodes = [config, *(node for node in config.values() if isinstance(node, dict) and len(config) == 1)]
    return next((node["_target_"] for node in nodes if "_target_" in node), "")
