"""The command `seq2seq-attn align`: links of pairs by attention or from a file, and their alignment error rate."""

from __future__ import annotations

import json
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
    read_aligned_pairs,
    read_pharaoh,
)
from seq2seq_attn.alignment.symmetrize import METHODS, symmetrize
from seq2seq_attn.alignment.tatoeba_gold import tatoeba_pairs
from seq2seq_attn.alignment.word_alignment import Extraction, Link, to_pharaoh
from seq2seq_attn.checkpoint.load import Loaded, find_checkpoint, load
from seq2seq_attn.errors import UserError, command
from seq2seq_attn.inference.models import choose_device
from seq2seq_attn.inference.output import written
from seq2seq_attn.options import ALIGN, check_options
from seq2seq_attn.paths import given_file, given_path
from seq2seq_attn.text import plain_console

Links = list[list[Link]]  # of each pair


def align(config: DictConfig) -> dict[str, Agreement]:
    """Print the figures, write what is asked for, and return the figures by what gave the links."""
    check_options(config, ALIGN)
    options: Any = OmegaConf.to_container(config, resolve=True)
    check_choice(options)
    if options["num_threads"]:
        torch.set_num_threads(options["num_threads"])
    pairs = read_gold(options)
    directions = attention_directions(options, pairs) if options["links"] is None else link_files(options, len(pairs))
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
    write(options, pairs, judged, best, written_links)
    return judged


def check_choice(options: dict[str, Any]) -> None:
    """Refuse options that exclude each other, and a missing one."""
    for one, other in (("ckpt_path", "links"), ("pairs", "tatoeba")):
        given = [name for name in (one, other) if options[name] is not None]
        if len(given) != 1:
            what = "both" if given else "neither"
            raise UserError(f"{command('align')} needs {one}= or {other}=, and was given {what}; give one of them")
    if options["symmetrization"] not in METHODS:
        raise UserError(f"symmetrization={options['symmetrization']} does not exist; choose from: {', '.join(METHODS)}")
    if options["reverse"] is not None and options["links"] is not None:
        raise UserError("reverse=RUN goes with ckpt_path=RUN; for two files give links=[FORWARD,REVERSE]")


def read_gold(options: dict[str, Any]) -> list[AlignedPair]:
    """Return the pairs that the options name, the source of the model first."""
    if options["tatoeba"] is not None:
        return tatoeba_pairs(given_file(options["tatoeba"], "tatoeba"))
    named = [options["pairs"]] if isinstance(options["pairs"], str) else options["pairs"]
    return read_aligned_pairs(
        [given_file(path, "pairs") for path in named],
        None if options["gold"] is None else given_file(options["gold"], "gold"),
        start=options["gold_start"],
        target_first=options["target_first"],
        lowercase=options["lowercase"],
    )


def link_files(options: dict[str, Any], num_pairs: int) -> dict[str, dict[str, Links]]:
    """Return the links of the given files, one for each direction."""
    files = [options["links"]] if isinstance(options["links"], str) else options["links"]
    if len(files) not in (1, 2):
        raise UserError(f"links names {len(files)} files; give links=FILE or links=[FORWARD,REVERSE]")
    read = [read_pharaoh(given_path(file, "links"), num_pairs, target_first=options["target_first"]) for file in files]
    names = ["links"] if len(files) == 1 else ["forward", "reverse"]
    return {name: {name: links} for name, links in zip(names, read, strict=True)}


def attention_directions(options: dict[str, Any], pairs: list[AlignedPair]) -> dict[str, dict[str, Links]]:
    """Return the links of a run, and of one of the other direction, by heads."""
    loaded = load(str(find_checkpoint(options["ckpt_path"])), options["trust"])
    texts = [(pair.source, pair.target) for pair in pairs]
    if options["tatoeba"] is not None:
        check_languages(loaded, ("en", "fr"), "ckpt_path", "the pairs of Tatoeba")
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
            f"{option} translates from {' to '.join(languages(loaded))}, and {what} is from {' to '.join(wanted)}; "
            "give another run"
        )


def summary(pairs: list[AlignedPair], marked: set[str]) -> str:
    """Return the sizes of the gold standard, and what the mark means."""
    sure, possible = (sum(len(links) for links in side) for side in zip(*(pair[2:] for pair in pairs), strict=True))
    note = "; * has the fewest errors of its direction on these pairs" if marked else ""
    return f"{len(pairs)} pairs, {sure} sure links and {possible - sure} more that are possible{note}"


def write(
    options: dict[str, Any], pairs: list[AlignedPair], judged: dict[str, Agreement], best: dict[str, str], links: Links
) -> None:
    """Write the links and the figures to the files that the options name."""
    if options["output"] is not None:
        turned = options["target_first"]
        with written("output", str(given_path(options["output"], "output"))) as stream:
            for of_pair in links:
                line = to_pharaoh([link[::-1] for link in of_pair] if turned else of_pair)
                stream.write(f"{line}\n".encode())
    if options["results"] is not None:
        figures = {name: found._asdict() for name, found in judged.items()}
        content = {"pairs": len(pairs), "best": best, "alignment": figures, "options": options}
        with written("results", str(given_path(options["results"], "results"))) as stream:
            stream.write(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())
