"""The command `seq2seq-attn align`: links of pairs by attention or from a file, and their alignment error rate."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.alignment.attention_links import Heads, Words, all_heads, attended_links, word_maps
from seq2seq_attn.alignment.gold import (
    PHARAOH,
    Agreement,
    AlignedPair,
    agreement,
    agreement_table,
    diagonal,
    has_gold,
    lowered,
    read_aligned_pairs,
    read_pharaoh,
)
from seq2seq_attn.alignment.guided import changed_options, chosen_extraction, guided_head
from seq2seq_attn.alignment.symmetrize import METHODS, check_method, symmetrize
from seq2seq_attn.alignment.tatoeba_gold import tatoeba_pairs
from seq2seq_attn.alignment.word_alignment import Link, to_pharaoh
from seq2seq_attn.checkpoint.load import Loaded, find_checkpoint, load
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError, command
from seq2seq_attn.files import read_json
from seq2seq_attn.inference.models import choose_device
from seq2seq_attn.inference.output import DESCRIPTOR, STANDARD_STREAMS, model_files, refuse_one_file, written
from seq2seq_attn.options import ALIGN, check_options
from seq2seq_attn.paths import given_path, given_text
from seq2seq_attn.text import plain_console

Links = list[list[Link]]  # of each pair
Guided = dict[str, str]  # the row of the head that guided alignment taught, by direction
SYMMETRIZATION = "grow-diag-final-and"  # unless another is given
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
    """Return the figures, which are printed, and write what is asked for to the open files.

    Pairs without gold links have no figures; of a run without guided alignment the mean of all heads is written.
    """
    pairs = read_gold(options)
    is_judged = has_gold(pairs)
    if options["links"] is None:
        directions, guided = attention_directions(options, pairs)
    else:
        directions, guided = link_files(options, pairs), {}
    judged: dict[str, Agreement] = {}
    best: dict[str, str] = {}
    for direction, candidates in directions.items():
        agreements = {name: agreement(links, pairs) for name, links in candidates.items()}
        fewest = min(agreements, key=lambda name: agreements[name].error_rate)
        best[direction] = guided.get(direction) or (fewest if is_judged else list(candidates)[-1])
        judged |= agreements
    chosen = [directions[direction][name] for direction, name in best.items()]
    written_links = chosen[0]
    if len(chosen) == 2:
        both = list(zip(chosen[0], chosen[1], strict=True))
        symmetrized = {
            method: [symmetrize(forward, reverse, method) for forward, reverse in both] for method in METHODS
        }
        judged |= {method: agreement(links, pairs) for method, links in symmetrized.items()}
        written_links = symmetrized[options["symmetrization"]]
    if not is_judged:
        print(summary_without_gold(best, written_links, options["symmetrization"]))
        write(options, outputs, pairs, {}, best, written_links)
        return {}
    judged["diagonal"] = agreement([diagonal(pair.source, pair.target) for pair in pairs], pairs)
    chosen_here = [direction for direction in best if direction not in guided and len(directions[direction]) > 1]
    plain_console().print(agreement_table(judged, {best[direction] for direction in (*guided, *chosen_here)}))
    print(summary(pairs, guided=bool(guided), chosen_here=bool(chosen_here)))
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
    directions = 1 + (options["reverse"] is not None)
    if options["links"] is not None:
        directions = 1 if isinstance(options["links"], str) else len(options["links"])
    if directions == 1 and options["symmetrization"] != SYMMETRIZATION:
        raise UserError(
            f"symmetrization={options['symmetrization']} joins two directions; give reverse=RUN or "
            "links=[FORWARD,REVERSE], or leave it out"
        )
    ignored = changed_options(options)
    if options["links"] is not None and ignored:
        raise UserError(f"links=FILE gives links, so no weights are read; leave out {', '.join(ignored)}")
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
    check_replaced(options)


def check_replaced(options: dict[str, Any]) -> None:
    """Refuse to replace a file with other content than is written there, such as the results.json of a run.

    Raises:
        UserError: naming it.
    """
    for name, holds, what in (("output", holds_links, "links"), ("results", holds_figures, "figures of this command")):
        path = options[name]
        if path is None or DESCRIPTOR.fullmatch(STANDARD_STREAMS.get(path, path)):
            continue
        if os.path.isfile(path) and os.path.getsize(path) and not holds(path):
            raise UserError(f"{name}={path} exists and does not hold {what}; give another file, or delete it")


def holds_links(path: str) -> bool:
    try:
        return all(map(PHARAOH.fullmatch, read_lines(Path(path))))
    except UserError:  # it is no text
        return False


def holds_figures(path: str) -> bool:
    return {"pairs", "best", "alignment"} <= read_json(Path(path)).keys()


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
        needs_links=options["gold"] is not None or options["output"] is None or options["results"] is not None,
    )


def link_files(options: dict[str, Any], pairs: list[AlignedPair]) -> dict[str, dict[str, Links]]:
    """Return the links of the given files, one for each direction."""
    files = [options["links"]] if isinstance(options["links"], str) else options["links"]
    if len(files) not in (1, 2):
        raise UserError(f"links names {len(files)} files; give links=FILE or links=[FORWARD,REVERSE]")
    read = [read_pharaoh(given_text(file, "links"), pairs, target_first=options["target_first"]) for file in files]
    names = ["links"] if len(files) == 1 else ["forward", "reverse"]
    return {name: {name: links} for name, links in zip(names, read, strict=True)}


def attention_directions(
    options: dict[str, Any], pairs: list[AlignedPair]
) -> tuple[dict[str, dict[str, Links]], Guided]:
    """Return the links of a run, and of one of the other direction, by heads; and the guided head of each."""
    loaded = load(str(find_checkpoint(options["ckpt_path"])), options["trust"])
    texts = [(pair.source, pair.target) for pair in pairs]
    if options["tatoeba"] is not None:
        check_languages(loaded, ("en", "fr"), "ckpt_path", "a run for the pairs of Tatoeba")
    if options["reverse"] is None:
        links, guided = links_by_heads(loaded, texts, options)
        return {"forward": links}, {} if guided is None else {"forward": guided}
    other = load(str(find_checkpoint(options["reverse"], "reverse")), options["trust"])
    check_languages(other, languages(loaded)[::-1], "reverse", "the reverse of ckpt_path")
    directions = {
        "forward": links_by_heads(loaded, texts, options),
        "reverse": links_by_heads(other, [text[::-1] for text in texts], options),
    }
    reverse = directions["reverse"][0]
    for name, turned in reverse.items():
        reverse[name] = [[link[::-1] for link in pair_links] for pair_links in turned]
    return (
        {
            side: {f"{side}, {name}": links for name, links in side_links.items()}
            for side, (side_links, _) in directions.items()
        },
        {side: f"{side}, {guided}" for side, (_, guided) in directions.items() if guided is not None},
    )


def links_by_heads(loaded: Loaded, texts: list[Words], options: dict[str, Any]) -> tuple[dict[str, Links], str | None]:
    """Return the links by the heads that the options choose, or else by each head and each mean.

    With the latter comes the name of the head that guided alignment taught, if one was.
    """
    model = loaded.model.to(choose_device(options["device"]))
    maps = word_maps(model, loaded.tokenizer, texts, loaded.config)
    extraction = chosen_extraction(options, loaded.config)
    chosen = Heads(options["alignment_layer"], options["alignment_head"])
    choices = all_heads(maps[0]) if chosen == Heads() else [chosen]
    guided = guided_head(loaded.config, model) if chosen == Heads() else None
    links = {str(heads): [attended_links(pair_maps, heads, extraction) for pair_maps in maps] for heads in choices}
    return links, str(guided) if guided in choices else None


def languages(loaded: Loaded) -> tuple[str, str]:
    return loaded.config["data"]["source_language"], loaded.config["data"]["target_language"]


def check_languages(loaded: Loaded, wanted: tuple[str, str], option: str, what: str) -> None:
    if languages(loaded) != wanted:
        raise UserError(
            f"{option} translates from {' to '.join(languages(loaded))}, and {what} must translate from "
            f"{' to '.join(wanted)}; give another run"
        )


def summary(pairs: list[AlignedPair], *, guided: bool, chosen_here: bool) -> str:
    """Return the sizes of the gold standard, and what the mark means.

    Args:
        guided: a row is marked because guided alignment taught its head.
        chosen_here: a row is marked because it has the fewest errors.
    """
    sure, possible = (sum(len(links) for links in side) for side in zip(*(pair[2:] for pair in pairs), strict=True))
    reasons = ["is the head that guided alignment taught"] * guided
    reasons += ["has the fewest errors of its direction on these pairs"] * chosen_here
    note = f"; * {' or '.join(reasons)}" if reasons else ""
    return f"{len(pairs)} pairs, {sure} sure links and {possible - sure} more that are possible{note}"


def summary_without_gold(best: Mapping[str, str], links: Links, symmetrization: str) -> str:
    """Return the line that is printed in place of figures: how many links are written, and of which heads."""
    joined = f", joined by {symmetrization}" if len(best) == 2 else ""
    return (
        f"{len(links)} pairs without gold links, so there are no figures; {sum(map(len, links))} links of "
        f"{' and '.join(best.values())}{joined}"
    )


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
        for pair_links in links:
            line = to_pharaoh([link[::-1] for link in pair_links] if turned else pair_links)
            outputs["output"].write(f"{line}\n".encode())
    if "results" in outputs:
        figures = {name: scores._asdict() for name, scores in judged.items()}
        content = {"pairs": len(pairs), "best": best, "alignment": figures, "options": options}
        outputs["results"].write(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())
