"""Score, pattern and normalizer, met in one module; layers of any model by `build_attention`."""

from seq2seq_attn.attention.attended import Attended
from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.cross_attention import CrossAttention
from seq2seq_attn.attention.memory import Memory
from seq2seq_attn.attention.places import Places
from seq2seq_attn.attention.preset import build_attention
from seq2seq_attn.attention.self_attention import SelfAttention

__all__ = ["Attended", "Attention", "CrossAttention", "Memory", "Places", "SelfAttention", "build_attention"]
