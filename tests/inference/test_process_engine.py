"""Translation in several processes: the translations of one, from workers that load the model themselves."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import process_engine, translator
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.engine import SearchBatch
from seq2seq_attn.inference.process_engine import ProcessEngine
from seq2seq_attn.inference.translator import Translator

LIMITS = {"max_relative_length": 1.0, "max_extra_length": 2}
SEARCHES: list[dict[str, Any]] = [
    {"name": "greedy"},
    {"name": "beam", "beam_size": 4, "num_best": 2},
    {"name": "diverse_beam", "num_best": 2},
    {"name": "sampling", "num_samples": 2},
    {"name": "mbr", "candidates": {"limits": LIMITS}},
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "rnn.ckpt")


class InProcess:
    """`Workers` whose one worker is this process; tasks and results are pickled as for another."""

    made: list[InProcess]

    def __init__(self, processes: int, *, option: str, start: Any) -> None:
        self.processes, self.option, self.start = processes, option, start
        self.ended: list[str] = []
        InProcess.made.append(self)

    def __enter__(self) -> InProcess:
        self.start()
        return self

    def terminate(self) -> None:
        self.ended.append("at once")

    def __exit__(self) -> None:
        self.ended.append("in order")

    def map(self, function: Any, tasks: Any) -> Any:
        for task in tasks:
            yield pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(task)))))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[InProcess]:
    InProcess.made = []
    monkeypatch.setattr(process_engine, "Workers", InProcess)
    monkeypatch.setattr(process_engine, "OWN", [])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(InProcess, "threads", threads, raising=False)
    return InProcess.made


@pytest.mark.parametrize(
    "search", [pytest.param(s, id=s["name"], marks=pytest.mark.slow if s["name"] == "mbr" else []) for s in SEARCHES]
)
def test_translations_are_those_of_one_process(file: Path, in_process: list[InProcess], search: dict[str, Any]) -> None:
    limited = search if "candidates" in search else search | {"limits": LIMITS}
    options: dict[str, Any] = {"search": limited, "batch_sentences": 3}
    few, prefixes = SENTENCES[:8], ["", "Je", *[""] * 6]
    several = Translator.load(file, device="cpu", num_processes=3)
    assert several.translate(few, prefixes=prefixes, **options) == Translator.load(file, device="cpu").translate(
        few, prefixes=prefixes, **options
    )
    several.translate(few, **options)
    (workers,) = in_process
    assert (workers.processes, workers.option, workers.ended) == (3, "num_processes", [])
    assert in_process[0].threads == [2]  # type: ignore[attr-defined]


def test_processes_compute_in_the_precision_of_one(file: Path, in_process: list[InProcess]) -> None:
    options: dict[str, Any] = {"search": SEARCHES[0] | {"limits": LIMITS}, "batch_sentences": 3}
    several = Translator.load(file, device="cpu", num_processes=3, precision="bf16-true")
    found = several.translate(SENTENCES[:8], **options)
    assert len(in_process) == 1
    (engine,) = process_engine.OWN
    assert engine.model.output.weight.dtype == torch.bfloat16
    assert found == Translator.load(file, device="cpu", precision="bf16-true").translate(SENTENCES[:8], **options)


def test_processes_have_the_models_of_this_one_when_their_files_change(
    tmp_path: Path, in_process: list[InProcess]
) -> None:
    files = [
        write_checkpoint(tmp_path / "rnn.ckpt"),
        write_checkpoint(tmp_path / "conv.ckpt", "model=conv", "model.decoder.num_layers=1"),
    ]
    options: dict[str, Any] = {"search": SEARCHES[0] | {"limits": LIMITS}, "batch_sentences": 3}
    several = Translator.load(files, device="cpu", num_processes=3)
    expected = Translator.load(files, device="cpu").translate(SENTENCES[:8], **options)
    write_checkpoint(files[0], seed=8)  # a training goes on
    files[1].unlink()
    assert several.translate(SENTENCES[:8], **options) == expected
    assert len(in_process) == 1


def test_a_single_batch_starts_no_process(file: Path, in_process: list[InProcess]) -> None:
    several = Translator.load(file, device="cpu", num_processes=2)
    assert several.translate(SENTENCES[:4], maps=True)[0].maps
    assert several.translate([]) == []
    assert in_process == []


def test_an_interrupt_ends_the_processes_and_the_next_call_starts_others(
    file: Path, in_process: list[InProcess]
) -> None:
    engine = Translator.load(file, device="cpu", num_processes=2).engine
    assert isinstance(engine, ProcessEngine)
    search = choose_search({"name": "greedy", "limits": LIMITS}, {})
    batches = [SearchBatch([[5, 6]], None), SearchBatch([[7]], None)]
    for times in (1, 2):
        running = engine.translate_batches(batches, search)
        next(running)
        with pytest.raises(KeyboardInterrupt):
            running.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
        assert [workers.ended for workers in in_process] == [["at once", "in order"]] * times
    assert len(list(engine.translate_batches(batches, search))) == 2


def test_other_engines_and_devices_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="num_processes=2 is for engine=torch on a CPU; leave it out"):
        Translator.load(file, engine="ctranslate2", num_processes=2)
    monkeypatch.setattr(translator, "choose_device", torch.device)
    with pytest.raises(UserError, match="num_processes=2 is for engine=torch on a CPU; leave it out, or give device="):
        Translator.load(file, device="cuda", num_processes=2)


@pytest.mark.slow
def test_real_processes_translate_what_one_does(file: Path) -> None:
    options: dict[str, Any] = {"search": SEARCHES[1] | {"limits": LIMITS}, "batch_sentences": 3}
    several = Translator.load(file, device="cpu", num_processes=2)
    expected = Translator.load(file, device="cpu").translate(SENTENCES[:20], **options)
    assert [one.tokens for one in several.translate(SENTENCES[:20], **options)] == [one.tokens for one in expected]
