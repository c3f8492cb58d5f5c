"""Draw the attention of one sentence's translation: `seq2seq-attn draw attention RUN "A black cat." map`."""

from __future__ import annotations

import argparse
from pathlib import Path

from seq2seq_attn.alignment.heat_map import check_is_map, save_attention_map
from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.inference.translator import Translator


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("sentence")
    parser.add_argument("output", type=Path, help="path of the pictures, without suffix")
    add_trust_option(parser)
    arguments = parser.parse_args()
    if not arguments.output.name:
        parser.error(f"{arguments.output} has no name for the pictures; give a path such as map")
    translator = Translator.load(arguments.run, device="cpu", trust=arguments.trust)
    (best,) = translator.translate([arguments.sentence], maps=True)
    name = arguments.output.name
    names = [name if len(best.maps) == 1 else f"{name}_{one.slot.replace('/', '_')}" for one in best.maps]
    pictures = [arguments.output.with_name(one) for one in names]
    for picture in pictures:
        check_is_map(picture)
    for picture, (_, weights, source, target) in zip(pictures, best.maps, strict=True):
        print(save_attention_map(picture, weights, source, target))
