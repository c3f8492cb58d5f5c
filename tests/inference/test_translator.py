"""Translation from Python: what a text gives depends on that text and the options, and nothing is lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import built, composed
from omegaconf import OmegaConf
from tiny import SENTENCES, of_text, write_checkpoint

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.translator import Translation, Translator, cut_batches, list_of_texts
from seq2seq_attn.search.search import Hypothesis

BEAM = {"name": "beam", "beam_size": 4, "num_best": 3}
SAMPLES = {"name": "sampling", "num_samples": 3}
TEXT = SENTENCES[1]
SHORT = {"max_relative_length": 1.0, "max_extra_length": 2}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "rnn.ckpt")


@pytest.fixture(scope="module")
def translator(file: Path) -> Translator:
    return Translator.load(file, device="cpu")


def test_an_option_that_the_search_of_an_older_run_does_not_have_can_be_given(translator: Translator) -> None:
    saved = {name: value for name, value in translator.config["search"].items() if name != "no_repeat_ngram"}
    older = Translator(translator.engine, translator.tokenizer, translator.config | {"search": saved})
    (found,) = older.translate([TEXT], search={"no_repeat_ngram": 1})
    assert len(set(found.tokens)) == len(found.tokens)


def test_a_batch_has_fewer_sentences_for_more_hypotheses(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[list[int]] = []

    def kept(engine: Any, batches: list[Any], search: Any) -> list[Any]:
        sizes.append([len(batch.sources) for batch in batches])
        return [[[Hypothesis([], 0.0, 0.0)]] * len(batch.sources) for batch in batches]

    monkeypatch.setattr(type(translator.engine), "translate_batches", kept)
    for search in ("greedy", "beam"):
        translator.translate(SENTENCES[:1] * 60, search=search, batch_sentences=100, batch_tokens=400)
    greedy, beam = sizes
    assert sum(greedy) == sum(beam) == 60
    assert 2 * max(beam) < max(greedy)


def test_the_tokenizer_is_hashed_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, hashed = Translator.load(file, device="cpu"), []
    monkeypatch.setattr(type(loaded.tokenizer), "fingerprint", property(lambda _: hashed.append(1) or "a"))
    found = [*loaded.translate(SENTENCES[:3]), *loaded.translate(SENTENCES[3:5])]
    assert (len(hashed), {one.fingerprint for one in found}) == (1, {"a"})


def same(found: list[Translation], expected: list[Translation]) -> None:
    """Tokens exactly, numbers but for rounding, alternatives too."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.text == other.text
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
        assert one.score == pytest.approx(other.score, abs=1e-3)
        same(one.alternatives, other.alternatives)


@pytest.mark.parametrize("search", [{}, BEAM, SAMPLES], ids=["greedy", "beam", "sampling"])
def test_a_translation_depends_on_no_other_text_and_not_on_the_batch(translator: Translator, search: Any) -> None:
    few, search = SENTENCES[:14], {**search, "limits": SHORT}
    expected = translator.translate(few, search=search)
    assert len({len(one.tokens) for one in expected}) > 3
    for limit in ({"batch_sentences": 7}, {"batch_tokens": 100}):
        same(translator.translate(few, search=search, **limit), expected)
    same(translator.translate(few[::-1], search=search)[::-1], expected)
    same(translator.translate(few[5:6], search=search), expected[5:6])


def test_an_empty_text_gives_an_empty_translation_and_no_text_gives_none(translator: Translator) -> None:
    between = translator.translate(["", SENTENCES[0], " \t\n", "\x00"], maps=True)
    assert [one.text for one in between] == ["", translator.translate(SENTENCES[:1])[0].text, "", ""]
    empty = Translation("", 0.0, 0.0, [], [], [], [], fingerprint=translator.tokenizer.fingerprint)
    assert between[0] == between[2] == empty
    assert between[1].maps
    assert translator.translate([]) == []


def test_alternatives_are_what_else_the_search_found_best_first(translator: Translator) -> None:
    (found,) = translator.translate([TEXT], search=BEAM)
    scores = [found.score, *(other.score for other in found.alternatives)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert len({found.text, *(other.text for other in found.alternatives)}) > 1
    assert found.text == translator.tokenizer.target_model.decode_pieces(found.tokens).strip()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"batch_sentences": 2}, [[1, 3], [4, 0], [2]]),
        ({"batch_sentences": 9}, [[1, 3, 4, 0, 2]]),
        ({"batch_tokens": 10}, [[1, 3], [4, 0], [2]]),  # 2 x 3, 2 x 5, 1 x 11, which stands alone
        ({"batch_tokens": 20, "hypotheses": 2}, [[1, 3], [4, 0], [2]]),
        ({"batch_tokens": 25}, [[1, 3, 4, 0], [2]]),  # 4 x 5
        ({"batch_tokens": 1}, [[1], [3], [4], [0], [2]]),
    ],
)
def test_batches_hold_as_many_sentences_or_padded_tokens_as_the_option_says(
    limits: dict[str, int], expected: list[list[int]]
) -> None:
    options: dict[str, Any] = {"batch_sentences": 64, "batch_tokens": None, "hypotheses": 1, **limits}
    assert list(cut_batches([5, 2, 11, 3, 4], **options)) == expected


def test_hypotheses_of_a_sentence_are_those_that_a_search_holds_at_once_and_finds() -> None:
    searches = [{}, {"name": "beam", "beam_size": 7, "num_best": 3}, {"name": "sampling", "num_samples": 5}]
    searches.append({"name": "mbr", "candidates": {"num_samples": 11}})
    own: Any = OmegaConf.to_container(composed().search, resolve=True)
    assert [choose_search(options, own).hypotheses_at_once for options in searches] == [1, 7, 5, 11]
    assert [choose_search(options, own).most_hypotheses for options in searches] == [1, 3, 5, 11]


@pytest.mark.parametrize("option", ["batch_sentences", "batch_tokens"])
def test_a_batch_of_nothing_is_refused(translator: Translator, option: str) -> None:
    limit: dict[str, Any] = {option: 0}
    with pytest.raises(UserError, match=rf"^{option}=0 leaves nothing to translate at once; use 1 or more$"):
        translator.translate([TEXT], **limit)


def test_a_search_is_named_described_or_given(translator: Translator) -> None:
    (own,) = translator.translate([TEXT])
    assert len(own.tokens) > 3
    (short,) = translator.translate([TEXT], search={"limits": {"max_length": 3}})
    assert len(short.tokens) == 3
    (found,) = translator.translate([TEXT], search="beam")
    config = composed("search=beam").search
    (given,) = translator.translate([TEXT], search=built(config))
    (described,) = translator.translate([TEXT], search=config)
    same([given, described], [found, found])
    assert found.log_prob > own.log_prob


def test_a_run_that_has_recorded_no_power_of_the_length_divides_by_the_length(tmp_path: Path) -> None:
    written = torch.load(write_checkpoint(tmp_path / "a.ckpt", "search=beam_mean"))
    assert written["config"]["search"]["length_penalty"].pop("power") == 1.0
    torch.save(written, tmp_path / "old.ckpt")
    (old,), (new,) = (
        Translator.load(tmp_path / name, device="cpu").translate([TEXT]) for name in ("old.ckpt", "a.ckpt")
    )
    assert old == new
    assert old.score == old.log_prob / (len(old.tokens) + 1)


def test_a_search_that_is_not_there_is_refused(translator: Translator) -> None:
    with pytest.raises(
        UserError, match=r"^search=bean does not exist; choose from: beam, beam_mean, diverse_beam, greedy, "
    ):
        translator.translate([TEXT], search="bean")
    with pytest.raises(UserError, match=r"^search has no option 'beam_sise'; it has: .*beam_size, "):
        translator.translate([TEXT], search={"name": "beam", "beam_sise": 3})
    with pytest.raises(UserError, match=r"^search has no option 'limits.most'; limits has: max_length, max_relative_"):
        translator.translate([TEXT], search={"limits": {"most": 3}})
    with pytest.raises(UserError, match=r"^search.num_best=9 must be at least 1 and at most "):
        translator.translate([TEXT], search={"name": "beam", "num_best": 9})


@pytest.mark.parametrize("search", [None, BEAM])
def test_a_translation_begins_with_its_prefix_and_an_empty_one_leaves_it_free(
    translator: Translator, search: Any
) -> None:
    texts, begun = [SENTENCES[4], "", SENTENCES[0], SENTENCES[2]], ["my house", "some dogs", "", "where is"]
    free = translator.translate(texts, search=search)
    found = translator.translate(texts, search=search, prefixes=begun)
    assert found[0].text.startswith("my house")
    assert found[3].text.startswith("where is")
    same(found[1:3], free[1:3])
    assert found[1].text == ""
    assert [of_text(one.notes) for one in found] == [[], ["its prefix is left out, since the text is empty"], [], []]
    assert translator.translate([""], search=search, prefixes=[""])[0].notes == []
    assert not free[0].text.startswith("my house")


def test_a_prefix_that_the_model_cannot_write_is_said(translator: Translator) -> None:
    (found,) = translator.translate([TEXT], prefixes=["日本"])
    assert found.notes == ["the prefix has letters that the model cannot write"]


def test_a_text_that_is_too_long_is_cut_and_the_note_says_so(translator: Translator) -> None:
    long = " ".join([TEXT] * 9)
    (tokens,) = translator.tokenizer.encode_source([long])
    cut, whole = (translator.translate([long], max_source_tokens=most)[0] for most in (11, 2000))
    assert of_text(cut.notes) == [f"cut from {len(tokens)} to 11 tokens, the most that max_source_tokens allows"]
    assert of_text(whole.notes) == []
    (alone,) = translator.translate([translator.tokenizer.source_model.decode(tokens[:11])])
    same([cut], [alone])
    assert cut.tokens != whole.tokens


def test_a_prefix_that_is_too_long_is_cut_and_the_note_says_so(translator: Translator) -> None:
    long = " ".join([TEXT] * 40)
    (tokens,) = translator.tokenizer.encode_target([long])
    cut, free = translator.translate([TEXT, TEXT], prefixes=[long, ""], max_source_tokens=11)
    assert of_text(cut.notes) == [
        f"its prefix: cut from {len(tokens)} to 11 tokens, the most that max_source_tokens allows"
    ]
    assert cut.tokens[:11] == translator.tokenizer.target_tokens(tokens[:11])
    (alone,) = translator.translate([TEXT])
    assert of_text(free.notes) == []
    same([free], [alone])


def test_a_translation_with_as_many_tokens_as_it_may_have_is_noted(translator: Translator) -> None:
    (tokens,), (prefix,) = translator.tokenizer.encode_source([TEXT]), translator.tokenizer.encode_target(["my house"])
    most = len(tokens) + 3
    (cut,), (whole,) = translator.translate([TEXT], search={"limits": SHORT}), translator.translate(SENTENCES[3:4])
    relative = f"{most} tokens, the most that search.limits.max_relative_length allows"
    assert (len(cut.tokens), cut.notes) == (most, [f"its translation may be cut at {relative}"])
    assert (len(whole.tokens), whole.notes) == (8, [])
    for limits, limit, allowed in (
        ({"max_length": 1}, "max_length", 1),
        (SHORT | {"max_relative_length": 0.1}, "max_relative_length", 2),
        ({"max_relative_length": 0.0, "max_extra_length": 2}, "max_extra_length", 2),
    ):
        (full,) = translator.translate([TEXT], search={"limits": limits}, prefixes=["my house"])
        assert full.text == "my house"
        given = f"nothing is added to its prefix of {len(prefix)} tokens"
        assert full.notes == [f"{given}, since search.limits.{limit} allows {allowed}"]


def test_the_notes_of_a_language_model_are_about_the_text(tmp_path: Path) -> None:
    made = ("model=lm", "model.decoder.num_layers=1")
    translator = Translator.load(write_checkpoint(tmp_path / "lm.ckpt", *made), device="cpu")
    long, search = " ".join([TEXT] * 9), {"limits": {"max_length": 11}}
    (tokens,) = translator.tokenizer.encode_target([long])
    cut, odd, free = translator.translate([long, "日本\x00", TEXT], search=search, max_source_tokens=11)
    assert cut.notes == [
        f"cut from {len(tokens)} to 11 tokens, the most that max_source_tokens allows",
        "nothing is added to its 11 tokens, since search.limits.max_length allows 11",
    ]
    assert len(cut.tokens) == 11
    letters = "the text has letters that the model cannot write"
    full = "its continuation may be cut at 11 tokens, the most that search.limits.max_length allows"
    assert odd.notes == ["control characters are replaced by blanks", letters, full]
    assert free.notes == []
    for name in ("sampling", "mbr"):
        limits = {"limits": search["limits"]} if name == "sampling" else {"candidates": {"limits": search["limits"]}}
        (found,) = translator.translate([long], search={"name": name} | limits)
        assert found.notes[-1].startswith(f"nothing is added to its {len(tokens)} tokens, since search.limits.max_")
    few = write_checkpoint(tmp_path / "few.ckpt", *made, "position=learned", "position.max_length=13")
    (found,) = Translator.load(few, device="cpu").translate([long])
    assert found.notes[-1] == "nothing is added to its 12 tokens, since the model has positions for 12"


def test_a_text_longer_than_the_models_positions_is_cut_to_them(tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path / "a.ckpt", "model=transformer", "position=learned", "position.max_length=13")
    translator = Translator.load(file)
    (found,) = translator.translate([" ".join([TEXT] * 40)])
    assert found.notes[0].endswith(" to 12 tokens, the most that the model has positions for")
    assert found.tokens
    (found,) = translator.translate([TEXT], prefixes=[" ".join([TEXT] * 40)])
    assert found.notes[0].endswith(" to 12 tokens, the most that the model has positions for")
    assert len(found.tokens) == 12


def test_what_no_text_should_hold_is_replaced_and_the_note_says_so(translator: Translator) -> None:
    odd = translator.translate(["the\x00old\x1bcat", "the\ud800cat", "the\u2028cat\tsees\n"])
    assert [of_text(one.notes) for one in odd] == [
        ["control characters are replaced by blanks"],
        ["not Unicode; what cannot be read is replaced"],
        [],
    ]
    same(odd[:1], translator.translate(["the old cat"]))
    same(odd[2:], translator.translate(["the cat sees"]))


def test_a_translation_stands_on_one_line_whatever_the_model_says(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translator.tokenizer, "decode_target", lambda rows: ["a\nb\rc\u2028d\x85e\x0cf" for _ in rows])
    assert translator.translate([TEXT])[0].text == "a b c d e f"


def test_one_text_in_position_of_a_list_is_refused(translator: Translator) -> None:
    with pytest.raises(UserError, match=r"takes a list of texts, and of prefixes, .* write translate\(\[text\]\)$"):
        translator.translate(TEXT)
    with pytest.raises(UserError, match=r"^there are 1 texts and 2 prefixes; give one for each, or None$"):
        translator.translate([TEXT], prefixes=["a", "b"])


def test_texts_may_come_from_a_generator_and_bytes_are_refused(translator: Translator) -> None:
    (expected,) = translator.translate([TEXT], prefixes=["a"])
    assert translator.translate((text for text in [TEXT]), prefixes=iter(["a"])) == [expected]
    assert translator.score(iter([TEXT]), iter([expected])) == translator.score([TEXT], [expected])
    given: list[Any] = [TEXT, b"a"]
    with pytest.raises(UserError, match=r"^the texts have a bytes at 1, from 0, where a text is expected$"):
        list_of_texts(given, "the texts")


def test_an_ensemble_of_twice_one_model_translates_as_it(
    file: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Translator.load([file, file])
    same(both.translate(SENTENCES[:7], search=BEAM), translator.translate(SENTENCES[:7], search=BEAM))
    monkeypatch.setattr(both, "_search", None)  # the refusal comes before it
    with pytest.raises(UserError, match=r"not of an ensemble; give one ckpt_path$"):
        both.translate([TEXT], maps=True)


def test_an_engine_that_is_not_there_is_refused(file: Path) -> None:
    with pytest.raises(UserError, match=r"^engine=onnx does not exist; choose from: torch, ctranslate2$"):
        Translator.load(file, engine="onnx")
    with pytest.raises(UserError, match=r"^engine=ctranslate2 knows no ensembles; give one ckpt_path, or leave out"):
        Translator.load([file, file], engine="ctranslate2")


def test_maps_are_those_of_each_best_translation(translator: Translator) -> None:
    texts = [SENTENCES[8], "", SENTENCES[1]]
    found = translator.translate(texts, search=BEAM, maps=True)
    for text, one in zip(texts, found, strict=True):
        again = translator.attention(text, one)
        assert [a.slot for a in again] == [b.slot for b in one.maps]
        for a, b in zip(again, one.maps, strict=True):
            np.testing.assert_allclose(a.weights, b.weights, rtol=0, atol=1e-6)
            assert a.rows == [*one.tokens, "</s>"]
            assert "".join(a.columns[:-1]).replace("▁", " ").strip() == text
    assert found[1].maps == []


@pytest.mark.parametrize("kind", ["rnn", "transformer", "ensemble", "processes"])
def test_what_was_translated_has_the_log_prob_that_the_search_reported(kind: str, file: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "transformer.ckpt", "model=transformer", scale=1.0)
    paths = {"rnn": [file], "transformer": [other], "ensemble": [file, other], "processes": [file]}[kind]
    translator = Translator.load(paths, device="cpu", num_processes=1 + (kind == "processes"))
    texts, limit = SENTENCES[:9], 50
    found = translator.translate(texts, search={**SAMPLES, "limits": {"max_length": limit}})
    every = [(text, one) for text, best in zip(texts, found, strict=True) for one in (best, *best.alternatives)]
    finished = [(text, one) for text, one in every if len(one.tokens) < limit]
    assert len(finished) > 5
    scored = translator.score(*(list(side) for side in zip(*finished, strict=True)))
    for (_, one), score in zip(finished, scored, strict=True):
        assert score.tokens == [*one.tokens, "</s>"]
        assert len(score.log_probs) == len(score.tokens)
        assert max(score.log_probs) <= 0
        assert score.log_prob == pytest.approx(one.log_prob, abs=1e-3)


def test_a_score_depends_on_no_other_pair_and_not_on_the_batch(translator: Translator) -> None:
    texts, targets = SENTENCES[:12], SENTENCES[20:32]
    expected = translator.score(texts, targets)
    for limit in ({"batch_sentences": 5}, {"batch_tokens": 40}):
        found = translator.score(texts, targets, **limit)
        assert [one.log_probs for one in found] == [pytest.approx(one.log_probs, abs=1e-5) for one in expected]
    tokenizer = translator.tokenizer
    for text, target, one in zip(texts, targets, expected, strict=True):
        (alone,) = translator.score([text], [target])
        (ids,) = tokenizer.encode_target([target])
        assert alone.tokens == one.tokens == [*tokenizer.target_tokens(ids), "</s>"]
        assert alone.log_probs == pytest.approx(one.log_probs, abs=1e-5)
    assert translator.score([], []) == []


def test_tokens_of_a_score_are_those_of_the_softmax(translator: Translator) -> None:
    model, tokenizer = translator.engine.model, translator.tokenizer  # type: ignore[attr-defined]
    (source,), (target,) = tokenizer.encode_source([TEXT]), tokenizer.encode_target(["dogs hear"])
    with torch.inference_mode():
        ids = torch.tensor([[*source, tokenizer.eos_id]])
        read = torch.tensor([[tokenizer.bos_id, *target]])
        logits = model.logits(model(ids, torch.ones_like(ids, dtype=torch.bool), read).hidden)[0].double()
    written = [*target, tokenizer.eos_id]
    expected = [float(row.log_softmax(-1)[token]) for row, token in zip(logits, written, strict=True)]
    (found,) = translator.score([TEXT], ["dogs hear"])
    assert found.log_probs == pytest.approx(expected, abs=1e-5)
    (nothing,) = translator.score([TEXT], [""])
    assert nothing.tokens == ["</s>"]
    assert nothing.log_prob < 0


def test_a_score_says_what_was_cut_and_replaced_and_refuses_what_does_not_match(translator: Translator) -> None:
    (cut,) = translator.score([SENTENCES[8]], [" ".join(SENTENCES) + "\x01"], max_source_tokens=6)
    assert cut.notes[0].startswith("cut from ")
    assert cut.notes[1] == "its translation: control characters are replaced by blanks"
    assert cut.notes[2].startswith("its translation: cut from ")
    assert len(cut.tokens) == 7
    long = translator.translate([SENTENCES[8]], search="greedy")
    (by_tokens,) = translator.score([TEXT], long, max_source_tokens=len(long[0].tokens) - 1)
    assert by_tokens.tokens == [*long[0].tokens[:-1], "</s>"]
    assert by_tokens.notes[-1].startswith(f"its translation: cut from {len(long[0].tokens)} to ")
    with pytest.raises(UserError, match=r"score takes lists of texts and of translations; write score\(\[text\]"):
        translator.score(TEXT, [TEXT])
    with pytest.raises(UserError, match=r"there are 2 texts and 1 translations; give one for each"):
        translator.score([TEXT, TEXT], [TEXT])


def test_a_language_model_scores_text(tmp_path: Path) -> None:
    translator = Translator.load(write_checkpoint(tmp_path / "lm.ckpt", "model=lm"), device="cpu")
    first, second = translator.score(["", ""], SENTENCES[:2])
    (alone,) = translator.score([""], SENTENCES[1:2])
    assert second.log_probs == pytest.approx(alone.log_probs, abs=1e-5)
    assert first.log_prob != second.log_prob
    with pytest.raises(
        UserError, match="a language model does not read the texts, and number 1, from 0, is not empty; give"
    ):
        translator.score(["", TEXT], SENTENCES[:2])
    continued = translator.translate([TEXT], search={"limits": {"max_length": 12}})
    (whole,) = translator.score([TEXT], continued)
    assert whole.log_probs == translator.score([""], continued)[0].log_probs
    assert len(whole.log_probs) == len(continued[0].tokens) + 1


def test_a_translation_of_another_tokenizer_is_read_from_its_text(translator: Translator, tmp_path: Path) -> None:
    (theirs,) = translator.translate([TEXT])
    assert theirs.fingerprint == translator.tokenizer.fingerprint
    foreign = theirs._replace(text="dogs hear", tokens=["zz", "yy"], fingerprint="other")
    (scored,), (expected,) = translator.score([TEXT], [foreign]), translator.score([TEXT], ["dogs hear"])
    assert scored == expected
    ours, others = translator.attention(TEXT, foreign), translator.attention(TEXT, "dogs hear")
    assert [one.rows for one in ours] == [one.rows for one in others]
    (unknown,) = translator.score([TEXT], ["dogs Ω"])
    assert unknown.notes == ["its translation has letters that the model cannot write"]
    assert expected.notes == []


def test_without_a_process_nothing_is_translated(tmp_path: Path) -> None:
    for number in (0, -1):
        with pytest.raises(UserError, match=f"num_processes={number} must be at least 1; leave it out for one process"):
            Translator.load(tmp_path / "none.ckpt", num_processes=number)


def test_the_limit_of_texts_does_not_cut_the_maps_of_translations(translator: Translator) -> None:
    (best,) = translator.translate([TEXT], search={"limits": {"min_length": 9, "max_length": 12}}, maps=True)
    assert len(best.tokens) >= 9
    (_, maps), *_ = translator.attentions([TEXT], [best], max_source_tokens=100)
    (_, shorter), *_ = translator.attentions([TEXT], [best], max_source_tokens=2)
    for whole, cut in zip(maps, shorter, strict=True):
        if whole.slot.startswith("cross/"):
            assert (cut.rows, cut.columns) == (whole.rows, [*whole.columns[:2], whole.columns[-1]])
            assert whole.rows == [*best.tokens, "</s>"]
