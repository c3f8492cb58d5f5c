"""The example classifier, on sentences that require attention."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.classify import train_classifier as script


def sentence_of(tokens: list[int]) -> str:
    words = {token: word for word, token in script.vocabulary().items()}
    return " ".join(words[token] for token in tokens)


def mood(sentence: str) -> set[bool]:
    """Return whether each opinion is favourable by the rule that a negation inverts its own adjective."""
    found = re.findall(r"was (not )?(?:very )?(\w+)", sentence)
    assert found, sentence
    return {(word in script.GOOD) != bool(negated) for negated, word in found}


def test_the_labels_follow_from_the_sentences_but_not_from_their_words_alone() -> None:
    sentences, labels = script.generated_corpus(seed=1)["train"]
    texts = [sentence_of(tokens) for tokens in sentences]
    assert [mood(text) for text in texts] == [{bool(label)} for label in labels]
    kind = [label for text, label in zip(texts, labels, strict=True) if set(text.split()) & set(script.GOOD)]
    assert abs(sum(kind) / len(kind) - 0.5) < 0.05
    assert script.generated_corpus(seed=1)["train"] == (sentences, labels)
    assert script.generated_corpus(seed=2)["train"] != (sentences, labels)


def test_attention_finds_the_negation_of_each_adjective_and_the_mean_of_the_words_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.main(["--epochs", "2"]) > 0.9
    assert re.match(r"epoch 1: loss 0\.\d{4}, test accuracy \d\d\.\d\d%\nepoch 2", capsys.readouterr().out)
    assert script.main(["--epochs", "1", "--attention", "none"]) < 0.6


def test_hard_attention_learns_from_what_it_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = script.generated_corpus(seed=1)
    few = {split: (splits[split][0][:64], splits[split][1][:64]) for split in splits}
    monkeypatch.setattr(script, "generated_corpus", lambda seed: few)
    rewards = []
    forward = script.Reinforce.forward

    def watched(self: torch.nn.Module, reward: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        rewards.append(reward)
        assert all(x.shape == reward.shape for x in rest)
        return forward(self, reward, *rest)

    monkeypatch.setattr(script.Reinforce, "forward", watched)
    assert 0 <= script.main(["--attention", "hard", "--epochs", "1", "normalizer.soft_probability=0.0"]) <= 1
    assert len(rewards) == 2
    assert (rewards[0] < 0).all()


def test_padding_and_neighbours_change_nothing() -> None:
    torch.manual_seed(0)
    layer = script.build_attention("sparse", dim=script.DIM, num_heads=script.HEADS)
    model = script.Classifier(layer, num_words=11).eval()
    alone, together = torch.tensor([[4, 5, 6]]), torch.tensor([[7, 8, 9, 10, 3], [4, 5, 6, 0, 0]])
    torch.testing.assert_close(model(together)[0][1:], model(alone)[0])


def test_it_reads_keras_reviews(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reviews = np.empty(6, dtype=object)
    reviews[:] = [[7, 5], [5, 7, 7], [5, 6, 6, 5], [7, 5, 7], [6, 5], [6]]
    labels = np.array([1, 1, 0, 1, 0, 0])
    np.savez(tmp_path / "imdb.npz", x_train=reviews, y_train=labels, x_test=reviews, y_test=labels)
    given = ["--path", str(tmp_path / "imdb.npz"), "--num-words", "11", "--length", "4"]
    assert script.main([*given, "--epochs", "30"]) == 1.0
    with pytest.raises(SystemExit, match="2"):
        script.main(["--path", str(tmp_path / "absent.npz")])
    with pytest.raises(SystemExit, match="2"):
        script.main(["--attention", "sparze"])
    assert "There is no attention 'sparze'; choose from: alternating" in capsys.readouterr().err
