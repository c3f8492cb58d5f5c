"""The weights of a small input, computed by a preset's layer: the worked number of its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scripts.conf_files import ATTENTION, parsed
from seq2seq_attn.attention.build import build_attention, option_reads_history

LENGTH, HEADS, WIDTH = 6, 8, 2
SMALL = {
    "k": 2, "max_length": LENGTH, "block_length": 2, "num_blocks": 2, "num_buckets": 2, "num_rounds": 1, "rank": 2,
    "num_features": 4, "max_distance": 2, "segments": [[2, 1], [6, 2]],
}  # fmt: skip
OF_PART = {"bigbird": {"block_length": 1, "k": 1}, "global_local": {"k": 1}}
TOKENS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (2.0, 0.0), (0.0, 2.0), (1.0, 2.0))


def small_options(preset: str) -> list[str]:
    """Return overrides that make the sizes of a preset's parts small enough for six tokens."""
    return sorted(set(small_values(ATTENTION / f"{preset}.yaml", "")))


def small_values(file: Path, node: str) -> list[str]:
    content = parsed(file)
    small: dict[str, Any] = SMALL | OF_PART.get(file.stem, {})
    overrides = [f"{node}{key}={str(small[key]).replace(' ', '')}" for key in content if key in small]
    for entry in content.get("defaults", []):
        for group, option in entry.items() if isinstance(entry, dict) else ():
            if option is not None:
                folder, _, name = group.partition("@")
                parent = ATTENTION.parent / folder[1:] if folder.startswith("/") else file.parent / folder
                overrides += small_values(parent / f"{option}.yaml", f"{node}{name or group}.")
    return overrides


def weights(preset: str) -> Tensor:
    """Return the weights of the first head, a row for each query and a column for each key."""
    torch.manual_seed(0)
    x = torch.tensor(TOKENS).repeat(1, HEADS)[None]
    dim = HEADS * WIDTH
    if option_reads_history(preset):
        layer: nn.Module = build_attention(preset, *small_options(preset), query_dim=dim, key_dim=dim, num_heads=HEADS)
    else:
        layer = build_attention(preset, *small_options(preset), dim=dim, num_heads=HEADS)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif name.endswith(".weight") and parameter.ndim == 2:
                nn.init.eye_(parameter)
            elif name.endswith(".vector"):
                parameter.fill_(1.0)
        inputs = (x, x) if option_reads_history(preset) else (x,)
        return layer.eval()(*inputs, need_weights=True).weights[0, 0]
