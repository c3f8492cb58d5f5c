"""Statistical aligners on an English–French bitext: links to train on, and their alignment error rates.

    python -m scripts.benchmarks.alignment --data FOLDER --output FOLDER [--aligners eflomal fast_align] [--repeats 5]

The bitext is the training pairs of Tatoeba and Multi30k, and the sentences, without links, of the 447 pairs of the
Canadian Hansards that people aligned (WPT 2003, Mihalcea and Pedersen), all as lower-cased words: Multi30k's files are
tokenized, Tatoeba is by Moses' tokenizer. FOLDER of --data holds tatoeba/fra.txt, multi30k/tok/, and in alignments/
enfr-all.src-tgt, with lines `english ||| french`, and enfr-dev.src-tgt, with 149 of these lines and their links.

Written to the folder of --output: train.{en,fr}; val.{en,fr}, of Multi30k's validation; test_2016.{en,fr}, of its test
set of 2016; test_tatoeba.{en,fr}, Tatoeba's test split without the sources that lower-casing makes equal to one of
train.en; of each aligner NAME, NAME.forward, NAME.reverse and NAME.grow-diag-final-and, a line of links in Pharaoh form
for each line of train.*; and alignment.json, the error rates on the 149 pairs. `--aligners` without a name writes the
sentences alone.

eflomal is in the extra `align`. It takes no seed, so its runs differ: `--repeats` runs it several times, writes the
links of the first, and adds the error rates of each to alignment.json. fast_align is its model 2 as the package
sil-thot has it, in the extra `others`: a diagonal whose tension is optimized, and variational Bayes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from sacremoses import MosesTokenizer

from seq2seq_attn.alignment.eflomal_aligner import align_words
from seq2seq_attn.alignment.gold import Agreement, agreement, agreement_table, diagonal, read_aligned_pairs, read_texts
from seq2seq_attn.alignment.symmetrize import METHODS, symmetrize
from seq2seq_attn.alignment.word_alignment import Link, to_pharaoh
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.text import plain_console

Sentences = list[list[str]]
Pairs = list[tuple[list[str], list[str]]]
Directions = tuple[list[list[Link]], list[list[Link]]]
Aligner = Callable[[Sentences, Sentences], Directions]
WRITTEN = "grow-diag-final-and"  # of the symmetrized links
ITERATIONS = 5  # of fast_align, as its own default


def fast_align(sources: Sentences, targets: Sentences) -> Directions:
    """Return what `align_words` does, by fast_align's model 2. Dyer et al. 2013."""
    forward = fast_align_links(sources, targets)
    reverse = fast_align_links(targets, sources)
    return forward, [[link[::-1] for link in links] for links in reverse]


def fast_align_links(sources: Sentences, targets: Sentences) -> list[list[Link]]:
    """Return links of each target word to at most one source word."""
    try:
        from thot.alignment import FastAlignModel
    except ImportError as error:
        raise UserError("fast_align needs the package sil-thot; install it, or give --aligners eflomal") from error
    model = FastAlignModel()
    model.variational_bayes = True
    for pair in zip(sources, targets, strict=True):
        model.add_sentence_pair(*pair)
    model.start_training()
    for _ in range(ITERATIONS):
        model.train()
    model.end_training()
    alignments = model.get_best_alignments(sources, targets)
    return [
        [(int(source), int(target)) for source, target in np.argwhere(matrix.to_numpy())] for _, matrix in alignments
    ]


ALIGNERS: dict[str, Aligner] = {"eflomal": align_words, "fast_align": fast_align}


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare the bitext, run the aligners, write their links and print their error rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--aligners", nargs="*", choices=ALIGNERS, default=list(ALIGNERS))
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of eflomal (%(default)s)")
    given = parser.parse_args(arguments)
    if given.repeats < 1:
        raise UserError(f"--repeats {given.repeats}: give 1 or more")
    dev = read_aligned_pairs([given.data / "alignments/enfr-dev.src-tgt"], start=1, lowercase=True)
    given.output.mkdir(parents=True, exist_ok=True)
    splits = read_bitext(given.data, given.output / "cache")
    for name, pairs in splits.items():
        write_bitext(given.output, name, pairs)
    if not given.aligners:
        return
    train = splits["train"]
    rows = {(tuple(source), tuple(target)): row for row, (source, target) in enumerate(train)}
    dev_rows = [rows[tuple(pair.source), tuple(pair.target)] for pair in dev]
    judged = {"diagonal": agreement([diagonal(pair.source, pair.target) for pair in dev], dev)}
    seconds: dict[str, float] = {}
    error_rates: dict[str, list[dict[str, float]]] = {name: [] for name in given.aligners}
    for name in given.aligners:
        for repeat in range(given.repeats if name == "eflomal" else 1):  # the other one has nothing random
            started = time.perf_counter()
            directions = ALIGNERS[name]([source for source, _ in train], [target for _, target in train])
            elapsed = time.perf_counter() - started
            links = both_and_joined(directions)
            agreements = {how: agreement([predicted[row] for row in dev_rows], dev) for how, predicted in links.items()}
            error_rates[name].append({how: one.error_rate for how, one in agreements.items()})
            if repeat == 0:
                seconds[name] = elapsed
                write_links(given.output, name, links)
                judged |= {f"{name}, {how}": one for how, one in agreements.items()}
    report(given.output / "alignment.json", judged, seconds, len(train), error_rates)


def both_and_joined(directions: Directions) -> dict[str, list[list[Link]]]:
    """Return the links of each pair in both directions and by each method of joining them."""
    both = list(zip(*directions, strict=True))
    joined = {method: [symmetrize(*pair_links, method) for pair_links in both] for method in METHODS}
    return dict(zip(("forward", "reverse"), directions, strict=True)) | joined


def write_links(folder: Path, aligner: str, links: dict[str, list[list[Link]]]) -> None:
    """Write the links of each pair in Pharaoh form, in both directions and joined."""
    for how in ("forward", "reverse", WRITTEN):
        lines = "".join(f"{to_pharaoh(pair_links)}\n" for pair_links in links[how])
        (folder / f"{aligner}.{how}").write_text(lines, encoding="ascii")


def read_bitext(data: Path, cache: Path) -> dict[str, Pairs]:
    """Return the pairs of each split, as lower-cased words."""
    tatoeba = load_splits("tatoeba", data / "tatoeba/fra.txt", cache)
    captions = load_splits("multi30k_tok", data / "multi30k", cache)
    hansards = (text[:2] for text in read_texts([data / "alignments/enfr-all.src-tgt"], with_links=False, prefix=""))
    train = as_words([*tokenized(tatoeba["train"]), *texts_of(captions["train"]), *hansards])
    trained = {tuple(source) for source, _ in train}
    return {
        "train": train,
        "val": as_words(texts_of(captions["val"])),
        "test_2016": as_words(texts_of(captions["test"])),
        "test_tatoeba": [pair for pair in as_words(tokenized(tatoeba["test"])) if tuple(pair[0]) not in trained],
    }


def tokenized(split: Split) -> Iterable[tuple[str, str]]:
    """Return English-French pairs, lower-cased, with blanks between words and signs."""
    english, french = (
        partial(MosesTokenizer(language).tokenize, return_str=True, escape=False) for language in ("en", "fr")
    )
    return ((english(source.lower()), french(target.lower())) for source, target in texts_of(split))


def load_splits(name: str, path: Path, cache: Path) -> dict[str, Split]:
    """Return the cleaned splits of a corpus of `conf/data`."""
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        config = compose("train", [f"data={name}"])
    config.data.path, config.data.cache_dir = str(path), str(cache)
    options = OmegaConf.to_container(OmegaConf.masked_copy(config, ["data"]), resolve=True)
    return instantiate(options["data"], _convert_="all").load().splits


def texts_of(split: Split) -> Iterable[tuple[str, str]]:
    return zip(split.sources, split.targets, strict=True)


def as_words(pairs: Iterable[tuple[str, str]]) -> Pairs:
    return [(source.lower().split(), target.lower().split()) for source, target in pairs]


def write_bitext(folder: Path, split: str, pairs: Pairs) -> None:
    """Write a file for each language."""
    for language, side in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
        lines = "".join(f"{' '.join(words)}\n" for words in side)
        (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")


def report(
    file: Path,
    judged: dict[str, Agreement],
    seconds: dict[str, float],
    pairs: int,
    error_rates: dict[str, list[dict[str, float]]],
) -> None:
    """Print the error rates, and write them.

    Args:
        judged, seconds: of the first run of each aligner.
        error_rates: of each run of each aligner.
    """
    results = {name: metrics._asdict() for name, metrics in judged.items()}
    written = {"pairs": pairs, "seconds": seconds, "alignment": results, "error_rates": error_rates}
    file.write_text(json.dumps(written, indent=2) + "\n")
    plain_console().print(agreement_table(judged))
    print(f"{pairs:,} pairs; wrote {file}")


if __name__ == "__main__":
    main()
