"""Intact corpora in every format, and more than twenty kinds of damage to their files."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Content = bytes | str  # bytes, or one of the markers below for what takes the file's place
Files = dict[str, tuple[str, Content]]  # name and content of each file, by its role

DIRECTORY, MISSING, UNREADABLE = "a directory", "nothing", "a file that may not be read"
UTF_16 = ["utf-16", "utf-16-le", "utf-16-be"]
NO_RECORD = [
    b"[" * 100_000, b"1" * 5_000, b"null", b"[]", b'{"en": ["s1"], "fr": "t1"}', b"{", b'"s1"',
    b'{"en": "s1 \\ud800", "fr": "t1"}', b'{"en": "s1 \\u0000", "fr": "t1"}', b'{"en": "s1\\n\\nx", "fr": "t1\\r"}',
    b'{"en": "s1", "fr": NaN}', b'{"\\n": "s1", "' + b"f" * 5_000 + b'": "t1"}',
]  # fmt: skip
BLANK = [b"\n", b" \n", b"\t\n", b"\r\n"]
WORDS = ["chat", "Été", "l'eau", "猫", "naïve", "100%", "x"]
FORMS = {
    "tatoeba": ("data=tatoeba", "data.val_sentences=2", "data.test_sentences=3"),
    "tsv": ("data=parallel", "data.val_sentences=2", "data.test_sentences=3"),
    "jsonl": ("data=parallel", "data.val_sentences=2", "data.test_sentences=3"),
    "two": ("data=parallel", "data.val_sentences=2", "data.test_sentences=3"),
    "six": ("data=parallel",),
    "multi30k": ("data=multi30k",),
    "demo": ("data=demo",),
}
SPLITS = {"multi30k": ["train", "val", "test_2016_flickr"], "six": ["train", "val", "test"]}


def whole(form: str, draw: Draw) -> Files:
    """Draw an intact corpus; both sides of a pair contain its number."""
    number = draw(st.integers(12, 30))
    texts = [" ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))) for _ in range(2 * number)]
    sides = [[f"{side}{i} {text}" for i, text in enumerate(texts[k::2])] for k, side in enumerate("st")]
    pairs = list(zip(*sides, strict=True))
    third = form == "tatoeba"
    table = [[*pair, f"CC-BY #{i}"] if third else list(pair) for i, pair in enumerate(pairs)]
    lines = ["\t".join(row) for row in table]
    if form == "jsonl":
        ascii_only = draw(st.booleans())
        lines = [json.dumps({"en": s, "fr": t}, ensure_ascii=ascii_only) for s, t in pairs]
    if form in ("tatoeba", "tsv", "jsonl"):
        return {"train": (f"pairs.{'jsonl' if form == 'jsonl' else 'txt'}", text_of(lines))}
    if form == "demo":
        rows = {name: lines[at::4] for at, name in enumerate(("train", "val", "test", "unseen"))}
        return {name: (f"{name}.tsv", text_of(part)) for name, part in rows.items()}
    splits = SPLITS.get(form, ["train"])
    return {
        f"{split}.{language}": (f"{split}.{language}", text_of(sides[side][at :: len(splits)]))
        for at, split in enumerate(splits)
        for side, language in enumerate(("en", "fr"))
    }


def text_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def in_one_file(change: Callable[[Draw, bytes], Content]) -> Callable[[Draw, Files], Files]:
    """Change one file of the corpus."""

    def changed(draw: Draw, files: Files) -> Files:
        role = draw(st.sampled_from(sorted(files)))
        name, content = files[role]
        assert isinstance(content, bytes)
        return files | {role: (name, change(draw, content))}

    return changed


def between_words(*inserted: bytes) -> Callable[[Draw, Files], Files]:
    """Insert one of the byte strings at one to three blanks."""

    def change(draw: Draw, content: bytes) -> bytes:
        for _ in range(draw(st.integers(1, 3))):
            blanks = [match.start() for match in re.finditer(b" ", content)]
            at = draw(st.sampled_from(blanks))
            content = content[:at] + b" " + draw(st.sampled_from(inserted)) + b" " + content[at + 1 :]
        return content

    return in_one_file(change)


def in_a_line(change: Callable[[Draw, bytes], bytes]) -> Callable[[Draw, Files], Files]:
    def changed(draw: Draw, content: bytes) -> bytes:
        lines = content.split(b"\n")
        at = draw(st.integers(0, len(lines) - 2))
        return b"\n".join([*lines[:at], change(draw, lines[at]), *lines[at + 1 :]])

    return in_one_file(changed)


def packed(spoil: Callable[[Draw, bytes], bytes]) -> Callable[[Draw, Files], Files]:
    """Replace one file by a .gz file with what `spoil` makes of its content."""

    def changed(draw: Draw, files: Files) -> Files:
        role = draw(st.sampled_from(sorted(files)))
        name, content = files[role]
        assert isinstance(content, bytes)
        return files | {role: (f"{name}.gz", spoil(draw, content))}

    return changed


def long_name(draw: Draw, files: Files) -> Files:
    role = draw(st.sampled_from(sorted(files)))
    name, content = files[role]
    return files | {role: ("n" * draw(st.integers(200, 5000)) + name, content)}


def in_all_files(change: Callable[[bytes], bytes]) -> Callable[[Draw, Files], Files]:
    def changed(draw: Draw, files: Files) -> Files:
        return {role: (name, change(content)) for role, (name, content) in files.items() if isinstance(content, bytes)}

    return changed


def some(draw: Draw, most: int) -> int:
    return int(draw(st.integers(1, most)))


KINDS: dict[str, Callable[[Draw, Files], Files]] = {
    "nothing wrong": lambda draw, files: files,
    "a tab too few": in_a_line(lambda draw, line: line.replace(b"\t", b" ", some(draw, 2))),
    "tabs too many": in_a_line(lambda draw, line: line + b"\t" * some(draw, 4)),
    "tabs inside a sentence": between_words(b"\t"),
    "bytes that are not UTF-8": between_words(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88", b"\xc0\xaf", b"\x80"),
    "Latin-1": in_one_file(lambda draw, content: content.decode().encode("latin-1", "replace")),
    "a line of Latin-1": in_a_line(lambda draw, line: line.decode().encode("latin-1", "replace")),
    "UTF-16": in_one_file(lambda draw, content: content.decode().encode(draw(st.sampled_from(UTF_16)))),
    "NUL": between_words(b"\0", b"\0\0\0"),
    "byte-order marks": in_one_file(lambda draw, content: b"\xef\xbb\xbf" * some(draw, 2) + content),
    "empty": in_one_file(lambda draw, content: b""),
    "blank lines alone": in_one_file(lambda draw, content: draw(st.sampled_from(BLANK)) * some(draw, 9)),
    "as many blank lines": in_one_file(lambda draw, content: b"\n" * content.count(b"\n")),
    "blank lines at the end": in_one_file(lambda draw, content: content + b"\n" * some(draw, 3)),
    "no final line end": in_one_file(lambda draw, content: content[:-1]),
    "CR LF": in_one_file(lambda draw, content: content.replace(b"\n", b"\r\n")),
    "CR alone": in_one_file(lambda draw, content: content.replace(b"\n", b"\r")),
    "CR alone in every file": in_all_files(lambda content: content.replace(b"\n", b"\r")),
    "some CR": in_one_file(lambda draw, content: content.replace(b"\n", b"\r", some(draw, 3))),
    "separators inside": between_words(*(c.encode() for c in "\u2028\u2029\u0085\v\f\x1c\x1d\x1e\r")),
    "control characters": between_words(*(chr(c).encode() for c in (1, 7, 8, 27, 127, 128, 159))),
    "odd letters": between_words(*(c.encode() for c in ("\ufeff", "\ufffe", "\U0010ffff", "\u202e", "\u2581", "</s>"))),
    "a line of 100,000 tokens": in_a_line(lambda draw, line: line.replace(b" ", b" " + b"mot " * 100_000, 1)),
    "a word of combining marks": between_words(("a" + "\u0301\u0323" * 40_000).encode()),
    "a line too few or too many": in_one_file(
        lambda draw, content: content[content.index(b"\n") + 1 :] if draw(st.booleans()) else content + b"s99\tt99\n"
    ),
    "a gz cut short": packed(lambda draw, content: gzip.compress(content)[: -some(draw, 60)]),
    "a gz with rubbish behind": packed(lambda draw, content: gzip.compress(content) + draw(st.binary(max_size=9))),
    "a gz with a bit flipped": packed(lambda draw, content: flipped(draw, gzip.compress(content))),
    "no gz": packed(lambda draw, content: content),
    "a directory": in_one_file(lambda draw, content: DIRECTORY),
    "missing": in_one_file(lambda draw, content: MISSING),
    "not to be read": in_one_file(lambda draw, content: UNREADABLE),
    "a long name": long_name,
    "double lines": in_all_files(lambda content: content * 2),
    "not JSON": in_a_line(
        lambda draw, line: draw(st.sampled_from([line[:-3], *NO_RECORD])) if line.startswith(b"{") else line + b" {["
    ),
}  # fmt: skip


def flipped(draw: Draw, content: bytes) -> bytes:
    at, bit = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 7))
    return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]


def write(folder: Path, files: Files) -> None:
    for name, content in files.values():
        try:
            if content == DIRECTORY:
                (folder / name).mkdir()
            elif content == UNREADABLE:
                (folder / name).write_bytes(b"s1\tt1\n")
                (folder / name).chmod(0)  # root may read it all the same
            elif isinstance(content, bytes):
                (folder / name).write_bytes(content)
        except OSError:
            assert len(name) > 255
