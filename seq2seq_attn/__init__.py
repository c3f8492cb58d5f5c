"""Sequence-to-sequence translation with any attention, chosen by one override."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("seq2seq-attn")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
