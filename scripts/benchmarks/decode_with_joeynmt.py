"""Decoding with JoeyNMT 2.3 and our weights; `decoding.py` writes its model and starts it.

`main` runs in a separate environment, so little of the package is imported here. Our bias of the output layer and our
epsilon of the layer normalisation, which its checkpoint cannot store, are set after loading. Its attention has biases
where ours has none; they are zero.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from seq2seq_attn.errors import reports_user_errors

ROOT = Path(__file__).parents[2]

RESULT = "RESULT "  # prefix of an answer on standard output
ORDER = [1, 0, 2, 3]  # JoeyNMT's order of specials is unk, pad, begin, end; ours is pad, unk, begin, end
POSITIONS = 5000  # rows of its table of positions


def write_model(model: Any, tokenizer: Any, table: Tensor, folder: Path, *, most: int, batch: int) -> None:
    """Write a folder with JoeyNMT's configuration, checkpoint, vocabularies and tokenizers.

    Args:
        model: a pre-norm Transformer of ours.
        table: its position encodings, `POSITIONS` rows.
        most: greatest length of a translation, in tokens.
        batch: sentences per batch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = tokenizer.get_state()
    for side, tokens, size in (
        ("source", tokenizer.source_tokens, tokenizer.source_vocab_size),
        ("target", tokenizer.target_tokens, tokenizer.target_vocab_size),
    ):
        (folder / f"{side}.model").write_bytes(state[f"{side}_model"].numpy().tobytes())
        lines = tokens(reordered(torch.arange(size)).tolist())
        (folder / f"{side}.vocabulary").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration(model, folder, most, batch)))
    weights = {
        "src_embed.lut.weight": reordered(model.embed_source.weight),
        "trg_embed.lut.weight": reordered(model.embed_target.weight),
        "decoder.output_layer.weight": reordered(model.output.weight),
    }
    for name, side in (("encoder", model.encoder), ("decoder", model.decoder)):
        weights |= {f"{name}.pe.pe": table[None], **named(f"{name}.layer_norm", side.norm)}
        for i, layer in enumerate(side.layers):
            weights |= {f"{name}.layers.{i}.{key}": value for key, value in layer_weights(layer).items()}
    checkpoint = {
        "model_state": {key: value.detach().clone() for key, value in weights.items()},
        "output_bias": reordered(model.output.bias.detach()),
        "epsilon": model.encoder.norm.eps,
    }
    torch.save(checkpoint, folder / "best.ckpt")


def reordered(rows: Tensor) -> Tensor:
    return torch.cat([rows[ORDER], rows[len(ORDER) :]])


def layer_weights(layer: Any) -> dict[str, Tensor]:
    """Return the weights of an encoder or decoder layer by JoeyNMT's names."""
    feed_forward = layer.feed_forward
    weights = {
        **named("feed_forward.layer_norm", layer.feed_forward_residual.before),
        **named("feed_forward.pwff_layer.0", feed_forward.expand),
        **named("feed_forward.pwff_layer.3", feed_forward.reduce),
    }
    if hasattr(layer, "attention"):
        return (
            weights | named("layer_norm", layer.attention_residual.before) | attention("src_src_att", layer.attention)
        )
    return (
        weights
        | named("x_layer_norm", layer.self_residual.before)
        | attention("trg_trg_att", layer.self_attention)
        | named("dec_layer_norm", layer.cross_residual.before)
        | attention("src_trg_att", layer.cross_attention)
    )


def attention(name: str, part: Any) -> dict[str, Tensor]:
    query, key = part.score.projections
    linears = {"q": query, "k": key, "v": part.project_values}
    weights = {k: v for letter, linear in linears.items() for k, v in named(f"{name}.{letter}_layer", linear).items()}
    return weights | named(f"{name}.output_layer", part.project_output[0])


def named(name: str, part: Any) -> dict[str, Tensor]:
    bias = part.bias if part.bias is not None else torch.zeros(part.weight.shape[0])
    return {f"{name}.weight": part.weight, f"{name}.bias": bias}


def configuration(model: Any, folder: Path, most: int, batch: int) -> dict[str, Any]:
    embeddings = {"embedding_dim": model.embed_source.embedding_dim, "scale": model.scale != 1.0, "dropout": 0.0}
    sides = {}
    for name, side in (("encoder", model.encoder), ("decoder", model.decoder)):
        first = side.layers[0]
        self_attention = first.attention if hasattr(first, "attention") else first.self_attention
        sides[name] = {
            "type": "transformer",
            "num_layers": len(side.layers),
            "num_heads": self_attention.num_heads,
            "embeddings": embeddings,
            "hidden_size": embeddings["embedding_dim"],
            "ff_size": first.feed_forward.expand.out_features,
            "dropout": 0.0,
            "layer_norm": "pre",
            "activation": first.feed_forward.activation.__name__,
        }
    data = {
        short: {
            "lang": side,
            "level": "bpe",
            "voc_file": str(folder / f"{side}.vocabulary"),
            "tokenizer_type": "sentencepiece",
            "tokenizer_cfg": {"model_file": str(folder / f"{side}.model")},
        }
        for short, side in (("src", "source"), ("trg", "target"))
    }
    return {
        "name": "ours",
        "model_dir": str(folder),
        "use_cuda": False,
        "data": {"test": "none", **data},
        "training": {"batch_size": batch},
        "testing": {
            "load_model": str(folder / "best.ckpt"),
            "batch_size": batch,
            "batch_type": "sentence",
            "max_output_length": most,
            "generate_unk": False,
            "n_best": 1,
            "beam_size": 1,
        },
        "model": {"tied_embeddings": False, "tied_softmax": False, **sides},
    }


def started(python: Path, folder: Path, threads: int) -> Callable[[list[str], int, float], tuple[float, list[str]]]:
    """Start a process; return a function from lines, a beam size and Wu's alpha to seconds and translations."""
    command = [python, "-m", "scripts.benchmarks.decode_with_joeynmt", folder.resolve(), str(threads)]
    process: Any = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )

    def ask(lines: list[str], beam_size: int, alpha: float) -> tuple[float, list[str]]:
        request = {"lines": lines, "beam_size": beam_size, "beam_alpha": alpha}
        print(json.dumps(request), file=process.stdin, flush=True)
        for line in process.stdout:
            if line.startswith(RESULT):
                answer = json.loads(line.removeprefix(RESULT))
                return answer["seconds"], answer["translations"]
        raise RuntimeError(f"JoeyNMT ended without an answer; run {' '.join(map(str, command))} to see why")

    return ask


@reports_user_errors
def main(folder: Path, threads: int) -> None:
    """Answer each JSON object on standard input with an object of `translations` and `seconds`."""
    checkpoint = torch.load(folder / "best.ckpt")

    from joeynmt.config import load_config, parse_global_args
    from joeynmt.prediction import predict, prepare

    torch.set_num_threads(threads)
    settings = parse_global_args(load_config(folder / "config.yaml"), rank=0, mode="translate")
    model, _, _, data = prepare(settings, rank=0, mode="translate")
    model.decoder.output_layer.bias = nn.Parameter(checkpoint["output_bias"])
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = checkpoint["epsilon"]
    for request in map(json.loads, sys.stdin):
        data.reset_cache()
        for line in request["lines"]:
            data.set_item(line)
        began = time.perf_counter()
        _, _, translations, *_ = predict(
            model,
            data,
            settings.device,
            settings.n_gpu,
            num_workers=0,
            autocast=settings.autocast,
            args=settings.test._replace(beam_size=request["beam_size"], beam_alpha=request["beam_alpha"]),
        )
        answer = {"seconds": time.perf_counter() - began, "translations": translations}
        print(RESULT + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
