"""Draw the attention of one sentence's translation: `python scripts/draw_attention.py RUN "A black cat." map`."""

from __future__ import annotations

import argparse
from pathlib import Path

from answering import answering
from hydra.utils import instantiate

from seq2seq_attn.callback.attention_map import best_translation
from seq2seq_attn.callback.heat_map import save_attention_map
from seq2seq_attn.search.attention_along import attention_along
from seq2seq_attn.training.checkpoint import load


@answering
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("sentence")
    parser.add_argument("output", type=Path, help="path of the pictures, without suffix")
    arguments = parser.parse_args()
    model, tokenizer, config = load(arguments.run)
    cleaning = instantiate(config["data"]["cleaning"], _convert_="all")
    search = instantiate(config["search"], _convert_="all")
    (pieces,) = tokenizer.encode_source([cleaning.normalize_text(arguments.sentence)])
    found = attention_along(model, tokenizer, pieces, best_translation(model, tokenizer, search, pieces))
    for slot, weights, source, target in found:
        name = (
            arguments.output.name if len(found) == 1 else f"{arguments.output.name}_{slot.replace('/', '_')}"
        )
        print(save_attention_map(arguments.output.with_name(name), weights, source, target))


if __name__ == "__main__":
    main()
