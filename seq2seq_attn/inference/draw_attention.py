"""Draw the attention of one sentence's translation: `seq2seq-attn draw attention RUN "A black cat." map`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from seq2seq_attn.alignment.heat_map import check_is_map, save_attention_map, without_glyph
from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.paths import typed


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("sentence")
    parser.add_argument("output", type=Path, help="path of the pictures, without suffix")
    add_trust_option(parser)
    arguments = parser.parse_args()
    name = arguments.output.name.removesuffix(".png")
    if not name:
        parser.error(f"{arguments.output} has no name for the pictures; give a path such as map")
    if "=" in name or str(arguments.output).startswith("output="):
        parser.error(
            f"{arguments.output} holds '=', as an option of translate.py does; give the path alone, such as map"
        )
    if not arguments.sentence.strip():
        parser.error("the sentence is empty, so there is nothing to draw")
    translator = Translator.load(arguments.run, device="cpu", trust=arguments.trust)
    (best,) = translator.translate([arguments.sentence], maps=True)
    if not best.maps and not best.tokens:
        parser.error("the sentence has no token, so there is nothing to draw")
    if not best.maps:
        raise UserError(f"the attention of {arguments.run} has no weights to draw")
    for note in best.notes:
        print(f"note: {note}", file=sys.stderr)
    names = [name if len(best.maps) == 1 else f"{name}_{one.slot.replace('/', '_')}" for one in best.maps]
    pictures = [arguments.output.with_name(one) for one in names]
    for picture in pictures:
        check_is_map(picture)
    boxes = {letter for one in best.maps for token in (*one.columns, *one.rows) for letter in without_glyph(token)}
    if boxes:
        print(
            f"note: letters that no installed font has are drawn as boxes ({len(boxes)}); install one for them (on "
            "Debian fonts-noto-cjk has Chinese, Japanese and Korean), or see "
            f"seq2seq-attn explore ckpt_path={typed(arguments.run)}",
            file=sys.stderr,
        )
    for picture, (_, weights, source, target) in zip(pictures, best.maps, strict=True):
        print(save_attention_map(picture, weights, source, target))
