"""Training of Hugging Face's Marian, started by `training.py` in a separate environment.

It uses the loop and the batches of `train_plainly.py`, which are faster than `Seq2SeqTrainer`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from scripts.benchmarks.pace_training import Pace
from scripts.benchmarks.train_plainly import batches, paced
from seq2seq_attn.errors import reports_user_errors


@reports_user_errors
def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())

    from transformers import MarianMTModel

    torch.manual_seed(settings["seed"])
    model = MarianMTModel(configuration(settings))
    optimizer = torch.optim.Adam(model.parameters(), settings["lr"], betas=(0.9, 0.98), eps=1e-9, fused=True)
    pace = Pace.of_benchmark()
    model.train()
    for batch in batches(folder, settings):
        optimizer.zero_grad()
        logits = model(
            input_ids=batch.source,
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=batch.target_input,
            use_cache=False,
        ).logits
        F.cross_entropy(
            logits.flatten(0, 1),
            batch.target_output.flatten(),
            ignore_index=settings["pad_id"],
            label_smoothing=settings["smoothing"],
        ).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
        optimizer.step()
        paced(pace, batch)


def configuration(settings: dict[str, Any]) -> Any:
    from transformers import MarianConfig

    sides = {
        f"{side}_{name}": settings[of]
        for side in ("encoder", "decoder")
        for name, of in (("layers", "layers"), ("ffn_dim", "ff_dim"), ("attention_heads", "heads"))
    }
    return MarianConfig(
        vocab_size=settings["tokens"],
        d_model=settings["dim"],
        dropout=settings["dropout"],
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=settings["pad_id"],
        bos_token_id=settings["bos_id"],
        eos_token_id=settings["eos_id"],
        forced_eos_token_id=settings["eos_id"],
        decoder_start_token_id=settings["bos_id"],
        **sides,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
