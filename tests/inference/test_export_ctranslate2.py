"""What CTranslate2 makes of an export is what our model makes, whatever the model is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceTrainer
from small_transformer import WORDS, decoded, search_of, sentences, small_transformer

from seq2seq_attn.checkpoint.load import Loaded
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import export_ctranslate2 as script
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

ctranslate2 = pytest.importorskip("ctranslate2", reason="pip install 'seq2seq_attn[serve]'")
CPU = torch.device("cpu")
GREEDY = ("search=greedy", "search.limits.max_length=19")
MOST = 19


def engine_of(loaded: Loaded, folder: Path) -> CTranslate2Engine:
    script.export(loaded, folder)
    return CTranslate2Engine([str(folder)], device=CPU, num_threads=1)


def slow(*overrides: str) -> Any:
    return pytest.param(overrides, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("model.encoder.norm=post", "model.decoder.norm=post", "feed_forward=gelu", "model.tie_embeddings=none"),
        slow(
            "model.encoder.norm=post", "model.encoder.num_layers=1", "model.decoder.num_layers=3", "position.base=50.0"
        ),
        ("feed_forward=swiglu", "model.scale_embeddings=false", "model.tie_embeddings=all"),
        ("position=learned", "position.max_length=64", "attention.qk_scale=0.7"),
        (
            "position=none",
            "cross_attention.qk_scale=0.7",
            "attention.qkv_bias=true",
            "cross_attention.output_bias=true",
        ),
        slow("position=rotary", "position.base=100.0", "attention.num_heads=2", "cross_attention.num_heads=2"),
        slow("position=relative", "position.max_distance=3", "feed_forward.ff_dim=37"),
        ("position=relative", "position.max_distance=3", "position.values=false", "attention.qkv_bias=true"),
    ],
    ids=" ".join,
)
def test_what_an_export_says_is_as_likely_in_the_model_it_is_of(overrides: tuple[str, ...], tmp_path: Path) -> None:
    loaded, lines = small_transformer(*overrides), sentences()
    script.export(loaded, tmp_path / "export")
    translator = ctranslate2.Translator(str(tmp_path / "export"), device="cpu", intra_threads=1)
    ctranslate2.set_random_seed(1)
    sources = loaded.tokenizer.encode_source(lines)
    drawn = translator.translate_batch(
        [loaded.tokenizer.source_tokens(source) for source in sources],
        beam_size=1,
        sampling_topk=0,
        num_hypotheses=5,
        min_decoding_length=0,
        max_decoding_length=MOST,
        return_scores=True,
        length_penalty=0.0,
        max_batch_size=3,
    )
    said = 0
    for source, result in zip(sources, drawn, strict=True):
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            target = [loaded.tokenizer.target_model.piece_to_id(token) for token in tokens]
            ended = [loaded.tokenizer.eos_id] * (len(target) < MOST)
            assert score == pytest.approx(log_prob(loaded, source, target + ended), rel=1e-4)
            said += len(target)
    assert said > 5 * len(lines)


def log_prob(loaded: Loaded, source: list[int], target: list[int]) -> float:
    """By one pass over all of it."""
    read = torch.tensor([[*source, loaded.tokenizer.eos_id]])
    begun = torch.tensor([[loaded.tokenizer.bos_id, *target[:-1]]])
    logits = loaded.model.logits(loaded.model(read, torch.ones_like(read, dtype=torch.bool), begun).hidden)
    return logits[0].log_softmax(-1).gather(-1, torch.tensor(target)[:, None]).sum().item()


def test_two_vocabularies_are_two(tmp_path: Path) -> None:
    loaded, lines = small_transformer(joint=False), sentences()
    search = search_of(*GREEDY)
    found = engine_of(loaded, tmp_path / "export")(loaded.tokenizer.encode_source(lines), search)
    assert loaded.tokenizer.source_vocab_size != loaded.tokenizer.target_vocab_size
    assert [one.token_ids for one, *_ in found] == [one.token_ids for one, *_ in decoded(loaded, search, lines)]


def test_a_folder_alone_is_enough(tmp_path: Path) -> None:
    loaded, lines = small_transformer(), sentences()
    engine = engine_of(loaded, tmp_path / "export")
    found = engine(engine.tokenizer.encode_source(lines), choose_search(None, engine.config["search"]))
    expected = decoded(loaded, search_of("search=greedy"), lines)
    assert engine.config == loaded.config
    assert engine.tokenizer.decode_target([one.token_ids for one, *_ in found]) == loaded.tokenizer.decode_target(
        [one.token_ids for one, *_ in expected]
    )


def test_a_tied_matrix_is_written_once(tmp_path: Path) -> None:
    sizes = []
    for tied in ("all", "target", "none"):
        script.export(small_transformer(f"model.tie_embeddings={tied}"), tmp_path / tied)
        sizes.append((tmp_path / tied / "model.bin").stat().st_size)
    matrix = small_transformer().model.embed_source.weight.numel() * 4
    assert sizes[1] - sizes[0] == pytest.approx(matrix, abs=100)
    assert sizes[2] - sizes[1] == pytest.approx(matrix, abs=100)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("model=rnn", "model.encoder.num_layers=1", "model.decoder.num_layers=1"), "model.encoder is RNNEncoder"),
        (("model.embedding_dim=11",), "model.encoder.dim=24 is not model.embedding_dim=11"),
        (("attention=bahdanau",), "attention.score is AdditiveScore, .* train with attention/score=scaled_dot,"),
        (("attention@cross_attention=luong_general",), "cross_attention.score is GeneralScore"),
        (
            ("attention/pattern@cross_attention.pattern=local",),
            r"cross_attention.pattern is LocalPattern, .* train with attention/pattern@cross_attention.pattern=full,",
        ),
        (("attention=linear",), "attention is a KernelAttention, .* multihead only; train with attention=multihead,"),
        (("attention=delta",), "attention is a DeltaAttention, .* multihead only; train with attention=multihead,"),
        (("attention=local",), "attention.pattern is LocalPattern, .* full only; train with attention/pattern=full,"),
        (("attention=sparsemax", "attention/score=scaled_dot"), "attention.normalizer is SparsemaxNormalizer"),
        (("attention.project_values=false",), "attention.project_values=false is not known"),
        (("attention.project_output=false",), "attention.project_output=false is not known"),
        (("attention/mix=talking_heads",), "attention.mix is TalkingHeadsMix, .* ~attention/mix"),
        (("attention/gate@cross_attention.gate=sigmoid",), "cross_attention.gate is SigmoidGate"),
        (("attention.num_kv_heads=1",), "attention.num_kv_heads=1 and attention.head_dim=8 are not exported"),
        (("cross_attention.head_dim=5",), "cross_attention.num_kv_heads=3 and cross_attention.head_dim=5 are not"),
        (("cross_attention.num_heads=2",), "the decoder has 3 heads and cross_attention 2, and a decoder"),
        (("position.join=concat",), "position.join=concat is not known"),
        (("position=alibi",), "model.encoder.position is AlibiPosition"),
        (("position=t5",), "model.encoder.position is T5Position"),
        (("position=fire",), "model.encoder.position is FirePosition"),
        (("model.encoder.causal=true",), "model.encoder.causal=true is not known to CTranslate2; translate with eng"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_ctranslate2_cannot_express_is_refused(overrides: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        script.export(small_transformer(*overrides), tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(
    ("slot", "refused"),
    [
        ("self_attention", "train with attention/pattern@self_attention.pattern=full,"),
        ("encoder_attention", "train with attention/pattern@encoder_attention.pattern=full,"),
    ],
)
def test_the_slot_of_an_attention_is_named(slot: str, refused: str, tmp_path: Path) -> None:
    loaded = small_transformer(f"attention@{slot}=local")
    with pytest.raises(UserError, match=rf"^{slot}.pattern is LocalPattern, .* {refused}"):
        script.export(loaded._replace(config=loaded.config | {slot: {"num_heads": 3}}), tmp_path / "export")


@pytest.mark.parametrize("pieces", [{"bos_piece": "[BOS]"}, {"eos_piece": "[EOS]"}, {"unk_piece": "[UNK]"}], ids=str)
def test_special_tokens_of_a_given_tokenizer_may_have_other_names(pieces: dict[str, str], tmp_path: Path) -> None:
    given = {"model_prefix": str(tmp_path / "given"), "vocab_size": 20, "model_type": "word", "minloglevel": 9}
    lines = [" ".join(WORDS)] * 3
    SentencePieceTrainer.train(sentence_iterator=iter(lines), **given, hard_vocab_limit=False, **pieces)
    tokenizer = SentencePieceTokenizer("word", 20, True, 0.0, None, model=str(tmp_path / "given.model"))
    tokenizer.train([], [])
    sizes = [f"model.{side}_vocab_size={tokenizer.source_vocab_size}" for side in ("source", "target")]
    loaded = small_transformer(*sizes)._replace(tokenizer=tokenizer)
    search, lines = search_of(*GREEDY), [*sentences(), "zzz"]
    found = engine_of(loaded, tmp_path / "export")(tokenizer.encode_source(lines), search)
    assert [one.token_ids for one, *_ in found] == [one.token_ids for one, *_ in decoded(loaded, search, lines)]


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists; give a new folder"):
        script.export(small_transformer(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(script, "write_tokenizer", full)
    with pytest.raises(UserError, match=r"model cannot be written \(No space left on device\); make room, or give "):
        script.export(small_transformer(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_it_is_known_by_the_other_engine(tmp_path: Path) -> None:
    script.export(small_transformer(), tmp_path / "model")
    with pytest.raises(UserError, match=r"model is a model for CTranslate2, which translate and serve read with"):
        Translator.load(tmp_path / "model", device="cpu")


@pytest.mark.parametrize("positions", ["-1", "0", "1"])
def test_fewer_positions_than_a_token_and_its_end_need_are_refused(
    positions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["not read", str(tmp_path / "out"), "--positions", positions])
    assert f"--positions {positions} leaves no place for a token and its end; give 2 or more" in capsys.readouterr().err


def test_positions_are_those_of_the_table_that_has_fewest(tmp_path: Path) -> None:
    for name, overrides, positions in (
        ("learned", ("position=learned", "position.max_length=19"), 19),
        ("sinusoidal", (), 300),
    ):
        script.export(small_transformer(*overrides), tmp_path / name, positions=300)
        settings = json.loads((tmp_path / name / "seq2seq_attn.json").read_text())
        assert settings["positions"] == positions
