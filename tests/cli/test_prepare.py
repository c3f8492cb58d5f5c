"""`seq2seq-attn prepare` and the commands of docs/data.md: what a training then reads is there, and no run."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from child import done
from configs import CONF, ROOT, built, composed
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from small_run import SMALL, run_here, write_pairs

from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.cli import prepare
from seq2seq_attn.cli.command import SUBCOMMANDS
from seq2seq_attn.cli.train import parent_choice
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training import provenance

PAGE = (ROOT / "docs/data.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:python train\.py|seq2seq-attn prepare) (.+)$", PAGE, re.MULTILINE)
PAIRS = [(f"Sentence number {n}.", f"La phrase {n}.") for n in range(700)]
CHOICES = [f"choices.{name}=null" for name in ("attention", "model", "data")]


def prepared(*overrides: str) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("prepare", [*overrides, *CHOICES])
    prepare.task(config)
    return config


def prepared_files(folder: Path) -> list[Path]:
    """The vocabulary, the texts and their encoding, without locks and without the plans of batches."""
    kept = (".arrow", ".json", ".model", ".npy")
    return [path for path in (folder / "cache").rglob("*") if path.suffix in kept]


def test_the_shares_of_unknown_tokens_are_shown_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("a b\tx y\nb a\ty x\na a b\tx x y\nb b\tu y x\n")
    (tmp_path / "val.tsv").write_text("a\tx y\na b c\tx\n")
    data = ["data=parallel", "data.train=train.tsv", "data.val=val.tsv", "data.test=val.tsv", "paths.cache_dir=cache"]
    prepared(
        *SMALL, *data, "tokenizer=word", "tokenizer.min_count=2", "tokenizer.sampling_alpha=0.0", "paths.run_dir=unused"
    )
    table = dict(re.findall(r"^│ (\S.*?) +│ +(\S+) │$", capsys.readouterr().out, re.MULTILINE))
    assert {name: share for name, share in table.items() if "unknown" in name} == {
        "train: unknown target tokens": "10.00%",
        "val: unknown source tokens": "25.00%",
    }
    monkeypatch.setattr(provenance, "unknown_shares", lambda _: {"source": 1e-6, "target": 0.0})
    prepared(*SMALL, *data, "tokenizer=word", "tokenizer.sampling_alpha=0.0", "paths.run_dir=unused")
    said = capsys.readouterr().out
    assert re.search(r"val: unknown source tokens +│ < 0.01% │", said)
    assert "unknown target" not in said


def test_a_training_finds_the_caches_that_prepare_filled(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    train, *_, cache = write_pairs(tmp_path)
    small = [*SMALL, train, cache, "tokenizer.vocab_size=auto", "trainer.max_epochs=1", "paths.run_dir=unused"]
    config = prepared(*small)
    said = capsys.readouterr().out
    assert "│ val: pairs held out (10% of the sources)" in said
    assert f"│ tokens, source                            │    {config.tokenizer.vocab_size} │" in said
    pairs = [line.split("\t") for line in (tmp_path / "train.tsv").read_text("utf-8").splitlines()]
    shown = re.findall(r"^ +([\d,]+) (en|fr)  (.+)$", said, re.MULTILINE)
    assert [language for _, language, _ in shown] == ["en", "fr"] * 3
    texts = [tokens.replace(" ", "").replace("▁", " ").strip() for _, _, tokens in shown]
    assert texts[:2] == pairs[0]
    assert len({*texts[::2]}) == 3
    assert all(pair in pairs for pair in map(list, zip(texts[::2], texts[1::2], strict=True)))
    assert said.endswith(f"encoded splits: {tmp_path / 'cache'}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "train.tsv", "val.tsv", "test.tsv"}
    cached = {path: path.stat().st_mtime_ns for path in prepared_files(tmp_path)}
    assert {path.suffix for path in cached} == {".arrow", ".json", ".model", ".npy"}
    run_here(tmp_path / "run", train, cache, "tokenizer.vocab_size=auto", "trainer.max_epochs=1")
    assert {path: path.stat().st_mtime_ns for path in prepared_files(tmp_path)} == cached
    saved = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["config"]["tokenizer"]["vocab_size"]
    assert saved == config.tokenizer.vocab_size == config.model.source_vocab_size
    again = ["tokenizer.vocab_size=auto", "trainer.max_epochs=1", "resume=auto"]
    caplog.clear()
    with caplog.at_level("INFO"):
        run_here(tmp_path / "run", train, cache, *again)
    assert caplog.messages == [f"{tmp_path / 'run'} is complete; nothing is left to train"]


@pytest.mark.slow
def test_prepare_for_a_fine_tuning_takes_the_tokenizer_of_the_parent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train, *_, cache = write_pairs(tmp_path)
    run_here(tmp_path / "run", train, cache, "trainer.max_epochs=1")
    parent = f"init_from.run={tmp_path / 'run'}"
    monkeypatch.setattr(SentencePieceTokenizer, "train", lambda *given: pytest.fail("a tokenizer was trained"))
    config = prepared(*SMALL[:1], train, cache, parent, *parent_choice([parent]), "paths.run_dir=unused")
    saved = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["config"]["model"]
    assert config.model.source_vocab_size == saved["source_vocab_size"]


def test_prepare_refuses_what_a_training_would_refuse(tmp_path: Path) -> None:
    train, val, test, cache = write_pairs(tmp_path)
    small = [*SMALL, cache, "paths.run_dir=unused"]
    with pytest.raises(UserError, match=r"^there is nothing to train on; set data.train=FILE"):
        prepared(*small, test)
    with pytest.raises(UserError, match=r"^the model has positions for 3 tokens, and a sentence of "):
        prepared(
            *small,
            train,
            val,
            test,
            "attention=synthesizer_random",
            "model=transformer",
            "attention.score.max_length=3",
        )


def test_prepare_is_a_subcommand_that_hydra_starts_without_a_folder(tmp_path: Path) -> None:
    assert "cli.prepare" in str(SUBCOMMANDS["prepare"])
    shown = done(ROOT / "seq2seq_attn/__main__.py", "prepare", "--cfg", "hydra", folder=tmp_path)
    config = OmegaConf.create(shown.stdout).hydra
    assert (config.run.dir, config.output_subdir) == (".", None)
    assert "file" not in config.job_logging.handlers
    assert config.callbacks.run_lock._target_ == "hydra.experimental.callback.Callback"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_reads_its_files(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has a header or none, as the command needs; English is the source, or the target where it swaps."""
    for split in ("train", "val"):
        for side, language in enumerate(("en", "fr")):
            lines = "".join(f"{pair[side]}\n" for pair in PAIRS)
            for name in (split, "test"):
                (tmp_path / f"{name}.{language}").write_text(lines, encoding="utf-8")
    for name, pairs in (("pairs.tsv", PAIRS), ("tokenized.tsv", PAIRS), ("val.tsv", [("Another.", "Une autre.")])):
        (tmp_path / name).write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    with (tmp_path / "sheet.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("english", "french"), *PAIRS])
    records = [json.dumps({"translation": {"en": english, "fr": french}}) + "\n" for english, french in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("".join(records), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    corpus = built(composed(*shlex.split(command)).data).load()
    swapped = "=translation.fr" in command or "source_column=2" in command
    source = corpus.splits["train"].sources[0]
    assert source.startswith("La phrase" if swapped else "Sentence")
    assert set(corpus.splits) == {"train", "val", "test"}


def test_the_page_has_commands_and_names_real_defaults() -> None:
    assert len(COMMANDS) >= 7
    tokenizer, data = composed("data=parallel").tokenizer, composed("data=parallel").data
    assert (tokenizer.vocab_size, data.val_sentences, data.cleaning.max_ratio) == ("auto", None, 9)
    assert composed("data=parallel").metric.bleu.tokenize == "auto"
    for corpus, size in (("demo", 2000), ("tatoeba", 5000), ("multi30k", 8000)):
        assert composed(f"data={corpus}").tokenizer.vocab_size == size
