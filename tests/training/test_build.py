"""What is built of a configuration: metrics that something updates, and loggers that get no names of folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import composed, copied
from omegaconf import OmegaConf
from pytorch_lightning.accelerators import CPUAccelerator

from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.errors import UserError
from seq2seq_attn.training import build
from seq2seq_attn.training.build import build_metrics, build_trainer, start_loggers

SETS = ("train", "val", "test", "test_web")


def test_a_metric_that_nothing_would_update_is_refused() -> None:
    options = {"mean": {"_target_": "seq2seq_attn.metric.token_mean.TokenMean"}}
    with pytest.raises(
        UserError, match=r"^metric=mean is a TokenMean, which does not read translations; derive it from T"
    ):
        build_metrics({"metric": options}, [])


def metrics_of(*overrides: str, reference: str = "我们明天去公园。") -> dict[str, str]:
    """Return the signature of each metric of a training whose references are all this one."""
    config: Any = OmegaConf.to_container(composed(*overrides).metric, resolve=True)
    metrics = build_metrics({"metric": config}, [reference] * 3)
    for metric in metrics.values():
        metric.update(["any"], [[reference]])
    return {name: metric.signature() for name, metric in metrics.items()}


def test_chinese_that_is_called_french_is_scored_as_chinese_and_a_warning_says_what_to_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = metrics_of("metric=[bleu,chrf,ter,rouge]")
    assert "|tok:zh|" in found["bleu"]
    assert "|norm:yes|punct:yes|asian:yes|" in found["ter"]
    assert "|tok:zh|" in found["rouge1"]
    assert caplog.messages == [
        "The references are mostly in a script without spaces, and the target language is called fr: bleu, ter, "
        "rouge1, rouge2, rougeL count words as for zh; name the language in the training, data.target_language=zh, or "
        "set metric.bleu.tokenize"
    ]


def test_a_training_reads_its_references_before_it_builds_its_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"word {number}\t第{number}个词在这里 e\u0301。\n" for number in range(40)]
    (tmp_path / "pairs.tsv").write_text("".join(rows), encoding="utf-8")
    options = ["data=parallel", f"data.train={tmp_path / 'pairs.tsv'}", "data.val_sentences=5", "data.test_sentences=5"]
    fixed = ["tokenizer=char", "callback=[]", f"paths.run_dir={tmp_path}", f"paths.cache_dir={tmp_path / 'cache'}"]
    choices = [f"choices.{name}=null" for name in ("attention", "model", "data")]
    module, _ = build.build(copied(composed(*options, *fixed, *choices)))
    for split in ("val", "test"):
        assert any(line.startswith(f"5 of 5 references of {split} are not in") for line in caplog.messages)
    for stage in ("val", "test"):
        metric = module.scores.metrics_of(stage)["bleu"]
        metric.update(["第1个词。"], [["第2个词。"]])
        assert "|tok:zh|" in metric.signature()
    assert module.config["metric"]["bleu"]["language"] == "fr"  # a checkpoint keeps what was given


def test_every_option_of_a_training_reaches_what_reads_it(pairs: list[str], tmp_path: Path) -> None:
    of_data = {"batch_tokens": 401, "batch_sentences": 7, "eval_batch_tokens": 307, "num_workers": 2, "seed": 5}
    of_loss = {"label_smoothing": 0.3, "r_drop_alpha": 2.0}
    given = [f"{name}={value}" for name, value in (of_data | of_loss | {"val_sentences": 11}).items()]
    given += ["token_dropout.source=0.1", "token_dropout.target=0.2", "guided_alignment.weight=0.5"]
    given += ["scheduled_sampling.share=0.25", "attention=synthesizer_random", "attention.score.max_length=61"]
    small = ["data=parallel", "recipe=none", "tokenizer.vocab_size=40", "tokenizer.sampling_alpha=0.0", "metric=[]"]
    small += [f"model.{width}=12" for width in ("embedding_dim", "encoder.dim", "decoder.dim")]
    fixed = ["callback=[]", f"paths.run_dir={tmp_path}", *(f"choices.{n}=null" for n in ("attention", "model", "data"))]
    module, data = build.build(copied(composed(*small, *pairs, *fixed, *given)))
    assert {name: getattr(data, name) for name in of_data} == of_data
    assert {name: getattr(module, name) for name in of_loss} == of_loss
    assert module.token_dropout == {"source": 0.1, "target": 0.2}
    assert module.scheduled_sampling is not None
    assert module.guided_alignment is not None
    assert (module.scheduled_sampling.share, module.guided_alignment.weight) == (0.25, 0.5)
    assert data.max_length == 61
    trained, validated = data.train_dataloader(), data.val_dataloader()
    assert (trained.num_workers, max(map(len, trained.batch_sampler))) == (2, 7)  # type: ignore[arg-type]
    assert sum(map(len, validated.batch_sampler)) == 11  # type: ignore[union-attr]


def test_what_is_named_or_has_spaces_is_scored_as_before_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    french = metrics_of("metric=[bleu,ter]", reference="Nous irons demain au parc.")
    assert "|tok:13a|" in french["bleu"]
    assert "|norm:no|punct:yes|asian:no|" in french["ter"]
    explicit = metrics_of("metric=[bleu,tokenized_bleu]", "metric.bleu.tokenize=13a")
    assert "|tok:13a|" in explicit["bleu"]
    assert "|tok:moses-fr|" in explicit["tokenized_bleu"]
    assert "|tok:zh|" in metrics_of("metric=[bleu]", "data.target_language=zh")["bleu"]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_the_references_of_every_set_that_is_scored_are_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "REFERENCES", 2)
    references = [[f"first {row}", "second"] for row in range(6)]
    splits = {name: Split(["a"] * 6, ["b"] * 6, [[f"{name} {a}", b] for a, b in references]) for name in SETS}
    corpus = LoadedCorpus(splits, CleaningReport({}), "en", "fr")
    sampled = [f"{name} first {row}" for name in ("val", "test", "test_web") for row in (0, 3)]
    assert build.sample_references(corpus) == sampled


def test_a_mac_trains_on_its_cpu_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    config: Any = OmegaConf.to_container(composed("trainer.accelerator=auto").trainer)
    with caplog.at_level("INFO"):
        trainer = build_trainer({"trainer": config}, tmp_path)
    assert isinstance(trainer.accelerator, CPUAccelerator)
    sentence = "The GPU of this machine (mps) lacks float64, in which searches sum log-probabilities; the CPU is used"
    assert caplog.messages.count(sentence) == 1
    for asked in ("mps", "gpu"):
        sentence = rf"^trainer.accelerator={asked} is the GPU of a Mac, which lacks float64, .*; use trainer=cpu$"
        with pytest.raises(UserError, match=sentence):
            build_trainer({"trainer": config | {"accelerator": asked}}, tmp_path)


def test_loggers_get_no_folder_of_this_machine() -> None:
    told: list[dict[str, Any]] = []
    trainer: Any = SimpleNamespace(loggers=[SimpleNamespace(log_hyperparams=told.append)])
    config = {
        "paths": {"run_dir": "/data/alice/runs/1", "cache_dir": "data/cache"},
        "callback": {"checkpoint": {"dirpath": "/data/alice/runs/1/checkpoints"}},
        "data": {"train": ["/home/alice/a.en", "~/b.fr"], "seed": 1},
    }
    start_loggers(trainer, config)
    (options,) = told
    assert options["paths"] == {"run_dir": "1", "cache_dir": "data/cache"}
    assert options["callback"] == {"checkpoint": {"dirpath": "checkpoints"}}
    assert options["data"] == {"train": ["a.en", "b.fr"], "seed": 1}
    assert config["paths"]["run_dir"] == "/data/alice/runs/1"


def test_loggers_are_made_when_they_are_started_since_they_may_write_files(tmp_path: Path) -> None:
    config: Any = {name: OmegaConf.to_container(composed("trainer=cpu")[name]) for name in ("trainer", "paths")}
    config["paths"]["run_dir"] = str(tmp_path)
    config["logger"] = {"mine": {"_target_": "seq2seq_attn.logger.csv_logger.CsvLogger", "folder": "other"}}
    trainer: Any = build_trainer(config, tmp_path)
    assert [logger.save_dir for logger in trainer.loggers] == [str(tmp_path)]
    start_loggers(trainer, config)
    assert [logger.save_dir for logger in trainer.loggers] == [str(tmp_path), "other"]
