"""Attention as a word aligner: `python -m scripts.benchmarks.aligning run --bitext FOLDER --runs RUNS`.

Two plans of trainings on the lower-cased words that `scripts.benchmarks.alignment` writes to FOLDER. `guidance` trains
a Transformer and an RNN with and without guided alignment, a Transformer guided by the links of two others, and the
Transformers in the other direction. `attentions` trains each preset that can be guided for 850 updates, in the
cross-attention of a Transformer or, for those of Bahdanau and Luong, in an RNN. Transformers have rotary positions,
RNNs the conditional GRU or Luong's decoder; a guided head learns links in the step that reads a word, and which words
have none. `measure` computes the alignment error rate of each finished run and, of `guidance`, BLEU of two test sets;
`page` writes a page of each plan that has been measured.

`run` writes the training pairs and their links to RUNS, those of the Hansards ten times: they are 447 of about 100,000,
and those of them that people aligned are what is measured. No pair is left out as a duplicate.

A run is in RUNS/NAME, that of a further seed in RUNS/NAME_SEED; a folder with results.json counts as a run, whoever
trained it. The queue may be killed at any time: the same command resumes it, and no finished run is repeated.
rows.jsonl has a line for each finished run, and measures.jsonl for each that is measured. On another machine `restore`
brings those of a committed page back, without the runs themselves; runs whose links another one learns are then trained
again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from scripts.benchmarks.draw_aligning import LinkMap, draw_link_maps
from scripts.benchmarks.home_runs import (
    HOMES,
    MEASURES,
    ROOT,
    ROWS,
    RefusedError,
    build_or_refuse,
    compose_train,
    forget_lost,
    is_lost,
    presets,
    read_rows,
    rows_of,
    unfinished,
    write_rows,
)
from scripts.benchmarks.homes import add_restore, add_run, alone, run_jobs, trained_row
from scripts.benchmarks.write_aligning_page import write_attentions_page, write_guidance_page
from seq2seq_attn.alignment.attention_links import Heads, Words, all_heads, attended_links, attended_weights, word_maps
from seq2seq_attn.alignment.forced_attention import WordMaps
from seq2seq_attn.alignment.gold import AlignedPair, agreement, read_aligned_pairs
from seq2seq_attn.alignment.guided import guided_head, guided_shift
from seq2seq_attn.alignment.word_alignment import Extraction, Link, from_pharaoh, links_of, to_pharaoh
from seq2seq_attn.checkpoint.load import find_checkpoint, load
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.paths import quoted

COMMON = (
    "data=parallel", "tokenizer.vocab_size=8000", "num_threads=1", "trainer.enable_progress_bar=false", "recipe=none",
    "batch_tokens=4096", "optimizer.lr=0.003", "val_sentences=200", "data.cleaning.deduplicate=false",
)  # fmt: skip
TRANSFORMER = (
    "model=transformer", "position=rotary", "model.embedding_dim=128", "model.encoder.dim=128", "model.decoder.dim=128",
    "feed_forward.ff_dim=512", "model.encoder.dropout=0.1", "model.decoder.dropout=0.1",
)  # fmt: skip
WIDTHS = ("model.embedding_dim=128", "model.encoder.dim=128")
RNN = ("model=rnn", "decoder@model.decoder=rnn_conditional", *WIDTHS, "model.decoder.dim=256")
# Luong's dot product needs queries of the keys' width.
LUONG = ("model=rnn", "decoder@model.decoder=rnn_luong", *WIDTHS, "model.decoder.dim=128")
MODELS = {"transformer": (*TRANSFORMER, "trainer.max_epochs=6"), "rnn": (*RNN, "trainer.max_epochs=5")}
GUIDED = ("guided_alignment.weight=0.2", "guided_alignment.unlinked=end")  # and shift=true in a Transformer
EFLOMAL = "eflomal.grow-diag-final-and"  # links, in the folder of the bitext
HANSARDS = 447  # pairs, which are the last ones of the bitext
COPIES = 10  # of these pairs in the training files
LINKS = "links"  # of the training files, beside them in the folder of the runs
TURNED = "turned.links"  # the same with the target first
UPDATES = 850  # of a preset: one and a half epochs
ATTENTION_MODELS = {  # of the presets that are compared, with the slot that takes them
    "transformer": (TRANSFORMER, "attention@cross_attention"),
    "rnn": (RNN, "attention"),
    "rnn_luong": (LUONG, "attention"),
}
UNGUIDED = ("multihead", "bahdanau", "luong_general")  # presets that are trained without guidance, too
TEST_SETS = ("test_tatoeba", "test_2016")
BEAM = {"name": "beam", "beam_size": 5}
DRAWN = {"transformer_plain": "not guided", "transformer_guided": "guided by links of eflomal"}
DRAWN_PAIR = ("a black dog is running through the snow .", "un chien noir court dans la neige .")
PLANS = ("guidance", "attentions")
SPLITS = ("train", "val")
SMALL = 100  # words of a vocabulary where a model is built only to see whether it takes an attention


class Run(NamedTuple):
    """A training; its name says what it is: `rnn_plain`, `transformer_rev_guided` or `attentions/rnn/bahdanau`."""

    name: str
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / (self.name if self.seed == 1 else f"{self.name}_{self.seed}")

    @property
    def is_reverse(self) -> bool:
        return "_rev_" in self.name


def guidance_runs() -> list[Run]:
    """Return the runs with and without guided alignment: all with one seed, then those whose BLEU is compared."""
    first = [
        "transformer_guided", "transformer_rev_guided", "rnn_guided", "transformer_plain", "transformer_rev_plain",
        "rnn_plain", "transformer_self", "rnn_guided_shift",
    ]  # fmt: skip
    compared = ["transformer_guided", "transformer_plain", "rnn_guided", "rnn_plain"]
    later = [Run(name, seed) for seed in (2, 3) for name in compared]
    return [*(Run(name, 1) for name in first), *later, Run("transformer_rev_self", 1)]


def attention_runs() -> list[Run]:
    """Return a guided run of each preset, the usual ones first, and of these one without guidance."""
    others = [preset for preset in presets() if preset not in (*UNGUIDED, "none")]
    usual = [f"attentions/{model_of(preset)}/{preset}" for preset in UNGUIDED]
    names = [*usual, *(f"{name}_plain" for name in usual)]
    return [Run(name, 1) for name in [*names, *(f"attentions/{model_of(preset)}/{preset}" for preset in others)]]


RUNS = {"guidance": guidance_runs, "attentions": attention_runs}


def model_of(preset: str) -> str:
    """Return the model that takes a preset: an RNN where its paper has it in one."""
    if preset in HOMES["rnn"].own:
        return "rnn"
    return "rnn_luong" if preset in HOMES["rnn_luong"].own else "transformer"


def read_by(run: Run) -> list[str]:
    """Return the names of the two runs whose links a run learns, that of its own direction first."""
    plain = ["transformer_plain", "transformer_rev_plain"] if run.name.endswith("_self") else []
    return plain[::-1] if run.is_reverse else plain


def command(run: Run, bitext: Path, runs: Path) -> list[str]:
    """Return the overrides of train.py for a run."""
    languages = ("fr", "en") if run.is_reverse else ("en", "fr")
    folders_of = {"train": runs, "val": bitext}
    sides = {
        name: ",".join(quoted(folder.resolve() / f"{name}.{language}") for language in languages)
        for name, folder in folders_of.items()
    }
    overrides = [*COMMON, *(f"data.{name}=[{files}]" for name, files in sides.items()), f"data.test=[{sides['val']}]"]
    overrides += [f"data.source_language={languages[0]}", f"data.target_language={languages[1]}", f"seed={run.seed}"]
    *folders, name = run.name.split("/")
    if folders:
        model, slot = ATTENTION_MODELS[folders[1]]
        overrides += [
            *model,
            f"{slot}={name.removesuffix('_plain')}",
            f"trainer.max_steps={UPDATES}",
            "trainer.max_epochs=2",
        ]
    else:
        overrides += MODELS[name.partition("_")[0]]
    kind = folders[1] if folders else name
    # The attention of an RNN also supplies the context of the next word, so it is guided in the step that writes.
    guided = [*GUIDED, f"guided_alignment.shift={str(not kind.startswith('rnn') or name.endswith('_shift')).lower()}"]
    if name.endswith("_self"):
        pair = ",".join(quoted(runs.resolve() / one) for one in read_by(run))
        overrides += [*guided, "guided_alignment.links=self", f"guided_alignment.runs=[{pair}]"]
    elif not name.endswith("_plain"):
        links = runs.resolve() / (TURNED if run.is_reverse else LINKS)
        overrides += [*guided, f"guided_alignment.links={quoted(links)}"]
    return overrides


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    options.act(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = add_run(commands, run_queue)
    run.add_argument("--only", nargs="+", metavar="NAME", help="runs of these names; default: all of the plan")
    measure = commands.add_parser("measure", help="measure what has been trained and not been measured")
    measure.add_argument("--data", type=Path, required=True, help="folder with the file alignments/enfr-dev.src-tgt")
    measure.set_defaults(act=measure_runs)
    page = commands.add_parser("page", help="write the pages of what has been measured")
    page.add_argument("--data", type=Path, help="folder with the file alignments/enfr-dev.src-tgt, for --plan guidance")
    page.add_argument("--output", type=Path, default=ROOT / "docs/benchmarks", help="%(default)s")
    page.set_defaults(act=write_pages)
    for choice in commands.choices.values():
        choice.add_argument("--bitext", type=Path, required=True, help="folder that scripts.benchmarks.alignment wrote")
        choice.add_argument("--runs", type=Path, required=True, help="folder of the runs")
        choice.add_argument("--plan", nargs="+", default=list(PLANS), choices=PLANS, metavar="PLAN", help=f"of {PLANS}")
    restored = add_restore(commands, ROOT / "docs/benchmarks/guided_alignment.md", Run._fields)
    restored.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    return parser.parse_args(arguments)


def planned(options: argparse.Namespace) -> list[Run]:
    return [run for plan in options.plan for run in RUNS[plan]()]


def run_queue(options: argparse.Namespace) -> None:
    """Run all that have no row; those that failed get a second try."""
    for name in (f"{split}.{language}" for split in SPLITS for language in ("en", "fr")):
        check_file(options.bitext / name)
    check_file(options.bitext / EFLOMAL)
    chosen = [run for run in planned(options) if options.only is None or run.folder(Path()).as_posix() in options.only]
    if not chosen:
        raise UserError(f"--only {' '.join(options.only)} names no run; choose from: {names_of(planned(options))}")
    options.runs.mkdir(parents=True, exist_ok=True)
    with alone(options.runs):
        write_training_files(options.bitext, options.runs)
        left = unfinished(chosen, read_rows(options.runs / ROWS))
        needed = {Run(name, 1) for run in left for name in read_by(run)}
        missing = sorted(run for run in needed - set(chosen) if is_lost(run, options.runs))
        if missing:
            raise UserError(f"{names_of(left)}: need the links of {names_of(missing)}; name these in --only, too")
        forget_lost(needed, options.runs)
        read_first = [run for run in chosen if run in needed]
        failed = run_jobs(run_jobs(read_first, options, run_one), options, run_one)
        lost = {run.name for run in failed}
        others = [run for run in chosen if run not in needed and not lost.intersection(read_by(run))]
        failed += run_jobs(run_jobs(others, options, run_one), options, run_one)
    if failed:
        sys.exit(f"{len(failed)} runs failed: {names_of(failed)}; repeat the command to run them again")


def write_training_files(bitext: Path, runs: Path) -> None:
    """Write the training pairs and their links in both directions, those of the Hansards several times.

    A file that is as it should be keeps its time, by which the cache of prepared pairs knows it.
    """
    texts = {f"train.{language}": read_lines(bitext / f"train.{language}") for language in ("en", "fr")}
    texts[LINKS] = read_lines(bitext / EFLOMAL)
    texts[TURNED] = [to_pharaoh([link[::-1] for link in from_pharaoh(line)]) for line in texts[LINKS]]
    for name, lines in texts.items():
        content = "".join(f"{line}\n" for line in [*lines, *lines[-HANSARDS:] * (COPIES - 1)]).encode()
        if not (runs / name).is_file() or (runs / name).read_bytes() != content:
            with replacing(runs / name) as stream:
                stream.write(content)


def names_of(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(run.folder(Path()).as_posix() for run in runs))


def check_file(file: Path) -> Path:
    if not file.is_file():
        raise UserError(f"{file} is missing; `python -m scripts.benchmarks.alignment` writes the files of --bitext")
    return file


def run_one(run: Run, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run or resume a training; return its row, or None if it failed."""
    overrides = [
        *command(run, options.bitext, options.runs),
        f"paths.cache_dir={quoted(options.runs.resolve() / 'cache')}",
    ]
    if run.name.startswith("attentions/"):
        try:
            build_or_refuse(compose_train(overrides, SMALL))
        except RefusedError as refusal:
            return {**run._asdict(), "refused": str(refusal)}
    return trained_row(run, [*overrides, *options.override], options.runs)


def measure_runs(options: argparse.Namespace) -> None:
    """Measure every finished run that has not been measured."""
    pairs = gold_pairs(options.data)
    for name in (f"{test}.{language}" for test in TEST_SETS for language in ("en", "fr")):
        check_file(options.bitext / name)
    torch.set_num_threads(1)
    file = options.runs / MEASURES
    names = {run.name for run in planned(options)}
    with alone(options.runs):
        measured = {(row["name"], row["seed"]) for row in read_rows(file)}
        for row in rows_of(options.runs / ROWS, Run._fields):
            run = Run(row["name"], row["seed"])
            is_here = (run.folder(options.runs) / "results.json").is_file()  # not one of another machine
            if is_here and run.name in names and run not in measured:
                figures = alignment_of(run.folder(options.runs), pairs)
                if "/" not in run.name and not run.is_reverse:
                    figures["test"] = {test: bleu(run.folder(options.runs), options.bitext, test) for test in TEST_SETS}
                write_rows(file, [*read_rows(file), {**run._asdict(), **figures}])
                print(f"{names_of([run])}: AER {figures['error_rate']:.1f}", flush=True)


def gold_pairs(data: Path | None) -> list[AlignedPair]:
    """Return the pairs of the Canadian Hansards with links, English first, as lower-cased words."""
    if data is None:
        raise UserError("the page of --plan guidance needs --data FOLDER, with the file alignments/enfr-dev.src-tgt")
    file = data / "alignments/enfr-dev.src-tgt"
    if not file.is_file():
        raise UserError(f"--data {data} has no file alignments/enfr-dev.src-tgt; give the folder that contains it")
    return read_aligned_pairs([file], start=1, lowercase=True)


def alignment_of(folder: Path, pairs: list[AlignedPair]) -> dict[str, Any]:
    """Return the links of a run, English first, with their figures and the heads that they are of.

    They are those of the guided head, or else, for each half of the pairs, of the heads with the fewest errors on the
    other half.
    """
    loaded = load(str(find_checkpoint(str(folder))))
    turned = loaded.config["data"]["source_language"] == "fr"
    texts = [sides(pair)[:: -1 if turned else 1] for pair in pairs]
    maps = word_maps(loaded.model, loaded.tokenizer, texts, loaded.config)
    guided = guided_head(loaded.config, loaded.model)
    heads = all_heads(maps[0]) if guided is None else [guided]
    extraction = Extraction(shift=guided_shift(loaded.config))
    candidates = {one: links_by(one, maps, extraction, turned) for one in heads}
    chosen = [best_heads(candidates, pairs, 1 - half) for half in (0, 1)]
    links = [candidates[chosen[row % 2]][row] for row in range(len(pairs))]
    return {
        "heads": list(dict.fromkeys(map(str, chosen))),
        "guided": guided is not None,
        **agreement(links, pairs)._asdict(),
        "pharaoh": [to_pharaoh(pair_links) for pair_links in links],
    }


def sides(pair: AlignedPair) -> tuple[list[str], list[str]]:
    return pair.source, pair.target


def links_by(heads: Heads, maps: Sequence[WordMaps], extraction: Extraction, turned: bool) -> list[list[Link]]:
    """Return the links of each pair by some heads, English first."""
    links = [attended_links(pair_maps, heads, extraction) for pair_maps in maps]
    return [[link[::-1] for link in pair_links] for pair_links in links] if turned else links


def best_heads(candidates: dict[Heads, list[list[Link]]], pairs: list[AlignedPair], half: int) -> Heads:
    """Return those with the fewest errors on every other pair, from number `half`."""
    rates = {heads: agreement(links[half::2], pairs[half::2]).error_rate for heads, links in candidates.items()}
    return min(rates, key=lambda heads: rates[heads])


def bleu(folder: Path, bitext: Path, test: str) -> dict[str, Any]:
    """Return BLEU of a test set by beam search, on words in lower case; write the translations to the run's folder."""
    sources, references = (
        (bitext / f"{test}.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "fr")
    )
    translations = [one.text for one in Translator.load(folder).translate(sources, search=BEAM)]
    with replacing(folder / f"{test}.fr") as stream:
        stream.writelines(f"{line}\n".encode() for line in translations)
    metric = BLEU(lowercase=True, tokenize="none")
    metric.update(translations, [[reference] for reference in references])
    return {"bleu": float(metric.compute()), "signature": metric.signature()}


def write_pages(options: argparse.Namespace) -> None:
    """Write the page of each plan of which a run has been measured."""
    rows, measures = rows_of(options.runs / ROWS, Run._fields), read_rows(options.runs / MEASURES)
    names = {row["name"] for row in measures}
    measured = [plan for plan in options.plan if any(run.name in names for run in RUNS[plan]())]
    if not measured:
        raise UserError("no run has been measured; start `scripts.benchmarks.aligning run` and `measure` first")
    if "guidance" in measured:
        statistical, pairs = check_file(options.bitext / "alignment.json"), gold_pairs(options.data)
    options.output.mkdir(parents=True, exist_ok=True)
    for plan in options.plan:
        if plan not in measured:
            print(f"no run of --plan {plan} has been measured; its page is left as it is")
        elif plan == "guidance":
            page = options.output / "guided_alignment.md"
            picture = draw_maps(options.runs, measures, page.with_suffix(".png"))
            write_guidance_page(page, rows, measures, pairs, statistical, picture)
        else:
            write_attentions_page(options.output / "aligning_attentions.md", rows, measures, len(attention_runs()))


def draw_maps(runs: Path, measures: Sequence[dict[str, Any]], file: Path) -> Path | None:
    """Draw the maps of one pair by two runs; return the picture, or None if one of them has not been measured.

    A picture that is there is kept if a run is not.
    """
    if not all((runs / name / "results.json").is_file() for name in DRAWN):
        return file if file.is_file() else None
    heads = {row["name"]: row["heads"][0] for row in measures if row["seed"] == 1}
    if not set(DRAWN) <= set(heads):
        return None
    source, target = (side.split() for side in DRAWN_PAIR)
    maps = [link_map(runs / name, title, heads[name], (source, target)) for name, title in DRAWN.items()]
    draw_link_maps(file, source, target, maps)
    return file


def link_map(folder: Path, title: str, name: str, pair: Words) -> LinkMap:
    """Return the weights of the heads of this name along a pair, and the links read from them."""
    loaded = load(str(find_checkpoint(str(folder))))
    (maps,) = word_maps(loaded.model, loaded.tokenizer, [pair], loaded.config)
    (heads,) = (one for one in all_heads(maps) if str(one) == name)
    extraction = Extraction(shift=guided_shift(loaded.config))
    weights = attended_weights(maps, heads, extraction)
    return LinkMap(f"{title}: {name}", weights, links_of(weights, extraction))


if __name__ == "__main__":
    main()
