"""The files of a translation: each is complete under its name, or absent, or what it was before."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, final

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.heat_map import check_is_map, save_attention_map
from seq2seq_attn.alignment.word_alignment import Link, to_pharaoh
from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.inference.lines import Line
from seq2seq_attn.inference.translator import Translation
from seq2seq_attn.paths import given_path
from seq2seq_attn.text import printable

DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
STANDARD_STREAMS = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
UNWRITTEN = (".zst", ".bz2", ".xz", ".zip", ".7z")
MODEL_SUFFIXES = (".ckpt", ".safetensors", ".model")  # of the files that a run or a published folder is rebuilt from
LONGEST = 255  # bytes of a name
BARS = "&#124;" * 3  # as Moses escapes them in a text
GZIP = 16 + zlib.MAX_WBITS  # zlib, unlike gzip, returns all text of a truncated file


@final
class TranslationFiles:
    """The outputs of translated lines: translations, and on request n-best lists, word alignments and attention maps.

    Control characters in a translation go to a file or a pipe, but not to a terminal or an n-best list.

    Args:
        stack: closes the files.
        standard: where translations go without `output`.
        attention: yields the number of each line's text and the maps of its best translation; called only where they
            are wanted.
        links: returns the word links of a line by the maps of its translation.
        output, nbest, alignments, maps: files, and a folder for maps; None: not wanted.
    """

    def __init__(
        self,
        stack: ExitStack,
        standard: Any,
        attention: Callable[[Sequence[str], Sequence[Translation]], Iterator[tuple[int, list[SlotMap]]]],
        links: Callable[[str, list[SlotMap]], list[Link]],
        *,
        output: str | None,
        nbest: str | None,
        alignments: str | None,
        maps: str | None,
    ) -> None:
        if maps is not None:
            try:
                Path(maps).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"maps={maps} cannot be made ({error.strerror})") from error
        self._attention, self._links, self._maps = attention, links, maps
        self._output = stack.enter_context(written("output", output, standard, keeps_part=True))
        self._nbest = stack.enter_context(written("nbest", nbest, keeps_part=True))
        self._alignments = stack.enter_context(written("alignments", alignments, keeps_part=True))
        self._shown = printable if self._output.isatty() else str

    def write(self, lines: Sequence[Line], translations: Sequence[Translation]) -> None:
        links = self._linked(lines, translations)  # first, so that an interrupt leaves all files with the same lines
        for row, (line, translation) in enumerate(zip(lines, translations, strict=True)):
            self._output.write(f"{self._shown(translation.text)}\n".encode())
            if self._nbest is not None:
                self._nbest.write(moses_list(line.number - 1, translation).encode())
            if self._alignments is not None:
                self._alignments.write(f"{to_pharaoh(links[row])}\n".encode())
        for file in (self._output, self._nbest, self._alignments):
            if file is not None:
                file.flush()

    def _linked(self, lines: Sequence[Line], translations: Sequence[Translation]) -> dict[int, list[Link]]:
        """Return the word links of each line if they are wanted, and save its maps if they are."""
        links = {row: one.links for row, one in enumerate(translations) if one.links is not None}
        rows = [row for row in range(len(lines)) if self._maps is not None or row not in links]
        if self._alignments is None and self._maps is None:
            return links
        texts = [lines[row].text for row in rows]
        for number, maps in self._attention(texts, [translations[row] for row in rows]):
            row = rows[number]
            if self._alignments is not None and row not in links:
                links[row] = self._links(lines[row].text, maps)
            if self._maps is not None:
                save_maps(Path(self._maps), lines[row].number, maps)
        return links


def check_maps(folder: Path, slots: Collection[str]) -> None:
    """Refuse to replace files that have the name of a map of a line and are none, before the first line is translated.

    Raises:
        UserError: naming one of them.
    """
    names = re.compile(rf"(\d{{6,}}_(?:{'|'.join(re.escape(name_of_slot(slot)) for slot in slots)}))\.(?:png|npz)")
    matches = map(names.fullmatch, sorted(path.name for path in folder.glob("*")))
    for name in dict.fromkeys(match[1] for match in matches if match):
        check_is_map(folder / name)


def save_maps(folder: Path, number: int, maps: list[SlotMap]) -> None:
    for slot, weights, columns, rows in maps:
        path = folder / f"{number:06d}_{name_of_slot(slot)}"
        try:
            save_attention_map(path, weights, columns, rows)
        except OSError as error:
            raise UserError(
                f"{error.filename or path} cannot be written ({error.strerror or one_line(error)}); give another "
                "folder as maps="
            ) from error


def name_of_slot(slot: str) -> str:
    return slot.replace("/", "_")


def moses_list(number: int, translation: Translation) -> str:
    """Return `number ||| text ||| log_prob ||| score`, best first; lines count from 0, as in Moses."""
    return "".join(
        f"{number} ||| {printable(one.text).replace('|||', BARS)} ||| {one.log_prob:.6f} ||| {one.score:.6f}\n"
        for one in (translation, *translation.alternatives)
    )


@contextmanager
def written(option: str, path: str | None, standard: Any = None, *, keeps_part: bool = False) -> Iterator[Any]:
    """Open a byte stream, packed if the name ends in gz; None is the standard stream, which stays open.

    A regular file is written as NAME.part and renamed at the end, with the permissions of the file that it replaces: an
    error or an interrupt leaves that file as it was. Pipes, devices and open descriptors are written directly.

    Args:
        keeps_part: whether an error or an interrupt leaves NAME.part if it has a line, and says how many it has.
    """
    if path is None:
        yield standard
        return
    if path.endswith(UNWRITTEN):
        raise UserError(f"{option}={path} would not be compressed; end its name in .gz, or leave the ending out")
    with naming(option, path):
        raw, part, final_name = open_raw(option, path)
    try:
        with raw, io.BufferedWriter(raw) as plain:
            if path.endswith(".gz"):
                with gzip.GzipFile(os.path.basename(path), "wb", fileobj=plain) as packed:
                    yield packed
            else:
                yield plain
        if part is not None:
            with naming(option, path):
                part.replace(final_name)
    except BaseException:
        lines = num_lines(part, packed=path.endswith(".gz")) if part is not None and keeps_part else 0
        if part is not None and lines == 0:
            part.unlink(missing_ok=True)
        if lines:
            print(f"{option}={path} is not finished; what was written is in {part} (lines: {lines:,})", file=sys.stderr)
        raise


def num_lines(file: Path, *, packed: bool) -> int:
    """Return the number of whole lines in a file, which may be cut off."""
    lines = 0
    unpack: Callable[[bytes], bytes] = zlib.decompressobj(GZIP).decompress if packed else bytes
    with suppress(OSError, zlib.error), file.open("rb") as stream:
        while block := stream.read(1 << 16):
            lines += unpack(block).count(b"\n")
    return lines


@contextmanager
def naming(option: str, path: str) -> Iterator[None]:
    """Turn an error of the system into a sentence that names the option and the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{option}={path} cannot be written ({error.strerror})") from error


@final
class OutputFile(io.FileIO):
    """A file whose write errors, such as a full disk, name it."""

    def __init__(self, option: str, path: str, file: str | Path | int, mode: str) -> None:
        self.option, self.path = option, path
        super().__init__(file, mode)

    def write(self, data: Any, /) -> int:
        with naming(self.option, self.path):
            return super().write(data)


def open_raw(option: str, path: str) -> tuple[OutputFile, Path | None, Path]:
    """Return the open file; its temporary name, or None where it is written directly; and its final name."""
    final_name = Path(os.path.realpath(path))
    if descriptor := DESCRIPTOR.fullmatch(STANDARD_STREAMS.get(path, path)):
        return OutputFile(option, path, os.dup(int(descriptor[1])), "w"), None, final_name
    try:
        replaced = os.stat(path)
    except FileNotFoundError:
        replaced = None
    if replaced is not None:
        if not stat.S_ISREG(replaced.st_mode):
            return OutputFile(option, path, path, "w"), None, final_name
        final_name.open("r+b").close()  # a read-only file is not replaced
    raw, part = new_part(option, path, final_name)
    if replaced is not None:
        shutil.copymode(path, part)
    return raw, part, final_name


def new_part(option: str, path: str, final_name: Path) -> tuple[OutputFile, Path]:
    """Return NAME.part, or NAME.2.part if there is one of an earlier command, and so on."""
    name = os.fsencode(final_name.name)[: LONGEST - len(".999.part")].decode(errors="ignore")
    part, number = final_name.with_name(f"{name}.part"), 1
    while True:
        try:
            return OutputFile(option, path, part, "x"), part
        except FileExistsError:
            number += 1
            part = final_name.with_name(f"{name}.{number}.part")


def model_files(path: str, option: str) -> list[str]:
    """Return a checkpoint or a folder, and the files of the folder from which a model is rebuilt."""
    folder = given_path(path, option)
    models = [file for file in folder.rglob("*") if file.suffix in MODEL_SUFFIXES] if folder.is_dir() else []
    return [str(file) for file in (folder, *models)]


def refuse_one_file(files: Sequence[tuple[str, Any]], shared: Collection[str] = ()) -> None:
    """Refuse one file under two options.

    Args:
        files: options, each with a path or a stream.
        shared: options that may name one file.
    """
    named: dict[str | tuple[int, int], tuple[str, Any]] = {}
    for name, file in files:
        key = identity(file)
        other, other_file = (name, file) if key is None else named.setdefault(key, (name, file))
        if other != name and not {other, name} <= set(shared):
            path = next((f", {one}" for one in (file, other_file) if isinstance(one, str)), "")
            raise UserError(f"{other} and {name} are one file{path}; give each its own")


def identity(file: Any) -> str | tuple[int, int] | None:
    """Return device and inode of a path or a stream, or the resolved path of a new file; None for a terminal or
    another device, which several options may share.
    """
    try:
        status = os.stat(file if isinstance(file, str) else file.fileno())
    except OSError:
        return os.path.realpath(file) if isinstance(file, str) else None
    shared = stat.S_ISCHR(status.st_mode) or stat.S_ISSOCK(status.st_mode)
    return None if shared else (status.st_dev, status.st_ino)
