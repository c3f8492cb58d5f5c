"""torch.compile of layers, in a process without the checks of types of the tests, which torch cannot compile."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each is in one piece only if something of its own is: memories, decayed chunks, tables, blocks.
PRESETS = {"bahdanau": 7, "gated_linear": 70, "synthesizer_random": 130, "local": 330}
CODE = """
import sys
import torch
from seq2seq_attn.attention import build_attention

layer, length = build_attention(sys.argv[1], dim=16, num_heads=2), int(sys.argv[2])
compiled = torch.compile(
    lambda x, mask: layer(x, mask, causal=True).context, dynamic=True, backend="eager", fullgraph=True
)
x, mask = torch.randn(2, length, 16), torch.arange(length) < torch.tensor([[length], [5]])
found, expected = compiled(x, mask), layer(x, mask, causal=True).context
torch.testing.assert_close(found[mask], expected[mask])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "length"), PRESETS.items())
def test_a_compiled_layer_with_a_mask_is_in_one_piece(preset: str, length: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, preset, str(length)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
