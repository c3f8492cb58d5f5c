"""One self-contained HTML file with the explorer's views of some sentences: `page=FILE.html input=FILE`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seq2seq_attn.alignment.page import MARK, halved, self_contained
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.lines import line_count, opened, read_lines
from seq2seq_attn.inference.output import written

MOST_SENTENCES = 100


def check_page(page: Path) -> None:
    """Refuse a file that the explorer may not write.

    Raises:
        UserError: if it is no .html file, is there and was not written by the explorer, or its folder is not there.
    """
    if page.suffix != ".html":
        raise UserError(f"page={page} does not end in .html; give page=maps.html")
    if not page.parent.is_dir():
        raise UserError(f"page={page} is in a folder that is not there; make {page.parent}, or give another")
    if page.is_dir() or (page.exists() and not was_written(page)):
        raise UserError(f"page={page} is there, and not a page that the explorer wrote; give another name")


def was_written(page: Path) -> bool:
    try:
        with page.open("rb") as file:
            return MARK.encode() in file.read(4096)
    except OSError as error:
        raise UserError(f"page={page} cannot be read ({error.strerror}); give another name") from error


def read_sentences(file: str) -> dict[int, str]:
    """Return the lines of a file that are not blank, by their numbers.

    Raises:
        UserError: if there are none, or too many for a page.
    """
    sentences: dict[int, str] = {}
    with opened("input", file) as stream:
        for line in read_lines(stream, file):
            if line.text.strip():
                sentences[line.number] = line.text
            if len(sentences) > MOST_SENTENCES:
                raise UserError(f"input={file} has more than {MOST_SENTENCES} sentences; give fewer for one page")
    if not sentences:
        raise UserError(f"input={file} has no sentence; write one a line")
    return sentences


def write_page(
    page: Path,
    file: str,
    sentences: dict[int, str],
    models: dict[str, Any],
    look: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Write the page of some lines of `file`, each translated by every model."""
    with line_count_of(len(sentences)) as advance:
        looks = []
        for number, text in sentences.items():
            looks += [halved(one) for one in looks_of(text, len(models["models"]), look, f"{file}, line {number}")]
            advance(1)
    with written("page", str(page)) as stream:
        stream.write(self_contained(models, looks).encode())
    print(f"wrote {page}: {len(sentences)} sentences, {page.stat().st_size / 1e6:.1f} MB")


def line_count_of(total: int) -> Any:
    return line_count(total, sys.stderr.isatty())


def looks_of(
    text: str, num_models: int, look: Callable[[dict[str, Any]], dict[str, Any]], location: str
) -> Iterator[dict[str, Any]]:
    for model in range(num_models):
        try:
            yield look({"model": model, "source": text, "tree": True})
        except UserError as error:
            raise UserError(f"{location}: {error}") from error
