"""Word links of a bitext by eflomal, a statistical aligner. Östling and Tiedemann 2016, 10.1515/pralin-2016-0013."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from seq2seq_attn.alignment.word_alignment import Link, from_pharaoh
from seq2seq_attn.errors import UserError


def align_words(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
) -> tuple[list[list[Link]], list[list[Link]]]:
    """Return the links of each pair in both directions, each link as source word and target word.

    Forward, a target word has at most one link; in reverse, a source word. eflomal lower-cases words and samples: it
    takes its seed from the system and none from a caller, so two calls differ in a few links.

    Args:
        sources, targets: words without blanks; an empty list has no links, nor has one of more than about 1,000 words.

    Raises:
        UserError: if eflomal is not installed.
    """
    assert len(sources) == len(targets), "a target for each source"
    try:
        from eflomal import Aligner
    except ImportError as error:
        raise UserError("links by eflomal need its package; pip install 'seq2seq_attn[align]'") from error
    with TemporaryDirectory() as folder:
        forward, reverse = (Path(folder, name) for name in ("forward", "reverse"))
        Aligner(model=3).align(
            [" ".join(words) + "\n" for words in sources],
            [" ".join(words) + "\n" for words in targets],
            links_filename_fwd=str(forward),
            links_filename_rev=str(reverse),
        )
        return read_links(forward), read_links(reverse)


def read_links(path: Path) -> list[list[Link]]:
    """Return the links of each line of a file in Pharaoh form."""
    return [from_pharaoh(line) for line in path.read_text(encoding="ascii").split("\n")[:-1]]
