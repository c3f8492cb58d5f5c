"""Links of forty pairs of Tatoeba, made by hand for this project; the file has hashes instead of the sentences."""

from __future__ import annotations

import hashlib
from pathlib import Path

from seq2seq_attn.alignment.gold import AlignedPair
from seq2seq_attn.alignment.word_alignment import Link, from_pharaoh
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.reading import read_lines, read_pairs
from seq2seq_attn.errors import UserError

GOLD = Path(__file__).with_name("tatoeba_alignments.tsv")
DIGITS = 16  # of the hash


def tatoeba_pairs(corpus: Path, alignments: Path | None = None) -> list[AlignedPair]:
    """Return the aligned pairs, English first, whose text Tatoeba's `fra.txt` has, in its order.

    Words are separated by blanks, so punctuation belongs to its word unless the text sets it apart.

    Raises:
        UserError: if there is none.
    """
    gold = read_alignments(alignments or GOLD)
    cleaned, _ = Cleaning().normalize(read_pairs(corpus))
    texts = {fingerprint(pair.source, pair.target): (pair.source.split(), pair.target.split()) for pair in cleaned}
    pairs = [AlignedPair(*text, *gold[digest]) for digest, text in texts.items() if digest in gold]
    if not pairs:
        raise UserError(f"tatoeba={corpus} has none of the {len(gold)} aligned pairs; give Tatoeba's fra.txt")
    return pairs


def read_alignments(path: Path) -> dict[str, tuple[frozenset[Link], frozenset[Link]]]:
    """Return sure links, and all possible ones, by the hash of their pair."""
    gold = {}
    for line in read_lines(path):
        if not line.startswith("#"):
            digest, *columns = line.split("\t")
            sure, *more = (frozenset(from_pharaoh(column)) for column in columns)
            gold[digest] = (sure, sure.union(*more))
    return gold


def fingerprint(source: str, target: str) -> str:
    """Return the hash of a pair's cleaned text."""
    return hashlib.sha256(f"{source}\t{target}".encode()).hexdigest()[:DIGITS]
