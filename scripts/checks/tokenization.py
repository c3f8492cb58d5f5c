"""Count the tokenized lines of Multi30k that ours equal: `python -m scripts.checks.tokenization --path FOLDER`."""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from rich.table import Table

from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.metric.tokenized_bleu import moses_tokenized
from seq2seq_attn.text import plain_console

SUFFIX = ".lc.norm.tok"


def read(file: Path) -> list[str]:
    """Return the lines of a gzipped file, split at line feeds only."""
    return gzip.decompress(file.read_bytes()).decode().removesuffix("\n").split("\n")


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--path",
        type=Path,
        required=True,
        help="folder with {split}.{language}.gz, and tok/ with the public tokenized files",
    )
    folder = parser.parse_args().path
    table = Table()
    for column in ("split", "language", "lines", "reproduced", "share"):
        table.add_column(column, justify="left" if column in ("split", "language") else "right")
    files = sorted((folder / "tok").glob(f"*{SUFFIX}.*.gz"))
    if not files:
        raise UserError(f"--path {folder} has no tok/*{SUFFIX}.*.gz; give the folder of Multi30k's captions")
    for tokenized in files:
        split, language = tokenized.name.removesuffix(".gz").split(f"{SUFFIX}.")
        raw, public = read(folder / f"{split}.{language}.gz"), read(tokenized)
        same = sum(moses_tokenized(ours, language) == line for ours, line in zip(raw, public, strict=True))
        table.add_row(split, language, f"{len(raw):,}", f"{same:,}", f"{same / len(raw):.3%}")
    plain_console().print(table)


if __name__ == "__main__":
    main()
