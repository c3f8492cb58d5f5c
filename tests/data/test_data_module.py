"""From a corpus to batches, through a tokenizer and the cache."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.data.data_module import TranslationDataModule, leave_signals_to_parent
from seq2seq_attn.data.demo import DemoCorpus
from seq2seq_attn.data.tatoeba import TatoebaCorpus
from seq2seq_attn.errors import UserError
from seq2seq_attn.objective.denoising import Denoising
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

CONF = Path(__file__).resolve().parents[2] / "conf"


def split(numbers):
    sources = ["the red cat sees " + "very " * (i % 5) + f"old dog {i}." for i in numbers]
    targets = ["le chat rouge voit " + "très " * (i % 3) + f"vieux chien {i}." for i in numbers]
    return Split(sources, targets, [[target] for target in targets])


@pytest.fixture
def corpus():
    splits = {"train": split(range(211)), "val": split(range(300, 317)), "test": split(range(400, 413))}
    splits["test_unseen"] = Split(["", "a " * 600], ["b", ""], [["b"], [""]])
    return LoadedCorpus(splits, CleaningReport({}), "en", "fr")


def make(corpus, tmp_path, sampling_alpha=0.0, seed=1, val_sentences=None):
    tokenizer = SentencePieceTokenizer("unigram", 60, True, sampling_alpha, str(tmp_path))
    tokenizer.train(corpus.splits["train"].sources, corpus.splits["train"].targets)
    module = TranslationDataModule(
        corpus, tokenizer, batch_tokens=512, seed=seed, cache_dir=str(tmp_path), val_sentences=val_sentences
    )
    module.prepare_data()
    module.setup()
    return module


def test_training_batches_hold_every_pair_within_the_budget(corpus, tmp_path):
    module = make(corpus, tmp_path)
    batches = list(module.train_dataloader())
    assert sorted(i for batch in batches for i in batch.index.tolist()) == list(range(211))
    assert max(batch.source.numel() + batch.target_input.numel() for batch in batches) <= 512
    assert 0.0 <= module.padding_share < 0.15
    batch = batches[0]
    for row, i in enumerate(batch.index.tolist()):
        tokens = batch.target_output[row, : batch.target_lengths[row]].tolist()
        assert module.tokenizer.decode_target([tokens]) == [corpus.splits["train"].targets[i]]


def test_a_training_batch_has_no_more_pairs_than_asked(corpus, tmp_path):
    module = make(corpus, tmp_path)
    module.batch_sentences = 5
    sizes = [len(batch) for batch in module.train_dataloader()]
    assert (max(sizes), sum(sizes)) == (5, 211)
    assert max(len(batch) for batch in module.val_dataloader()) > 5  # of 17


def test_the_first_batches_of_an_evaluation_that_ends_early_are_not_the_shortest(corpus, tmp_path):
    module = make(corpus, tmp_path)
    module.batch_tokens = module.eval_batch_tokens = 120
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    limits = {"limit_val_batches": 1.0, "limit_test_batches": 1.0, "overfit_batches": 0.0}
    module.trainer = SimpleNamespace(world_size=1, global_rank=0, current_epoch=0, strategy=strategy, **limits)
    loaders = {"val": module.val_dataloader, "test": lambda: module.test_dataloader()[0]}
    for name, loader in loaders.items():
        shortest_first = list(loader().batch_sampler)
        for limit in (2, 1, 0.5):
            setattr(module.trainer, f"limit_{name}_batches", limit)
            spread = [list(loader().batch_sampler) for _ in range(2)]
            assert spread[0] == spread[1] != shortest_first
            assert sorted(spread[0]) == sorted(shortest_first)
    module.trainer.overfit_batches = 2
    sampler = module.train_dataloader().batch_sampler
    length = [np.mean([len(corpus.splits["train"].sources[row]) for row in batch]) for batch in sampler]
    assert length != sorted(length)
    assert list(sampler) == list(sampler)
    sampler.set_epoch(1)
    assert length == [np.mean([len(corpus.splits["train"].sources[row]) for row in batch]) for batch in sampler]


def test_a_validation_set_that_is_tested_too_is_limited_as_the_test_sets_are(corpus, tmp_path):
    module = make(corpus, tmp_path, val_sentences=5)
    module.eval_batch_tokens = 120
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    limits = {"limit_val_batches": 1.0, "limit_test_batches": 1.0, "overfit_batches": 0.0}
    module.trainer = SimpleNamespace(world_size=1, global_rank=0, current_epoch=0, strategy=strategy, **limits)
    shortest_first = list(module.test_dataloader()[2].batch_sampler)
    module.trainer.limit_val_batches = 2
    assert list(module.test_dataloader()[2].batch_sampler) == shortest_first
    module.trainer.limit_test_batches = 2
    spread = list(module.test_dataloader()[2].batch_sampler)
    assert spread != shortest_first
    assert sorted(spread) == sorted(shortest_first)


def test_without_a_validation_split_there_is_no_loader(corpus, tmp_path):
    del corpus.splits["val"]
    assert make(corpus, tmp_path, val_sentences=5).val_dataloader() == []


def test_validation_and_every_test_set_are_whole_even_where_empty_or_too_long(corpus, tmp_path):
    module = make(corpus, tmp_path)
    assert module.test_names == ["test", "test_unseen"]
    loaders = [module.val_dataloader(), *module.test_dataloader()]
    rows = [sorted(i for batch in loader for i in batch.index.tolist()) for loader in loaders]
    assert rows == [list(range(17)), list(range(13)), [0, 1]]


def rows_of(loader):
    return [i for batch in loader for i in batch.index.tolist()]


def test_a_share_of_the_validation_set_is_spread_over_it_and_all_of_it_is_tested(corpus, tmp_path):
    module = make(corpus, tmp_path, val_sentences=5)
    assert sorted(rows_of(module.val_dataloader())) == [0, 3, 6, 10, 13]  # of 17
    assert sorted(rows_of(make(corpus, tmp_path, seed=7, val_sentences=5).val_dataloader())) == [0, 3, 6, 10, 13]
    assert module.test_names == ["test", "test_unseen", "val"]
    assert sorted(rows_of(module.test_dataloader()[2])) == list(range(17))
    assert sorted(rows_of(module.train_dataloader())) == list(range(211))


@pytest.mark.parametrize("val_sentences", [17, 18])
def test_as_many_validation_sentences_as_there_are_is_all_of_them(corpus, tmp_path, val_sentences):
    module = make(corpus, tmp_path, val_sentences=val_sentences)
    assert sorted(rows_of(module.val_dataloader())) == list(range(17))
    assert module.test_names == ["test", "test_unseen"]


def test_encodings_are_kept_and_damaged_ones_made_again(corpus, tmp_path):
    before = [b.source.tolist() for b in make(corpus, tmp_path).val_dataloader()]
    files = sorted((tmp_path / "encoded").rglob("*.npy"))
    assert len(files) == 4 * 4
    stamps = [file.stat().st_mtime_ns for file in files]
    assert [b.source.tolist() for b in make(corpus, tmp_path).val_dataloader()] == before
    assert [file.stat().st_mtime_ns for file in files] == stamps
    for file in files:
        file.write_bytes(file.read_bytes()[:-3])
    assert [b.source.tolist() for b in make(corpus, tmp_path).val_dataloader()] == before


def test_sampled_segmentations_are_a_function_of_seed_and_epoch_and_only_for_training(corpus, tmp_path):
    def sources(epoch, seed=1):
        loader = make(corpus, tmp_path, sampling_alpha=0.3, seed=seed).train_dataloader()
        loader.batch_sampler.sampler.set_epoch(epoch)
        return {i: ids for b in loader for i, ids in zip(b.index.tolist(), b.source.tolist(), strict=True)}

    assert sources(0) == sources(0)
    assert sources(0) != sources(1)
    assert sources(0) != sources(0, seed=2)
    plain, sampled = make(corpus, tmp_path), make(corpus, tmp_path, sampling_alpha=0.3)
    assert sampled.val_dataloader().dataset[0].source.tolist() == plain.val_dataloader().dataset[0].source.tolist()


def test_a_sentence_is_drawn_anew_in_every_batch(corpus, tmp_path):
    corpus.splits["train"] = split([*range(211), *[7] * 30])
    dataset = make(corpus, tmp_path, sampling_alpha=0.3).train_dataloader().dataset
    batches = [dataset.__getitems__([row]) for row in range(211, 241)]
    for side in ("source", "target_output"):
        assert len({tuple(getattr(batch, side)[0].tolist()) for batch in batches}) > 5


def test_a_sampled_segmentation_with_more_tokens_than_the_model_has_positions_is_not_taken(corpus, tmp_path):
    def longest(max_length):
        module = make(corpus, tmp_path, sampling_alpha=0.1)
        module.max_length = max_length
        batches = list(module.train_dataloader())
        return max(max(batch.source.shape[1], batch.target_input.shape[1]) for batch in batches)

    plain = max(make(corpus, tmp_path).longest["train"])
    assert longest(None) > plain
    assert longest(plain) == plain


def test_batches_stay_near_the_budget_when_segmentations_are_sampled(corpus, tmp_path):
    batches = list(make(corpus, tmp_path, sampling_alpha=0.1).train_dataloader())
    assert max(batch.source.numel() + batch.target_input.numel() for batch in batches) <= 1.3 * 512


class Recorder(pl.LightningModule):
    """Notes which rows Lightning brings in which epoch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.epochs, self.tested = {}, {}

    def training_step(self, batch, batch_idx):
        self.epochs.setdefault(self.current_epoch, []).append(batch.index.tolist())
        return self.weight * 1.0

    def validation_step(self, batch, batch_idx):
        pass

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        self.tested.setdefault(dataloader_idx, []).extend(batch.index.tolist())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(tmp_path, **settings):
    return pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        **settings,
    )


class Groups(torch.utils.data.Dataset):
    """The group of the process that reads an item."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return os.getpgid(0)


def test_a_worker_gets_no_signal_that_is_sent_to_the_group_of_the_command(corpus, tmp_path):
    loader = make(corpus, tmp_path).train_dataloader()
    assert loader.worker_init_fn is leave_signals_to_parent
    (group,) = torch.utils.data.DataLoader(Groups(), num_workers=1, worker_init_fn=loader.worker_init_fn)
    assert group.item() != os.getpgid(0)


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")  # Lightning's
def test_lightning_gets_new_batches_each_epoch_the_same_after_a_resume_and_every_test_set(corpus, tmp_path):
    whole, resumed = Recorder(), Recorder()
    trainer(tmp_path, max_epochs=3).fit(whole, datamodule=make(corpus, tmp_path))
    first = trainer(tmp_path, max_epochs=2)
    first.fit(Recorder(), datamodule=make(corpus, tmp_path))
    first.save_checkpoint(tmp_path / "two.ckpt")
    trainer(tmp_path, max_epochs=3).fit(
        resumed, datamodule=make(corpus, tmp_path), ckpt_path=tmp_path / "two.ckpt", weights_only=True
    )
    assert whole.epochs[0] != whole.epochs[1] != whole.epochs[2]
    assert resumed.epochs == {2: whole.epochs[2]}
    trainer(tmp_path).test(resumed, datamodule=make(corpus, tmp_path), verbose=False)
    assert {name: sorted(rows) for name, rows in resumed.tested.items()} == {0: list(range(13)), 1: [0, 1]}


def test_the_rest_of_an_epoch_needs_the_same_training_pairs_and_may_have_another_validation_set(
    corpus, tmp_path, caplog
):
    module = make(corpus, tmp_path)
    state = {"epoch": 0, "batch": 1, "corpus": corpus.fingerprint} | module._shape(module._sampler("train"))

    def resume(splits, **read):
        other = replace(corpus, splits=corpus.splits | splits)
        options = {"batch_tokens": 512, "seed": 1, "cache_dir": str(tmp_path)}
        data = TranslationDataModule(other, module.tokenizer, **options)
        assert data._sampler("train").fingerprint == state["cuts"]
        data.load_state_dict(state | read)

    resume({})
    assert not caplog.messages
    resume({"val": split(range(500, 517))})
    assert [line.partition(" with")[0] for line in caplog.messages] == ["The data is not that"]
    reverse = {"train": split(range(210, -1, -1))}
    resume(reverse, batch=0)
    resume(reverse, batch=state["batches"])
    resume(reverse, limit=1)  # trainer.limit_train_batches=1 ended that epoch
    with pytest.raises(
        UserError,
        match=r"^the run was stopped within an epoch, after 1 of .*; continue it .* tokenizer.sampling_alpha, ",
    ):
        resume(reverse)
    del state["pairs"]  # as in an earlier version
    resume(reverse)


@pytest.mark.parametrize(("name", "kind"), [("demo", DemoCorpus), ("tatoeba", TatoebaCorpus)])
def test_the_yaml_gives_the_corpus(name, kind):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=[f"data={name}", "data.cleaning.max_words=7", "seed=5"])
    corpus = instantiate(config.data, _convert_="all")
    assert type(corpus) is kind
    assert corpus.cleaning.max_words == 7


def test_a_copy_of_a_batch_to_a_gpu_is_not_waited_for(corpus, tmp_path, monkeypatch):
    data, given = make(corpus, tmp_path), []
    batch = next(iter(data.train_dataloader()))

    def record(tensor, device, non_blocking):
        given.append((device, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", record)
    for kind in ("cuda", "cpu"):
        data.transfer_batch_to_device(batch, torch.device(kind), 0)
    assert set(given) == {(torch.device("cuda"), True), (torch.device("cpu"), False)}


def test_noise_is_refused_at_once_where_the_tokenizer_has_too_few_sentinels(corpus, tmp_path):
    tokenizer = SentencePieceTokenizer("unigram", 60, True, 0.0, str(tmp_path), num_sentinels=5)
    tokenizer.train([], corpus.splits["train"].targets)

    def make_noise(num_sentinels):
        noise = Denoising(noise_density=0.15, mean_span_length=3.0, num_sentinels=num_sentinels)
        options = {"batch_tokens": 512, "seed": 1, "cache_dir": str(tmp_path), "objective": noise}
        return TranslationDataModule(corpus.one_sided(), tokenizer, **options).noise

    assert make_noise(5) is not None
    with pytest.raises(UserError, match=r"^Denoising needs 7 sentinels, and the tokenizer .* has 5; leave out token"):
        make_noise(7)
