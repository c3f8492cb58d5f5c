"""The model card: parameters by part, and the memory that they need."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from torch import nn

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.text import plain_console

MEBIBYTE = 2**20
ADAM_MOMENTS = 2


def parameters_by_part(model: EncoderDecoder) -> dict[str, int]:
    """Parameters of each part; a shared one counts where it first stands. Those of attention are among the others."""
    seen: set[int] = set()
    counts = {name.replace("_", " "): count_new(part.parameters(), seen) for name, part in model.named_children()}
    attentions = [part for part in model.modules() if isinstance(part, Attention)]
    counts["of which attention"] = count_new((p for part in attentions for p in part.parameters()), set())
    counts["all"] = count_new(model.parameters(), set())
    return {name: count for name, count in counts.items() if count}


def training_bytes(model: EncoderDecoder) -> int:
    """Weights, their gradients and the two moments of Adam; activations come on top."""
    return sum(p.numel() * p.element_size() * (2 + ADAM_MOMENTS) for p in model.parameters())


def count_new(parameters: Iterable[nn.Parameter], seen: set[int]) -> int:
    """Numbers in the parameters that are not in `seen` yet; they are, afterwards."""
    count = 0
    for parameter in parameters:
        if id(parameter) not in seen:
            seen.add(id(parameter))
            count += parameter.numel()
    return count


def print_model(model: EncoderDecoder) -> None:
    """The card on the screen."""
    encoder, decoder = type(model.encoder).__name__, type(model.decoder).__name__
    table = Table(title=f"Model: {encoder} → {decoder}", title_justify="left")
    table.add_column("parameters of")
    table.add_column("count", justify="right")
    for name, count in parameters_by_part(model).items():
        table.add_row(name, f"{count:,}")
    table.add_row("MiB of weights, gradients, Adam", f"{training_bytes(model) / MEBIBYTE:,.1f}")
    plain_console().print(table)
