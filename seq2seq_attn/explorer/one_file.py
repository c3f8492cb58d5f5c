"""One self-contained HTML file with the explorer's views of some sentences: `page=FILE.html input=FILE`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2seq_attn.alignment.page import MARK, halved, self_contained
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import check_writable
from seq2seq_attn.inference.lines import line_count, opened, read_lines
from seq2seq_attn.inference.output import written

MOST_SENTENCES = 100
MOST_WEIGHTS = 1 << 26  # of a page, which a browser reads at once
Look = Callable[[dict[str, Any]], dict[str, Any]]


def check_page(page: Path) -> None:
    """Refuse a file that the explorer may not write.

    Raises:
        UserError: if it is no .html file, is there and was not written by the explorer, or its folder is not there or
            cannot be written to.
    """
    if page.suffix != ".html":
        raise UserError(f"page={page} does not end in .html; give page=maps.html")
    if not page.parent.is_dir():
        raise UserError(f"page={page} is in a folder that is not there; make {page.parent}, or give another")
    if page.is_dir() or (page.exists() and not was_written(page)):
        raise UserError(f"page={page} is there, and not a page that the explorer wrote; give another name")
    check_writable(page, "give another page=")


def was_written(page: Path) -> bool:
    try:
        with page.open("rb") as file:
            return MARK.encode() in file.read(4096)
    except OSError as error:
        raise UserError(f"page={page} cannot be read ({error.strerror}); give another name") from error


def read_sentences(file: str) -> dict[int, str]:
    """Return the lines of a file that are not blank, by their numbers.

    Raises:
        UserError: if there are none, or too many for a page, or one cannot be read.
    """
    sentences: dict[int, str] = {}
    with opened("input", file) as stream:
        for line in read_lines(stream, file):
            if line.notes:
                reason = line.notes[0].partition(";")[0]  # translate.py replaces or cuts what is wrong
                way_out = "convert the text" if "UTF-8" in reason else "shorten the line"
                raise UserError(f"input={file}, line {line.number}: {reason}; {way_out}")
            if line.text.strip():
                sentences[line.number] = line.text
            if len(sentences) > MOST_SENTENCES:
                raise UserError(f"input={file} has more than {MOST_SENTENCES} sentences; give fewer for one page")
    if not sentences:
        raise UserError(f"input={file} has no sentence; write one a line")
    return sentences


def write_page(page: Path, file: str, sentences: dict[int, str], models: dict[str, Any], look: Look) -> None:
    """Write the page of some lines of `file`, each translated by every model, whose translations the others read.

    Raises:
        UserError: for a sentence that cannot be shown, or more weights than a page may hold.
    """
    looks: list[dict[str, Any]] = []
    forced: list[dict[str, Any]] = []
    total = 0
    with line_count_of(len(sentences)) as advance:
        for number, text in sentences.items():
            try:
                sentence_looks = [
                    asked(look, model=model, source=text, tree=True) for model in range(len(models["models"]))
                ]
            except UserError as error:
                raise UserError(f"{file}, line {number}: {error}") from error
            others = forced_looks(sentence_looks, models["models"], look)
            forced += [{"of": len(looks) + first, "look": other} for first, other in others]
            looks += sentence_looks
            total += sum(weights_of(one) for one in [*sentence_looks, *(other for _, other in others)])
            if total > MOST_WEIGHTS:
                raise UserError(
                    f"{file}, line {number}: the maps up to here have {total:,} weights, and {MOST_WEIGHTS:,} are the "
                    "most of a page; give fewer or shorter sentences"
                )
            advance(1)
    with written("page", str(page)) as stream:
        stream.write(self_contained(models, looks, forced).encode())
    print(f"wrote {page}: {len(sentences)} sentences, {page.stat().st_size / 1e6:.1f} MB")


def line_count_of(total: int) -> Any:
    return line_count(total, sys.stderr.isatty())


def asked(look: Look, **request: Any) -> dict[str, Any]:
    """Return a look with its request, and weights of 16 bits."""
    return halved(look(request)) | {"request": request}


def forced_looks(
    looks: Sequence[dict[str, Any]], models: Sequence[dict[str, Any]], look: Look
) -> list[tuple[int, dict[str, Any]]]:
    """Return, for each pair of models, the index of the first and the look of the second at the first's translation.

    A translation that the second model cannot read, because it is too long for it, has none.
    """
    forced = []
    for first, one in enumerate(looks):
        for second, model in enumerate(models):
            equal = model["tokenizer"] == models[first]["tokenizer"]
            target = {"target_tokens": one["target"]["token_ids"]} if equal else {"target": one["target"]["text"]}
            if second != first:
                with suppress(UserError):
                    forced.append((first, asked(look, model=second, source=one["request"]["source"], **target)))
    return forced


def weights_of(look: dict[str, Any]) -> int:
    return sum(slot["heads"] * slot["rows"] * slot["columns"] for slot in look["slots"])
