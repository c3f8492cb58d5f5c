"""metrics.csv by hand: columns that come later, rows that are written again, a row that a kill cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from seq2seq_attn.logger.csv_logger import CsvLogger


def logged(folder: Path) -> CsvLogger:
    logger = CsvLogger(folder)
    logger.log_metrics({"train/loss": 2.5, "epoch": 0}, step=0)
    logger.log_metrics({"train/loss": 0.1 + 0.2, "epoch": 0}, step=1)
    logger.log_metrics({"val/bleu": 17.0, "epoch": 0}, step=1)
    return logger


TABLE = "epoch,step,train/loss,val/bleu\r\n0,0,2.5,\r\n0,1,0.30000000000000004,\r\n0,1,,17.0\r\n"  # every digit is kept


def test_a_name_that_comes_later_gets_a_column_and_no_row_is_lost(tmp_path: Path) -> None:
    logger = logged(tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes().decode() == TABLE
    assert logger.rows == 3
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_each_row_is_in_the_file_at_once(tmp_path: Path) -> None:
    logger = CsvLogger(tmp_path)
    for step in range(3):
        logger.log_metrics({"train/loss": 1.0}, step=step)
        assert len((tmp_path / "metrics.csv").read_text().splitlines()) == step + 2


def test_a_run_that_goes_on_keeps_the_rows_that_its_checkpoint_covers_and_writes_the_same_file(tmp_path: Path) -> None:
    whole = logged(tmp_path / "whole")
    for rows in range(4):
        resumed = logged(tmp_path / f"resumed_{rows}")
        with resumed.file.open("a", encoding="utf-8") as file:
            file.write("0,2,0.7")  # killed within a row
        resumed = CsvLogger(tmp_path / f"resumed_{rows}")
        resumed.keep(rows)
        assert resumed.rows == rows
        calls = [({"train/loss": 2.5}, 0), ({"train/loss": 0.1 + 0.2}, 1), ({"val/bleu": 17.0}, 1)]
        for metrics, step in calls[rows:]:
            resumed.log_metrics(metrics | {"epoch": 0}, step=step)
        assert resumed.file.read_bytes() == whole.file.read_bytes()


def test_rows_that_the_disk_does_not_take_wait_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logged(tmp_path)
    logger.file.rename(tmp_path / "away.csv")
    logger.file.mkdir()
    for step in (2, 3):
        logger.log_metrics({"train/loss": 0.5, "epoch": 1}, step=step)
    logger.file.rmdir()
    (tmp_path / "away.csv").rename(logger.file)
    assert logger.rows == 3
    logger.log_metrics({"val/bleu": 18.0, "epoch": 1}, step=3)
    assert logger.rows == 6
    assert logger.file.read_bytes().decode() == TABLE + "1,2,0.5,\r\n1,3,0.5,\r\n1,3,,18.0\r\n"
    (warned,) = caplog.messages
    assert warned == f"{logger.file} cannot be written (Is a directory); its rows wait, and training continues"


def test_a_file_that_is_gone_does_not_end_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logged(tmp_path)
    logger.file.unlink()
    for step in (2, 3):
        logger.log_metrics({"train/loss": 0.5, "epoch": 1}, step=step)
        logger.sync()  # as every checkpoint does
    assert [line.partition("(")[2] for line in caplog.messages] == [
        "No such file or directory); its rows wait, and training continues"
    ]


def test_a_new_run_in_the_folder_starts_the_file_anew(tmp_path: Path) -> None:
    logged(tmp_path)
    CsvLogger(tmp_path).log_metrics({"train/loss": 3.0}, step=0)
    assert (tmp_path / "metrics.csv").read_bytes() == b"step,train/loss\r\n0,3.0\r\n"
