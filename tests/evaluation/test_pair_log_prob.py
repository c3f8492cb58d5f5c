"""Forced scoring by `evaluate.py score=...`: laws, order, memory and refusals."""

from __future__ import annotations

import gzip
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF
from hydra import compose, initialize_config_dir
from tiny import SENTENCES, tokenizer, write_checkpoint

from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation import pair_log_prob as scoring
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.models import Models, load_models
from seq2seq_attn.search.search import TargetVocabulary

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation.evaluate import evaluate

PAIRS = [(SENTENCES[i], SENTENCES[(5 * i + 1) % 60]) for i in range(23)]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    return {
        "rnn": write_checkpoint(folder / "rnn.ckpt"),
        "other": write_checkpoint(folder / "other.ckpt", seed=5),
        "lm": write_checkpoint(folder / "lm.ckpt", "model=lm"),
        "transformer": write_checkpoint(
            folder / "transformer.ckpt", "model=transformer", "position=learned", "position.max_length=29"
        ),
    }


def config(ckpt_path: str, folder: Path, *overrides: str) -> Any:
    fixed = ["device=cpu", "precision=32-true", "batch_tokens=80", f"paths.run_dir={folder}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("evaluate", [f"ckpt_path={ckpt_path}", *fixed, *overrides])


def models(*files: Path) -> Models:
    return load_models([str(file) for file in files], "cpu")


def write(file: Path, lines: list[str]) -> Path:
    content = "".join(f"{line}\n" for line in lines).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def rows(folder: Path) -> list[tuple[float, int, float]]:
    lines = (folder / "scores.tsv").read_text().splitlines()
    return [(float(a), int(b), float(c)) for a, b, c in (line.split("\t") for line in lines)]


def test_a_language_model_reads_no_source_of_a_pair(checkpoints: dict[str, Path]) -> None:
    pairs = [scoring.GivenPair("a, line 1", source, SENTENCES[3]) for source in (SENTENCES[9], "")]
    sources, targets = scoring.encode_pairs(models(checkpoints["lm"]), pairs)
    assert sources == [[], []]
    assert targets[0] == targets[1] == tokenizer().encode_target([SENTENCES[3]])[0]
    cut = scoring.encode_pairs(models(checkpoints["rnn"]), pairs, 2)
    assert [len(ids) for side in cut for ids in side] == [2, 0, 2, 2]


BEAM = {"name": "beam", "beam_size": 3, "num_best": 3}


@pytest.mark.parametrize(
    ("names", "search"),
    [
        (["rnn"], {"name": "greedy"}),
        (["transformer"], BEAM),
        (["rnn", "other"], BEAM),
        (["rnn", "transformer"], {"name": "greedy"}),
    ],
)
def test_what_a_search_found_has_the_log_prob_that_it_reported(
    checkpoints: dict[str, Path], names: list[str], search: dict[str, Any]
) -> None:
    chosen = models(*(checkpoints[name] for name in names))
    sources = tokenizer().encode_source(SENTENCES[:7])
    source, _, mask = collate_sources(sources, pad_id=tokenizer().pad_id, eos_id=tokenizer().eos_id)
    limits = {"limits": {"max_length": 11}}
    found = choose_search({**search, **limits}, {})(chosen.model, source, mask, TargetVocabulary.of(tokenizer()))
    flat = [(ids, one) for ids, of_one in zip(sources, found, strict=True) for one in of_one]
    assert len(flat) == 7 * search.get("num_best", 1)
    with torch.inference_mode():
        scored = scoring.tokens_log_prob(chosen, [ids for ids, _ in flat], [one.token_ids for _, one in flat])
    assert scored.tolist() == pytest.approx([one.log_prob for _, one in flat], abs=1e-4)


def test_scores_stand_line_for_line_and_depend_on_no_other_line(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in PAIRS])
    sums = evaluate(config(str(checkpoints["rnn"]), tmp_path, f"score={file}"))
    alone = models(checkpoints["rnn"])
    found = rows(tmp_path)
    assert len(found) == len(PAIRS)
    assert len({tokens for _, tokens, _ in found}) > 3
    for (source, target), (log_prob, tokens, of_token) in zip(PAIRS, found, strict=True):
        ids = tokenizer().encode_source([source]), tokenizer().encode_target([target])
        with torch.inference_mode():
            assert log_prob == pytest.approx(scoring.tokens_log_prob(alone, *ids).item(), abs=1e-4)
        assert tokens == len(ids[1][0]) + 1
        assert of_token == pytest.approx(log_prob / tokens, abs=1e-6)
    assert sums["tokens"] == sum(tokens for _, tokens, _ in found)
    assert sums["log_prob"] == pytest.approx(sum(log_prob for log_prob, _, _ in found), abs=1e-3)


def test_one_file_packed_or_not_and_two_files_give_the_same_scores(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    columns = [[pair[side] for pair in PAIRS] for side in (0, 1)]
    joined = ["\t".join(pair) for pair in PAIRS]
    inputs = {
        "plain": write(tmp_path / "pairs.tsv", joined),
        "packed": write(tmp_path / "pairs.tsv.gz", joined),
        "more": write(tmp_path / "more.tsv", [f"{line}\tanything" for line in joined]),
        "two": f"[{write(tmp_path / 'a.en', columns[0])},{write(tmp_path / 'b.fr.gz', columns[1])}]",
    }
    for name, score in inputs.items():
        evaluate(config(str(checkpoints["rnn"]), tmp_path / name, f"score={score}"))
    assert rows(tmp_path / "plain") == rows(tmp_path / "packed") == rows(tmp_path / "two")
    assert rows(tmp_path / "plain") == rows(tmp_path / "more")


def test_text_is_normalised_as_for_translation(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    odd = ["\u00a0the  cat\u2009sees \ta red\x07house ", "the cat sees\ta red house"]
    evaluate(config(str(checkpoints["rnn"]), tmp_path, f"score={write(tmp_path / 'odd.tsv', odd)}"))
    assert rows(tmp_path)[0] == rows(tmp_path)[1]


def test_an_ensemble_of_twice_the_same_model_scores_as_the_model(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in PAIRS])
    for name, path in {"one": checkpoints["rnn"], "two": f"[{checkpoints['rnn']},{checkpoints['rnn']}]"}.items():
        evaluate(config(str(path), tmp_path / name, f"score={file}"))
    flat = [list(itertools.chain(*rows(tmp_path / name))) for name in ("one", "two")]
    assert flat[0] == pytest.approx(flat[1], abs=1e-4)


def test_no_more_than_a_window_is_read_ahead(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, ahead = 0, []
    given, pairs = scoring.read_given, scoring.score_pairs

    def counted(*files: list[str], one_sided: bool) -> Iterator[scoring.GivenPair]:
        nonlocal read
        for pair in given(*files, one_sided=one_sided):
            read += 1
            yield pair

    def watched(chosen: Models, window: list[scoring.GivenPair], batch_tokens: int) -> list[scoring.PairScore]:
        ahead.append((read, len(window)))
        return pairs(chosen, window, batch_tokens)

    monkeypatch.setattr(scoring, "WINDOW", 7)
    monkeypatch.setattr(scoring, "read_given", counted)
    monkeypatch.setattr(scoring, "score_pairs", watched)
    file = write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in PAIRS])
    evaluate(config(str(checkpoints["rnn"]), tmp_path, f"score={file}"))
    assert ahead == [(7, 7), (14, 7), (21, 7), (23, 2)]
    assert len(rows(tmp_path)) == 23


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a\tb\nc\n", "line 2: 1 tab-separated column instead of 2 or 3 (source, target, anything); mend or remove"),
        (b"a\tb\tc\td\n", "line 1: 4 tab-separated columns instead of 2 or 3"),
        (b"a\tb\na\tb\na\t\xff\n", "line 3: not UTF-8; mend or remove the line"),
        ("\ufeffa\tb\n".encode("utf-16-le"), "line 1: UTF-16, not UTF-8; convert the text"),
        (b"", "is empty; give a file with a source and a target on each line"),
    ],
)
def test_a_line_that_is_no_pair_is_named(
    checkpoints: dict[str, Path], tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "bad.tsv").write_bytes(content)
    with pytest.raises(UserError) as caught:
        evaluate(config(str(checkpoints["rnn"]), tmp_path / "run", f"score={tmp_path / 'bad.tsv'}"))
    assert str(tmp_path / "bad.tsv") in str(caught.value)
    assert sentence in str(caught.value)
    assert not (tmp_path / "run" / "scores.tsv").exists()


def test_a_pair_too_long_for_the_model_is_named_and_not_cut(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "long.tsv", ["the cat\ta house", "the cat\t" + "house " * 40])
    with pytest.raises(
        UserError,
        match=r"long.tsv, line 2: \d+ tokens, and the model has positions for 29; shorten or remove the line$",
    ):
        evaluate(config(str(checkpoints["transformer"]), tmp_path, f"score={file}"))


def test_a_file_of_pairs_is_not_replaced_by_their_scores(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    pairs = write(tmp_path / "scores.tsv", ["a cat\tun chat"])
    with pytest.raises(UserError, match=r"^score and paths\.run_dir are one file, .*scores\.tsv; give each its own"):
        evaluate(config(str(checkpoints["rnn"]), tmp_path, f"score={pairs}"))
    assert pairs.read_text() == "a cat\tun chat\n"


def test_scores_replace_those_of_the_same_model_alone_and_no_file_of_the_users_own(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    pairs, folder = write(tmp_path / "pairs.tsv", ["a cat\tun chat"]), tmp_path / "scored"
    scores, record = folder / "scores.tsv", folder / "scores.json"

    def scored(names: str) -> None:
        path = f"[{','.join(str(checkpoints[name]) for name in names.split())}]"
        evaluate(config(path, folder, f"score={pairs}"))

    def refused(names: str, sentence: str) -> None:
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        with pytest.raises(UserError, match=sentence):
            scored(names)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before | {"run.lock": b""}

    folder.mkdir()
    scores.write_text("mine")
    refused(
        "rnn",
        rf"^{scores} was not written by an evaluation, since no scores.json beside it names it, and this one would "
        r"replace it; give another hydra.run.dir, or rename the file$",
    )
    scores.unlink()
    record.write_text('{"mine": 1}')
    refused("rnn", rf"^{record} is damaged; delete it, or give another hydra.run.dir$")
    record.unlink()
    for _ in range(2):
        scored("rnn")
    assert len(rows(folder)) == 1
    for another in ("other", "rnn other"):
        refused(another, rf"^{folder} holds the scores of {checkpoints['rnn']}; give another hydra.run.dir$")
    scores.unlink()
    record.unlink()
    for names in ("rnn other", "other rnn"):
        scored(names)


def test_files_that_are_not_in_step_or_not_two_or_not_there_are_refused(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    one, two = write(tmp_path / "one", ["a", "b", "c"]), write(tmp_path / "two", ["a", "b"])
    for score, sentence in (
        (
            f"[{one},{two}]",
            f"{two} ends before line 3, which {one} has; line-aligned files need the same number of lines$",
        ),
        (f"[{two},{one}]", f"{two} ends before line 3, which {one} has"),
        (f"[{one},{one},{one}]", r"^score names 3 files; give score=FILE, or score=\[SOURCE,TARGET\]$"),
        (str(tmp_path / "none.tsv"), r"^score=.*none.tsv cannot be read \(No such file or directory\)$"),
    ):
        with pytest.raises(UserError, match=sentence):
            evaluate(config(str(checkpoints["rnn"]), tmp_path, f"score={score}"))


@pytest.mark.parametrize("unread", ["data=demo", "search=greedy", "splits=[val]"])
def test_options_that_scoring_does_not_read_are_refused(
    checkpoints: dict[str, Path], tmp_path: Path, unread: str
) -> None:
    pairs = write(tmp_path / "pairs.tsv", ["a cat\tun chat"])
    with pytest.raises(UserError, match=rf"does not read {unread.partition('=')[0]}=; leave one of them out$"):
        evaluate(config(str(checkpoints["rnn"]), tmp_path / "run", f"score={pairs}", unread))
    assert not (tmp_path / "run").exists()


def test_metrics_are_refused_where_nothing_is_translated(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq_attn.evaluation.evaluate.metric_is_chosen", lambda: True)
    with pytest.raises(UserError, match=r"does not read metric=; leave one of them out$"):
        evaluate(config(str(checkpoints["rnn"]), tmp_path, "score=pairs.tsv"))


def test_a_language_model_scores_a_text_a_column_and_one_of_two_files_alike(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    texts = SENTENCES[:9]
    one, other = write(tmp_path / "texts", texts), write(tmp_path / "others", [f"other {text}" for text in texts])
    pairs = write(tmp_path / "pairs.tsv", [f"a source\t{text}" for text in texts])
    found = []
    for name, given in (("text", str(one)), ("pairs", str(pairs)), ("files", f"[{other},{one}]")):
        sums = evaluate(config(str(checkpoints["lm"]), tmp_path / name, f"score={given}"))
        assert sums["pairs"] == len(texts)
        found.append([row[0] for row in rows(tmp_path / name)])
    assert found[1] == pytest.approx(found[0], rel=1e-6)  # batches are cut by the lengths of both sides
    assert found[2] == pytest.approx(found[0], rel=1e-6)
    with pytest.raises(UserError, match=r"texts, line 1: 1 tab-separated column instead of 2 or 3"):
        evaluate(config(str(checkpoints["rnn"]), tmp_path / "rnn", f"score={one}"))


def test_a_run_in_float16_is_not_scored_in_another_precision_on_a_cpu(tmp_path: Path) -> None:
    file, ckpt_path = write(tmp_path / "pairs.tsv", ["a\tb"]), str(write_checkpoint(tmp_path / "half.ckpt"))
    checkpoint = torch.load(ckpt_path, weights_only=True)
    checkpoint["config"]["trainer"] = {"precision": "16-mixed"}
    torch.save(checkpoint, ckpt_path)
    with pytest.raises(UserError, match=r"^precision=16-mixed needs a GPU; on a CPU use precision=bf16-mixed"):
        evaluate(config(ckpt_path, tmp_path / "scores", f"score={file}", "precision=null"))
    evaluate(config(ckpt_path, tmp_path / "scores", f"score={file}"))


@pytest.mark.slow
def test_pairs_are_scored_in_the_precision_that_is_given(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in PAIRS[:5]])
    found = {}
    for precision in ("32-true", "64-true", "bf16-true", "bf16-mixed"):
        evaluate(config(str(checkpoints["transformer"]), tmp_path, f"score={file}", f"precision={precision}"))
        found[precision] = [row[0] for row in rows(tmp_path)]
    assert found["64-true"] == pytest.approx(found["32-true"], rel=1e-4)
    for precision in ("bf16-true", "bf16-mixed"):
        assert found[precision] == pytest.approx(found["32-true"], rel=0.1)
        assert found[precision] != pytest.approx(found["32-true"], rel=1e-4)


def test_a_precision_that_does_not_exist_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^precision=bf17 does not exist; choose from: 32-true, bf16-mixed, "):
        evaluate(config(str(checkpoints["rnn"]), tmp_path, "score=pairs.tsv", "precision=bf17"))


def test_a_log_probability_that_is_no_number_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overflown = torch.tensor([[-1.0, torch.nan]], dtype=torch.float64)
    monkeypatch.setattr(scoring, "token_log_probs", lambda members, batch: overflown)
    pair = write(tmp_path / "pair.tsv", [f"{SENTENCES[0]}\t{SENTENCES[1]}"])
    with pytest.raises(UserError, match=r"^the model's numbers overflow; use precision=bf16-mixed or 32-true, or an"):
        evaluate(config(str(checkpoints["rnn"]), tmp_path / "run", f"score={pair}"))
