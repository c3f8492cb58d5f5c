"""Several processes, or several accumulated batches, are the same mathematics as one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from configs import built, composed, model_of
from distributed.ranks import on_ranks
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.strategies import DDPStrategy
from small_checkpoint import small_tokenizer
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from seq2seq_attn.batch import Batch
from seq2seq_attn.callback.throughput import Throughput
from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.data.data_module import TranslationDataModule, as_is
from seq2seq_attn.data.word_links import WordLinks, write_links
from seq2seq_attn.distributed.collectives import gather_from_ranks, sum_over_ranks
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.sentence_metric import SentenceMetric
from seq2seq_attn.process import quieten
from seq2seq_attn.scheduler.schedule import inverse_sqrt
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.guided_alignment import GuidedAlignment
from seq2seq_attn.training.reinforce import Reinforce
from seq2seq_attn.training.translation_module import TranslationModule

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),  # Python 3.12's
    pytest.mark.filterwarnings("ignore:.*but have no `val_dataloader`.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
two_or_three = pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
TEXT = "the cat sees a red house and small dogs hear some birds where is my old book"
WORDS = TEXT.split()
SIZES = {"train": 67, "val": 13, "test": 5, "test_unseen": 2}  # odd, and fewer than devices


@cache
def corpus() -> LoadedCorpus:
    splits = {}
    for start, (name, size) in enumerate(SIZES.items()):
        numbers = range(100 * start, 100 * start + size)
        sources = [" ".join(WORDS[(7 * i + 3 * k) % len(WORDS)] for k in range(1 + i % 5)) for i in numbers]
        targets = [" ".join(source.split()[::-1][: 1 + i % 3]) for i, source in zip(numbers, sources, strict=True)]
        splits[name] = Split(sources, targets, [[target] for target in targets])
    return LoadedCorpus(splits, CleaningReport({}), "en", "fr")


@cache
def tokenizer() -> SentencePieceTokenizer:
    return small_tokenizer(corpus().splits["train"].sources)


def module(lr: float = 0.1, dropout: float = 0.0) -> TranslationModule:
    """Scaled, so that translations are not near-ties, in float64."""
    size = tokenizer().source_vocab_size
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    dropouts = [f"model.{part}dropout={dropout}" for part in ("", "encoder.", "decoder.")]
    model = model_of(*dropouts, source_vocab_size=size, target_vocab_size=size)
    for parameter in model.parameters():
        parameter.data *= 3
    return TranslationModule(
        model=model,
        tokenizer=tokenizer(),
        search=built(composed("search.limits.max_length=11").search),
        metrics={"bleu": built(composed().metric.bleu)},
        test_names=["test", "test_unseen"],
        optimizer=partial(torch.optim.SGD, lr=lr),
        scheduler=partial(inverse_sqrt, warmup_steps=1),
        label_smoothing=0.1,
        config={},
    )


def data(folder: Path, **settings: Any) -> TranslationDataModule:
    made = TranslationDataModule(
        corpus(), tokenizer(), **{"batch_tokens": 128, "seed": 1, "cache_dir": str(folder), **settings}
    )
    made.prepare_data()
    return made


def trainer(ranks: int, **settings: Any) -> pl.Trainer:
    quieten()
    common = {
        "accelerator": "cpu",
        "devices": ranks,
        "strategy": "ddp" if ranks > 1 else "auto",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "use_distributed_sampler": False,
        "num_sanity_val_steps": 0,
    }
    return pl.Trainer(**(common | settings))


class Recorder(pl.Callback):
    """Notes gradients before an update, the loss as it is logged, and rows by stage."""

    def __init__(self) -> None:
        self.gradients: dict[str, Tensor] = {}
        self.losses: list[float] = []
        self.rows: dict[str, list[list[int]]] = {}

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.gradients = {name: p.grad.clone() for name, p in pl_module.named_parameters()}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.losses.append(float(trainer.callback_metrics["train/loss"]))
        self.rows.setdefault(f"train {trainer.current_epoch}", []).append(batch.index.tolist())

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Batch, *_: Any) -> None:
        self.rows.setdefault("val", []).append(batch.index.tolist())

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.rows.setdefault(pl_module.test_names[dataloader_idx], []).append(batch.index.tolist())


BATCHES = [[0, 1, 2], [3, 4, 5, 6, 7], [8], [9, 10, 11, 12]]  # of different numbers of tokens


def reversed_links(folder: Path) -> WordLinks:
    """The links of the training pairs, whose targets reverse their sources."""
    train = corpus().splits["train"]
    words = np.array([(len(s.split()), len(t.split())) for s, t in zip(train.sources, train.targets, strict=True)])
    links = np.array([(sources - 1 - word, word) for sources, targets in words for word in range(targets)])
    if not (folder / "offsets.npy").exists():
        write_links(folder, links, words[:, 1], words)
    return WordLinks(folder)


def one_update(folder: Path, ranks: int, accumulated: int) -> tuple[dict[str, Tensor], float, float]:
    """Its gradients and losses, where `ranks` processes read the batches in `accumulated` parts each."""
    recorder, datamodule, translator = Recorder(), data(folder), module()
    datamodule.links = {"train": reversed_links(folder / "links")}
    translator.guided_alignment = GuidedAlignment(links="links", weight=0.5, layer=None, head=0)
    training = trainer(ranks, max_steps=1, accumulate_grad_batches=accumulated, callbacks=[recorder])
    parts = [
        [row for batch in BATCHES[part :: ranks * accumulated] for row in batch] for part in range(ranks * accumulated)
    ]
    rows = parts[training.global_rank :: ranks]
    datamodule.setup()
    dataset = datamodule.train_dataloader().dataset
    training.fit(translator, DataLoader(dataset, batch_sampler=rows, collate_fn=as_is))  # type: ignore[arg-type]
    return recorder.gradients, recorder.losses[-1], float(training.callback_metrics["train/alignment_loss"])


@pytest.mark.usefixtures("double")
def test_one_process_with_all_batches_is_several_processes_or_accumulated_batches(tmp_path: Path) -> None:
    data(tmp_path)
    reversed_links(tmp_path / "links")
    ((expected, *losses),) = on_ranks(1, one_update, tmp_path, tmp_path, 1, 1)
    assert min(losses) > 1
    assert len(expected) > 10
    assert min(gradient.abs().max() for gradient in expected.values()) > 1e-6
    for ranks, accumulated in [(1, 4), (2, 2)]:
        for gradients, *found in on_ranks(ranks, one_update, tmp_path, tmp_path, ranks, accumulated):
            for name, gradient in gradients.items():
                torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-10)
            assert found == pytest.approx(losses, abs=1e-12)


def whole_run(folder: Path, ranks: int) -> dict[str, Any]:
    """Trained at a rate of 0 until BLEU does not rise, and tested."""
    recorder, throughput, translator = Recorder(), Throughput(), module(lr=0.0)
    callbacks = [recorder, throughput, EarlyStopping("val/bleu", mode="max", patience=1)]
    training = trainer(ranks, max_epochs=7, callbacks=callbacks)
    datamodule = data(folder)
    training.fit(translator, datamodule=datamodule)
    figures = {name: value.item() for name, value in training.callback_metrics.items() if "val/" in name}
    steps, validated = training.global_step, recorder.rows.pop("val")
    training.test(translator, datamodule=datamodule, verbose=False)
    figures |= {name: value.item() for name, value in training.callback_metrics.items() if "test" in name}
    return {
        "rows": recorder.rows | {"val": validated[: len(validated) // 2]},
        "steps": steps,
        "epochs": training.current_epoch,
        "tokens": throughput.tokens,
        "figures": figures | {"entropy": translator.scores.entropy},
        "said": (translator.scores.translations, translator.scores.signatures, translator.scores.decode_seconds),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[dict[str, Any]]]:
    """What each process of a whole run has, by their number."""
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def of(ranks: int) -> list[dict[str, Any]]:
        torch.set_default_dtype(torch.float64)
        try:
            data(folder)
            return on_ranks(ranks, whole_run, folder, folder, ranks)
        finally:
            torch.set_default_dtype(torch.float32)

    return of


@two_or_three
def test_processes_share_an_odd_corpus_in_as_many_batches_and_each_sentence_is_read_once(
    runs: Callable[[int], list[dict[str, Any]]], ranks: int
) -> None:
    stages = ["train 0", "train 1", *list(SIZES)[1:]]
    assert set(runs(ranks)[0]["rows"]) == set(stages)
    for stage in stages:
        shares = [of_rank["rows"][stage] for of_rank in runs(ranks)]
        assert len({len(share) for share in shares}) == 1
        rows = sorted(row for share in shares for batch in share for row in batch)
        assert rows == list(range(SIZES[stage.partition(" ")[0]])), stage
    assert [] in [batch for of_rank in runs(ranks) for batch in of_rank["rows"]["test_unseen"]]


@pytest.mark.slow
@two_or_three
def test_every_process_has_the_figures_of_one_alone_to_the_last_digit(
    runs: Callable[[int], list[dict[str, Any]]], ranks: int
) -> None:
    (alone,) = runs(1)
    assert {"val/loss", "val/ppl", "val/bleu", "test/accuracy", "test_unseen/bleu"} <= set(alone["figures"])
    assert alone["figures"]["test/ppl"] > 1
    assert {name: len(rows) for name, rows in alone["said"][0].items()} == {"test": 5, "test_unseen": 2}
    for of_rank in runs(ranks):
        assert of_rank["figures"] == alone["figures"]
        assert of_rank["said"][:2] == alone["said"][:2]
        assert of_rank["tokens"] == alone["tokens"]


@two_or_three
def test_all_processes_stop_early_at_the_same_step_and_decode_as_long_as_the_slowest(
    runs: Callable[[int], list[dict[str, Any]]], ranks: int
) -> None:
    assert {of_rank["epochs"] for of_rank in runs(ranks)} == {2}
    assert len({of_rank["steps"] for of_rank in runs(ranks)}) == 1
    assert len({of_rank["said"][2] for of_rank in runs(ranks)}) == 1


class Rates(pl.Callback):
    """Notes the learning rate after each validation."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def lowered(folder: Path, ranks: int) -> list[float]:
    """The rates of a run whose BLEU never rises."""
    translator, noted = module(lr=1e-12), Rates()
    translator.config = {"monitor": "val/bleu"}
    translator.scheduler = partial(ReduceLROnPlateau, mode="max", factor=0.5, patience=0, eps=0.0)
    training = trainer(ranks, max_steps=6, val_check_interval=1, num_sanity_val_steps=2, callbacks=[noted])
    training.fit(translator, datamodule=data(folder))
    return noted.rates


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_a_rate_that_follows_validations_is_lowered_after_the_same_ones_in_all_processes(tmp_path: Path) -> None:
    data(tmp_path)
    for ranks in (1, 2):
        first, *others = on_ranks(ranks, lowered, tmp_path, tmp_path, ranks)
        assert first == pytest.approx([1e-12 * 0.5**count for count in range(len(first))], rel=1e-12, abs=0.0)
        assert len(first) > 4
        assert others == [first] * (ranks - 1)


def hurried(folder: Path, ranks: int) -> int:
    training = trainer(ranks, max_epochs=-1, max_time={"milliseconds": 300}, limit_val_batches=0)
    training.fit(module(dropout=0.1), datamodule=data(folder))
    return training.global_step


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_a_time_limit_stops_all_processes_at_the_same_step(tmp_path: Path) -> None:
    data(tmp_path)
    first, second = on_ranks(2, hurried, tmp_path, tmp_path, 2)
    assert first == second > 0


@final
class LongScore(SentenceMetric):
    """A score of a whole test that takes longer than processes wait for each other."""

    scores_whole_test: ClassVar[bool] = True

    def sentence_scores(self, hypotheses: Any, references: Any, sources: Any) -> list[float]:
        time.sleep(5)
        return [50.0] * len(hypotheses)


def scored_for_long(folder: Path) -> float:
    """The score of a test on this process, whose collectives fail after three seconds."""
    translator = module()
    translator.scores.metrics["test"]["long"] = LongScore(signed="long")
    testing = trainer(2, strategy=DDPStrategy(timeout=timedelta(seconds=3)))
    testing.test(translator, datamodule=data(folder), verbose=False)
    return translator.scores.figures["test"]["long"]


@pytest.mark.usefixtures("double")
@pytest.mark.slow  # it waits longer than a collective may
def test_others_wait_for_a_score_of_the_first_process_however_long_it_takes(tmp_path: Path) -> None:
    data(tmp_path)
    assert on_ranks(2, scored_for_long, tmp_path, tmp_path) == [50.0, 50.0]


REWARD, PIECES = torch.tensor([-6.0, -2.0, -4.0, -1.0]), torch.tensor([3, 1, 2, 5])


def baseline(slices: list[slice]) -> tuple[float, float]:
    """Of hard attention, after two batches of which this process reads its share."""
    share = slices[connect()]
    reinforce = Reinforce(momentum=0.75)
    for scale in (1, 2):
        reinforce(scale * REWARD[share], PIECES[share], torch.zeros(4)[share], torch.zeros(4)[share])
    return reinforce.running_reward.item(), reinforce.running_tokens.item()


def connect() -> int:
    """The rank of this process, which finds the others."""
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank()


def test_the_baseline_of_hard_attention_is_that_of_all_sentences(tmp_path: Path) -> None:
    (alone,) = on_ranks(1, baseline, tmp_path, [slice(None)])
    assert on_ranks(2, baseline, tmp_path, [slice(0, 1), slice(1, 4)]) == [alone, alone]
    assert alone == pytest.approx((-13 * (0.25 * 0.75 + 2 * 0.25), 11 * (0.25 * 0.75 + 0.25)))


def refusal(folder: Path, what: str) -> str:
    """Of a process group whose last rank has something else."""
    rank = connect()
    is_last = rank == torch.distributed.get_world_size() - 1
    links, linked_word = folder / f"links {rank}", int(is_last and what == "links")
    write_links(links, np.array([[0, linked_word]]), np.array([1]), np.array([[2, 2]]))
    datamodule = TranslationDataModule(
        replace(corpus(), source_language="de") if is_last and what == "pairs" else corpus(),
        small_tokenizer(["other text 123"]) if is_last and what == "vocabulary" else tokenizer(),
        batch_tokens=128,
        seed=1,
        cache_dir=str(folder),
        links={"train": WordLinks(links)},
    )
    with pytest.raises(UserError) as refused:
        datamodule.setup()
    return str(refused.value)


@pytest.mark.parametrize(
    ("what", "named"), [("pairs", "other pairs"), ("vocabulary", "another vocabulary"), ("links", "other word links")]
)
def test_ranks_of_other_data_are_refused_on_every_rank(what: str, named: str, tmp_path: Path) -> None:
    sentence = (
        f"rank 2 has {named} than rank 0; give every node the same files and options, and one paths.cache_dir, or "
        "empty the cache of the node that differs"
    )
    assert on_ranks(3, refusal, tmp_path, tmp_path, what) == [sentence] * 3


def spoken() -> tuple[list[float], list[str]]:
    rank = connect()
    mine = torch.tensor([1.0, 10.0**rank])
    total = sum_over_ranks(mine)
    assert mine.tolist() == [1.0, 10.0**rank]
    return total.tolist(), gather_from_ranks(f"rank {rank}")


def test_ranks_hear_each_other_in_order(tmp_path: Path) -> None:
    assert on_ranks(3, spoken, tmp_path) == [([3.0, 111.0], ["rank 0", "rank 1", "rank 2"])] * 3
    assert sum_over_ranks(torch.tensor([7.0])).tolist() == [7.0]
    assert gather_from_ranks("alone") == ["alone"]
