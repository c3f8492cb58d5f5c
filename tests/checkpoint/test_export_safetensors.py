"""seq2seq-attn export safetensors: what is published says what the run says, and nothing of the machine it ran on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file
from small_checkpoint import SENTENCES, write_checkpoint

from seq2seq_attn import files
from seq2seq_attn.checkpoint import export_safetensors as script
from seq2seq_attn.checkpoint import published
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.translator import Translator

FILES = {"model.safetensors", "config.json", "source.model", "target.model"}


def exported(folder: Path, *overrides: str) -> Path:
    write_checkpoint(folder / "run" / "checkpoints" / "best.ckpt", "search.limits.max_length=7", *overrides)
    script.main([str(folder / "run"), str(folder / "published")])
    return folder / "published"


def test_a_disk_that_fills_up_leaves_nothing_of_the_folder_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(published, "write_tokenizer", full)
    with pytest.raises(SystemExit, match=r"^2$"):
        exported(tmp_path)
    folder = tmp_path / "published"
    sentence = f"{folder} cannot be written (No space left on device); make room, or give another folder\n"
    assert capsys.readouterr().err == sentence
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_may_not_be_written_has_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*, prefix: str, dir: Path) -> None:
        raise PermissionError(13, "Permission denied", f"{dir}/{prefix}x")

    monkeypatch.setattr(files, "TemporaryDirectory", refuse)
    with (
        pytest.raises(UserError, match=rf"^{tmp_path}/mine cannot be written \(Permission denied\); give another"),
        files.filling(tmp_path / "mine"),
    ):
        pass


@pytest.mark.parametrize("tied", ["none", "target", "all"])
def test_a_published_folder_translates_as_the_run_does(tied: str, tmp_path: Path) -> None:
    folder = exported(tmp_path, f"model.tie_embeddings={tied}")
    assert {file.name for file in folder.iterdir()} == FILES
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1
    run, published = load(str(tmp_path / "run")), load(str(folder))
    assert published.tokenizer.fingerprint == run.tokenizer.fingerprint
    weights = published.model.state_dict()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weights[name], weight), name
    (texts, theirs) = (
        [one.text for one in Translator.load(path, device="cpu").translate(SENTENCES)]
        for path in (tmp_path / "run", folder)
    )
    assert texts == theirs
    assert Translator.load(folder / "model.safetensors", device="cpu").translate(SENTENCES[:1])[0].text == texts[0]


def test_a_tied_matrix_is_written_once_and_tied_again(tmp_path: Path) -> None:
    folder = exported(tmp_path, "model.tie_embeddings=all")
    weights = load_file(folder / "model.safetensors")
    matrices = {"embed_source.weight", "embed_target.weight", "output.weight"}
    assert len(matrices & weights.keys()) == 1
    model = load(str(folder)).model
    assert model.output.weight is model.embed_target.weight
    assert model.embed_source.weight is model.embed_target.weight


def test_other_programs_read_the_parts(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    loaded = load(str(tmp_path / "run"))
    tokens = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.model"))
    assert tokens.encode(SENTENCES) == loaded.tokenizer.encode_source(SENTENCES)
    assert load_file(folder / "model.safetensors").keys() < loaded.model.state_dict().keys()
    assert json.loads((folder / "config.json").read_text())["format"] == 3


def test_an_evaluation_has_the_batches_and_the_main_metric_of_the_run(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model.ckpt")
    checkpoint["config"] |= (options := {"eval_batch_tokens": 77, "monitor": "val/chrf"})
    published.write_published(checkpoint, tmp_path / "published")
    assert options.items() <= load(str(tmp_path / "published")).config.items()


def test_paths_of_this_machine_stay_here(tmp_path: Path) -> None:
    folder = exported(tmp_path, "data=tatoeba", "data.path=/home/someone/fra.txt")
    text = (folder / "config.json").read_text()
    data = json.loads(text)["config"]["data"]
    assert (data["path"], data["cache_dir"], data["source_language"]) == (None, None, "en")
    assert "/home" not in text
    assert "~" not in text


def test_paths_of_a_corpus_within_a_corpus_stay_here(tmp_path: Path) -> None:
    there = ["+data.corpus.cache_dir=/home/someone/cache", "+data.corpus.path=mine.txt", "+data.corpus.copy_to=there"]
    folder = exported(tmp_path, "data=documents", *there)
    within = json.loads((folder / "config.json").read_text())["config"]["data"]["corpus"]
    assert (within["path"], within["cache_dir"]) == (None, None)


def test_a_pipe_in_a_published_folder_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    (folder / "source.model").unlink()
    os.mkfifo(folder / "source.model")
    with pytest.raises(UserError, match=r"is not a whole published model .*source.model is not a regular file"):
        load(str(folder))


def test_a_folder_of_which_a_file_is_broken_or_gone_is_refused(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    for name in sorted(FILES - {"model.safetensors"}):
        (folder / name).rename(folder / "away")
        with pytest.raises(UserError, match=r"published is not a whole published model \(.*No such file.*\); give"):
            load(str(folder))
        (folder / "away").rename(folder / name)
    load(str(folder))
    os.truncate(folder / "model.safetensors", 1000)
    with pytest.raises(UserError, match=r"published is not a whole published model \(a file is missing or damag"):
        load(str(folder))


def test_a_published_folder_truncated_anywhere_is_one_sentence(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    for file in (folder / "config.json", folder / "model.safetensors", folder / "source.model"):
        whole = file.read_bytes()
        for size in (0, 1, 9, 100, len(whole) // 3, len(whole) // 2, len(whole) - 2):
            file.write_bytes(whole[:size])
            with pytest.raises(UserError, match=r"is not a whole published model|holds (no readable|a) tokenizer"):
                load(str(folder))
        file.write_bytes(whole)
    settings = json.loads((folder / "config.json").read_text())
    for key in ("format", "tokenizer", "config"):
        for value in (None, 97, "text", [], {}):
            (folder / "config.json").write_text(json.dumps(settings | {key: value}))
            with pytest.raises(UserError, match=r"is not a (whole published model|checkpoint)|holds no|has format"):
                load(str(folder))


def test_a_published_folder_names_no_foreign_code(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    settings["config"]["model"]["encoder"] = {"_target_": "os.mkdir", "path": str(tmp_path / "ran")}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(
        UserError, match=r"safetensors asks for os.mkdir, which is not a class of seq2seq_attn for encoder; it"
    ):
        load(str(folder))
    assert not (tmp_path / "ran").exists()


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(tmp_path)
    for run, said in ((tmp_path / "run", f"{folder} is not empty"), (tmp_path / "no", "does not exist; give")):
        with pytest.raises(SystemExit, match="2"):
            script.main([str(run), str(folder)])
        (sentence,) = capsys.readouterr().err.splitlines()
        assert said in sentence


def test_a_published_model_says_what_it_was_trained_to_do_and_with_which_tokens(tmp_path: Path) -> None:
    file = tmp_path / "run" / "checkpoints" / "best.ckpt"
    checkpoint = write_checkpoint(file, "search.limits.max_length=7")
    given = {"byte_fallback": True, "model": str(tmp_path / "own.model"), "cache_dir": str(tmp_path)}
    checkpoint["config"] |= {"objective": {"_target_": "any"}, "tokenizer": given}
    torch.save(checkpoint, file)
    script.main([str(tmp_path / "run"), str(tmp_path / "published")])
    config = json.loads((tmp_path / "published" / "config.json").read_text("utf-8"))["config"]
    assert config["objective"] == {"_target_": "any"}
    assert config["tokenizer"] == {"byte_fallback": True, "model": None, "cache_dir": None}
