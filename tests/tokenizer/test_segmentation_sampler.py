"""Sampled segmentations: limiting cases, probabilities, and dependence on the seed alone."""

import io
import math
import subprocess
import sys
from collections import Counter

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from seq2seq_attn.tokenizer import segmentation_sampler
from seq2seq_attn.tokenizer.segmentation_sampler import SegmentationSampler
from seq2seq_attn.tokenizer.sentencepiece_model import TrainerOptions, lack_for_sampling, train_model

SENTENCES = [f"the lower {'low ' * (i % 7)}newest {'widest ' * (i % 3)}river {i}." for i in range(101)]
UNSEEN = ["lowest 中文 news", "中中low", "", "▁the", "<s> new  wider"]


def model(model_type):
    return train_model(SENTENCES, model_type=model_type, vocab_size=40, language="the tests", cache=None)


def test_bpe_without_dropout_is_sentencepieces_own_encoding():
    bpe = model("bpe")
    sampler = SegmentationSampler(bpe, "bpe", 0.0)
    assert sampler(SENTENCES, seed=1) == bpe.encode(SENTENCES)
    assert sampler(["lowest news", "中中low", "the 中"], seed=1) == bpe.encode(["lowest news", "中中low", "the 中"])


def test_bpe_reads_what_the_model_makes_of_a_text():
    writer = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES, "office fine file 10"]),
        model_writer=writer,
        model_type="bpe",
        vocab_size=60,
        minloglevel=2,
    )
    bpe = SentencePieceProcessor(model_proto=writer.getvalue())  # normalizes by NFKC, as spm_train does by default
    text = "the o\ufb03ce \ufb01ne \uff11\uff10"
    assert bpe.encode(text) == bpe.encode("the office fine 10")
    assert SegmentationSampler(bpe, "bpe", 0.0)([text], seed=1) == [bpe.encode(text)]


def test_bpe_that_drops_every_merge_gives_characters():
    bpe = model("bpe")
    (ids,) = SegmentationSampler(bpe, "bpe", 1.0)(["the river"], seed=1)
    assert [bpe.id_to_piece(i) for i in ids] == [*"▁the▁river"]


def test_a_sharp_unigram_draw_is_the_likeliest_segmentation():
    unigram = model("unigram")
    assert SegmentationSampler(unigram, "unigram", 1e4)(SENTENCES, seed=1) == unigram.encode(SENTENCES)


def test_unigram_draws_follow_the_model_to_the_power_alpha():
    unigram, draws = model("unigram"), 4001
    sampler = SegmentationSampler(unigram, "unigram", 0.5)
    counts = Counter(tuple(ids) for ids in sampler(["newest"] * draws, seed=1))
    weights = {ids: math.exp(0.5 * sum(unigram.get_score(i) for i in ids)) for ids in counts}
    (first, second) = [ids for ids, _ in counts.most_common(2)]
    assert counts[first] / counts[second] == pytest.approx(weights[first] / weights[second], rel=0.15)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_every_sample_decodes_to_the_same_text(model_type):
    processor, texts = model(model_type), SENTENCES + UNSEEN
    sampled, plain = SegmentationSampler(processor, model_type, 0.4)(texts, seed=2), processor.encode(texts)
    assert sum(ids != ids_plain for ids, ids_plain in zip(sampled, plain, strict=True)) > len(texts) // 3
    for ids, ids_plain in zip(sampled, plain, strict=True):
        assert processor.decode(ids) == processor.decode(ids_plain)


SCRIPT = """
import sys, zlib
sys.path.insert(0, {folder!r})
from test_segmentation_sampler import SENTENCES, SegmentationSampler, model
for kind in ("unigram", "bpe"):
    print(zlib.crc32(str(SegmentationSampler(model(kind), kind, 0.3)(SENTENCES, seed=7)).encode()))
"""


def test_another_process_draws_the_same(request):
    script = SCRIPT.format(folder=str(request.path.parent))
    command = [sys.executable, "-c", script]
    runs = {
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=request.config.rootpath).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
    assert len(runs.pop().split()) == 2


def test_the_segmentations_that_are_kept_are_bounded_and_change_no_draw(monkeypatch):
    unigram = model("unigram")
    words = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"] * 2
    free = SegmentationSampler(unigram, "unigram", 0.3)
    expected = [free([word], seed) for seed, word in enumerate(words)]
    monkeypatch.setattr(segmentation_sampler, "MOST_TABLES", 5)
    bounded = SegmentationSampler(unigram, "unigram", 0.3)
    assert [bounded([word], seed) for seed, word in enumerate(words)] == expected
    assert list(bounded._tables) == words[-5:]


def test_the_segmentations_of_long_words_are_not_kept():
    sampler = SegmentationSampler(model("unigram"), "unigram", 0.3)
    sampler(["low" * 11 + " " + "low" * 10 + "er"], seed=1)  # of 33 and 32 letters
    assert list(sampler._tables) == ["low" * 10 + "er"]


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_a_symbol_of_the_user_is_one_token_in_every_draw(alpha):
    options = TrainerOptions(user_defined_symbols=("lo", "<fr>"))
    trained = train_model(
        SENTENCES, model_type="unigram", vocab_size=40, language="the tests", cache=None, options=options
    )
    sampler = SegmentationSampler(trained, "unigram", alpha)
    symbols = {trained.piece_to_id(symbol) for symbol in options.user_defined_symbols}
    text = "<fr> the lower lowlow newest widest river the newest widest"
    drawn = {tuple(sampler([text], seed)[0]) for seed in range(200)}
    assert len(drawn) > 5
    expected = [i for i in trained.encode(text) if i in symbols]
    assert len(expected) == 4
    assert all([i for i in ids if i in symbols] == expected for ids in drawn)
    assert {trained.decode([*ids]) for ids in drawn} == {text}


def test_a_model_whose_tokens_span_blanks_is_not_sampled():
    stream = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=stream, vocab_size=40, split_by_whitespace=False
    )
    assert lack_for_sampling(stream.getvalue()) == "has tokens that span blanks"
