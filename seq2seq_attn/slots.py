"""The kinds of classes that options name: each slot, by its key, has the folder of its classes and their base class."""

from __future__ import annotations

ATTENTION = ("attention", "seq2seq_attn.attention.layer.AttentionLayer")
SCORE = ("attention.score", "seq2seq_attn.attention.score.score.Score")
PATTERN = ("attention.pattern", "seq2seq_attn.attention.pattern.pattern.Pattern")
SEARCH = ("search", "seq2seq_attn.search.search.Search")
CORPUS = ("data", "seq2seq_attn.data.corpus.Corpus")
SLOTS = {  # by name: a translation imports no metric
    "model": ("model", "seq2seq_attn.model.encoder_decoder.EncoderDecoder"),
    "encoder": ("encoder", "seq2seq_attn.encoder.encoder.Encoder"),
    "decoder": ("decoder", "seq2seq_attn.decoder.decoder.Decoder"),
    "attention": ATTENTION,
    "self_attention": ATTENTION,
    "encoder_attention": ATTENTION,
    "cross_attention": ATTENTION,
    "score": SCORE,
    "scores": SCORE,
    "pattern": PATTERN,
    "patterns": PATTERN,
    "feature_map": ("attention.feature_map", "seq2seq_attn.attention.feature_map.feature_map.FeatureMap"),
    "decay": ("attention.decay", "seq2seq_attn.attention.decay.decay.Decay"),
    "normalizer": ("attention.normalizer", "seq2seq_attn.attention.normalizer.normalizer.Normalizer"),
    "mix": ("attention.mix", "seq2seq_attn.attention.mix.mix.Mix"),
    "gate": ("attention.gate", "seq2seq_attn.attention.gate.gate.Gate"),
    "position": ("position", "seq2seq_attn.position.position_encoding.PositionEncoding"),
    "feed_forward": ("feed_forward", "torch.nn.Module"),
    "search": SEARCH,
    "candidates": SEARCH,
    "length_penalty": ("search.length_penalty", "seq2seq_attn.search.length_penalty.length_penalty.LengthPenalty"),
    "limits": ("search", "seq2seq_attn.search.limits.Limits"),
    "data": CORPUS,
    "corpus": CORPUS,
    "cleaning": ("data", "seq2seq_attn.data.cleaning.Cleaning"),
    "metric": ("metric", "seq2seq_attn.metric.chosen_metric.ChosenMetric"),
}
NO_SLOT = ("", "torch.nn.Module")  # a part of a trusted class, under a key of its own
