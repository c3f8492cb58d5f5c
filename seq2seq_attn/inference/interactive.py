"""A prompt that answers each line."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import suppress

from seq2seq_attn.inference.translator import Translation
from seq2seq_attn.text import printable

PROMPT = "> "


def interact(translate: Callable[[str], Translation]) -> None:
    """Until the input ends (Ctrl-D); a line can be edited, and the arrow keys bring back those before it.

    Each translation stands behind its score.
    """
    with suppress(ImportError):  # on Windows
        import readline  # noqa: F401, input() edits with it
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            print()
            return
        best = translate(text)
        for note in best.notes:
            print(note, file=sys.stderr)
        for one in (best, *best.alternatives) if text.strip() else ():
            print(f"{one.score:8.3f}  {printable(one.text)}")
