"""A run that starts from another: its model, tokenizer and search, its weights, and what the command line changes."""

from __future__ import annotations

import inspect
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import CONF, compose_here, model_of
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from small_checkpoint import write_checkpoint
from small_run import CALLBACKS, KilledError, assert_same_run, begun, weights
from tiny import tokenizer
from tiny import write_checkpoint as write_tiny
from torch import nn

from seq2seq_attn.checkpoint.checkpoint_file import write_checkpoint as write_whole
from seq2seq_attn.checkpoint.export_safetensors import main as export
from seq2seq_attn.checkpoint.load import Loaded, load, read_checkpoint
from seq2seq_attn.cli.train import parent_choice
from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import sha256
from seq2seq_attn.paths import search_path
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training import initialize as initialization
from seq2seq_attn.training import parent_config as parents
from seq2seq_attn.training.check_config import check_config
from seq2seq_attn.training.parent import Parent, read_parent, warn_of_held_out, warn_of_lost_guidance
from seq2seq_attn.training.parent_config import FRESH, OF_PARENT, choose_parent, name_attention, tokenizer_options
from seq2seq_attn.training.parent_weights import copy_weights
from seq2seq_attn.training.run import train
from seq2seq_attn.training.translation_module import TranslationModule

pytestmark = pytest.mark.usefixtures("quiet")
CHILD = [
    "data=parallel", "batch_tokens=400", "trainer.max_epochs=1", "trainer=cpu", "num_threads=1",
    "trainer.enable_progress_bar=false", CALLBACKS,
]  # fmt: skip
UNTRAINED = ["trainer.max_epochs=0", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]


def compose_child(*overrides: str) -> Any:
    """What the command composes, with the override that its own imply."""
    return compose_here(*overrides, *choose_parent(overrides))


def tune(folder: Path, *overrides: str) -> dict[str, Any]:
    """What train.py does, without Hydra's application around it."""
    folder.mkdir(exist_ok=True)
    given = [f"paths.run_dir='{folder}'", f"hydra.run.dir='{folder}'", "choices.data=null", *CHILD]
    names = [f"choices.{name}=null" for name in ("attention", "model")]
    return train(compose_child(*given, *names, *overrides))


def of(node: Any) -> Any:
    return OmegaConf.to_container(node, resolve=True)


def test_a_new_run_has_the_model_tokenizer_search_and_weights_of_its_parent(
    trained_run: Path, pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    best = trained_run / "checkpoints" / "best.ckpt"
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        tune(tmp_path, *pairs, f"init_from.run={trained_run}", *UNTRAINED)
    ours, theirs = read_checkpoint(tmp_path / "checkpoints" / "best.ckpt"), read_checkpoint(best)
    for name in ("model", "search", "attention"):
        missing = {"source_embedding_file": None, "target_embedding_file": None} if name == "model" else {}
        assert ours["config"][name] == theirs["config"][name] | missing, name
    assert load(str(tmp_path)).tokenizer.fingerprint == load(str(best)).tokenizer.fingerprint
    assert ours["tokenizer"]["sampling_alpha"] == theirs["tokenizer"]["sampling_alpha"] == 0.3
    model = [name for name in theirs["state_dict"] if name.startswith("model.")]
    assert all(torch.equal(ours["state_dict"][name], theirs["state_dict"][name]) for name in model)
    assert (ours["global_step"], ours["config"]["optimizer"]["lr"]) == (0, 0.001)  # of recipe=fine_tuning
    identity = {"path": str(best), "sha256": sha256(best), "step": theirs["global_step"]}
    assert json.loads((tmp_path / "provenance.json").read_text())["init_from"] == ours["parent"] == identity
    assert f"{len(model)} of {len(model)} tensors start from {best}, step {identity['step']}" in caplog.messages
    assert "parent" not in theirs


CLEANED = ("data.cleaning.lowercase=true", "data.cleaning.split_punctuation=true", "data.cleaning.max_words=7")


def languages(data: Any) -> tuple[str, str]:
    return data.source_language, data.target_language


@pytest.mark.slow
def test_text_is_cleaned_as_that_of_the_parent_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", *CLEANED, "data.cleaning.normalize_spaces=false")
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    for data in ("parallel", "tatoeba", "text"):
        cleaning = compose_child(run, f"data={data}").data.cleaning
        assert (cleaning.lowercase, cleaning.split_punctuation, cleaning.normalize_spaces) == (True, True, False)
        assert cleaning.max_words == 100  # which is no option of the text
    assert compose_child(run, "data=documents").data.corpus.cleaning.lowercase
    given = compose_child(run, "data=parallel", "data.cleaning.lowercase=false").data.cleaning
    assert (given.lowercase, given.split_punctuation) == (False, True)
    longer = compose_child(run, "data=parallel", "data/cleaning=long").data.cleaning
    assert (longer.lowercase, longer.max_words) == (True, 200)
    write_checkpoint(tmp_path / "a.ckpt")
    of_experiment = compose_child(run, "experiment=d2l_fra_eng").data.cleaning
    assert (of_experiment.lowercase, of_experiment.split_punctuation) == (True, True)


@pytest.mark.slow
def test_files_of_the_user_are_in_the_languages_of_the_parent(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", "data.source_language=de", "data.target_language=zh")
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    for data in ("parallel", "huggingface", "mixture"):
        assert languages(compose_child(run, f"data={data}").data) == ("de", "zh")
    assert compose_child(run, "data=parallel").metric.bleu.language == "zh"
    assert languages(compose_child(run, "data=parallel", "data.source_language=ru").data) == ("ru", "zh")
    for named in ("multi30k", "tatoeba"):
        assert languages(compose_child(run, f"data={named}").data) == ("en", "fr")
    assert languages(compose_child(run, "data=text").data) == ("text", "text")


@pytest.mark.slow
def test_a_parent_of_one_sided_text_names_the_language_of_such_text_alone(tmp_path: Path) -> None:
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    write_tiny(tmp_path / "a.ckpt", "model=lm", "data=text", "data.target_language=de")
    assert languages(compose_child(run, "data=text").data) == ("de", "de")
    assert languages(compose_child(run, "data=parallel").data) == ("en", "fr")
    write_tiny(tmp_path / "a.ckpt", "model=lm", "data.source_language=de", "data.target_language=zh")
    assert languages(compose_child(run, "data=parallel").data) == ("de", "zh")
    checkpoint = write_checkpoint(tmp_path / "a.ckpt", "data=text", "data.target_language=both")
    checkpoint["config"]["objective"] = {"_target_": "seq2seq_attn.objective.denoising.Denoising"}
    torch.save(checkpoint, tmp_path / "a.ckpt")
    assert languages(compose_child(run, "data=parallel").data) == ("en", "fr")


def test_without_a_parent_nothing_of_one_is_composed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt", *CLEANED, "data.source_language=de")
    compose_child(f"init_from.run={tmp_path / 'a.ckpt'}")
    data = compose_here("data=parallel").data
    assert (data.cleaning.lowercase, data.source_language) == (False, "en")


def test_the_cleaning_of_the_parent_is_named_and_another_one_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_checkpoint(tmp_path / "a.ckpt", *CLEANED)
    file = tmp_path / "a.ckpt"
    run = f"init_from.run={file}"
    options = "data.cleaning.lowercase=true data.cleaning.split_punctuation=true"
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        read_parent(compose_child(run), None)
    assert caplog.messages == [f"The text is cleaned as that of {file}: {options}"]
    caplog.clear()
    child = compose_child(run, *(option.replace("true", "false") for option in options.split()))
    read_parent(child, None)
    assert caplog.messages == [
        f"The text of {file} was cleaned with {options}, and that of this run is not; give the same, unless the model "
        "is to learn other text"
    ]


TRANSFORMER = ("model=transformer", "attention=local", "position=rotary", "feed_forward=swiglu", "search=beam")


@pytest.mark.slow
def test_an_override_changes_one_part_of_the_parent(tmp_path: Path) -> None:
    parent = write_checkpoint(tmp_path / "a.ckpt", *TRANSFORMER, "model.encoder.norm=post")["config"]
    run = f"init_from.run={tmp_path / 'a.ckpt'}"

    def model(*overrides: str) -> Any:
        return of(compose_child(run, *overrides).model)

    assert model() == parent["model"] | FRESH
    assert of(compose_child(run).search) == parent["search"]
    assert model("model.encoder.norm=pre", "position.base=7") != parent["model"]
    changed = model("model.encoder.norm=pre", "position.base=7.0")
    assert (changed["encoder"]["norm"], changed["decoder"]["position"]["base"]) == ("pre", 7.0)
    assert changed["decoder"]["num_layers"] == parent["model"]["decoder"]["num_layers"]
    changed = model("attention=sparse")
    assert changed["encoder"]["self_attention"]["pattern"]["_target_"].endswith("SparsePattern")
    assert changed["decoder"]["self_attention"] == changed["encoder"]["self_attention"]
    assert changed["decoder"]["cross_attention"] == parent["model"]["decoder"]["cross_attention"]
    changed = model("attention/score@cross_attention.score=general", "attention@self_attention=none")
    assert changed["decoder"]["cross_attention"]["score"]["_target_"].endswith("GeneralScore")
    assert changed["encoder"]["self_attention"]["score"]["_target_"].endswith("UniformScore")
    changed = model("attention/mix=talking_heads", "attention/gate@cross_attention.gate=sigmoid")
    assert changed["encoder"]["self_attention"]["mix"]["_target_"].endswith("TalkingHeadsMix")
    assert "gate" not in changed["encoder"]["self_attention"]
    assert changed["decoder"]["cross_attention"]["gate"]["_target_"].endswith("SigmoidGate")
    assert "length_penalty" in of(compose_child(run, "search/length_penalty=mean").search)
    assert model("decoder@model.decoder=rnn")["encoder"] == parent["model"]["encoder"]
    assert model("model=conv") == of(compose_here("recipe=none", "model=conv").model)
    assert model("recipe=multi30k_rnn", "model.embedding_dim=8")["embedding_dim"] == 8


@pytest.mark.slow
def test_self_attention_of_a_recurrent_decoders_encoder_stays_its_own(tmp_path: Path) -> None:
    mixed = ("encoder@model.encoder=transformer", "attention@self_attention=local", "attention=luong_general")
    parent = write_checkpoint(tmp_path / "a.ckpt", *mixed)["config"]["model"]
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    assert of(compose_child(run).model) == parent | FRESH
    changed = of(compose_child(run, "attention=bahdanau").model)
    assert changed["encoder"] == parent["encoder"]
    assert changed["decoder"]["attention"]["score"]["_target_"].endswith("AdditiveScore")
    for slot in ("self_attention", "encoder_attention"):
        changed = of(compose_child(run, f"attention@{slot}=sparse").model)
        assert changed["decoder"] == parent["decoder"]
        assert changed["encoder"]["self_attention"]["pattern"]["_target_"].endswith("SparsePattern")


@pytest.mark.parametrize("slot", ["encoder_attention", "self_attention"])
def test_encoder_and_decoder_keep_the_attention_in_which_they_differ(slot: str, tmp_path: Path) -> None:
    of_both, of_encoder = ("sparse", "local") if slot == "encoder_attention" else ("local", "sparse")
    apart = [] if slot == "encoder_attention" else ["model.decoder.self_attention=${attention}"]
    options = ("model=transformer", f"attention={of_both}", f"attention@{slot}={of_encoder}", *apart)
    parent = write_checkpoint(tmp_path / "a.ckpt", *options)["config"]["model"]
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    assert parent["encoder"]["self_attention"] != parent["decoder"]["self_attention"]
    assert of(compose_child(run).model) == parent | FRESH
    changed = of(compose_child(run, "attention=none").model)
    assert changed["encoder"] == parent["encoder"]
    assert changed["decoder"]["self_attention"]["score"]["_target_"].endswith("UniformScore")
    changed = of(compose_child(run, "attention@encoder_attention=none").model)
    assert changed["decoder"] == parent["decoder"]
    assert changed["encoder"]["self_attention"]["score"]["_target_"].endswith("UniformScore")


def test_the_name_of_the_attention_stays_where_another_slot_is_chosen(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt", "model=transformer", "attention=multihead")
    checkpoint["config"]["choices"] = {"attention": "multihead", "model": "transformer", "data": "demo"}
    torch.save(checkpoint, tmp_path / "a.ckpt")
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    for slot in ("encoder_attention", "self_attention", "cross_attention"):
        child = compose_child(run, f"attention@{slot}=sparse", "attention@cross_attention=none")
        assert child.choices.attention == "multihead"
        assert child.choices.model == "transformer"


@pytest.mark.parametrize(
    ("overrides", "of_slots", "name"),
    [
        (("model=transformer", "attention=sparse"), {"attention@encoder_attention": f"{OF_PARENT}none"}, "none+sparse"),
        (("model=transformer", "attention=sparse"), {}, "sparse"),
        (("model=transformer",), {"attention@self_attention": "local"}, "local"),
        (("model=transformer", "attention=sparse"), {"attention@encoder_attention": "local"}, "local+sparse"),
        (
            ("model=transformer",),
            {"attention@self_attention": "local", "attention@encoder_attention": "none"},
            "none+local",
        ),
        (("model=transformer", "attention=local"), {"attention@encoder_attention": "local"}, "local"),
        (
            ("model=transformer", "attention=local"),
            {"attention@encoder_attention": "parent_encoder_attention"},
            "local",
        ),
        (("model=rnn", "encoder@model.encoder=transformer"), {"attention@self_attention": "local"}, "bahdanau"),
    ],
)
def test_an_attention_is_named_by_the_slots_of_a_transformer(
    overrides: tuple[str, ...], of_slots: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose_here(*overrides, *(f"{slot}={one}" for slot, one in of_slots.items() if "parent" not in one))
    usual = {"model=transformer": "multihead", "model=rnn": "bahdanau"}[overrides[0]]
    named = dict(one.split("=") for one in overrides).get("attention", usual)
    OmegaConf.update(config, "choices", {"attention": named}, merge=False)
    runtime = SimpleNamespace(choices=of_slots)
    monkeypatch.setattr(parents.HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(parents.HydraConfig, "get", lambda: SimpleNamespace(runtime=runtime))
    name_attention(config)
    assert config.choices.attention == name


@pytest.mark.slow
def test_a_published_model_and_an_average_are_parents_too(trained_run: Path, pairs: list[str], tmp_path: Path) -> None:
    export([str(trained_run), str(tmp_path / "published")])
    best = read_checkpoint(trained_run / "checkpoints" / "best.ckpt")
    write_whole({k: best[k] for k in ("format", "config", "tokenizer", "state_dict")}, tmp_path / "average.ckpt")
    for parent in ("published", "average.ckpt"):
        tune(tmp_path / f"of_{parent}", *pairs, f"init_from.run={tmp_path / parent}", *UNTRAINED)
        child = read_checkpoint(tmp_path / f"of_{parent}" / "checkpoints" / "best.ckpt")
        assert child["parent"]["step"] is None
        name = "model.embed_target.weight"
        assert torch.equal(child["state_dict"][name], best["state_dict"][name])


def test_weights_that_do_not_fit_are_refused_by_name_or_drawn_anew(
    trained_run: Path, pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    best = trained_run / "checkpoints" / "best.ckpt"
    start = [*pairs, f"init_from.run={trained_run}", *UNTRAINED]
    says = (
        rf"^{best} holds another model, by model.encoder.dim 12 → 14: encoder.widen.bias is 12 there "
        r"and 14 here \(and \d+ more\); leave these options out, or give init_from.strict=false, which draws such"
    )
    with pytest.raises(UserError, match=says):
        tune(tmp_path / "a", *start, "model.encoder.dim=14")
    with pytest.raises(UserError, match=r"by attention.score AdditiveScore → GeneralScore, .* is in no part of this"):
        tune(tmp_path / "a", *start, "attention=luong_general")
    assert not (tmp_path / "a" / "config.yaml").exists()
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        tune(tmp_path / "b", *start, "attention=luong_general", "init_from.strict=false")
    ours, theirs = weights(tmp_path / "b", "best.ckpt"), weights(trained_run, "best.ckpt")
    kept = [name for name in theirs if name.startswith("model.") and ".attention." not in name]
    assert len(kept) > 10
    assert all(torch.equal(ours[name], theirs[name]) for name in kept)
    (left,) = [line for line in caplog.messages if line.startswith("Left out: ")]
    assert "decoder.layers.0.attention.score.vector" in left
    caplog.clear()
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        tune(tmp_path / "c", *start, "model.tie_embeddings=all", "model.encoder.num_layers=2", "init_from.strict=false")
    (drawn,) = [line for line in caplog.messages if line.startswith("Drawn anew: ")]
    assert "encoder.layers.1.linear.bias" in drawn
    assert "Left out: embed_target.weight, output.weight" in caplog.messages  # one matrix here, two there


@pytest.mark.parametrize(
    ("attention", "option", "buffer"),
    [("performer", "feature_map.redraw", "directions"), ("lsh", "pattern.seed", "rotations")],
)
def test_constants_of_another_seed_are_not_those_of_the_parent(attention: str, option: str, buffer: str) -> None:
    def model(seed: int) -> Any:
        small = ("model=transformer", "model.encoder.num_layers=1", "model.decoder.num_layers=1")
        return model_of(*small, f"attention={attention}", f"attention.{option}={seed}")

    parent = Parent(Path("parent.ckpt"), Loaded(model(0), tokenizer(), {}), step=None)
    for seed in (0, 1):
        module = TranslationModule.__new__(TranslationModule)
        nn.Module.__init__(module)
        module.model, module.tokenizer = model(seed), tokenizer()
        copy_weights(parent, module, strict=True)
        theirs, ours = parent.loaded.model.state_dict(), module.model.state_dict()
        constants = {name for name in ours if name.endswith(buffer)}
        assert constants
        assert {name for name in ours if not torch.equal(ours[name], theirs[name])} == (constants if seed else set())


def test_the_options_of_a_new_tokenizer_are_those_of_the_parent(trained_run: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(trained_run / "checkpoints" / "best.ckpt")
    assert tokenizer_options(checkpoint, tmp_path)["min_count"] == 1
    checkpoint["config"]["tokenizer"] |= {"min_count": 2, "input_sentence_size": 1000}
    options = tokenizer_options(checkpoint, tmp_path)
    assert (options["min_count"], options["input_sentence_size"]) == (2, 1000)
    taken = inspect.signature(SentencePieceTokenizer).parameters.keys() - {"num_sentinels"}  # of an objective
    assert options.keys() - {"_target_"} == taken


def test_a_new_tokenizer_keeps_the_rows_of_the_tokens_that_both_vocabularies_have(
    trained_run: Path, pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        new = ["init_from.tokenizer=new", "tokenizer.vocab_size=36"]
        tune(tmp_path, *pairs, f"init_from.run={trained_run}", *new, *UNTRAINED)
    (ours, tokens, _), (theirs, their_tokens, _) = load(str(tmp_path)), load(str(trained_run))
    shared = 0
    for i in range(tokens.target_vocab_size):
        j = their_tokens.target_model.piece_to_id(piece := tokens.target_model.id_to_piece(i))
        same = their_tokens.target_model.id_to_piece(j) == piece
        shared += same
        assert torch.equal(ours.embed_target.weight[i], theirs.embed_target.weight[j]) == same
        assert (ours.output.bias[i] == theirs.output.bias[j]) or not same
    assert 4 < shared < their_tokens.target_vocab_size == 40
    assert tokens.target_vocab_size == 36
    assert f"{shared} of 36 target tokens are in both vocabularies; the others are drawn anew" in caplog.messages
    with pytest.raises(
        UserError, match=r"^tokenizer.vocab_size=36 would change nothing, since the tokenizer of .+ com"
    ):
        tune(tmp_path / "other", *pairs, f"init_from.run={trained_run}", "tokenizer.vocab_size=36")


@pytest.mark.slow  # without a parent: checkpoint/test_resume.py
def test_a_resumed_run_is_exact_and_reads_its_parent_no_more(
    trained_run: Path, pairs: list[str], tmp_path: Path
) -> None:
    parent = tmp_path / "parent.ckpt"
    shutil.copy(trained_run / "checkpoints" / "best.ckpt", parent)
    options = [*pairs, f"init_from.run={parent}", "freeze=[encoder]", "callback.autosave.every_steps=2", "resume=auto"]
    tune(tmp_path / "whole", *options)
    with pytest.raises(KilledError):
        tune(tmp_path / "run", *options, "+callback.killed={_target_:small_run.Killed,hook:backward,step:5}")
    identity = {"path": str(parent), "sha256": sha256(parent)}
    parent.unlink()
    tune(tmp_path / "run", *options)
    assert begun[-1] == 4
    assert_same_run(tmp_path / "whole", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "provenance.json").read_text())["init_from"].items() >= identity.items()
    with pytest.raises(
        UserError, match=r"/run is complete and was trained with other options: freeze \['encoder'\] → \[\]; give them"
    ):
        tune(tmp_path / "run", *options[:-3], "freeze=[]", "trainer.max_epochs=2", *options[-2:])


def test_another_direction_and_unknown_tokens_are_warned_of(
    trained_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Path]()  # also for lost guidance, which has a test of its own
    monkeypatch.setattr(initialization, "warn_of_lost_guidance", lambda parent, config: asked.append(parent.file))
    lines = [f"слово {i} cat\tthe cate\u0301 {i}\n" for i in range(40)]
    (tmp_path / "new.tsv").write_text("".join(lines), encoding="utf-8")
    text = [f"data.train={tmp_path / 'new.tsv'}", "data.val_sentences=5", "data.test_sentences=5"]
    text += ["data.source_language=ru", "data.cleaning.lowercase=true", f"paths.cache_dir={tmp_path}"]
    tune(tmp_path / "run", *text, f"init_from.run={trained_run}", *UNTRAINED)
    assert asked == [trained_run / "checkpoints" / "best.ckpt"]
    warned = [record.getMessage() for record in caplog.records if record.name.endswith("parent")]
    assert "5 of 5 references of test are not in Unicode's NFC, as translations are" in caplog.text
    other = "data.cleaning.lowercase=false"
    assert f"best.ckpt was cleaned with {other}, and that of this run is not" in warned[0]
    assert warned[1].endswith("best.ckpt translates en → fr, and this corpus is ru → fr")
    assert "of the source tokens of the training set are unknown to the vocabulary; " in warned[2]
    assert f"; {other} cleans the text as that of the parent, and init_from.tokenizer=new trains" in warned[2]


def test_a_guided_head_that_is_guided_no_more_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    guided = {"model": {"encoder": {}}, "guided_alignment": {"links": "a.txt", "weight": 0.05, "shift": True}}
    one, plain, one_sided = (
        model_of("model=transformer"),
        guided | {"guided_alignment": {"links": None}},
        {"model": {"encoder": None}},
    )
    for theirs, ours, is_warned in [
        (guided, plain, True), (guided, guided, False), (plain, plain, False), (guided, one_sided, False),
    ]:  # fmt: skip
        caplog.clear()
        loaded: Any = SimpleNamespace(config=theirs, model=one)
        warn_of_lost_guidance(Parent(Path("a.ckpt"), loaded, None), ours)
        assert bool(caplog.messages) == is_warned
        if is_warned:
            assert caplog.messages[0].startswith("guided_alignment taught layer 1, head 0 of a.ckpt to align words, ")
            assert caplog.messages[0].endswith("by alignment_layer=1 alignment_head=0 alignment_shift=true")


READ: list[
    tuple[dict[str, Any], dict[str, Any], list[str]]
] = [  # options of a parent, of its child, and what both read
    ({"train": "a.tsv"}, {"train": ["a.tsv", "b.tsv"]}, ["a.tsv"]),
    ({"train": ["a.en", "a.fr"]}, {"corpora": {"old": {"train": ["a.en", "a.fr"]}, "new": {"path": "b"}}}, ["a.en"]),
    ({"corpora": "corpora.yaml"}, {"corpus": {"corpora": "corpora.yaml"}}, ["corpora.yaml"]),
    ({"path": None, "_target_": "Known"}, {"path": None, "_target_": "Known"}, ["Known"]),
    ({"train": "a.tsv", "_target_": "Files"}, {"train": "b.tsv", "val": "a.tsv", "_target_": "Files"}, []),
]


def test_sets_held_out_of_files_that_the_parent_has_read_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    split = Split(["a"], ["b"], [["b"]])
    corpus = LoadedCorpus({"train": split, "test": split}, CleaningReport({"test: pairs held out": 1}), "en", "fr")
    given = replace(corpus, report=CleaningReport({"test: pairs read": 1}))
    for theirs, ours, shared in READ:
        loaded: Any = SimpleNamespace(config={"data": theirs})
        caplog.clear()
        for digest, of_run in ((None, corpus), (corpus.fingerprint, corpus), ("other", given), ("other", corpus)):
            assert not caplog.messages
            warn_of_held_out(Parent(Path("a.ckpt"), loaded, None, digest), of_run, ours)
        assert [line.partition(", too, with other sentences held out")[0] for line in caplog.messages] == [
            f"a.ckpt was trained on {name}" for name in shared
        ]


@pytest.mark.slow  # the sets are told apart above
def test_a_run_whose_parent_has_trained_on_its_test_says_so(
    trained_run: Path, pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held_out = ["data.val=null", "data.test=null", "data.val_sentences=5", "data.test_sentences=5"]
    tune(tmp_path, *pairs, *held_out, f"init_from.run={trained_run}", *UNTRAINED)
    assert [line for line in caplog.messages if "it may have been trained on those of val and test here" in line]


REFUSED = {
    "init_from.run=nowhere": r"^init_from.run=nowhere does not exist; give a run folder",
    "init_from=nowhere": r"^init_from is a group of options; name the run to start from with init_from.run=RUN$",
    "init_from.run=a,b": r"^init_from.run takes one run, of which the model is composed; start one sweep for each run$",
}


@pytest.mark.parametrize("override", REFUSED)
def test_a_run_that_is_none_is_refused_before_anything_is_composed(override: str) -> None:
    with pytest.raises(UserError, match=REFUSED[override]):
        parent_choice([override])


def test_a_command_without_a_parent_implies_nothing() -> None:
    assert parent_choice(["data=parallel", "optimizer.lr=0.1"]) == []
    assert choose_parent(["init_from.strict=false", "init_from.run=null"]) == []
    assert choose_parent(["init_from.run=a b=[", "x"]) == []  # Hydra has a sentence for it


@pytest.mark.parametrize("option", ["model", "search", "choices"])
def test_a_parent_names_no_class_or_reference_that_no_run_saves(option: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    bad = {"name": "${oc.env:HOME}"} if option == "choices" else {"_target_": "os.mkdir", "path": str(tmp_path / "ran")}
    node = checkpoint["config"].setdefault(option, {})
    node.update(bad)
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(
        UserError, match=r"a.ckpt (asks for os.mkdir, which is not|holds the reference \$\{oc.env:HOME)"
    ):
        choose_parent([f"init_from.run={tmp_path / 'a.ckpt'}"])
    assert not (tmp_path / "ran").exists()


PARTS = (
    "model", "model.encoder", "model.decoder", "model.decoder.attention.score", "model.decoder.attention.pattern",
    "model.decoder.attention.normalizer",
)  # fmt: skip


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("part", PARTS)
def test_a_defaults_list_of_a_parent_composes_nothing(
    part: str, checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = {"class": "logging.FileHandler", "filename": str(tmp_path / "victim.txt"), "mode": "w"}  # empties it
    logging_options = {"version": 1, "handlers": {"file": handler}, "root": {"handlers": ["file"]}}
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    attention = checkpoint["config"]["model"]["decoder"]["attention"]
    carrier = "pattern" if part.endswith("normalizer") else "normalizer"
    attention[carrier]["hydra"] = {"job_logging": logging_options}
    node = checkpoint["config"]
    for key in part.split("."):
        node = node[key]
    node["defaults"] = [{f"/attention/{carrier}@_global_": "parent"}, "_self_"]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    typed = (f"init_from.run={tmp_path / 'a.ckpt'}",)
    if checked:
        with pytest.raises(UserError, match=r"a.ckpt holds a defaults list among its options, which no run saves; it "):
            choose_parent(typed)
        return
    for name in ("check_targets", "check_saved_config"):
        monkeypatch.setattr(parents, name, lambda *_: None)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [*typed, *choose_parent(typed)], return_hydra_config=True)
    assert "victim.txt" not in OmegaConf.to_yaml(config.hydra)


SECRET = "${oc.env:SECRET_KEY}"


@pytest.mark.parametrize(
    ("options", "joint"),
    [({"user_defined_symbols": [SECRET]}, True), ({"character_coverage": SECRET}, True), ({}, SECRET)],
)
def test_a_reference_in_the_tokenizer_of_a_parent_is_refused(
    options: dict[str, Any], joint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint["config"]["tokenizer"] = options
    torch.save(checkpoint, tmp_path / "a.ckpt")
    state = SimpleNamespace(model_type="char", vocab_size=50, joint=joint, sampling_alpha=0.0)
    monkeypatch.setattr(parents, "read_tokenizer", lambda *_: state)  # in tests it checks the type of `joint`
    with pytest.raises(UserError, match=r"a.ckpt holds the reference \$\{oc.env:SECRET_KEY\}, which no run saves"):
        choose_parent([f"init_from.run={tmp_path / 'a.ckpt'}"])


@pytest.mark.parametrize("option", ["tokenizer", "choices"])
def test_options_of_a_parent_that_are_none_are_a_sentence(option: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint["config"][option] = ["a"]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(UserError, match=f"a.ckpt holds no {option} among its options; give a checkpoint that train.py"):
        choose_parent([f"init_from.run={tmp_path / 'a.ckpt'}"])


def test_what_excludes_a_parent_is_refused(trained_run: Path, pairs: list[str], tmp_path: Path) -> None:
    start = [*pairs, f"init_from.run={trained_run}"]
    with pytest.raises(UserError, match=r"^init_from.run starts a new run from the weights of another, and ckpt_path"):
        tune(tmp_path, *start, f"ckpt_path={trained_run}")
    with pytest.raises(UserError, match=r"^init_from.tokenizer=old must be keep or new$"):
        tune(tmp_path, *start, "init_from.tokenizer=old")


def test_the_name_of_the_parents_encoder_attention_stays_beside_another_attention(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt", "model=transformer", "attention@encoder_attention=local")
    for label, name in (("local+multihead", "local+sparse"), ("multihead", "sparse")):
        checkpoint["config"]["choices"] = {"attention": label, "model": "transformer", "data": "demo"}
        torch.save(checkpoint, tmp_path / "a.ckpt")
        typed = (f"init_from.run={tmp_path / 'a.ckpt'}", "attention=sparse")
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", [*typed, *choose_parent(typed)], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        config.choices.attention = "sparse"
        name_attention(config)
        assert config.choices.attention == name
        assert "LocalPattern" in str(config.model.encoder.self_attention)


def test_a_parent_in_a_file_of_options_is_refused_since_its_model_would_not_be_composed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # restored at the end
    write_checkpoint(tmp_path / "a.ckpt")
    run = f"init_from.run={tmp_path / 'a.ckpt'}"
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "tuned.yaml").write_text(
        f"# @package _global_\ninit_from:\n  run: {tmp_path / 'a.ckpt'}\n"
    )
    for typed in (["experiment=tuned"], [run]):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            overrides = [search_path(tmp_path / "conf"), "paths.run_dir=run", *typed, *choose_parent(typed)]
            config = compose("train", overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        if typed == [run]:
            check_config(config)
            continue
        with pytest.raises(UserError, match=rf"^{run} is in a file of options, such as an experiment, from which the"):
            check_config(config)


@pytest.mark.parametrize("option", ["user_defined_symbols=[ab]", "byte_fallback=true", "character_coverage=0.99"])
def test_an_option_of_training_a_tokenizer_is_refused_where_the_parents_comes_along(
    option: str, trained_run: Path, pairs: list[str], tmp_path: Path
) -> None:
    name = option.partition("=")[0]
    with pytest.raises(UserError, match=rf"tokenizer.{name} would change nothing, since the tokenizer of .* comes a"):
        tune(tmp_path, *pairs, f"init_from.run={trained_run}", f"tokenizer.{option}", *UNTRAINED)
