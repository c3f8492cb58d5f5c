"""Write a trained Transformer in CTranslate2's format: `seq2seq-attn export ctranslate2 RUN FOLDER`.

The folder alone is enough to translate: `python translate.py engine=ctranslate2 ckpt_path=FOLDER`. A model that
CTranslate2 cannot express is refused in one sentence. The command needs `pip install 'seq2seq_attn[serve]'`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.normalizer.softmax import SoftmaxNormalizer
from seq2seq_attn.attention.pattern.full import FullPattern
from seq2seq_attn.attention.score.scaled_dot import ScaledDotScore
from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.checkpoint.load import Loaded, load
from seq2seq_attn.checkpoint.published import write_tokenizer
from seq2seq_attn.data.cleaning import cleaning_options
from seq2seq_attn.decoder.transformer import DecoderLayer, TransformerDecoder
from seq2seq_attn.encoder.transformer import TransformerEncoder
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.feed_forward.gated import GatedFeedForward
from seq2seq_attn.files import filling
from seq2seq_attn.inference.ctranslate2_engine import FORMAT, SETTINGS, import_ctranslate2
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.nn.residual import Residual
from seq2seq_attn.position.learned import LearnedPosition
from seq2seq_attn.position.none import NonePosition
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative import RelativePosition
from seq2seq_attn.position.rotary import RotaryPosition
from seq2seq_attn.position.sinusoidal import SinusoidalPosition, sinusoids

Side = TransformerEncoder | TransformerDecoder
PARTS: dict[str, tuple[type[Any], str]] = {
    "score": (ScaledDotScore, "scaled_dot"), "pattern": (FullPattern, "full"),
    "normalizer": (SoftmaxNormalizer, "softmax"),
}  # fmt: skip
POSITION_ENCODINGS = (SinusoidalPosition, LearnedPosition, NonePosition, RotaryPosition, RelativePosition)
POSITIONS = 2048  # rows of the table of positions, where their number has no limit


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("folder", type=Path, help="must not exist yet")
    parser.add_argument(
        "--positions", type=int, default=POSITIONS, help="tokens of the longest sentence, where positions have no limit"
    )
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if options.positions < 2:
        parser.error(f"--positions {options.positions} leaves no place for a token and its end; give 2 or more")
    export(load(options.run, options.trust), options.folder, options.positions)
    print(f"Wrote {options.folder}, for programs that use CTranslate2")


def export(loaded: Loaded, folder: Path, positions: int = POSITIONS) -> None:
    """Write weights, vocabularies, tokenizer and settings into a new folder.

    Raises:
        UserError: for a model that CTranslate2 cannot express, or a folder that exists.
    """
    spec = specification(loaded, positions)
    if folder.exists():
        raise UserError(f"{folder} exists; give a new folder, or delete it")
    spec.validate()
    spec.optimize()  # a tied matrix is written once
    config = loaded.config
    with filling(folder) as made:
        spec.save(str(made))
        settings = {
            "format": FORMAT,
            "positions": min(positions, loaded.model.max_length or positions),
            "tokenizer": write_tokenizer(loaded.tokenizer.get_state(), made),
            "config": {"search": config["search"], "data": {"cleaning": cleaning_options(config["data"])}},
        }
        (made / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def specification(loaded: Loaded, positions: int) -> Any:
    """Return CTranslate2's `TransformerSpec` with all weights."""
    model, tokenizer = loaded.model, loaded.tokenizer
    check(model, loaded.config)
    specs = import_ctranslate2().specs
    encoder: Any = model.encoder
    spec = specs.TransformerSpec(
        empty_spec(specs.TransformerEncoderSpec, encoder), empty_spec(specs.TransformerDecoderSpec, model.decoder)
    )
    spec.config.layer_norm_epsilon = next(m.eps for m in model.modules() if isinstance(m, nn.LayerNorm))
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(tokenizer.source_tokens(list(range(tokenizer.source_vocab_size))))
    spec.register_target_vocabulary(tokenizer.target_tokens(list(range(tokenizer.target_vocab_size))))
    specials = [tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id]
    names, source_names = tokenizer.target_tokens(specials), tokenizer.source_tokens(specials)
    if names != source_names:
        raise UserError(
            f"the source and target tokenizers name their special tokens differently ({', '.join(source_names)} and "
            f"{', '.join(names)}), and CTranslate2 has one name for both; translate with engine=torch"
        )
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = names
    spec.config.decoder_start_token = spec.config.bos_token
    (embedded,) = spec.encoder.embeddings
    embedded.weight, spec.decoder.embeddings.weight = (
        numbers(embedding.weight) for embedding in (model.embed_source, model.embed_target)
    )
    fill_linear(spec.decoder.projection, model.output)
    for filled, side in ((spec.encoder, encoder), (spec.decoder, model.decoder)):
        filled.scale_embeddings = float(model.scale)
        if hasattr(filled, "position_encodings"):
            filled.position_encodings.encodings = numbers(table(side.position, positions, model.embed_source))
        if is_pre(side):
            fill_norm(filled.layer_norm, side.norm)
        for one, layer in zip(filled.layer, side.layers, strict=True):
            fill_layer(one, layer)
    return spec


def check(model: EncoderDecoder, config: dict[str, Any]) -> None:
    """Refuse what the format cannot hold."""
    if not model.reads_source:
        raise UserError("a language model is not exported to CTranslate2; translate with engine=torch")
    if config.get("objective") is not None:
        raise UserError("a model that is pre-trained to restore text does not translate; fine-tune it, and export that")
    sides: dict[str, Any] = {"encoder": model.encoder, "decoder": model.decoder}
    for name, side in sides.items():
        if not isinstance(side, Side):
            raise UserError(
                f"model.{name} is {type(side).__name__}, which CTranslate2 does not know; use model=transformer"
            )
        if not isinstance(project := side.project, nn.Identity):
            raise UserError(
                f"model.{name}.dim={project.out_features} is not model.embedding_dim={project.in_features}, "
                "and CTranslate2 has no projection between them; give both one width"
            )
        check_position(name, side.position)
    if sides["encoder"].causal:
        raise UserError("model.encoder.causal=true is not known to CTranslate2; translate with engine=torch")
    of_both = "self_attention" if config.get("self_attention") else "attention"
    of_encoder = "encoder_attention" if config.get("encoder_attention") else of_both
    for layer in sides["encoder"].layers:
        check_attention(of_encoder, layer.attention)
    for layer in sides["decoder"].layers:
        check_attention(of_both, layer.self_attention)
        check_attention("cross_attention", layer.cross_attention)
        self_heads, cross_heads = layer.self_attention.num_heads, layer.cross_attention.num_heads
        if self_heads != cross_heads:
            raise UserError(
                f"the self-attention of the decoder has {self_heads} heads and cross_attention {cross_heads}, "
                "and a decoder of CTranslate2 has one number of heads; give both the same"
            )


def check_attention(slot: str, attention: AttentionLayer) -> None:
    """Refuse parts other than CTranslate2's; `slot` is the option that the attention comes from."""
    option, at = slot, "" if slot == "attention" else f"@{slot}"
    at_part = "" if slot == "attention" else f"@{slot}.{{}}"
    if not isinstance(attention, Attention):
        raise UserError(
            f"{option} is a {type(attention).__name__}, and CTranslate2 knows multihead only; train with "
            f"attention{at}=multihead, or translate without it"
        )
    for part, (known, name) in PARTS.items():
        given = getattr(attention, part)
        if not isinstance(given, known):
            raise UserError(
                f"{option}.{part} is {type(given).__name__}, and CTranslate2 knows {name} only; train with "
                f"attention/{part}{at_part.format(part)}={name}, or translate without it"
            )
    for part in ("mix", "gate"):
        given = getattr(attention, part)
        if given is not None:
            raise UserError(
                f"{option}.{part} is {type(given).__name__}, and CTranslate2 knows none; train with "
                f"~attention/{part}{at_part.format(part)}, or translate without it"
            )
    for name in ("project_values", "project_output"):
        if getattr(attention, name) is None:
            raise UserError(f"{option}.{name}=false is not known to CTranslate2; train with {option}.{name}=true")
    query, keys = attention.score.projections
    if not query.out_features == keys.out_features == query.in_features:
        raise UserError(
            f"{option}.num_kv_heads={attention.num_kv_heads} and {option}.head_dim="
            f"{query.out_features // attention.num_heads} are not exported to CTranslate2; train with "
            f"{option}.num_kv_heads=null and {option}.head_dim=null, or translate without it"
        )


def check_position(side: str, position: PositionEncoding) -> None:
    if isinstance(position, SinusoidalPosition | LearnedPosition) and position.join.project is not None:
        raise UserError("position.join=concat is not known to CTranslate2; train with position.join=add")
    if not isinstance(position, POSITION_ENCODINGS):
        raise UserError(
            f"model.{side}.position is {type(position).__name__}, which CTranslate2 does not know on both sides; train "
            "with position=sinusoidal, learned, rotary, relative or none"
        )


def empty_spec(kind: Any, side: Side) -> Any:
    """Return the specification of the encoder or the decoder, without weights."""
    first: Any = side.layers[0]
    attention = first.self_attention if isinstance(first, DecoderLayer) else first.attention
    gated = isinstance(first.feed_forward, GatedFeedForward)
    name = (
        "SWISH" if gated else first.feed_forward.activation.__name__.upper()
    )  # CTranslate2's GELU is the exact one, as ours
    options: dict[str, Any] = {"relative_position": isinstance(side.position, RelativePosition)}
    if isinstance(side.position, RotaryPosition):  # 0: the whole width of a head, whose halves are pairs
        options = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": side.position.base}
    return kind(
        len(side.layers),
        attention.num_heads,
        pre_norm=is_pre(side),
        ffn_glu=gated,
        activation=import_ctranslate2().specs.Activation[name],
        **options,
    )


def is_pre(side: Side) -> bool:
    return isinstance(side.norm, nn.LayerNorm)


def table(position: PositionEncoding, positions: int, embedding: nn.Embedding) -> Tensor:
    """Return a row for each position; zeros where none is added, since CTranslate2 without a table makes its own."""
    if isinstance(position, LearnedPosition):
        return position.table
    if isinstance(position, SinusoidalPosition):
        return sinusoids(positions, position.dim, position.base)
    return torch.zeros(positions, embedding.embedding_dim)


def fill_layer(filled: Any, layer: Any) -> None:
    if isinstance(layer, DecoderLayer):
        assert layer.cross_residual is not None
        fill_attention(filled.self_attention, layer.self_attention, to_itself=True)
        fill_norm(filled.self_attention.layer_norm, norm_of(layer.self_residual))
        fill_attention(filled.attention, layer.cross_attention, to_itself=False)
        fill_norm(filled.attention.layer_norm, norm_of(layer.cross_residual))
    else:
        fill_attention(filled.self_attention, layer.attention, to_itself=True)
        fill_norm(filled.self_attention.layer_norm, norm_of(layer.attention_residual))
    fill_norm(filled.ffn.layer_norm, norm_of(layer.feed_forward_residual))
    expand = layer.feed_forward.expand
    if isinstance(layer.feed_forward, GatedFeedForward):
        gate, value = expand.weight.chunk(2)
        filled.ffn.linear_0.weight, filled.ffn.linear_0_noact.weight = numbers(gate), numbers(value)
    else:
        fill_linear(filled.ffn.linear_0, expand)
    fill_linear(filled.ffn.linear_1, layer.feed_forward.reduce)


def fill_attention(filled: Any, attention: Any, *, to_itself: bool) -> None:
    """Pack query, key and value projections into one matrix in self-attention; key and value in cross-attention."""
    query, key = attention.score.projections
    value, output = attention.project_values, attention.project_output[0]
    groups = ([query, key, value], [output]) if to_itself else ([query], [key, value], [output])
    for one, linears in zip(filled.linear, groups, strict=True):
        fill_linear(one, *linears)
    filled.queries_scale = float(attention.score.scale)
    if to_itself and hasattr(filled, "relative_position_keys"):
        keys, values = attention.relative.key_table, attention.relative.value_table
        filled.relative_position_keys = numbers(keys)
        filled.relative_position_values = numbers(torch.zeros_like(keys) if values is None else values)


def fill_linear(filled: Any, *linears: nn.Linear) -> None:
    """Fill one matrix with the rows of several layers that share their input."""
    filled.weight = numbers(torch.cat(tuple(linear.weight for linear in linears)))
    biases: list[torch.Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    if biases:
        filled.bias = numbers(torch.cat(biases))


def norm_of(residual: Residual) -> nn.Module:
    return residual.before if isinstance(residual.before, nn.LayerNorm) else residual.after


def fill_norm(filled: Any, norm: Any) -> None:
    filled.gamma, filled.beta = numbers(norm.weight), numbers(norm.bias)


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy()
