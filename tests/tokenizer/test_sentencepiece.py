"""Encoding and decoding, reproducibility, the cache, and error messages for invalid settings."""

import io
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from seq2seq_attn.alignment.forced_attention import marked_source_words, marked_words
from seq2seq_attn.errors import UserError
from seq2seq_attn.search.search import TargetVocabulary
from seq2seq_attn.tokenizer import sentencepiece as tokenizer_module
from seq2seq_attn.tokenizer import sentencepiece_model
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer, sample
from seq2seq_attn.tokenizer.sentencepiece_model import auto_vocab_size

CONF = Path(__file__).resolve().parents[2] / "conf"
WORDS = ["cat", "dog", "house", "river", "green", "old", "sees", "finds", "likes", "under"]
MOTS = ["chat", "chien", "maison", "rivière", "verte", "vieux", "voit", "trouve", "aime", "sous"]
SOURCES = [f"the {WORDS[i % 10]} {WORDS[i // 10 % 10]} {WORDS[i * 7 % 10]} {i}." for i in range(101)]
TARGETS = [f"le {MOTS[i % 10]} {MOTS[i // 10 % 10]} {MOTS[i * 7 % 10]} {i} !" for i in range(101)]
SIZES = {"unigram": 97, "bpe": 97, "char": 1000, "word": 1000}


def make(model_type="unigram", joint=True, alpha=0.0, cache=None, vocab_size=None):
    tokenizer = SentencePieceTokenizer(model_type, vocab_size or SIZES[model_type], joint, alpha, cache)
    tokenizer.train(SOURCES, TARGETS)
    return tokenizer


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("model_type", SIZES)
def test_training_sentences_are_restored_from_their_tokens(model_type, joint):
    size = 44 if not joint and model_type in ("unigram", "bpe") else None
    tokenizer = make(model_type, joint, vocab_size=size)
    ids = tokenizer.encode_target(TARGETS)
    assert tokenizer.decode_target(ids) == TARGETS
    assert not {i for row in ids for i in row} & {0, 1, 2, 3}
    assert "".join(tokenizer.target_tokens(ids[1])).replace("▁", " ").strip() == TARGETS[1]
    assert "".join(tokenizer.source_tokens(tokenizer.encode_source(SOURCES)[1])).startswith("▁the")
    assert (tokenizer.source_vocab_size == tokenizer.target_vocab_size) == (joint or size is not None)


def test_padding_begin_and_end_are_left_out_of_the_text():
    tokenizer = make()
    (ids,) = tokenizer.encode_target(["le chat"])
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)
    assert tokenizer.decode_target([[2, *ids, 3, 0, 0], []]) == ["le chat", ""]


@pytest.mark.parametrize("text", ["<s> the cat </s>", "▁the ▁cat", "<pad><unk>", "▅", "⁇", "中文", "", " ", "\u2028"])
@pytest.mark.parametrize("model_type", SIZES)
def test_meta_symbols_and_unknown_text_are_harmless(text, model_type):
    tokenizer = make(model_type)
    (ids,) = tokenizer.encode_source([text])
    assert not set(ids) & {0, 2, 3}
    assert isinstance(tokenizer.decode_target([ids])[0], str)


def test_meta_symbols_are_harmless_in_training():
    tokenizer = SentencePieceTokenizer("bpe", 60, True, 0.0, None)
    tokenizer.train([*SOURCES, "<s> the ▁cat </s>", "▅ the"], [*TARGETS, "<pad>", "<unk>"])
    assert not {i for row in tokenizer.encode_source(["<s> the ▁cat </s>"]) for i in row} & {0, 2, 3}


@pytest.mark.parametrize("model_type", SIZES)
def test_training_twice_gives_the_same_model(model_type):
    first, second = make(model_type), make(model_type)
    assert first.fingerprint == second.fingerprint
    assert first.encode_source(SOURCES) == second.encode_source(SOURCES)


def test_one_vocabulary_for_each_language_on_request():
    tokenizer = make("word", joint=False)
    assert tokenizer.source_tokens(tokenizer.encode_source(["the chat"])[0])[0] == "▁the"
    assert tokenizer.encode_source(["chat"]) == [[tokenizer.unk_id]]
    assert tokenizer.encode_target(["chat"]) != [[tokenizer.unk_id]]


def test_a_cached_model_is_used_again_and_a_damaged_one_replaced(tmp_path):
    first = make(cache=str(tmp_path))
    (file,) = tmp_path.rglob("*.model")
    stamp, content = file.stat().st_mtime_ns, file.read_bytes()
    assert make(cache=str(tmp_path)).fingerprint == first.fingerprint
    assert file.stat().st_mtime_ns == stamp
    fewer = [cut for cut in range(1, len(content)) if is_model(content[:cut])]  # of a part of its tokens
    assert len(fewer) > 10
    for cut in (0, len(content) // 2, fewer[0], fewer[5], fewer[-1]):
        file.write_bytes(content[:cut])
        assert make(cache=str(tmp_path)).fingerprint == first.fingerprint
        assert file.read_bytes() == content


def is_model(content: bytes) -> bool:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content).get_piece_size() > 0
    except RuntimeError:
        return False


def test_the_cache_distinguishes_settings_and_content(tmp_path):
    make(cache=str(tmp_path))
    make(cache=str(tmp_path), vocab_size=89)
    SentencePieceTokenizer("unigram", 97, True, 0.0, str(tmp_path)).train(SOURCES, TARGETS[:-1])
    assert len(list(tmp_path.rglob("*.model"))) == 3


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_token_joins_letters_and_signs_only_where_scripts_may_join(model_type, tmp_path):
    sentences = ["un t-shirt ou deux t-shirt", "la maison est belle et grande", "un short", "du thé"] * 9
    tokens = {}
    for split in (True, False):
        tokenizer = SentencePieceTokenizer(model_type, 30, True, 0.0, str(tmp_path), split_by_unicode_script=split)
        tokenizer.train(sentences, sentences)
        ids = tokenizer.encode_source(["un t-shirt"])
        assert tokenizer.decode_target(ids) == ["un t-shirt"]
        tokens[split] = tokenizer.source_tokens(ids[0])
    assert "-" in tokens[True]
    assert any("-" in token and token != "-" for token in tokens[False])
    assert len(list(tmp_path.rglob("*.model"))) == 2


def test_jobs_side_by_side_train_a_model_once(tmp_path, monkeypatch):
    trained, fit = [], sentencepiece_model.fit

    def slow_fit(*arguments):
        trained.append(arguments[1])
        time.sleep(0.5)
        return fit(*arguments)

    monkeypatch.setattr(sentencepiece_model, "fit", slow_fit)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: make(cache=str(tmp_path)).fingerprint, range(2))
    assert first == second
    assert trained == ["unigram"]


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "tokenizer").write_bytes(b"")
    sentence = (
        f"the folder {tmp_path}/tokenizer cannot be written (File exists); make it writable, or give another one: "
        "paths.cache_dir for a cache, hydra.run.dir for a run"
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        make(cache=str(tmp_path))


@pytest.mark.parametrize(("model_type", "alpha"), [("unigram", 0.2), ("bpe", 0.3)])
def test_sampling_is_a_function_of_the_seed(model_type, alpha):
    tokenizer = make(model_type, alpha=alpha)
    plain = tokenizer.encode_source(SOURCES)
    drawn = tokenizer.encode_source(SOURCES, sample=True, seed=5)
    tokenizer.encode_target(TARGETS, sample=True, seed=11)
    assert tokenizer.encode_source(SOURCES, sample=True, seed=5) == drawn
    assert tokenizer.encode_source(SOURCES, sample=True, seed=6) != drawn
    assert tokenizer.encode_source(SOURCES) == plain != drawn
    assert tokenizer.decode_target(drawn) == SOURCES


def test_sampling_off_gives_the_one_best_segmentation():
    tokenizer = make()
    assert tokenizer.encode_source(SOURCES, sample=True, seed=5) == tokenizer.encode_source(SOURCES)


@pytest.mark.parametrize("joint", [True, False])
def test_the_state_goes_through_a_safe_checkpoint(joint):
    tokenizer = make(joint=joint, alpha=0.2, vocab_size=44)
    file = io.BytesIO()
    torch.save(tokenizer.get_state(), file)
    file.seek(0)
    again = SentencePieceTokenizer.from_state(torch.load(file, weights_only=True))
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode_target(TARGETS) == tokenizer.encode_target(TARGETS)
    assert again.sampling_alpha == 0.2


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_too_large_a_vocabulary_is_refused_with_one_that_works(model_type):
    with pytest.raises(UserError) as caught:
        make(model_type, vocab_size=8000)
    found = re.fullmatch(
        rf"tokenizer.vocab_size=8000 is more than this corpus supports; at most (\d+) {model_type} tokens "
        r"for both languages; use tokenizer.vocab_size=(\d+)",
        str(caught.value),
    )
    assert found
    assert found[1] == found[2]
    assert make(model_type, vocab_size=int(found[2])).source_vocab_size == int(found[2])


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_too_small_a_vocabulary_is_refused_with_one_that_works(model_type):
    with pytest.raises(UserError) as caught:
        make(model_type, vocab_size=20)
    found = re.fullmatch(
        r"tokenizer.vocab_size=20 is less than the (\d+) characters and special tokens of both languages in "
        r"this corpus; use tokenizer.vocab_size=(\d+) or more",
        str(caught.value),
    )
    assert found
    assert make(model_type, vocab_size=int(found[2])).source_vocab_size == int(found[2])


def test_char_and_word_take_the_size_as_an_upper_limit():
    assert make("char").source_vocab_size < 60
    assert make("char", vocab_size=20).source_vocab_size == 20
    assert make("word", vocab_size=31).source_vocab_size == 31


def test_no_text_to_train_on_is_one_sentence():
    sentence = "the training split has no text in both languages; check data.path and data.cleaning"
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        SentencePieceTokenizer("bpe", 60, True, 0.0, None).train([], [""])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ("wordpiece", 60, True, 0.0),
            "tokenizer.model_type=wordpiece is unknown; choose from: unigram, bpe, char, word",
        ),
        (
            ("bpe", 4, True, 0.0),
            "tokenizer.vocab_size=4 must be greater than 4, the number of special tokens; use 8000",
        ),
        (("bpe", 60, True, 1.5), "tokenizer.sampling_alpha=1.5 is not between 0 (off) and 1; use 0.1 or 0"),
        (
            ("char", 60, True, 0.1),
            "tokenizer.sampling_alpha=0.1 needs a model with several segmentations of a word, which char does not "
            "have; use tokenizer=unigram, tokenizer=bpe or tokenizer.sampling_alpha=0",
        ),
    ],
)
def test_invalid_settings_are_refused(settings, sentence):
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        SentencePieceTokenizer(*settings, None)


@pytest.mark.parametrize("model_type", SIZES)
def test_the_yaml_gives_the_tokenizer(model_type, tmp_path):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = [f"tokenizer={model_type}", f"paths.cache_dir={tmp_path}"]
        config = compose("train", overrides=[*overrides, f"tokenizer.vocab_size={SIZES[model_type]}"])
    tokenizer = instantiate(config.tokenizer, _convert_="all")
    tokenizer.train(SOURCES, TARGETS)
    assert tokenizer.decode_target(tokenizer.encode_target(TARGETS)) == TARGETS
    assert list(tmp_path.rglob("*.model"))


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("model_type", SIZES)
def test_an_automatic_vocabulary_fits_any_corpus(model_type, joint, tmp_path, caplog):
    chinese = [chr(0x4E00 + i * 7 % 997) + chr(0x4E00 + i) for i in range(500)]
    for sources, targets in ((SOURCES, TARGETS), (["a"], ["b"]), (["go"] * 9, ["va !"] * 9), (SOURCES * 5, chinese)):
        caplog.clear()
        with caplog.at_level("INFO"):
            tokenizer = SentencePieceTokenizer(model_type, "auto", joint, 0.0, str(tmp_path))
            tokenizer.train(sources, targets)
        assert tokenizer.decode_target(tokenizer.encode_target(targets)) == targets
        size = tokenizer.source_vocab_size
        assert f"tokenizer.vocab_size=auto: {size:,} tokens" in caplog.text
        assert tokenizer.vocab_size == (size if joint else "auto")
        again = SentencePieceTokenizer(model_type, "auto", joint, 0.0, None)
        again.train(sources, targets)
        assert again.fingerprint == tokenizer.fingerprint
        if joint and model_type in ("unigram", "bpe"):  # the number that a checkpoint holds gives the same model
            given = SentencePieceTokenizer(model_type, size, joint, 0.0, None)
            given.train(sources, targets)
            assert given.fingerprint == tokenizer.fingerprint


def test_an_automatic_vocabulary_is_of_characters_and_four_tenths_of_the_words():
    sentences = ["aa bb cc dd ee", "ff gg hh ii jj aa", "中文中"]
    assert auto_vocab_size(sentences, "unigram") == 4 + 1 + (10 + 2) + int(0.4 * (10 + 2))
    assert auto_vocab_size([str(n) for n in range(30_000)], "bpe") == 8000
    assert (auto_vocab_size([], "char"), auto_vocab_size([], "word")) == (8000, 20_000)
    for characters in (2990, 7000, 9000):  # as Chinese, each of them a word, beside those of another language
        text = [chr(0x4E00 + n) for n in range(characters)] + [f"{n}" for n in range(20_000)]
        assert auto_vocab_size(text, "unigram") == 4 + 1 + characters + 10 + max(4000, 8000 - characters - 15)


def test_an_automatic_vocabulary_holds_every_character_even_of_more_than_it_would_have():
    characters = [chr(0x4E00 + i) for i in range(8101)]
    tokenizer = SentencePieceTokenizer("bpe", "auto", True, 0.0, None)
    tokenizer.train(["".join(characters[i : i + 90]) for i in range(0, 8101, 90)], ["a"])
    assert tokenizer.vocab_size == 4 + 1 + (8101 + 1) + int(0.4 * (8101 + 1))
    assert tokenizer.decode_target(tokenizer.encode_target(["".join(characters)])) == ["".join(characters)]


LAYOUTS: dict[str, dict[str, Any]] = {  # of the special tokens, and other settings of spm_train
    "default": {},
    "pad last": {"pad_id": 3},
    "of T5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "a plain token for padding": {"user_defined_symbols": ["<pad>", "<x>"]},
    "bpe": {"model_type": "bpe"},
    "ours": {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
}


def write_model(file: Path, **settings: Any) -> sentencepiece.SentencePieceProcessor:
    """Train a model as another program does, from a file of text."""
    (file.parent / "private.txt").write_text("\n".join(SOURCES + TARGETS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(file.parent / "private.txt"),
        model_prefix=str(file.with_suffix("")),
        minloglevel=9,
        **({"vocab_size": 80} | settings),
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(file))


def given_tokenizer(model: str | list[str], sampling_alpha: float = 0.0) -> SentencePieceTokenizer:
    tokenizer = SentencePieceTokenizer("unigram", 8000, True, sampling_alpha, None, model=model)
    tokenizer.train(["not read"], ["not read"])
    return tokenizer


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_given_model_segments_as_before_with_our_special_tokens(layout: str, tmp_path: Path) -> None:
    theirs = write_model(tmp_path / "m.model", **LAYOUTS[layout])
    tokenizer = given_tokenizer(str(tmp_path / "m.model"))
    ours = tokenizer.source_model
    assert (ours.pad_id(), ours.unk_id(), ours.bos_id(), ours.eos_id()) == (0, 1, 2, 3)
    assert all(ours.is_control(i) for i in (0, 2, 3))
    for sentence in [*SOURCES, *TARGETS, "☃ unseen"]:
        tokens = theirs.encode(sentence, out_type=str)
        assert [ours.id_to_piece(i) for i in ours.encode(sentence) if i != 1] == [
            token for token in tokens if theirs.piece_to_id(token) != theirs.unk_id()
        ]
        assert tokenizer.decode_target(tokenizer.encode_target([sentence])) == [
            theirs.decode(theirs.encode(sentence)).strip()
        ]
    assert tokenizer.model_type == LAYOUTS[layout].get("model_type", "unigram")
    state = tokenizer.get_state()
    assert SentencePieceTokenizer.from_state(state).fingerprint == tokenizer.fingerprint
    content = state["source_model"].numpy().tobytes()
    assert b"private" not in content
    assert os.fsencode(tmp_path) not in content
    given_tokenizer(str(tmp_path / "m.model"), 0.5).encode_source(SOURCES, sample=True)


def test_each_language_may_have_its_own_given_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path / f"{name}.model", model_type="unigram" if name == "a" else "bpe")
    files = [str(tmp_path / "a.model"), str(tmp_path / "b.model")]
    tokenizer = given_tokenizer(files)
    assert not tokenizer.joint
    assert tokenizer.source_tokens(tokenizer.encode_source(SOURCES)[0]) == given_tokenizer(files[0]).source_tokens(
        given_tokenizer(files[0]).encode_source(SOURCES)[0]
    )
    with pytest.raises(UserError, match=r"^tokenizer.sampling_alpha=0.5 needs models of one type, .* unigram and bpe"):
        given_tokenizer(files, 0.5)


def test_a_given_model_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    for name, data in {"empty": b"", "text": b"hello", "zeros": bytes(50)}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(
            UserError, match=rf"^tokenizer.model=.*{name} is not a SentencePiece model; give the .model"
        ):
            given_tokenizer(str(tmp_path / name))
    with pytest.raises(UserError, match=r"^tokenizer.model=nowhere cannot be read \(No such file or directory\); give"):
        given_tokenizer("nowhere")
    with pytest.raises(UserError, match=r"^tokenizer.model=\['a'\] must be one file, or \[SOURCE,TARGET\]$"):
        given_tokenizer(["a"])


def test_a_sample_is_evenly_spread_over_the_first_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "SAMPLED", 20)
    sentences = [str(number) for number in range(30)]
    assert sample(sentences, 30) == sentences
    assert sample(sentences, 10) == sentences[:20:2]
    for size in (1, 7, 19, 25):
        found = [int(text) for text in sample(sentences, size)]
        gaps = {after - before for before, after in pairwise(found)}
        assert len(found) == size
        assert (min(found), max(gaps, default=1) - min(gaps, default=1) <= 1) == (0, True)


@pytest.mark.parametrize("vocab_size", ["auto", 1000, 6])
def test_words_seen_less_often_than_asked_have_no_token(vocab_size: Any) -> None:
    tokenizer = SentencePieceTokenizer("word", vocab_size, False, 0.0, None, min_count=2)
    tokenizer.train(["a b .", "a c .", "d .", "a"], ["x", "x"])
    words = [tokenizer.source_model.id_to_piece(i) for i in range(4, tokenizer.source_vocab_size)]
    assert sorted(words) == ["▁.", "▁a"]
    assert tokenizer.target_vocab_size == 5
    assert tokenizer.encode_source(["a b"])[0][1] == tokenizer.unk_id


def test_rare_words_are_warned_of_where_a_sample_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    for size in (4, 3):
        tokenizer = SentencePieceTokenizer("word", "auto", True, 0.0, None, min_count=2, input_sentence_size=size)
        tokenizer.train(["a b"] * 4, ["a b"] * 4)
    assert [line for line in caplog.messages if "min_count" in line] == [
        "tokenizer.min_count=2 counts the words of 3 of the 4 sentence pairs; tokenizer.input_sentence_size=4 counts "
        "those of all"
    ]


def test_rare_words_without_words_or_without_frequent_ones_are_refused() -> None:
    with pytest.raises(UserError, match=r"^tokenizer.min_count=2 counts words, which bpe does not have; use tokeni"):
        SentencePieceTokenizer("bpe", 60, True, 0.0, None, min_count=2)
    with pytest.raises(UserError, match=r"^no word of both languages occurs 9 times; use a smaller tokenizer.min_co"):
        SentencePieceTokenizer("word", "auto", True, 0.0, None, min_count=9).train(["a b"], ["a"])
    with pytest.raises(
        UserError, match=r"^tokenizer.min_count=2 counts all words, and tokenizer.character_coverage=0.99"
    ):
        SentencePieceTokenizer("word", "auto", True, 0.0, None, min_count=2, character_coverage=0.99)


def test_a_cached_model_is_of_one_set_of_options() -> None:
    def key(**options: Any) -> str:
        chosen = {"sampling_alpha": 0.0, "cache_dir": None, "joint": True} | options
        return SentencePieceTokenizer(*chosen.pop("kind", ("word", 100)), **chosen)._cache_key(["a b"])

    keys = [key(), key(min_count=32), key(num_sentinels=32), key(min_count=32, num_sentinels=32)]
    assert len(set(keys)) == 4
    bpe = {"kind": ("bpe", 100)}
    others = [{}, {"character_coverage": 0.5}, {"byte_fallback": True}, {"user_defined_symbols": ["a"]}]
    assert len({key(**bpe, **other) for other in others}) == 4
    kinds = [(kind, size) for kind in ("unigram", "bpe", "char", "word") for size in (100, 101)]
    assert len({key(kind=kind) for kind in kinds}) == 8


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_segmentations_of_two_vocabularies_are_each_sampled_by_its_own_model(model_type) -> None:
    tokenizer = make(model_type, joint=False, alpha=0.3, vocab_size=44)
    targets = tokenizer.encode_target(TARGETS, sample=True, seed=1)
    assert targets != tokenizer.encode_target(TARGETS)
    assert tokenizer.decode_target(targets) == TARGETS
    sources = tokenizer.encode_source(SOURCES, sample=True, seed=1)
    assert sources != tokenizer.encode_source(SOURCES)
    assert tokenizer.source_model.decode(sources) == SOURCES


def test_two_tokenizers_with_other_targets_are_not_the_same() -> None:
    def fingerprint(targets: list[str]) -> str:
        tokenizer = SentencePieceTokenizer("word", 1000, False, 0.0, None)
        tokenizer.train(SOURCES, targets)
        return tokenizer.fingerprint

    assert fingerprint(TARGETS) != fingerprint([text.replace("chat", "chien") for text in TARGETS])
    assert fingerprint(TARGETS) == fingerprint(TARGETS)


def test_long_lines_are_learned_from_and_no_character_is_replaced() -> None:
    tokenizer = SentencePieceTokenizer("word", 1000, True, 0.0, None)
    tokenizer.train(["mot " * 2000 + "unique", "a b"], ["c"])
    assert tokenizer.unk_id not in tokenizer.encode_target(["unique"])[0]
    text = "½ … \ufb01n 1ª m²"
    tokenizer = SentencePieceTokenizer("bpe", 20, True, 0.0, None)
    tokenizer.train([text], [text])
    assert tokenizer.decode_target(tokenizer.encode_target([text])) == [text]


@pytest.mark.parametrize("vocab_size", ["auto", 60])
def test_sentinels_take_no_place_of_words_that_are_frequent_enough(vocab_size):
    words = [f"w{number}" for number in range(30)]
    tokenizer = SentencePieceTokenizer("word", vocab_size, True, 0.0, None, min_count=2, num_sentinels=10)
    tokenizer.train([], [" ".join(words)] * 3)
    assert tokenizer.target_vocab_size == 4 + 10 + 30
    assert tokenizer.unk_id not in {i for row in tokenizer.encode_target(words) for i in row}


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char", "word"])
def test_a_vocabulary_of_sentinels_alone_is_refused(model_type):
    tokenizer = SentencePieceTokenizer(model_type, 36, True, 0.0, None, num_sentinels=32)
    with pytest.raises(UserError, match=r"^tokenizer.vocab_size=36 has no place for tokens of the text beside the 32"):
        tokenizer.train([], TARGETS)


@pytest.mark.parametrize(
    ("options", "lack"),
    [
        ({"model_type": "unigram", "add_dummy_prefix": False}, "puts no mark before the first word"),
        ({"model_type": "unigram", "treat_whitespace_as_suffix": True}, "puts no mark before the first word"),
        ({"model_type": "unigram", "split_by_whitespace": False}, "has tokens that span blanks"),
        ({"model_type": "bpe", "byte_fallback": True, "vocab_size": 330}, "writes unknown characters as bytes"),
        ({"model_type": "bpe", "user_defined_symbols": ["<2fr>"]}, "has user-defined symbols"),
    ],
)
def test_sampling_is_refused_for_a_model_whose_segmentations_it_would_not_draw(options, lack, tmp_path):
    file = str(tmp_path / "m.model")
    write_model(tmp_path / "m.model", **options)
    given_tokenizer(file)
    with pytest.raises(
        UserError, match=rf"cannot draw segmentations of a model that {lack}, as .*m\.model; use tokeni"
    ):
        given_tokenizer(file, 0.1)
    kept = SentencePieceTokenizer.from_state(given_tokenizer(file).get_state() | {"sampling_alpha": 0.1})
    with pytest.raises(UserError, match=f"cannot draw segmentations of a model that {lack}; use tokenizer.sampling_al"):
        kept.check_sampling()


@pytest.mark.parametrize(
    ("option", "lack"),
    [
        ("split_by_whitespace=False", "has tokens that span blanks"),
        ("treat_whitespace_as_suffix=True", "puts the mark of a blank after a word"),
    ],
)
def test_words_are_not_linked_by_tokens_that_do_not_show_them(option, lack, tmp_path):
    name, _, value = option.partition("=")
    write_model(tmp_path / "plain.model", add_dummy_prefix=False)
    write_model(tmp_path / "m.model", **{name: value == "True"})
    given_tokenizer(str(tmp_path / "plain.model")).check_words()
    with pytest.raises(UserError, match=f"words cannot be linked with a tokenizer whose model {lack}; leave out"):
        given_tokenizer(str(tmp_path / "m.model")).check_words()


def test_two_given_models_keep_their_two_types(tmp_path):
    for kind in ("bpe", "word"):
        write_model(tmp_path / f"{kind}.model", model_type=kind, hard_vocab_limit=False)
    tokenizer = given_tokenizer([str(tmp_path / "bpe.model"), str(tmp_path / "word.model")])
    for one in (tokenizer, SentencePieceTokenizer.from_state(tokenizer.get_state())):
        assert (one.model_type, one.target_model_type) == ("bpe", "word")
        (ids,) = one.encode_target(["the unheard cat"])
        assert marked_words(one, one.target_tokens(ids)) == ["▁the", "▁<unk>", "▁cat"]
        (ids,) = one.encode_source(["the 北 cat"])
        assert "▁<unk>" not in marked_source_words(one, one.source_tokens(ids))


TEXTS = [f"<tag> un café {word} 10 €" for word in ("noir", "crème", "au lait", "chaud", "froid", "serré") * 9]


def trained(model_type: str = "unigram", sampling_alpha: float = 0.0, **options: Any) -> SentencePieceTokenizer:
    found = SentencePieceTokenizer(model_type, "auto", True, sampling_alpha, None, **options)
    found.train(TEXTS, [*TEXTS, "rare ß"])
    return found


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_character_without_a_token_is_written_as_its_bytes(model_type: str) -> None:
    plain, with_bytes = trained(model_type), trained(model_type, byte_fallback=True)
    text = "un thé 茶 !"
    assert plain.unk_id in plain.encode_target([text])[0]
    (ids,) = with_bytes.encode_target([text])
    assert with_bytes.unk_id not in ids
    assert with_bytes.decode_target([ids]) == [text]
    assert "<0xE8>" in with_bytes.target_tokens(ids)
    assert with_bytes.target_vocab_size == plain.target_vocab_size + 256
    again = SentencePieceTokenizer.from_state(with_bytes.get_state())
    assert again.encode_target([text]) == [ids]


def test_the_rarest_characters_get_no_token_if_few_are_to_be_covered() -> None:
    assert trained().unk_id not in trained().encode_target(["ß"])[0]
    few = trained(character_coverage=0.999)
    assert few.unk_id in few.encode_target(["ß"])[0]
    assert few.decode_target(few.encode_target(TEXTS[:6])) == TEXTS[:6]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_symbol_of_the_users_is_one_token_anywhere(model_type: str) -> None:
    found = trained(model_type, user_defined_symbols=["<tag>", "café"])
    tokens = found.target_tokens(found.encode_target(["du<tag>thécafé noir"])[0])
    assert [token for token in tokens if token in ("<tag>", "café")] == ["<tag>", "café"]
    assert found.decode_target(found.encode_target(TEXTS[:6])) == TEXTS[:6]


def test_a_symbol_that_no_text_has_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    trained(user_defined_symbols=["café", "<Tag>", "Café"])
    assert caplog.messages == [
        "<Tag>, Café of tokenizer.user_defined_symbols is in no text that the tokens are learned from, which is the "
        "text after cleaning, such as by data.cleaning.lowercase=true"
    ]


def test_segmentations_of_bytes_and_symbols_are_sampled_with_unigram_alone() -> None:
    found = trained(sampling_alpha=0.1, byte_fallback=True, user_defined_symbols=["<tag>"])
    texts = [*TEXTS[:6], "<tag> un 茶 noir"]
    drawn = [found.encode_target(texts, sample=True, seed=seed) for seed in range(9)]
    assert all(found.decode_target(ids) == texts for ids in drawn)
    assert len({str(ids) for ids in drawn}) > 1
    for options in ({"byte_fallback": True}, {"user_defined_symbols": ["<tag>"]}):
        with pytest.raises(UserError, match=r"sampling_alpha=0.1 drops merges of characters, and not with tokenizer\."):
            trained("bpe", 0.1, **options)


@pytest.mark.parametrize(
    ("model_type", "options", "sentence"),
    [
        ("char", {"byte_fallback": True}, "tokenizer.byte_fallback=true needs tokenizer=unigram or bpe; char"),
        (
            "word",
            {"user_defined_symbols": ["a"]},
            "tokenizer.user_defined_symbols=['a'] needs tokenizer=unigram or bpe",
        ),
        ("bpe", {"user_defined_symbols": ["a b"]}, "tokenizer.user_defined_symbols has 'a b'; a symbol has no blank"),
        ("bpe", {"user_defined_symbols": ["a", ""]}, "tokenizer.user_defined_symbols has ''; a symbol has no blank"),
        ("bpe", {"user_defined_symbols": ["a", "a"]}, "tokenizer.user_defined_symbols=['a', 'a'] names a symbol twice"),
        (
            "unigram",
            {"user_defined_symbols": ["a", "</s>"]},
            "tokenizer.user_defined_symbols has </s>, which the vocabulary has anyway; leave it out",
        ),
        (
            "unigram",
            {"user_defined_symbols": ["<extra_id_2>", "<extra_id_1>"], "num_sentinels": 2},
            "tokenizer.user_defined_symbols has <extra_id_1>, which the vocabulary has anyway",
        ),
        (
            "bpe",
            {"user_defined_symbols": ["<0x0G>", "<0x0F>"], "byte_fallback": True},
            "tokenizer.user_defined_symbols has <0x0F>, which the vocabulary has anyway",
        ),
    ],
)
def test_bytes_and_symbols_that_cannot_be_are_refused(model_type: str, options: Any, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        trained(model_type, **options)
    assert str(refused.value).startswith(sentence)


def test_a_vocabulary_without_room_for_bytes_says_what_takes_it() -> None:
    tokenizer = SentencePieceTokenizer("bpe", 200, True, 0.0, None, byte_fallback=True, user_defined_symbols=["<tag>"])
    with pytest.raises(UserError, match=r"beside the 1 symbols and 256 bytes and 4 special tokens; use a larger one"):
        tokenizer.train(TEXTS, TEXTS)


@pytest.mark.parametrize(
    "option", [{"user_defined_symbols": ["ab"]}, {"byte_fallback": True}, {"character_coverage": 0.9}, {"min_count": 2}]
)
def test_an_option_of_training_is_refused_for_a_given_model(option, tmp_path):
    (tmp_path / "a.model").write_bytes(b"")
    kind = "word" if "min_count" in option else "unigram"
    tokenizer = SentencePieceTokenizer(kind, 100, True, 0.0, None, model=str(tmp_path / "a.model"), **option)
    with pytest.raises(
        UserError, match=rf"tokenizer.{next(iter(option))} would change nothing, since tokenizer.model="
    ):
        tokenizer.train(["a"], ["b"])


def test_no_search_may_write_a_sentinel():
    tokenizer = SentencePieceTokenizer("char", 50, True, 0.0, None, num_sentinels=3)
    tokenizer.train(["the cat"], ["the cat"])
    banned = TargetVocabulary.of(tokenizer).banned_ids
    assert len(tokenizer.sentinels) == 3
    assert {tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id, *tokenizer.sentinels} == set(banned)
