"""seq2seq-attn rerank: the weighted sum chooses, weights are found by BLEU, and what does not fit is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.evaluation import rerank
from seq2seq_attn.evaluation.rerank import GRID, Sentence, main, tuned
from seq2seq_attn.inference import lines as line_streams
from seq2seq_attn.inference.translator import Translator

SOURCES = [*SENTENCES[:4], "", SENTENCES[4]]
TEXTS = [[SENTENCES[20 + 3 * row + column] for column in range(1 + row % 3)] if source else [""] for row, source in
         enumerate(SOURCES)]  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of the direction, one of the other direction and a language model."""
    folder = tmp_path_factory.mktemp("tiny")
    layers = [f"model.{side}.num_layers=1" for side in ("encoder", "decoder")]
    turned = ["data.source_language=fr", "data.target_language=en"]
    return {
        "forward": write_checkpoint(folder / "forward.ckpt", "model=transformer", *layers, scale=1.5),
        "reverse": write_checkpoint(folder / "reverse.ckpt", "model=transformer", *layers, *turned, seed=7, scale=1.5),
        "language": write_checkpoint(folder / "language.ckpt", "model=lm", layers[1], scale=1.5),
    }


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list, its source, and the output, in the current folder."""
    monkeypatch.chdir(tmp_path)
    lines = [
        f"{row} ||| {text} ||| -9.000000 ||| {-0.1 * column:.6f}\n"
        for row, texts in enumerate(TEXTS)
        for column, text in enumerate(texts)
    ]
    Path("best.txt").write_text("".join(lines), encoding="utf-8")
    Path("source.txt").write_text("".join(f"{source}\n" for source in SOURCES), encoding="utf-8")
    return ["best.txt", "source.txt", "output.txt"]


def mean_log_prob(model: Path, source: str, target: str) -> float:
    (scored,) = loaded(model).score([source], [target])
    return fmean(scored.log_probs)


@cache
def loaded(model: Path) -> Translator:
    return Translator.load(model, device="cpu")


def test_the_weighted_sum_of_all_models_chooses(
    models: dict[str, Path], files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank, "WINDOW", 5)  # more than one of them
    given = ["--model", models["forward"], "--reverse", models["reverse"], "--model", models["language"]]
    main([*files, *map(str, given), "--weights", "0.5", "2", "0.25", "--device", "cpu"])
    chosen, firsts = [], 0
    for source, texts in zip(SOURCES, TEXTS, strict=True):
        sums = [
            -0.1 * column
            + 0.5 * mean_log_prob(models["forward"], source, text)
            + 2 * mean_log_prob(models["reverse"], text, source)
            + 0.25 * mean_log_prob(models["language"], "", text)
            for column, text in enumerate(texts)
        ]
        chosen.append(texts[int(np.argmax(sums))])
        firsts += chosen[-1] == texts[0]
    assert Path("output.txt").read_text("utf-8").split("\n") == [*chosen, ""]
    assert firsts < len(SOURCES)  # the models change something
    main([*files, *map(str, given), "--weights", "0", "0", "0", "--device", "cpu"])
    assert Path("output.txt").read_text("utf-8").split("\n") == [*(texts[0] for texts in TEXTS), ""]


def test_a_source_is_read_as_it_was_translated(
    models: dict[str, Path], files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_streams, "MOST_BYTES", 200)
    source = Path("source.txt").read_bytes().split(b"\n")
    source[1], source[3] = source[1] + b" \xff", source[3] * 20
    Path("source.txt").write_bytes(b"\n".join(source))
    main([*files, "--reverse", str(models["reverse"]), "--weights", "0", "--device", "cpu"])
    assert Path("output.txt").read_text("utf-8").split("\n") == [*(texts[0] for texts in TEXTS), ""]


def test_a_list_of_one_translation_of_each_line_is_warned_of(
    models: dict[str, Path], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Path("best.txt").read_text("utf-8").splitlines(keepends=True)
    firsts = {line.partition(" ")[0]: line for line in reversed(lines)}
    Path("best.txt").write_text("".join(reversed(firsts.values())), encoding="utf-8")
    main([*files, "--reverse", str(models["reverse"]), "--weights", "1", "--device", "cpu"])
    assert "best.txt has one translation of each line, so there is nothing to choose" in capsys.readouterr().err


@pytest.mark.slow
def test_a_long_translation_is_scored_by_as_many_tokens_as_the_model_has_positions_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SENTENCES[8]
    tokens = loaded(write_checkpoint(tmp_path / "any.ckpt", "model=transformer")).tokenizer.encode_target([text])[0]
    whole = Sentence("best.txt, line 1", text, [text], np.zeros((1, 1)))
    asked: list[int] = []

    def encoded(*given: Any) -> Any:
        asked.append(given[2])
        return [tokens[: given[2]]], [tokens[: given[2]]]

    monkeypatch.setattr(rerank, "encode_pairs", encoded)
    for limit, most in ((len(tokens) + 1, len(tokens)), (len(tokens), len(tokens) - 1), (2000, 512)):
        given = ["model=transformer", "position=learned", f"position.max_length={limit}"]
        scorer = rerank.load_scorer(str(write_checkpoint(tmp_path / "limited.ckpt", *given)), False, "cpu", ())
        scorer.scores([whole], 100)
        assert asked[-1] == most


def test_an_interrupt_keeps_the_lines_that_are_chosen(
    models: dict[str, Path], files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rerank, "WINDOW", 3)
    scores, calls = rerank.Scorer.scores, []

    def interrupted(scorer: rerank.Scorer, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 5:  # two of them check its direction
            raise KeyboardInterrupt
        return scores(scorer, *arguments)

    monkeypatch.setattr(rerank.Scorer, "scores", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main([*files, "--reverse", str(models["reverse"]), "--weights", "0", "--device", "cpu"])
    firsts = [texts[0] for texts in TEXTS[:3]]  # of 1, 2 and 3 translations, in two windows
    assert Path("output.txt.part").read_text("utf-8").split("\n") == [*firsts, ""]
    assert "output=output.txt is not finished; what was written is in" in capsys.readouterr().err


def test_weights_are_found_with_references(
    models: dict[str, Path], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    best = [texts[-1] for texts in TEXTS]
    Path("references.txt").write_text("".join(f"{text}\n" for text in best), encoding="utf-8")
    given = ["--reverse", str(models["reverse"]), "--references", "references.txt", "--device", "cpu"]
    main([*files, *given])
    found = capsys.readouterr().out
    assert found.startswith("--weights ")
    weight = found.removeprefix("--weights ").partition(":")[0]
    assert float(weight) in GRID
    reranked = Path("output.txt").read_bytes()
    main([*files, "--reverse", str(models["reverse"]), "--weights", weight, "--device", "cpu"])
    assert Path("output.txt").read_bytes() == reranked


def test_weights_are_found_in_the_language_of_the_models(
    models: dict[str, Path], files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("references.txt").write_text("a\n" * len(TEXTS), encoding="utf-8")
    found = []
    monkeypatch.setattr(rerank, "language_of", lambda scorers: f"of {len(scorers)} models")
    monkeypatch.setattr(rerank, "tuned", lambda sentences, references, language: found.append(language) or [1.0])
    main([*files, "--reverse", str(models["reverse"]), "--references", "references.txt", "--device", "cpu"])
    assert found == ["of 1 models"]


def test_the_weights_with_the_highest_bleu_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = "the cat sees a red house", "some other words stand here now"
    rows = [
        [[-0.5, -1.0, -2.0], [-0.9, -1.0, -1.5]],  # the second, with more than 0.8 of the second model: 1.0
        [[-0.5, -3.0, -2.0], [-0.6, -2.9, -2.1]],  # with 1.0 of the second model, more than 2.0 of the first: 3.0
        [[-5.0, 0.0, 0.0]],  # there is no choice
    ]
    sentences = [Sentence("best.txt, line 1", "source", [wrong, right][-len(row) :], np.array(row)) for row in rows]
    assert tuned(sentences, [[right]] * 3, None) == [3.0, 1.0]
    without = sacrebleu.corpus_bleu([wrong, wrong, right], [[right] * 3]).score
    assert 0 < without < 90
    assert capsys.readouterr().out == f"--weights 3 1: BLEU 100.00, without the models {without:.2f}\n"


def test_weights_of_chinese_are_found_by_its_words_whatever_the_language_is_called(
    capsys: pytest.CaptureFixture[str],
) -> None:
    right, wrong = "我们明天去公园里玩。", "我们今天去商店里买书。"
    sentences = [Sentence("best.txt, line 1", "source", [wrong, right], np.array([[-0.5, -2.0], [-1.0, -1.5]]))] * 3
    better = "我们明天去公园玩。"
    for language in ("text", "fr", "zh", None):
        tuned(sentences, [[better]] * 3, language)
    reached = sacrebleu.corpus_bleu([right] * 3, [[better] * 3], tokenize="zh").score
    without = sacrebleu.corpus_bleu([wrong] * 3, [[better] * 3], tokenize="zh").score
    assert capsys.readouterr().out == f"--weights 1.5: BLEU {reached:.2f}, without the models {without:.2f}\n" * 4


def test_the_language_is_that_of_a_translation_model_of_the_same_direction() -> None:
    def scorer(language: str, *, reverse: bool = False, reads_source: bool = True) -> Any:
        sides = {"source_language": language if reverse else "en", "target_language": "en" if reverse else language}
        models: Any = SimpleNamespace(config={"data": sides}, model=SimpleNamespace(reads_source=reads_source))
        return rerank.Scorer(language, models, reverse)

    reverse, text = scorer("cmn", reverse=True), scorer("text", reads_source=False)
    assert rerank.language_of([reverse, text, scorer("zh")]) == "zh"
    assert rerank.language_of([reverse, text]) == "cmn"
    assert rerank.language_of([reverse]) == "cmn"
    assert rerank.language_of([text]) == "text"


REFUSED = {
    "a line less in the source": (
        {"source.txt": "".join(f"{source}\n" for source in SOURCES[:-1])},
        "best.txt and source.txt do not match at line 6 of the source; give the file that was translated, and the "
        "whole list of its translations in their order",
    ),
    "a line more in the source": ({"source.txt": "a\n" * 7}, "best.txt and source.txt do not match at line 7 of the"),
    "a line without translations": (
        {"best.txt": "0 ||| a ||| -1 ||| -1\n2 ||| b ||| -1 ||| -1\n"},
        "best.txt and source.txt do not match at line 2 of the source",
    ),
    "no n-best list": (
        {"best.txt": "a translation\n"},
        "best.txt, line 1: not `number ||| text ||| log_prob ||| score`; give a list that translate.py has written "
        "with nbest=FILE",
    ),
    "an empty list": ({"best.txt": "", "source.txt": ""}, "best.txt is empty; give a list that"),
    "a reference less": (
        {"references.txt": "a\nb\n"},
        "--references references.txt has 2 lines, and the source 6; give one for each",
    ),
    "one file twice": ({}, "the n-best list and the output are one file, best.txt; give each its own"),
    "a language model of the other direction": (
        {},
        "is a language model, which scores translations alone; give it as --model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(
    case: str, models: dict[str, Path], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    written, sentence = REFUSED[case]
    for name, text in written.items():
        Path(name).write_text(text, encoding="utf-8")
    if case == "one file twice":
        files[2] = "best.txt"
    model = models["language" if "language" in case else "reverse"]
    weights = ["--references", "references.txt"] if "references.txt" in written else ["--weights", "1"]
    with pytest.raises(SystemExit, match=r"^2$"):
        main([*files, "--reverse", str(model), *weights, "--device", "cpu"])
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not Path("output.txt").exists()


def test_the_file_of_a_model_is_no_output(
    models: dict[str, Path], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model = next(models["reverse"].rglob("best.ckpt")) if models["reverse"].is_dir() else models["reverse"]
    content = model.read_bytes()
    with pytest.raises(SystemExit, match=r"^2$"):
        main([*files[:2], str(model), "--reverse", str(models["reverse"]), "--weights", "1", "--device", "cpu"])
    assert "are one file" in capsys.readouterr().err
    assert model.read_bytes() == content


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--weights", "1"], "there is no further model; give --model RUN or --reverse RUN"),
        (["--model", "a", "--weights", "nan"], "--weights nan must be finite numbers"),
        (["--model", "a", "--weights", "1", "--batch-tokens", "0"], "--batch-tokens 0 leaves no token; give 1 or more"),
        (["--model", "a", "--weights", "1", "2"], "weights: 2, models: 1; give one weight for each model"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    given: list[str], sentence: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main([*files, *given])
    assert sentence in capsys.readouterr().err


def test_models_that_are_not_of_the_direction_of_one_list_are_refused(
    models: dict[str, Path], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--reverse", str(models["reverse"]), "--reverse", str(models["forward"])]
    with pytest.raises(SystemExit, match=r"^2$"):
        main([*files, *given, "--weights", "1", "1", "--device", "cpu"])
    assert capsys.readouterr().err == (
        f"--reverse {models['reverse']} translates from fr to en, and --reverse {models['forward']} translates from en "
        "to fr, but --model needs the direction of the list, and --reverse the other one; give another run (languages "
        "that a run only names wrongly are corrected in config.json of seq2seq-attn export safetensors)\n"
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_model_to_which_pairs_are_more_probable_the_other_way_is_warned_of(
    reverse: bool, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scorer = rerank.load_scorer(str(models["forward"]), reverse, "cpu", [])
    seen = []

    def scores(one: rerank.Scorer, sentences: list[Sentence], batch_tokens: int) -> Any:
        seen.append([sentence.texts for sentence in sentences])
        return np.full(len(sentences), -1.0 if one.reverse else -3.5)

    monkeypatch.setattr(rerank.Scorer, "scores", scores)
    no_scores = np.zeros((1, 1))
    sentences = [Sentence("", "a", ["b", "c"], no_scores), Sentence("", "", ["d"], no_scores)]
    rerank.warn_of_direction(scorer, sentences, 100)
    assert seen == [[["b"]]] * 2
    assert capsys.readouterr().err == (
        ""
        if reverse
        else f"--model {models['forward']}: the pairs are more probable in the other direction (log-probability of a "
        "token -1.00, not -3.50); is it a model for --reverse?\n"
    )
    rerank.warn_of_direction(scorer, sentences[1:], 100)
    rerank.warn_of_direction(rerank.load_scorer(str(models["language"]), False, "cpu", []), sentences, 100)
    assert not capsys.readouterr().err
