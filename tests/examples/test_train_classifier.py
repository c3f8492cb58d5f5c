"""The example classifier, on texts that require attention and positions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import ROOT

from examples.classify import made_corpora
from examples.classify import train_classifier as script

README = ROOT / "examples" / "classify" / "README.md"
COMMANDS = re.findall(
    r"^python -m examples\.classify\.train_classifier(.*)$",
    README.read_text(encoding="utf-8") + (ROOT / "docs" / "alone.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_corpora, "SIZES", {"train": 64, "test": 32})


def texts_of(column: list[list[int]]) -> list[str]:
    words = {token: word for word, token in made_corpora.vocabulary().items()}
    return [" ".join(words[token] for token in tokens) for tokens in column]


def mood(sentence: str) -> set[bool]:
    """Return whether each opinion is favourable by the rule that a negation inverts its own adjective."""
    found = re.findall(r"was (not )?(?:very )?(\w+)", sentence)
    assert found, sentence
    return {(word in made_corpora.GOOD) != bool(negated) for negated, word in found}


def test_the_labels_follow_from_the_sentences_but_not_from_their_words_alone() -> None:
    sentences, labels = made_corpora.made_sentences(seed=1)["train"]
    texts = texts_of(sentences)
    assert [mood(text) for text in texts] == [{bool(label)} for label in labels]
    kind = [label for text, label in zip(texts, labels, strict=True) if set(text.split()) & set(made_corpora.GOOD)]
    assert abs(sum(kind) / len(kind) - 0.5) < 0.05
    assert made_corpora.made_sentences(seed=1)["train"] == (sentences, labels)
    assert made_corpora.made_sentences(seed=2)["train"] != (sentences, labels)


def test_a_sixth_of_the_sentences_is_decided_by_the_order_of_words_alone() -> None:
    counts = []
    for text in texts_of(made_corpora.made_sentences(seed=1)["train"][0]):
        words = text.split()
        good, bad = (sum(word in kind for word in words) for kind in (made_corpora.GOOD, made_corpora.BAD))
        counts.append((good, bad, words.count("not")))
    assert abs(counts.count((1, 1, 1)) / len(counts) - 1 / 6) < 0.02


def test_the_labels_of_questions_are_those_of_the_noun_that_is_asked_for() -> None:
    *columns, labels = made_corpora.made_questions(seed=1)["train"]
    for asked, nouns, opinions, label in zip(*map(texts_of, columns), labels, strict=True):
        assert len(nouns.split()) == len(opinions.split()) == len(set(nouns.split()))
        opinion = dict(zip(nouns.split(), opinions.split(), strict=True))[asked]
        assert opinion in (made_corpora.GOOD if label else made_corpora.BAD)


@pytest.mark.slow
def test_attention_needs_positions_to_find_the_negation_of_each_adjective(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "new" / "curves.png"
    found = script.main(["--epochs", "2", "--positions", "concat,none", "--plot", str(plot)])
    assert {kind: len(epochs) for kind, epochs in found.items()} == {"concat": 2, "none": 2}
    concat, none = (epochs[-1] for epochs in found.values())
    assert concat.test_accuracy > 0.95
    assert none.test_accuracy < 0.85
    assert concat.test_loss < none.test_loss
    line = r"positions concat, epoch 1: train loss 0\.\d{4}, accuracy \d\d\.\d\d%; test loss 0\.\d{4}, accuracy \d"
    said = capsys.readouterr().out.splitlines()
    assert re.match(line, said[0])
    assert said[3].startswith("positions none, epoch 2: train loss ")
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert script.main(["--epochs", "1", "--attention", "none"])["concat"][-1].test_accuracy < 0.6


@pytest.mark.slow
def test_queries_keys_and_values_of_three_sequences_answer_questions() -> None:
    assert script.main(["--questions", "--epochs", "1"])["concat"][-1].test_accuracy > 0.99
    assert script.main(["--questions", "--epochs", "1", "--attention", "none"])["concat"][-1].test_accuracy < 0.8


@pytest.mark.usefixtures("few")
def test_the_figures_of_training_are_those_before_each_update_and_of_testing_those_after_the_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: None)
    monkeypatch.setattr(script.nn, "Dropout", lambda probability: torch.nn.Identity())
    splits = made_corpora.made_sentences(seed=3)
    monkeypatch.setattr(script, "made_sentences", lambda seed: {"train": splits["train"], "test": splits["train"]})
    (epoch,) = script.main(["--epochs", "1"])["concat"]
    assert epoch[:2] == pytest.approx(epoch[2:], abs=1e-5)


@pytest.mark.usefixtures("few")
def test_heads_are_of_any_number_and_width_without_a_projection_of_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    trained = script.train
    monkeypatch.setattr(script, "train", lambda model, *rest: models.append(model) or trained(model, *rest))
    script.main(["--epochs", "1", "num_heads=5", "head_dim=24", "project_output=false"])
    assert models[0].output.in_features == 120
    assert models[0].attention.attention.project_output is None


@pytest.mark.usefixtures("few")
def test_hard_attention_learns_from_what_it_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = []
    forward = script.Reinforce.forward

    def watched(self: torch.nn.Module, reward: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        rewards.append(reward)
        assert all(x.shape == reward.shape for x in rest)
        return forward(self, reward, *rest)

    monkeypatch.setattr(script.Reinforce, "forward", watched)
    script.main(["--attention", "hard", "--epochs", "1", "normalizer.soft_probability=0.0"])
    assert len(rewards) == 2
    assert (rewards[0] < 0).all()


@pytest.mark.parametrize("positions", script.POSITIONS)
def test_padding_and_neighbours_change_nothing(positions: str) -> None:
    torch.manual_seed(0)
    layer = script.build_attention("sparse", query_dim=script.DIM, key_dim=script.DIM, num_heads=script.HEADS)
    model = script.Classifier(layer, num_words=11, positions=positions).eval()
    alone, together = torch.tensor([[4, 5, 6]]), torch.tensor([[7, 8, 9, 10, 3], [4, 5, 6, 0, 0]])
    torch.testing.assert_close(model(together)[0][1:], model(alone)[0])


def test_it_reads_keras_reviews(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reviews = np.empty(6, dtype=object)
    reviews[:] = [[7, 5], [5, 7, 7], [5, 6, 6, 5], [7, 5, 7], [6, 5], [6]]
    labels = np.array([1, 1, 0, 1, 0, 0])
    np.savez(tmp_path / "imdb.npz", x_train=reviews, y_train=labels, x_test=reviews, y_test=labels)
    given = ["--path", str(tmp_path / "imdb.npz"), "--num-words", "11", "--length", "4"]
    assert script.main([*given, "--epochs", "30"])["concat"][-1].test_accuracy == 1.0
    with pytest.raises(SystemExit, match="2"):
        script.main(["--path", str(tmp_path / "absent.npz")])
    with pytest.raises(SystemExit, match="2"):
        script.main(["--attention", "sparze"])
    assert "There is no attention 'sparze'; choose from: adaptive_entmax, alternating" in capsys.readouterr().err


def test_it_reads_lines_of_text_and_label(tmp_path: Path) -> None:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("Great, great!\t1\nso dull\t0\n" * 4, encoding="utf-8")
    test.write_text("great\t1\ndull\t0\n", encoding="utf-8")
    found = script.main(["--path", str(train), "--test-path", str(test), "--epochs", "30"])
    assert found["concat"][-1].test_accuracy == 1.0


@pytest.mark.parametrize("typed", ["sine", "none,", "concat none"])
def test_other_positions_are_refused(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--positions", typed])
    assert f"{typed!r} is not one or more of concat, add, none, with commas between" in capsys.readouterr().err


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_builds_its_attention(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[Any] = []

    def no_training(model: torch.nn.Module, *rest: Any) -> list[script.Epoch]:
        models.append(model)
        return [script.Epoch(0.5, 0.5, 0.5, 0.5)] * 2

    monkeypatch.setattr(script, "train", no_training)
    monkeypatch.setattr(script, "read_keras_imdb", lambda path, **sizes: {})
    monkeypatch.setattr(script, "read_tsv", lambda path, **options: {})
    monkeypatch.chdir(tmp_path)
    script.main(shlex.split(command))
    assert models
