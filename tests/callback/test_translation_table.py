"""The table follows the same sentences, goes to whoever takes a table, and nowhere where text is kept away."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel

from seq2seq_attn.callback.translation_table import COLUMNS, TranslationTable, logged_step
from seq2seq_attn.data.data_module import evenly_spread

TOKENIZER = SimpleNamespace(encode_source=list, decode_target=list)
MODULE: Any = SimpleNamespace(translates=True, model=None, search=None, tokenizer=TOKENIZER, epoch_number=1)
SECOND: Any = SimpleNamespace(**vars(MODULE) | {"epoch_number": 2})


class Taker:
    """A logger of tables."""

    def __init__(self) -> None:
        self.tables: list[tuple[str, list[str], list[list[Any]], int]] = []

    def log_table(self, key: str, columns: list[str], data: list[list[Any]], step: int) -> None:
        self.tables.append((key, columns, [list(row) for row in data], step))


class Pairs:
    """Eleven pairs."""

    def __init__(self) -> None:
        self.sources = [f"source {row}" for row in range(11)]
        self.references = [[f"reference {row}", "another"] for row in range(11)]

    def __len__(self) -> int:
        return len(self.sources)


def trainer_at(step: int, loggers: list[Any], first: bool = True) -> Any:
    return SimpleNamespace(
        loggers=loggers,
        is_global_zero=first,
        strategy=None,
        sanity_checking=False,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(_batches_that_stepped=step)),
        datamodule=SimpleNamespace(corpus=SimpleNamespace(splits={"val": Pairs()})),
    )


@pytest.fixture
def shouting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that only shouts, with a tokenizer of whole sentences."""
    found = "seq2seq_attn.callback.translation_table.translate"
    monkeypatch.setattr(found, lambda model, tokenizer, search, sources: [source.upper() for source in sources])


@pytest.mark.usefixtures("shouting")
def test_each_validation_adds_its_rows_and_a_run_that_goes_on_has_the_earlier_ones() -> None:
    taker, table = Taker(), TranslationTable(log_text=True, num_sentences=3)
    table.on_validation_end(trainer_at(4, [object(), taker]), MODULE)
    again = TranslationTable(log_text=True, num_sentences=3)
    again.load_state_dict(table.state_dict())
    again.on_validation_end(trainer_at(9, [taker]), SECOND)
    rows = [
        [epoch, step, f"source {row}", f"reference {row}", f"SOURCE {row}"]
        for epoch, step in ((1, 4), (2, 9))
        for row in (0, 3, 7)
    ]
    assert taker.tables == [("val/translations", COLUMNS, rows[:3], 4), ("val/translations", COLUMNS, rows, 9)]


@pytest.mark.usefixtures("shouting")
def test_no_control_character_of_a_sentence_reaches_a_table() -> None:
    taker = Taker()
    trainer = trainer_at(4, [taker])
    pairs = trainer.datamodule.corpus.splits["val"]
    pairs.sources[0], pairs.references[0][0] = "a\x1b[31m\tb", "\u202ec\nd"
    TranslationTable(log_text=True, num_sentences=1).on_validation_end(trainer, MODULE)
    ((_, _, rows, _),) = taker.tables
    assert rows == [[1, 4, "a\ufffd[31m b", "\ufffdc d", "A\ufffd[31M B"]]


@pytest.mark.usefixtures("shouting")
def test_nothing_is_translated_where_text_is_kept_away_or_nobody_takes_a_table() -> None:
    taker = Taker()
    TranslationTable(log_text=False, num_sentences=3).on_validation_end(trainer_at(4, [taker]), MODULE)
    TranslationTable(log_text=True, num_sentences=0).on_validation_end(trainer_at(4, [taker]), MODULE)
    kept = TranslationTable(log_text=True, num_sentences=3)
    kept.on_validation_end(trainer_at(4, [object()]), MODULE)
    kept.on_validation_end(trainer_at(4, [taker], first=False), MODULE)
    assert taker.tables == []
    assert kept.state_dict() == {"rows": []}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("every", [2, 3])  # the latter between accumulated batches
def test_pictures_and_tables_have_the_step_of_the_scalars_in_lightning_2_6(every: int, tmp_path: Path) -> None:
    class Looks(pl.Callback):
        def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            steps.append(logged_step(trainer))

    class Scalars(pl.loggers.CSVLogger):
        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            logged.extend([step] if "x" in metrics else [])

    steps: list[int] = []
    logged: list[int | None] = []
    options = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    options |= {"logger": Scalars(tmp_path), "callbacks": [Looks()], "accelerator": "cpu", "max_steps": 5}
    trainer = pl.Trainer(accumulate_grad_batches=2, val_check_interval=every, num_sanity_val_steps=0, **options)
    model = BoringModel()
    model.on_validation_epoch_end = lambda: model.log("x", 1.0)
    trainer.fit(model)
    trainer.validate(model, verbose=False)
    assert len(steps) > 2
    assert steps == logged


@pytest.mark.parametrize(
    ("length", "count", "positions"), [(11, 3, [0, 3, 7]), (3, 3, [0, 1, 2]), (2, 5, [0, 1]), (0, 5, [])]
)
def test_positions_are_spread_evenly_and_each_once(length: int, count: int, positions: list[int]) -> None:
    assert evenly_spread(count, length).tolist() == positions
