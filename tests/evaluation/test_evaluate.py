"""evaluate.py gives the figures that training logged, and that the sacrebleu command gives for its files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF
from evaluation.learned import best_validation, clauses, columns, evaluated, report, sacrebleu_command, write
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from training.test_run import command

from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.distributed.run_lock import lock
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.translator import Translator

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation import evaluate as evaluation_module
    from seq2seq_attn.evaluation.evaluate import evaluate


@pytest.fixture(scope="module")
def run(learned_run: Path) -> Path:
    return learned_run


@pytest.fixture(scope="module")
def evaluation(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that evaluate.py writes for the run's validation and test sets, and what it printed."""
    folder = tmp_path_factory.mktemp("evaluation")
    done = command("evaluate.py", f"ckpt_path={run}", "splits=[val,test]", "num_threads=1", f"hydra.run.dir={folder}")
    assert (done.returncode, done.stderr) == (0, b"")
    (folder / "printed").write_bytes(done.stdout)
    return folder


def test_figures_of_the_test_set_are_those_of_the_training_run_to_the_last_digit(run: Path, evaluation: Path) -> None:
    logged, found = json.loads((run / "results.json").read_text()), report(evaluation)["splits"]["test"]
    assert 5 < found["bleu"] < 95
    for name in ("loss", "ppl", "accuracy", "bleu", "chrf", "tokenized_bleu"):
        assert found[name] == logged[f"test/{name}"], name
    for name in ("bleu", "chrf", "tokenized_bleu"):
        assert found["signatures"][name] == logged[f"test/{name}_signature"]
    assert found["signatures"]["tokenized_bleu"].startswith("nrefs:2|case:lc|eff:no|tok:moses-fr|")


def test_bleu_of_the_validation_set_is_that_of_the_best_validation(run: Path, evaluation: Path) -> None:
    best, found = best_validation(run), report(evaluation)["splits"]["val"]
    assert found["bleu"] > 5
    for name in ("bleu", "chrf", "tokenized_bleu", "loss", "ppl", "accuracy"):
        assert found[name] == pytest.approx(float(best[f"val/{name}"]), rel=1e-6), name


@pytest.mark.parametrize(("split", "suffix", "versions"), [("val", "_val", 1), ("test", "", 2)])
def test_bleu_chrf_and_ter_equal_the_sacrebleu_command_on_the_written_files(
    evaluation: Path, split: str, suffix: str, versions: int
) -> None:
    found = report(evaluation)["splits"][split]
    assert found["references"] == {"min": versions, "max": versions}
    for name, theirs in sacrebleu_command(evaluation, suffix, versions).items():
        assert theirs["score"] == round(found[name], 14)
        assert theirs["signature"] == found["signatures"][name]


@pytest.mark.parametrize(("split", "suffix", "versions"), [("val", "_val", 1), ("test", "", 2)])
def test_intervals_equal_the_sacrebleu_commands_bootstrap_on_the_written_files(
    evaluation: Path, split: str, suffix: str, versions: int
) -> None:
    found = report(evaluation)["splits"][split]["confidence"]
    assert set(found) == {"bleu", "chrf", "ter", "tokenized_bleu"}
    for name, theirs in sacrebleu_command(evaluation, suffix, versions, "--confidence").items():
        assert found[name]["margin"] > 0
        assert found[name]["mean"] == pytest.approx(theirs["confidence_mean"], rel=1e-12)
        assert found[name]["margin"] == pytest.approx(theirs["confidence_var"], rel=1e-12)
        assert found[name]["signature"] == theirs["signature"]
    assert "|bs:1000|seed:12345|" in found["tokenized_bleu"]["signature"]
    assert "|norm:moses-fr|" in found["tokenized_bleu"]["signature"]


def test_length_ratio_and_repetition_are_those_of_the_written_files(evaluation: Path) -> None:
    hypotheses = (evaluation / "translations.hypotheses").read_text(encoding="utf-8").splitlines()
    references = columns(evaluation / "translations.references")
    found = report(evaluation)["splits"]["test"]
    theirs = sacrebleu.BLEU().corpus_score(hypotheses, references)
    assert found["length_ratio"] == pytest.approx(theirs.sys_len / theirs.ref_len, rel=1e-12)
    words = [line.split() for line in hypotheses]
    runs = [[tuple(line[i : i + 4]) for i in range(len(line) - 3)] for line in words]
    again = sum(run[:position].count(ngram) > 0 for run in runs for position, ngram in enumerate(run))
    assert found["repetition"] == again / sum(map(len, runs))


def test_attention_of_the_test_set_is_as_sharp_as_training_said_and_covers_a_share_of_the_source(
    run: Path, evaluation: Path
) -> None:
    logged, found = json.loads((run / "results.json").read_text()), report(evaluation)["splits"]
    assert found["test"]["attention_entropy"] == pytest.approx(logged["attention_entropy"], rel=1e-5)
    assert found["val"]["attention_entropy"] != found["test"]["attention_entropy"]
    assert 0 < found["test"]["attention_coverage"] <= 1


def test_the_same_search_named_on_the_command_line_changes_nothing(run: Path, evaluation: Path, tmp_path: Path) -> None:
    alone = report(evaluation)
    assert alone["search"]["beam_size"] == 2
    named = ["search=beam", "search.beam_size=2"]
    found = evaluated(tmp_path, f"ckpt_path={run}", "splits=[val,test]", "bootstrap=0", *named)
    for split in ("val", "test"):
        assert found["splits"][split]["confidence"] == {}
        assert found["splits"][split] == alone["splits"][split] | {"confidence": {}}
    written = [(folder / "translations_val.tsv").read_bytes() for folder in (tmp_path, evaluation)]
    assert written[0] == written[1]


@pytest.mark.slow  # search/test_beam.py says it of any model
def test_a_beam_of_one_is_greedy_search(run: Path, tmp_path: Path) -> None:
    searches = {"greedy": ["search=greedy"], "beam": ["search=beam", "search.beam_size=1"]}
    for name, search in searches.items():
        evaluated(tmp_path / name, f"ckpt_path={run}", "splits=val", "bootstrap=0", *search)
    greedy, beam = ((tmp_path / name / "translations_val.tsv").read_bytes() for name in searches)
    assert greedy == beam


@pytest.mark.slow  # model/test_ensemble.py says it of the model
def test_an_ensemble_of_twice_the_run_is_the_run(run: Path, evaluation: Path, tmp_path: Path) -> None:
    found = evaluated(tmp_path, f"ckpt_path=[{run},{run}]", "splits=[val,test]")
    alone = report(evaluation)
    assert found["checkpoint"] == [alone["checkpoint"]] * 2
    assert found["sha256"] == [alone["sha256"]] * 2
    assert found["num_parameters"] == 2 * alone["num_parameters"]
    for split in ("val", "test"):
        ours, theirs = found["splits"][split], alone["splits"][split]
        assert list(ours) == list(theirs)
        for name in ("sentences", "references", "signatures", "confidence", "bleu_by_length", "length_ratio"):
            assert ours[name] == theirs[name], name
        for name in ("loss", "ppl", "accuracy", "bleu", "ter", "attention_entropy", "attention_coverage"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5), name
    for name in ("translations.tsv", "translations_val.hypotheses", "translations.references"):
        assert (tmp_path / name).read_bytes() == (evaluation / name).read_bytes()


def test_a_translation_is_scored_as_its_search_reported(run: Path, evaluation: Path, tmp_path: Path) -> None:
    sources = columns(evaluation / "translations_val.tsv")[0]
    found = Translator.load(run, device="cpu").translate(sources)
    pairs = [(source, one.text) for source, one in zip(sources, found, strict=True)]
    options = [f"ckpt_path={run}", f"score={write(tmp_path / 'pairs.tsv', pairs)}", f"paths.run_dir={tmp_path}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        sums = evaluate(compose("evaluate", [*options, "device=cpu"]))
    log_probs = [float(log_prob) for log_prob in columns(tmp_path / "scores.tsv")[0]]
    assert log_probs == pytest.approx([one.log_prob for one in found], abs=1e-4)
    assert sums["pairs"] == len(sources)


def test_bleu_by_length_is_bleu_of_the_sentences_of_that_length(evaluation: Path) -> None:
    sources, references, hypotheses = columns(evaluation / "translations_val.tsv")
    buckets = {bucket["words"]: bucket for bucket in report(evaluation)["splits"]["val"]["bleu_by_length"]}
    assert set(buckets) == {"1-5", "6-10", "11-20"}
    for words, bucket in buckets.items():
        first, last = map(int, words.split("-"))
        rows = [row for row, source in enumerate(sources) if first <= len(source.split()) <= last]
        assert len(rows) == bucket["sentences"]
        theirs = sacrebleu.corpus_bleu([hypotheses[row] for row in rows], [[references[row] for row in rows]])
        assert bucket["score"] == theirs.score


def test_accuracy_is_the_share_of_tokens_that_a_teacher_forced_pass_ranks_first(run: Path, evaluation: Path) -> None:
    sources, references, _ = columns(evaluation / "translations_val.tsv")
    model, tokenizer, _ = load(str(run))
    batch = collate_pairs(
        tokenizer.encode_source(sources),
        tokenizer.encode_target(references),
        list(range(len(sources))),
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    with torch.inference_mode():
        best = model.logits(model(batch.source, batch.source_mask, batch.target_input).hidden).argmax(-1)
    right = (best == batch.target_output)[batch.target_mask].double().mean().item()
    assert report(evaluation)["splits"]["val"]["accuracy"] == pytest.approx(right, abs=1e-6)


def test_the_report_says_what_was_evaluated_and_how(run: Path, evaluation: Path) -> None:
    found = report(evaluation)
    file = run / "checkpoints" / "best.ckpt"
    assert (found["checkpoint"], found["sha256"]) == (str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    assert (found["seed"], found["languages"]) == (1, ["en", "fr"])
    assert found["choices"] == {"attention": "bahdanau", "model": "rnn", "data": "parallel"}
    assert found["search"]["_target_"] == "seq2seq_attn.search.beam.BeamSearch"
    ours, theirs = found["provenance"], json.loads((run / "provenance.json").read_text())
    assert ours["data_fingerprint"] == theirs["data_fingerprint"]
    assert ours["versions"]["sacrebleu"] == sacrebleu.__version__
    assert [split["sentences"] for split in found["splits"].values()] == [20, 40]


def test_the_screen_shows_a_column_for_each_split_and_each_signature_once(evaluation: Path) -> None:
    printed = (evaluation / "printed").read_text(encoding="utf-8")
    found = report(evaluation)["splits"]
    for name in ("bleu", "chrf", "ter", "ppl", "tokenized_bleu"):
        (row,) = [line for line in printed.splitlines() if line.startswith(f"│ {name} ")]
        assert [cell.strip() for cell in row.split("│")[2:4]] == [f"{found[s][name]:.2f}" for s in ("val", "test")]
    for name in ("bleu", "ter"):
        (row,) = [line for line in printed.splitlines() if line.startswith(f"│ ± {name} ")]
        intervals = [found[s]["confidence"][name] for s in ("val", "test")]
        assert [cell.strip() for cell in row.split("│")[2:4]] == [
            f"{interval['mean']:.2f} ± {interval['margin']:.2f}" for interval in intervals
        ]
    assert f"│ {found['val']['length_ratio']:.3f} │" in printed
    assert f"│ {found['val']['attention_coverage']:.1%} │" in printed
    assert printed.count("ter: nrefs:1|case:lc|") == printed.count("ter: nrefs:2|case:lc|") == 1


def test_other_data_and_other_metrics_are_scored_and_the_runs_metrics_stay(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decomposed = [(source, f"{target} e\u0301") for source, target in clauses()[:30]]
    pairs = write(tmp_path / "other.tsv", decomposed)
    options = ["data=parallel", f"data.train={pairs}", "data.val_sentences=3", "data.test_sentences=5"]
    options += ["metric=[chrf]", "metric.chrf.word_order=2", "splits=test", "choices.data=parallel"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", [f"ckpt_path={run}", *options, "device=cpu", f"paths.run_dir={tmp_path}"])
    evaluate(config)
    found = report(tmp_path)["splits"]
    assert (list(found), found["test"]["sentences"]) == (["test"], 5)
    assert set(found["test"]["signatures"]) == {"chrf", "bleu", "tokenized_bleu"}
    assert "|nw:2|" in found["test"]["signatures"]["chrf"]
    assert "5 of 5 references of test are not in Unicode's NFC" in caplog.text


def test_a_metric_checks_its_own_texts_before_anything_is_translated(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(metric: Any, *given: Any) -> None:
        raise UserError("too long")

    monkeypatch.setattr("seq2seq_attn.metric.bleu.BLEU.check_lengths", refused, raising=False)
    with pytest.raises(UserError, match="too long"):
        evaluated(tmp_path, f"ckpt_path={run}")


def test_an_alignment_error_rate_of_an_ensemble_is_refused_before_anything_is_translated(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_module, "build_trainer", reach)
    (tmp_path / "gold").write_text("a cat ||| un chat  0-0 1-1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^metric=\[aer\] is of one model's attention, not of an ensemble's"):
        evaluated(tmp_path / "a", f"ckpt_path=[{run},{run}]", "metric=[aer]", f"metric.aer.gold={tmp_path / 'gold'}")


def test_references_longer_than_the_search_may_translate_are_warned_of(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluation_module, "build_trainer", reach)
    options = ["search=beam", "search.limits.max_length=6", "splits=test"]
    with pytest.raises(ReachedError):
        evaluated(tmp_path, f"ckpt_path={run}", *options)
    assert re.search(r"\d+ of 40 references of test are longer than .*; set search.limits.max_length=1\d", caplog.text)


def test_a_sentence_of_more_tokens_than_positions_is_refused_before_anything_is_translated(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq_attn.model.encoder_decoder.EncoderDecoder.max_length", 5)
    sentence = (
        r"^the model has positions for 5 tokens, and a sentence of test has 1\d; shorten or remove such sentences$"
    )
    with pytest.raises(UserError, match=sentence):
        evaluated(tmp_path, f"ckpt_path={run}")


def test_a_metric_of_the_checkpoint_that_is_foreign_code_is_refused(run: Path, tmp_path: Path) -> None:
    checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    checkpoint["config"]["metric"]["bleu"] = {"_target_": "os.mkdir", "path": str(tmp_path / "ran")}
    torch.save(checkpoint, tmp_path / "hostile.ckpt")
    config = {"ckpt_path": str(tmp_path / "hostile.ckpt"), "num_threads": None, "device": "cpu"}
    with pytest.raises(
        UserError,
        match=r"hostile.ckpt asks for os.mkdir, which is not a class of seq2seq_attn for metric; it was not run$",
    ):
        evaluate(OmegaConf.create(config))
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_an_evaluation_replaces_that_of_its_model_and_is_refused_where_another_is(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    evaluated(folder, f"ckpt_path={run}", "splits=[val,test]")
    evaluated(folder, f"ckpt_path={run}", "splits=[test]")
    assert not list(folder.glob("translations_val.*"))  # which no report describes
    assert (folder / "translations.tsv").exists()
    other = shutil.copytree(run, tmp_path / "other")
    evaluated(folder, f"ckpt_path={other}", "splits=[test]")  # the same model by another path
    last = other / "checkpoints" / "last.ckpt"
    torch.save(torch.load(last, weights_only=True) | {"global_step": 1}, last)
    before = (folder / "evaluation.json").read_bytes()
    for another in (f"ckpt_path={last}", f"ckpt_path=[{other},{last}]"):
        with pytest.raises(
            UserError, match=rf"^{folder} holds the evaluation of {other}/.*; give another hydra.run.di"
        ):
            evaluated(folder, another)
    assert (folder / "evaluation.json").read_bytes() == before
    (folder / "translations_..").mkdir()
    (tmp_path / "precious.tsv").write_text("mine")
    report = json.loads(before)
    (folder / "evaluation.json").write_text(json.dumps(report | {"splits": {"../../../precious": {}}}))
    with pytest.raises(UserError, match=r"/evaluation.json is damaged; delete it, or give another hydra.run.dir$"):
        evaluated(folder, f"ckpt_path={other}")
    assert (tmp_path / "precious.tsv").read_text() == "mine"
    (folder / "evaluation.json").write_bytes(before[:100])
    with pytest.raises(UserError, match=r"/evaluation.json is damaged; delete it, or give another hydra.run.dir$"):
        evaluated(folder, f"ckpt_path={run}")


class ReachedError(Exception):
    """The test would have begun."""


def reach(*_: Any) -> None:
    raise ReachedError


@pytest.mark.parametrize(
    "kind", ["tsv", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hypotheses", "references"))]
)
def test_a_file_of_the_users_own_is_not_replaced_by_an_evaluation(
    kind: str, run: Path, evaluation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_module, "run_tests", reach)
    own = tmp_path / f"translations_val.{kind}"
    own.write_text("mine")
    of_test = report(evaluation)
    del of_test["splits"]["val"]
    for record in (None, of_test):
        if record is not None:
            (tmp_path / "evaluation.json").write_text(json.dumps(record), "utf-8")
        with pytest.raises(
            UserError,
            match=rf"^{own} was not written by an evaluation, since no evaluation.json beside it names it, and this "
            r"one would replace it; give another hydra.run.dir, or rename the file$",
        ):
            evaluated(tmp_path, f"ckpt_path={run}", "splits=[test,val]")
        with pytest.raises(ReachedError):
            evaluated(tmp_path, f"ckpt_path={run}", "splits=[test]")
    assert own.read_text() == "mine"


@pytest.mark.slow
def test_an_evaluation_that_ends_before_its_translations_are_written_can_be_repeated(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(run_dir: Path, *_: Any) -> None:
        (run_dir / "translations_val.tsv").write_text("the first of three")
        raise KeyboardInterrupt

    given = (f"ckpt_path={run}", "splits=val", "bootstrap=0", "search=greedy")
    with monkeypatch.context() as patched:
        patched.setattr(evaluation_module, "write_translations", killed)
        with pytest.raises(KeyboardInterrupt):
            evaluated(tmp_path, *given)
    evaluated(tmp_path, *given)
    assert len(columns(tmp_path / "translations_val.tsv")) == 3


@pytest.mark.parametrize("option", ["splits=[test]", "score=pairs.tsv"])
def test_the_folder_of_a_run_is_not_written_by_whatever_option_it_is_named(option: str, run: Path) -> None:
    with pytest.raises(
        UserError, match=rf"^{run} holds a run, whose files would be replaced; give another paths.run_dir$"
    ):
        evaluated(run, f"ckpt_path={run}", option)


def test_a_folder_in_which_another_process_is_at_work_is_not_written(run: Path, tmp_path: Path) -> None:
    with (
        lock(tmp_path),
        pytest.raises(UserError, match=rf"^another process is at work in {tmp_path}; wait for it, or end it"),
    ):
        evaluated(tmp_path, f"ckpt_path={run}")


@pytest.mark.slow
def test_a_test_set_that_is_held_out_of_changed_data_is_refused_and_another_change_is_warned_of(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluation_module, "run_tests", reach)
    file = tmp_path / "changed.ckpt"
    checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    data, state = checkpoint["config"]["data"], checkpoint["TranslationDataModule"]

    def evaluate_changed(corpus: str | None, options: dict[str, Any], *overrides: str) -> None:
        saved = state | {"corpus": corpus} if corpus else {}
        config = checkpoint["config"] | {"data": data | options}
        torch.save(checkpoint | {"TranslationDataModule": saved, "config": config}, file)
        evaluated(tmp_path / "evaluation", f"ckpt_path={file}", *overrides)

    derived = {"test": None, "test_sentences": 5}
    with pytest.raises(
        UserError,
        match=rf"^the data is not that with which {file} was trained, and test is held out of it by its sentences as "
        r"they are now, so it may have sentences that the model was trained on; restore the data, or name the "
        r"sentences to score, as in data=parallel data.test=FILE$",
    ):
        evaluate_changed(state["corpus"], derived)
    assert not caplog.messages
    with pytest.raises(ReachedError):
        evaluate_changed("another", {})  # whose test set is a file
    (warned,) = caplog.messages
    assert warned.startswith(f"The data is not that with which {file} was trained; its scores may be of other sentence")
    caplog.clear()
    with pytest.raises(ReachedError):
        evaluated(tmp_path / "evaluation", f"ckpt_path=[{run},{file}]")
    assert caplog.messages == [warned]  # of the second model of an ensemble, too
    caplog.clear()
    typed = ["data=parallel", f"data.train={data['train']}", "data.test_sentences=5", f"paths.cache_dir={tmp_path}"]
    for corpus, options, overrides in ((state["corpus"], {}, ()), (None, derived, ()), ("another", {}, typed)):
        with pytest.raises(ReachedError):
            evaluate_changed(corpus, options, *overrides)
    assert not caplog.messages


def with_options(run: Path, file: Path, **changed: dict[str, Any]) -> Path:
    """The best checkpoint of a run, with other options."""
    checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    for name, options in changed.items():
        checkpoint["config"][name] |= options
    torch.save(checkpoint, file)
    return file


def test_the_options_of_a_runs_data_have_the_bounds_of_ones_own(run: Path, tmp_path: Path) -> None:
    file = with_options(run, tmp_path / "a.ckpt", data={"test_sentences": "5"})
    with pytest.raises(UserError, match=r"^data.test_sentences=5 must be int \| null in \[0, 1000000\]"):
        evaluated(tmp_path / "evaluation", f"ckpt_path={file}")


def test_a_tokenizer_of_a_run_is_downloaded_only_if_the_command_line_names_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(evaluation_module, "run_tests", reach)
    bleu = {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": False, "tokenize": "flores200"}
    file = with_options(run, tmp_path / "a.ckpt", metric={"bleu": bleu})
    given = (tmp_path / "evaluation", f"ckpt_path={file}")
    sentence = (
        rf"^{file} asks for sacreBLEU's tokenizer flores200, which is not on this machine and was not downloaded; to "
        r"download it, give metric.NAME.tokenize=flores200 to evaluate$"
    )
    with pytest.raises(UserError, match=sentence):
        evaluated(*given)
    with pytest.raises(ReachedError):
        evaluated(*given, "metric.bleu.tokenize=flores200")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "flores200sacrebleuspm").touch()
    with pytest.raises(ReachedError):
        evaluated(*given)
