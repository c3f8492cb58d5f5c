"""JSON lines: an object in each line, with a source and a target among its fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from seq2seq_attn.data.columns import SIDES, Choice, choose, readable
from seq2seq_attn.data.pair_file import HEAD, PairFile, join_lines
from seq2seq_attn.data.store.pair_source import (
    Parsed,
    RawChunk,
    decoded_lines,
    line_blocks,
    line_chunks,
    rejected_lines,
)
from seq2seq_attn.errors import UserError

NOT_TEXT = re.compile(r"[\0\ud800-\udfff]")  # JSON can escape a NUL and lone surrogates; text must not contain them


@final
class JsonLines(PairFile):
    """A file with a JSON object in each line; `translation.en` is a field of a field."""

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        for column, side in zip(choice.columns, SIDES, strict=True):
            if isinstance(column, int):
                raise UserError(f"{choice.option(side)}={column} is a number, and {path} has named fields; give a name")
        fields = head_fields(path)
        self.names = choose_fields(fields, choice)
        for name, side in zip(self.names, SIDES, strict=True):
            if isinstance(reason := text_of(fields, name), Reason):
                way_out = f"set {choice.option(side)} to the name of the field"
                if choice.one_side:
                    way_out += ", or leave one or two fields of text"
                raise UserError(f"{path}, line 1: {reason}; {way_out}")
        if self.names[0] == self.names[1] and not choice.one_side:
            listed = readable(", ".join(fields))
            raise UserError(
                f"{path}: source and target are both the field {self.names[0]} (fields: {listed}); "
                "set data.source_column and data.target_column to two of them"
            )
        self.origins = (f"field {self.names[0]}", f"field {self.names[1]}")

    def chunks(self) -> Iterator[RawChunk]:
        return line_chunks(self.path)

    def parse(self, chunk: RawChunk) -> Parsed:
        lines, bad = decoded_lines(chunk.content)
        parsed = Parsed([], rejected_lines(self.path, chunk, bad))
        for number, line in enumerate(lines):
            if number in bad:
                continue
            if not line.strip():
                parsed.blank.add(chunk.first + number)
                continue
            fields = read_fields(line)
            texts = [fields] if isinstance(fields, Reason) else [text_of(fields, name) for name in self.names]
            reason = next((text for text in texts if isinstance(text, Reason)), None)
            if reason is None:
                parsed.pairs.append((texts[0], texts[1]))
            else:
                parsed.rejected.append((str(self.path), chunk.first + number, str(reason)))
        return parsed


def head_fields(path: Path) -> dict[str, Any]:
    """Return the fields of the first rows, each as the first row has it, or with a text if a later row has one.

    Raises:
        UserError: if the first line with text is no JSON object.
    """
    block = next(line_blocks(path, num_lines=HEAD)).content
    lines = [line for line in decoded_lines(b"\n".join(block.split(b"\n", HEAD)[:HEAD]))[0] if line.strip()]
    first = lines[0] if lines else ""
    if first.lstrip().startswith("[") or first.strip() == "{":
        raise UserError(
            f"{path}, line 1: not JSON lines, but one JSON text; write one object per line, for example by "
            "`jq -c '.[]'`"
        )
    fields = read_fields(first)
    if isinstance(fields, Reason):
        raise UserError(f"{path}, line 1: {fields}; fix or remove the line")
    for record in map(read_fields, lines[1:]):  # of a field that the first has not, or without a text
        others = {} if isinstance(record, Reason) else record
        fields |= {name: text for name, text in others.items() if is_first_text(fields, name, text)}
    return fields


def is_first_text(fields: dict[str, Any], name: str, value: Any) -> bool:
    """Return whether a value is that of a new field, or the first text of a known one."""
    return name not in fields or (isinstance(value, str) and not isinstance(fields[name], str))


def choose_fields(fields: dict[str, Any], choice: Choice) -> tuple[str, str]:
    """Return the names of the fields of the source and the target, which may not be there or hold no text."""
    names = list(fields)
    texts = [at for at, name in enumerate(names) if not isinstance(text_of(fields, name), Reason)]
    source, target = ([*names, language].index(language) for language in choice.languages)
    if choice.one_side and source == len(names) and len(texts) in (1, 2):
        source, target = texts[0], texts[-1]
    columns = (choice.columns[0] or None, choice.columns[1] or None)  # an empty name chooses none
    chosen = choose(names, choice._replace(columns=columns, positions=(source, target)), texts)
    source_name, target_name = (
        names[at] if at < len(names) else str(column or language)
        for at, column, language in zip(chosen, columns, choice.languages, strict=True)
    )
    return source_name, target_name


class Reason(str):
    """Why a text is none."""


def read_fields(line: str) -> dict[str, Any] | Reason:
    """Return the fields of a JSON object, or why it is none."""
    try:
        record = json.loads(line)
        return leaf_fields(record) if isinstance(record, dict) else Reason("not a JSON object")
    except (ValueError, RecursionError) as error:  # also for a number that is too long, or nesting too deep
        return Reason(f"not JSON ({getattr(error, 'msg', error)})")


def text_of(fields: dict[str, Any], name: str) -> str:
    """Return the text of a field on one line, or a `Reason`."""
    text = fields.get(name)
    if not isinstance(text, str):
        held = f", which holds {readable(json.dumps(text), 30)}" if name in fields else ""
        listed = readable(", ".join(fields)) if fields else "none"
        return Reason(f"no text in the field '{name}'{held} (fields: {listed})")
    if NOT_TEXT.search(text):
        return Reason(f"a NUL or half a surrogate pair in the field '{name}', so this is not plain text")
    return join_lines(text)


def leaf_fields(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of a JSON object, those of an inner object as `outer.inner`."""
    fields: dict[str, Any] = {}
    for name, value in record.items():
        fields |= leaf_fields(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return fields
