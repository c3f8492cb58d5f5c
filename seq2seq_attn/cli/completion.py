"""Shell completion of `seq2seq-attn` by Hydra's scripts, which ask `seq2seq-attn -sc query=SHELL` about COMP_LINE."""

from __future__ import annotations

import os
from collections.abc import Collection

from hydra.plugins.completion_plugin import CompletionPlugin

from seq2seq_attn.cli.choices import FLAGS, config_dir


def query_flags() -> list[str] | None:
    """Return the flags with which Hydra completes COMP_LINE: it reads its folders from its own command line only.

    None: the line ends with a flag that needs a value, which Hydra would refuse with a page of help.
    """
    line = os.environ.get("COMP_LINE", "")
    folder = config_dir(line.split())
    if line.split()[-1:] and line.split()[-1] in FLAGS:
        return None
    return ["--config-dir", folder] if folder and os.path.isdir(folder) else []


def hydra_subcommand(subcommands: Collection[str], hydra_commands: Collection[str]) -> str | None:
    """Return the subcommand whose options Hydra completes, and take it out of COMP_LINE.

    None: there is none in the line, and the candidates have been printed: names of subcommands, else paths.
    """
    program, *typed = os.environ.get("COMP_LINE", "").split()
    if os.environ["COMP_LINE"].endswith(" ") or not typed:
        typed.append("")
    *before, last = typed
    if before and before[0] in hydra_commands:
        os.environ["COMP_LINE"] = " ".join([program, *typed[1:]])
        return before[0]
    names = [name.split() for name in subcommands]
    following = [name[len(before)] for name in names if name[: len(before)] == before and len(name) > len(before)]
    print(*(dict.fromkeys(following) if following else CompletionPlugin.complete_files(last)), sep="\n")
    return None
