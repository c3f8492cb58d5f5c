"""The alignment error rate on worked numbers, its baselines, and a run measured from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import built, composed
from omegaconf import OmegaConf

from seq2seq_attn.checkpoint.load import FORMAT
from seq2seq_attn.evaluation import alignments as script
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

SOURCE, TARGET = "a black dog sleeps", "un chien noir dort !"
NUMBERS = ["two", "three", "four", "five", "six"]
OTHERS = [(f"{word} dogs sleep", f"{word} chiens dorment") for word in NUMBERS]
SURE, POSSIBLE = {(0, 0), (2, 1), (1, 2), (3, 3)}, {(3, 4)}


def aligned(source: str, target: str, sure: set[Any], possible: set[Any]) -> Any:
    return script.Aligned(source, target, frozenset(sure), frozenset(sure | possible))


PAIR = aligned(SOURCE, TARGET, SURE, POSSIBLE)


def test_the_error_rate_is_that_of_och_and_ney() -> None:
    """Of five links two are sure and three possible; of four sure ones two are found: 1 - (2 + 3) / (5 + 4)."""
    found = [(0, 0), (1, 1), (1, 2), (2, 3), (3, 4)]
    assert script.agreement([found], [PAIR]) == (5, 60.0, 50.0, pytest.approx(100 * 4 / 9))


def test_all_sure_links_and_any_possible_ones_are_without_error() -> None:
    assert script.agreement([list(SURE)], [PAIR]) == (4, 100.0, 100.0, 0.0)
    assert script.agreement([list(SURE | POSSIBLE)], [PAIR]) == (5, 100.0, 100.0, 0.0)


def test_links_of_all_sentences_are_counted_together() -> None:
    """A pair of one link, right, beside one of four of which none is found: 1 - (1 + 1) / (1 + 5)."""
    short = aligned("go", "va", {(0, 0)}, set())
    assert script.agreement([[], [(0, 0)]], [PAIR, short]) == (1, 100.0, 20.0, pytest.approx(100 * 2 / 3))


def test_the_diagonal_goes_from_first_to_last_word() -> None:
    assert script.diagonal(["w"] * 3, ["w"] * 7) == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    assert script.diagonal(["w"] * 7, ["w"] * 3) == [(0, 0), (3, 1), (6, 2)]
    assert script.diagonal(["w"] * 3, ["w"]) == [(0, 0)]


def test_equal_words_leave_the_diagonal_for_the_nearest_of_them() -> None:
    source, target = ["Tom", "saw", "Tom", "in", "1990"], ["En", "1990", "Tom", "vit", "Tom"]
    assert script.equal_or_diagonal(source, target) == [(0, 0), (4, 1), (2, 2), (3, 3), (2, 4)]


def save_run(folder: Path, corpus: Path, **languages: str) -> str:
    """A recurrent model that has learned nothing, as a run on these sentences leaves it."""
    tokenizer = SentencePieceTokenizer("char", 100, joint=False, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train([SOURCE, *(s for s, _ in OTHERS)], [TARGET, *(t for _, t in OTHERS)])
    config = composed(
        "model=rnn",
        "model.embedding_dim=11",
        "model.encoder.dim=14",
        "model.decoder.dim=14",
        "data=tatoeba",
        f"model.source_vocab_size={tokenizer.source_vocab_size}",
        f"data.path={corpus}",
        "data.val_sentences=1",
        f"model.target_vocab_size={tokenizer.target_vocab_size}",
        "data.test_sentences=1",
        "data.cache_dir=unused",
    )
    plain = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "search", "data")}
    plain["data"] |= languages
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint = {
        "format": FORMAT,
        "config": plain,
        "tokenizer": tokenizer.get_state(),
        "state_dict": {f"model.{name}": x for name, x in built(config.model).state_dict().items()},
    }
    torch.save(checkpoint, folder / "checkpoints" / "best.ckpt")
    return str(folder)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A corpus whose first pair is aligned, with a blank that cleaning mends; a second one is nowhere."""
    corpus, alignments = tmp_path / "fra.txt", tmp_path / "gold.tsv"
    lines = [(SOURCE, TARGET.replace(" !", "\u202f!")), *OTHERS]
    corpus.write_text("".join(f"{source}\t{target}\tby us\n" for source, target in lines), encoding="utf-8")
    digest = script.fingerprint(SOURCE, TARGET)
    alignments.write_text(f"# a comment\n{digest}\t0-0 2-1 1-2 3-3\t3-4\n0123456789abcdef\t0-0\n", encoding="utf-8")
    return {"corpus": corpus, "alignments": alignments}


def typed(run: str, files: dict[str, Path]) -> list[str]:
    return [run, "--corpus", str(files["corpus"]), "--alignments", str(files["alignments"])]


def test_pairs_are_found_by_the_hash_of_their_cleaned_text(files: dict[str, Path]) -> None:
    assert script.find(files["alignments"], files["corpus"]) == (2, [PAIR])


def test_a_run_is_measured_beside_both_baselines(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = script.main(typed(save_run(tmp_path / "run", files["corpus"]), files))
    assert list(judged) == ["attention", "diagonal", "diagonal, equal words first"]
    # Diagonal: 0-0 1-1 2-2 2-3 3-4
    assert judged["diagonal"] == (5, 40.0, 25.0, pytest.approx(100 * (1 - 3 / 9)))
    assert 0 <= judged["attention"].links <= 5
    out = capsys.readouterr().out
    sources = script.trained_on(script.load(str(tmp_path / "run")).config["data"], files["corpus"])
    trained = SOURCE in sources
    assert len(sources) == len(OTHERS) + 1 - 2  # one of val, one of test
    assert f"1 of 2 pairs are in {files['corpus']}; {int(trained)} of them were trained on" in out


def test_attention_on_the_right_words_is_without_error(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights put by hand on the tokens of the right words, instead of the model's."""

    def along(model: Any, tokenizer: Any, source: list[int], target: list[int]) -> list[Any]:
        columns, rows = (
            [*tokens, "</s>"] for tokens in (tokenizer.source_tokens(source), tokenizer.target_tokens(target))
        )
        right = torch.tensor([0, 2, 1, 3, 3])[script.word_of_each(rows[:-1])]
        weights = torch.zeros(1, len(rows), len(columns))
        weights[0, :-1, :-1] = (right[:, None] == torch.from_numpy(script.word_of_each(columns[:-1]))).float()
        slot = original(model, tokenizer, source, target)[-1]
        assert slot.slot == "cross/0"
        assert slot.columns == columns
        assert slot.rows == rows
        return [slot._replace(weights=weights.numpy())]

    original = script.attention_along
    monkeypatch.setattr(script, "attention_along", along)
    judged = script.main(typed(save_run(tmp_path / "run", files["corpus"]), files))
    assert judged["attention"] == (5, 100.0, 100.0, 0.0)


def test_a_mistake_is_answered_in_one_sentence(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turned = save_run(tmp_path / "run", files["corpus"], source_language="fr", target_language="en")
    with pytest.raises(SystemExit, match="2"):
        script.main(typed(turned, files))
    assert "are from en to fr, this run translates from fr to en" in capsys.readouterr().err
    files["corpus"].write_text("Go.\tVa !\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        script.main(typed(turned, files))
    assert "has none of the 2 pairs" in capsys.readouterr().err


def test_the_committed_links_are_well_formed_and_a_sure_one_is_not_listed_again() -> None:
    gold = script.read_alignments(script.GOLD)
    assert len(gold) == 40
    for line in script.read_lines(script.GOLD):
        if not line.startswith("#"):
            digest, *columns = line.split("\t")
            links = " ".join(columns).split()
            assert len(digest) == script.DIGITS
            assert len(links) == len(set(links)) == len(gold[digest][1])
            assert gold[digest][0]
