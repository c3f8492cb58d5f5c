"""Several models that decide together, on test sets; `TranslationModule` does the same for one."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

import torch
from rich.markup import escape
from rich.progress import track
from torchmetrics import Metric

from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.evaluation.teacher_forcing import mean_loss, read_pairs
from seq2seq_attn.inference.models import Models
from seq2seq_attn.search.search import TargetVocabulary
from seq2seq_attn.text import plain_console
from seq2seq_attn.training.translation_module import MEANS, TranslationModule


def evaluate_ensemble(
    models: Models, module: TranslationModule, datamodule: TranslationDataModule, context: AbstractContextManager[Any]
) -> dict[str, dict[str, float]]:
    """Figures by test set, named as `collect_figures` names them.

    Args:
        module: has the search and the metrics; its translations and signatures are filled in.
        context: the arithmetic that is asked for.
    """
    module.to(models.device)
    module.on_test_start()
    figures = {}
    with torch.inference_mode(), context:
        for name, loader in zip(module.test_names, datamodule.test_dataloader(), strict=True):
            progress = track(
                loader,
                f"Testing {escape(name)}",
                transient=True,
                console=plain_console(stderr=True),
                disable=not sys.stderr.isatty(),
            )
            for batch in progress:
                evaluate_batch(models, module, datamodule, batch.to(models.device), name)
            figures[name] = summed_up(module.stage_metrics(name))
            module.signatures[name] = {
                metric: of.signature() for metric, of in module.stage_metrics(name).items() if metric not in MEANS
            }
    return figures


def evaluate_batch(
    models: Models, module: TranslationModule, datamodule: TranslationDataModule, batch: Any, name: str
) -> None:
    """Adds a batch to the metrics and translations of its test set."""
    loss = mean_loss(models.members, read_pairs(models.members, batch), batch, module.label_smoothing)
    assert loss.correct is not None
    tokenizer, rows = models.tokenizer, batch.index.tolist()
    found = module.search(models.model, batch.source, batch.source_mask, TargetVocabulary.of(tokenizer))
    hypotheses = tokenizer.decode_target([best.token_ids for best, *_ in found])
    module.translations[name] |= dict(zip(rows, hypotheses, strict=True))
    sums = dict(zip(MEANS, (loss.smoothed, loss.nll, loss.correct), strict=True))
    references = [datamodule.corpus.splits[name].references[row] for row in rows]
    for metric_name, metric in module.stage_metrics(name).items():
        if metric_name in MEANS:
            metric.update(sums[metric_name] / loss.tokens, weight=loss.tokens)
        else:
            metric.update(hypotheses, references)


def summed_up(metrics: dict[str, Metric]) -> dict[str, float]:
    """Figures by their name in the log."""
    figures = {name: metric.compute() for name, metric in metrics.items()}
    return {
        "ppl" if name == "nll" else name: float(value.exp() if name == "nll" else value)
        for name, value in figures.items()
    }
