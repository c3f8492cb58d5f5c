"""User-supplied text without translations, for a language model or for pre-training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.columns import Column
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus
from seq2seq_attn.data.json_lines import JsonLines
from seq2seq_attn.data.pair_file import PairFile
from seq2seq_attn.data.pair_formats import is_pair_file, pair_file
from seq2seq_attn.data.parallel import matching_files
from seq2seq_attn.data.store.held_out import HeldOut
from seq2seq_attn.data.store.pair_source import PairSource, Parsed, RawChunk, decoded_lines, line_chunks, rejected_lines
from seq2seq_attn.data.store.text_store import stored_corpus
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import given_path

WITHOUT_EMPTY = 1  # what is prepared of a file; before, validation and test sets had the empty lines


@final
class TextCorpus(Corpus):
    """A corpus of lines of any size, whose source and target are both the line.

    Args:
        train, val, test: a text file with a sentence or paragraph in each line, or several; plain or compressed. `*`
            and `?` stand for several files. A file of pairs, such as .tsv, gives the lines of both sides; in a table
            with one column, or one named text, sentence or content, that column is the text. Without `val` or `test`,
            that split is held out of `train`.
        text_column: name of the column or field, or number of the column, that is the text in a table or JSON lines;
            None: as `train` says.
        source_language, target_language: name of the language, or of several.
        val_sentences, test_sentences: lines of the held-out splits; None: 1,000, at most a tenth of all.
        seed: of the choice of these lines.
        max_rejected, num_processes, verify, copy_to: as of `ParallelCorpus`.

    Raises:
        UserError: if the files do not make a corpus.
    """

    has_one_side: bool = True

    def __init__(
        self,
        *,
        train: str | list[str] | None,
        val: str | list[str] | None,
        test: str | list[str] | None,
        source_language: str,
        target_language: str,
        cleaning: Cleaning,
        val_sentences: Annotated[int | None, "[0, 1000000]"],
        test_sentences: Annotated[int | None, "[0, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        cache_dir: str,
        text_column: Column = None,
        max_rejected: Annotated[float, "[0, 1]"] = 0.01,
        num_processes: Annotated[int | None, "[1, 1000]"] = None,
        verify: bool = False,
        copy_to: str | None = None,
    ) -> None:
        self.files = {"train": train, "val": val, "test": test}
        self.languages, self.text_column = (source_language, target_language), text_column or None
        self.cleaning, self.seed = cleaning, seed
        self.held_out = {"val": val_sentences, "test": test_sentences}
        self.cache_dir = given_path(cache_dir, "data.cache_dir") / "corpora"
        self.copy_to = None if copy_to is None else given_path(copy_to, "data.copy_to")
        self.max_rejected, self.num_processes, self.verify = max_rejected, num_processes, verify

    def load(self) -> LoadedCorpus:
        sources = {
            split: [
                text_source(str(file), self.languages, self.text_column)
                for pattern in ([given] if isinstance(given, str) else given)
                for file in matching_files(pattern, f"data.{split}")
            ]
            for split, given in self.files.items()
            if given is not None
        }
        if empty := [split for split, files in sources.items() if not files]:
            raise UserError(f"data.{empty[0]} is an empty list; name a file, or write data.{empty[0]}=null")
        if not sources:
            raise UserError("data=text needs data.train=FILE, or data.train=[FILE,FILE], with a sentence in each line")
        if self.text_column and not any(isinstance(one, BothSides) for files in sources.values() for one in files):
            raise UserError(
                f"data.text_column={self.text_column} chooses a column of a table or a field of JSON lines, and no "
                "file is one of these; leave it out"
            )
        return stored_corpus(
            sources,
            self.cleaning,
            held_out=HeldOut.of(self.held_out, sources, self.seed),
            cache_dir=self.cache_dir,
            languages=self.languages,
            origins=("", origin_of(sources)),
            max_rejected=self.max_rejected,
            num_processes=self.num_processes,
            verify=self.verify,
            copy_to=self.copy_to,
        )


@final
class Lines(PairSource):
    """A text file, plain or compressed, whose lines are each paired with itself."""

    has_one_side = True

    def __init__(self, path: Path) -> None:
        self.path, self.files = path, (path,)

    def chunks(self) -> Iterator[RawChunk]:
        return line_chunks(self.path)

    def options(self) -> list[Any]:
        return [WITHOUT_EMPTY]

    def parse(self, chunk: RawChunk) -> Parsed:
        lines, bad = decoded_lines(chunk.content)
        pairs = [(line, line) for number, line in enumerate(lines) if number not in bad]
        return Parsed(pairs, rejected_lines(self.path, chunk, bad))


@final
class BothSides(PairSource):
    """The lines of both sides of a file of pairs, each paired with itself; of one field each line once."""

    has_one_side = True

    def __init__(self, pairs: PairFile) -> None:
        self.pairs, self.files, self.has_header = pairs, pairs.files, pairs.has_header

    def chunks(self) -> Any:
        return self.pairs.chunks()

    def parse(self, chunk: RawChunk) -> Parsed:
        parsed = self.pairs.parse(chunk)
        names = self.pairs.names if isinstance(self.pairs, JsonLines) else self.pairs.positions
        sides = len(set(names))
        return Parsed([(side, side) for pair in parsed.pairs for side in pair[:sides]], parsed.rejected)

    def options(self) -> list[Any]:
        return [type(self.pairs).__name__, *self.pairs.options(), WITHOUT_EMPTY]


def text_source(file: str, languages: tuple[str, str], column: Column = None) -> PairSource:
    """Return the reader of a file of lines, or of pairs."""
    path = given_path(file, "data.train")
    if not is_pair_file(file):
        return Lines(path)
    return BothSides(pair_file(path, (column, column), languages, one_side=True))


def origin_of(sources: dict[str, list[PairSource]]) -> str:
    """Return the columns and fields that the files of all splits are read from, such as "column title, column body"."""
    tables = [source.pairs for files in sources.values() for source in files if isinstance(source, BothSides)]
    return ", ".join(dict.fromkeys(origin for table in tables for origin in table.origins))
