"""The command `seq2seq-attn align`: links of pairs by attention or from a file, and their alignment error rate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.alignment.attention_links import Heads, Words, all_heads, attended_links, word_maps
from seq2seq_attn.alignment.gold import (
    Agreement,
    AlignedPair,
    agreement,
    agreement_table,
    diagonal,
    lowered,
    read_aligned_pairs,
    read_pharaoh,
)
from seq2seq_attn.alignment.symmetrize import METHODS, check_method, symmetrize
from seq2seq_attn.alignment.tatoeba_gold import tatoeba_pairs
from seq2seq_attn.alignment.word_alignment import Extraction, Link, to_pharaoh
from seq2seq_attn.checkpoint.load import Loaded, find_checkpoint, load
from seq2seq_attn.errors import UserError, command
from seq2seq_attn.inference.models import choose_device
from seq2seq_attn.inference.output import model_files, refuse_one_file, written
from seq2seq_attn.options import ALIGN, check_options
from seq2seq_attn.paths import given_path, given_text
from seq2seq_attn.text import plain_console

Links = list[list[Link]]  # of each pair
INPUTS = ("ckpt_path", "reverse", "pairs", "gold", "links", "tatoeba")
WRITTEN = ("output", "results")


def align(config: DictConfig) -> dict[str, Agreement]:
    """Print the figures, write what is asked for, and return the figures by what gave the links."""
    check_options(config, ALIGN)
    options: Any = OmegaConf.to_container(config, resolve=True)
    check_choice(options)
    check_files(options)
    if options["num_threads"]:
        torch.set_num_threads(options["num_threads"])
    with ExitStack() as stack:
        outputs = {
            name: stack.enter_context(written(name, path))
            for name, path in ((name, options[name]) for name in WRITTEN)
            if path is not None
        }
        return judge(options, outputs)


def judge(options: dict[str, Any], outputs: Mapping[str, Any]) -> dict[str, Agreement]:
    """Return the figures, which are printed, and write what is asked for to the open files."""
    pairs = read_gold(options)
    directions = attention_directions(options, pairs) if options["links"] is None else link_files(options, pairs)
    judged: dict[str, Agreement] = {}
    best: dict[str, str] = {}
    for direction, found in directions.items():
        of_direction = {name: agreement(links, pairs) for name, links in found.items()}
        best[direction] = min(of_direction, key=lambda name: of_direction[name].error_rate)
        judged |= of_direction
    chosen = [directions[direction][name] for direction, name in best.items()]
    written_links = chosen[0]
    if len(chosen) == 2:
        both = list(zip(chosen[0], chosen[1], strict=True))
        symmetrized = {
            method: [symmetrize(forward, reverse, method) for forward, reverse in both] for method in METHODS
        }
        judged |= {method: agreement(links, pairs) for method, links in symmetrized.items()}
        written_links = symmetrized[options["symmetrization"]]
    judged["diagonal"] = agreement([diagonal(pair.source, pair.target) for pair in pairs], pairs)
    marked = {name for direction, name in best.items() if len(directions[direction]) > 1}
    plain_console().print(agreement_table(judged, marked))
    print(summary(pairs, marked))
    write(options, outputs, pairs, judged, best, written_links)
    return judged


def check_choice(options: dict[str, Any]) -> None:
    """Refuse options that exclude each other, and a missing one."""
    for one, other in (("ckpt_path", "links"), ("pairs", "tatoeba")):
        given = [name for name in (one, other) if options[name] is not None]
        if len(given) != 1:
            what = "both" if given else "neither"
            raise UserError(f"{command('align')} needs {one}= or {other}=, and was given {what}; give one of them")
    check_method(options["symmetrization"])
    if options["reverse"] is not None and options["links"] is not None:
        raise UserError("reverse=RUN goes with ckpt_path=RUN; for two files give links=[FORWARD,REVERSE]")
    others = [name for name in ("gold", "gold_start", "target_first") if options[name]]
    if options["tatoeba"] is not None and others:
        raise UserError(f"tatoeba=FILE has links of its own, English first; leave out {', '.join(others)}")


def check_files(options: dict[str, Any]) -> None:
    """Make the paths of the outputs absolute, and refuse one that is an input or the other output."""
    for name in WRITTEN:
        if options[name] is not None:
            options[name] = str(given_path(options[name], name))
    if options["results"] is not None and not options["results"].endswith(".json"):
        raise UserError(f"results={options['results']} is not a .json file; give results=FILE.json")
    files: list[tuple[str, Any]] = []
    for name in (*INPUTS, *WRITTEN):
        paths = [options[name]] if isinstance(options[name], str) else options[name] or []
        if name in ("ckpt_path", "reverse"):
            files += [(name, file) for path in paths for file in model_files(path, name)]
        else:
            files += [(name, str(given_path(path, name))) for path in paths]
    refuse_one_file(files, INPUTS)


def read_gold(options: dict[str, Any]) -> list[AlignedPair]:
    """Return the pairs that the options name, the source of the model first."""
    if options["tatoeba"] is not None:
        pairs = tatoeba_pairs(given_text(options["tatoeba"], "tatoeba"))
        return [lowered(pair) for pair in pairs] if options["lowercase"] else pairs
    named = [options["pairs"]] if isinstance(options["pairs"], str) else options["pairs"]
    return read_aligned_pairs(
        [given_text(path, "pairs") for path in named],
        None if options["gold"] is None else given_text(options["gold"], "gold"),
        start=options["gold_start"],
        target_first=options["target_first"],
        lowercase=options["lowercase"],
    )


def link_files(options: dict[str, Any], pairs: list[AlignedPair]) -> dict[str, dict[str, Links]]:
    """Return the links of the given files, one for each direction."""
    files = [options["links"]] if isinstance(options["links"], str) else options["links"]
    if len(files) not in (1, 2):
        raise UserError(f"links names {len(files)} files; give links=FILE or links=[FORWARD,REVERSE]")
    read = [read_pharaoh(given_text(file, "links"), pairs, target_first=options["target_first"]) for file in files]
    names = ["links"] if len(files) == 1 else ["forward", "reverse"]
    return {name: {name: links} for name, links in zip(names, read, strict=True)}


def attention_directions(options: dict[str, Any], pairs: list[AlignedPair]) -> dict[str, dict[str, Links]]:
    """Return the links of a run, and of one of the other direction, by heads."""
    loaded = load(str(find_checkpoint(options["ckpt_path"])), options["trust"])
    texts = [(pair.source, pair.target) for pair in pairs]
    if options["tatoeba"] is not None:
        check_languages(loaded, ("en", "fr"), "ckpt_path", "a run for the pairs of Tatoeba")
    if options["reverse"] is None:
        return {"forward": links_by_heads(loaded, texts, options)}
    other = load(str(find_checkpoint(options["reverse"], "reverse")), options["trust"])
    check_languages(other, languages(loaded)[::-1], "reverse", "the reverse of ckpt_path")
    turned = links_by_heads(other, [text[::-1] for text in texts], options)
    return {
        "forward": {f"forward, {name}": links for name, links in links_by_heads(loaded, texts, options).items()},
        "reverse": {
            f"reverse, {name}": [[link[::-1] for link in of_pair] for of_pair in links]
            for name, links in turned.items()
        },
    }


def links_by_heads(loaded: Loaded, texts: list[Words], options: dict[str, Any]) -> dict[str, Links]:
    """Return the links by the heads that the options choose, or else by each head and each mean."""
    model = loaded.model.to(choose_device(options["device"]))
    maps = word_maps(model, loaded.tokenizer, texts)
    extraction = Extraction(*(options[f"alignment_{name}"] for name in Extraction._fields))
    chosen = Heads(options["alignment_layer"], options["alignment_head"])
    choices = all_heads(maps[0]) if chosen == Heads() else [chosen]
    return {str(heads): [attended_links(of_pair, heads, extraction) for of_pair in maps] for heads in choices}


def languages(loaded: Loaded) -> tuple[str, str]:
    return loaded.config["data"]["source_language"], loaded.config["data"]["target_language"]


def check_languages(loaded: Loaded, wanted: tuple[str, str], option: str, what: str) -> None:
    if languages(loaded) != wanted:
        raise UserError(
            f"{option} translates from {' to '.join(languages(loaded))}, and {what} must translate from "
            f"{' to '.join(wanted)}; give another run"
        )


def summary(pairs: list[AlignedPair], marked: set[str]) -> str:
    """Return the sizes of the gold standard, and what the mark means."""
    sure, possible = (sum(len(links) for links in side) for side in zip(*(pair[2:] for pair in pairs), strict=True))
    note = "; * has the fewest errors of its direction on these pairs" if marked else ""
    return f"{len(pairs)} pairs, {sure} sure links and {possible - sure} more that are possible{note}"


def write(
    options: dict[str, Any],
    outputs: Mapping[str, Any],
    pairs: list[AlignedPair],
    judged: dict[str, Agreement],
    best: dict[str, str],
    links: Links,
) -> None:
    """Write the links and the figures to the files that the options name."""
    if "output" in outputs:
        turned = options["target_first"]
        for of_pair in links:
            line = to_pharaoh([link[::-1] for link in of_pair] if turned else of_pair)
            outputs["output"].write(f"{line}\n".encode())
    if "results" in outputs:
        figures = {name: found._asdict() for name, found in judged.items()}
        content = {"pairs": len(pairs), "best": best, "alignment": figures, "options": options}
        outputs["results"].write(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())
