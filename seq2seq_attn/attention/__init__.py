"""Attention of a score, a pattern and a normalizer, of a feature map, or by the delta rule.

`build_attention` makes a preset's layer, and `check_attention` checks the laws of attention for one.
"""

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.attention.check import check_attention
from seq2seq_attn.attention.cross_attention import CrossAttention
from seq2seq_attn.attention.delta_attention import DeltaAttention
from seq2seq_attn.attention.kernel_attention import KernelAttention
from seq2seq_attn.attention.self_attention import SelfAttention
from seq2seq_attn.attention.state import Attended, Memory, QueryKeyPositions

__all__ = [
    "Attended",
    "Attention",
    "CrossAttention",
    "DeltaAttention",
    "KernelAttention",
    "Memory",
    "QueryKeyPositions",
    "SelfAttention",
    "build_attention",
    "check_attention",
]
