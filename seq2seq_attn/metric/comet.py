"""COMET, by the command `comet-score`. Rei et al. 2020, arXiv:2009.09025; 2022, "COMET-22"."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, ClassVar, final

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.sentence_metric import SentenceMetric
from seq2seq_attn.text import LINE_END

INSTALL = "install unbabel-comet in an environment of its own, and give metric.comet.command=FOLDER/bin/comet-score"

# what launchers set for the processes of a run, and the run for its threads
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")
LAUNCHER_PREFIXES = ("MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "SLURM_")


@final
class COMET(SentenceMetric):
    """The mean of a learned score of source, output and reference, times 100; of several references the best counts.

    The command runs in a process, and may be of another environment: unbabel-comet 2.2 needs older versions of NumPy
    and torchmetrics than this package.

    Args:
        model: a .ckpt file, or a name that `comet-score` downloads, such as Unbabel/wmt22-comet-da.
        command: `comet-score`, or the path to it.
        gpus: how many; 0: the CPU.
        batch_size: sentences scored at once.
    """

    scores_whole_test: ClassVar[bool] = True

    def __init__(
        self, *, model: str, command: str, gpus: Annotated[int, "[0, 1000]"], batch_size: Annotated[int, "[1, 1000000]"]
    ) -> None:
        if shutil.which(command) is None:
            raise UserError(f"metric=[comet] runs the command {command}, which is not installed; {INSTALL}")
        super().__init__(signed=f"model:{Path(model).name if model.endswith('.ckpt') else model}")
        self.command = (command, "--model", model, "--gpus", str(gpus), "--batch_size", str(batch_size), "--quiet")

    def sentence_scores(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> list[float]:
        if len(sources) != len(hypotheses):
            raise ValueError(f"COMET reads the sources too, got {len(sources)} for {len(hypotheses)} hypotheses")
        rows = [row for row, options in enumerate(references) for _ in options]
        flat = tuple(reference for options in references for reference in options)
        scores = comet_scores(self.command, tuple(sources[r] for r in rows), tuple(hypotheses[r] for r in rows), flat)
        best: dict[int, float] = {}
        for row, score in zip(rows, scores, strict=True):
            best[row] = max(best.get(row, score), score)
        return [100 * best[row] for row in range(len(hypotheses))]


@lru_cache(maxsize=4)  # the bootstrap asks for the scores of a test set again
def comet_scores(
    command: tuple[str, ...], sources: tuple[str, ...], hypotheses: tuple[str, ...], references: tuple[str, ...]
) -> tuple[float, ...]:
    """Return the score of each triple.

    Raises:
        UserError: if the command fails.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        options = []
        for flag, lines in (("-s", sources), ("-t", hypotheses), ("-r", references)):
            file = folder / flag.removeprefix("-")
            file.write_text("".join(LINE_END.sub(" ", line) + "\n" for line in lines), encoding="utf-8")
            options += [flag, str(file)]
        options += ["--only_system", "--to_json", str(folder / "scores.json")]
        done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment_without_ranks())
        if done.returncode:
            said = " ".join(done.stderr.strip().splitlines()[-1:]) or f"exit code {done.returncode}"
            raise UserError(
                f"{command[0]} has failed ({said}); leave out metric=[comet], or mend it and score the checkpoint "
                "with evaluate.py"
            )
        (segments,) = json.loads((folder / "scores.json").read_text("utf-8")).values()
    return tuple(float(segment["COMET"]) for segment in segments)


def environment_without_ranks() -> dict[str, str]:
    """Return the environment of a command that is no process of this run, and would take itself for one."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in RANK_VARIABLES and not name.startswith(LAUNCHER_PREFIXES)
    }
