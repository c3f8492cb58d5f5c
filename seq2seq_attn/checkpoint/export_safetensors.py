"""Write a trained model for publishing: `seq2seq-attn export safetensors RUN FOLDER`.

The folder holds the weights as model.safetensors, the options and the tokenizer's settings as config.json, and the
vocabularies as source.model and target.model, for SentencePiece. It is accepted wherever a run is: `python translate.py
ckpt_path=FOLDER`, `Translator.load(FOLDER)`. No run resumes from it, and it holds no path of this machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from seq2seq_attn.checkpoint.load import PUBLISHED_OPTIONS, check_saved_options, find_checkpoint, read_checkpoint
from seq2seq_attn.checkpoint.published import check_empty, write_published
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.files import filling
from seq2seq_attn.paths import typed


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("folder", type=Path, help="must be empty, or not exist yet")
    options = parser.parse_args(arguments)
    file = find_checkpoint(options.run, "RUN")
    checkpoint = read_checkpoint(file)
    check_saved_options(checkpoint["config"], PUBLISHED_OPTIONS, file)
    check_empty(options.folder)
    with filling(options.folder) as made:
        write_published(checkpoint, made)
    print(f"Wrote {options.folder}, which is accepted wherever a run is: ckpt_path={typed(str(options.folder))}")
