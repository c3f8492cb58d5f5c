"""What a Weights & Biases run has logged, read from its own file: LevelDB's log around protocol buffers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

BLOCK, FILE_HEADER, RECORD_HEADER = 32768, 7, 7
WHOLE, LAST = 1, 4  # kinds of a part; a record that crosses blocks has a first and middle ones


class Row(NamedTuple):
    """A line of the run's history.

    Attributes:
        number: W&B's own count of lines.
        names: of what was logged in it.
        position: on the axis that was asked for; None: it is on no such axis.
    """

    number: int
    names: set[str]
    position: int | None


def read_rows(file: Path, axis: str) -> list[Row]:
    """The history in a `.wandb` file, as far as it is whole: a process that was killed may have left half a record."""
    rows = []
    with suppress(DecodeError):
        for record in read_records(file):
            if record.HasField("history"):
                values = {item.nested_key[0]: item.value_json for item in record.history.item}
                position = json.loads(values[axis]) if axis in values else None
                rows.append(Row(record.history.step.num, set(values), position))
    return rows


def read_records(file: Path) -> Iterator[Record]:
    content, position, parts = file.read_bytes(), FILE_HEADER, b""
    while position + RECORD_HEADER <= len(content):
        left = BLOCK - position % BLOCK
        if left < RECORD_HEADER:
            position += left  # too little for a header
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        position += RECORD_HEADER
        parts += content[position : position + length]
        position += length
        if position > len(content):
            return
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record
