"""The command `explore.py`: load the models, and serve the explorer's page or write it as one file."""

from __future__ import annotations

from typing import Any

import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.checkpoint.same_text import check_directions, direction_of
from seq2seq_attn.errors import UserError, command
from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.explorer.one_file import check_page, read_sentences, write_page
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.options import EXPLORE, check_options, typed
from seq2seq_attn.paths import given_path


def explore(config: DictConfig) -> None:
    """Serve the page until a signal ends the process, or write one file."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError(f"{command('explore')} needs ckpt_path=RUN, a run folder or a .ckpt file")
    check_options(config, EXPLORE)
    options: Any = OmegaConf.to_container(config, resolve=True)
    if (options["page"] is None) != (options["input"] is None):
        given, lacking = ("input", "page") if options["page"] is None else ("page", "input")
        raise UserError(f"{given}= needs {lacking}=; give page=FILE.html input=FILE, or neither for a server")
    if options["page"] is None:
        from seq2seq_attn.explorer.server import listen, serve  # the extra, which one file does without

        with listen(options["port"]) as listener:
            explorer = load(options)
            serve(explorer.models, explorer.look, listener, open_browser=options["open"])
        return
    ignored = [f"{name}={typed(options[name])}" for name in ("port", "open") if options[name] not in (None, False)]
    if ignored:
        raise UserError(f"page= writes a file and serves nothing; leave out {', '.join(ignored)}")
    page, file = given_path(options["page"], "page"), str(given_path(options["input"], "input"))
    check_page(page)
    sentences = read_sentences(file)
    explorer = load(options)
    write_page(page, file, sentences, explorer.models(), explorer.look)


def load(options: dict[str, Any]) -> Explorer:
    """Return what answers for the models of `ckpt_path` and `compare`."""
    GlobalHydra.instance().clear()  # the choices of searches are composed, which an application of Hydra could not do
    if options["num_threads"]:
        torch.set_num_threads(options["num_threads"])
    paths = [options[name] for name in ("ckpt_path", "compare") if options[name] is not None]
    translators = [Translator.load(path, device=options["device"], trust=options["trust"]) for path in paths]
    directions = [
        direction_of(str(path), translator.config) for path, translator in zip(paths, translators, strict=True)
    ]
    check_directions(directions, "the page shows both models one sentence")
    return Explorer(translators, [str(path) for path in paths])
