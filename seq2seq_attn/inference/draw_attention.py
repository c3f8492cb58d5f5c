"""Draw the attention of one sentence's translation: `seq2seq-attn draw attention RUN "A black cat." map`."""

from __future__ import annotations

import argparse
from pathlib import Path

from hydra.utils import instantiate

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.heat_map import save_attention_map
from seq2seq_attn.callback.attention_map import best_translation
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import reports_user_errors


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("sentence")
    parser.add_argument("output", type=Path, help="path of the pictures, without suffix")
    arguments = parser.parse_args()
    model, tokenizer, config = load(arguments.run)
    cleaning = instantiate(config["data"]["cleaning"], _convert_="all")
    search = instantiate(config["search"], _convert_="all")
    (tokens,) = tokenizer.encode_source([cleaning.normalize_text(arguments.sentence)])
    found = attention_along(model, tokenizer, tokens, best_translation(model, tokenizer, search, tokens))
    for slot, weights, source, target in found:
        name = arguments.output.name if len(found) == 1 else f"{arguments.output.name}_{slot.replace('/', '_')}"
        print(save_attention_map(arguments.output.with_name(name), weights, source, target))
