"""A checkpoint's configuration names classes of ours, and nothing else, and a file from a stranger runs no code."""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.test_checkpoint_io import Hostile
from configs import CONF, composed
from omegaconf import OmegaConf
from small_checkpoint import small_tokenizer, write_checkpoint
from tiny import write_checkpoint as write_larger
from torch import nn

from seq2seq_attn.checkpoint.admitted import check_targets, is_class_of
from seq2seq_attn.checkpoint.checkpoint_file import write_checkpoint as write_whole
from seq2seq_attn.checkpoint.load import check_saved_config, find_checkpoint, load, read_checkpoint
from seq2seq_attn.data.cleaning import cleaning_options
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.translator import Translator

OURS = "seq2seq_attn.search.greedy.GreedySearch"
FOREIGN = ["os.mkdir", "seq2seq_attn.checkpoint.load.torch.load", "seq2seq_attn.nowhere.Search", 3]


@pytest.mark.parametrize("target", FOREIGN)
def test_a_foreign_target_is_refused_at_any_depth(target: Any) -> None:
    for node in ({"_target_": target}, {"_target_": OURS, "parts": [{"a": {"_target_": target}}]}):
        with pytest.raises(UserError, match=r"which is not a class of seq2seq_attn for \w+; it was not run$"):
            check_targets(node, "search", Path("a.ckpt"))


@pytest.mark.parametrize("key", ["_args_", "encoder"])
@pytest.mark.parametrize("wrapped", [lambda node: [[node]], lambda node: {"a": node}], ids=["list", "dict"])
def test_no_position_hides_a_foreign_target(key: str, wrapped: Any, tmp_path: Path) -> None:
    call = {"_target_": "os.mkdir", "_args_": [str(tmp_path / "ran")]}
    refuses(
        tmp_path,
        key,
        wrapped(call),
        r"asks for os.mkdir, which is not a class of seq2seq_attn for \w+; it was not run$",
    )


@pytest.mark.parametrize("hide", [lambda node: (node,), lambda node: OrderedDict(node)], ids=["tuple", "ordered"])
def test_what_no_run_saves_hides_nothing(hide: Any, tmp_path: Path) -> None:
    call = {"_target_": "os.mkdir", "_args_": [str(tmp_path / "ran")]}
    refuses(tmp_path, "encoder", hide(call), r"holds a (tuple|OrderedDict) among its options, which no run saves$")


def refuses(folder: Path, key: str, node: Any, sentence: str) -> None:
    """`load`, of a whole checkpoint with this node in its model; nothing runs."""
    checkpoint = write_checkpoint(folder / "a.ckpt")
    checkpoint["config"]["model"][key] = node
    torch.save(checkpoint, folder / "a.ckpt")
    with pytest.raises(UserError, match=sentence):
        load(str(folder / "a.ckpt"))
    assert not (folder / "ran").exists()


WRITES = {"_target_": "seq2seq_attn.logger.tensorboard_logger.TensorBoardRun", "save_dir": "ran"}
MISPLACED = {  # by the option: classes of ours that are not for this slot, and what is no class
    "model": [WRITES, {"_target_": OURS}, {"_target_": "seq2seq_attn.model.ensemble.Ensemble"}],
    "model.encoder": [
        WRITES, {"_target_": "seq2seq_attn.decoder.rnn.RNNDecoder"},
        {"_target_": "seq2seq_attn.encoder.encoder.Encoder"}, {"_target_": "seq2seq_attn.encoder.rnn.GRU"},
    ],
    "model.decoder.attention.score": [{"_target_": "seq2seq_attn.attention.pattern.full.FullPattern"}],
    "model.decoder.attention.pattern": [{"_target_": "seq2seq_attn.attention.score.dot.DotScore"}],
    "model.decoder.attention.normalizer": [{"_target_": "torch.nn.Softmax"}],
    "model.decoder.attention.mix": [{"_target_": "seq2seq_attn.attention.gate.sigmoid.SigmoidGate"}],
    "model.decoder.attention.gate": [{"_target_": "seq2seq_attn.attention.mix.talking_heads.TalkingHeadsMix"}],
    "model.decoder.position": [{"_target_": "seq2seq_attn.encoder.rnn.RNNEncoder"}],
    "search": [WRITES, {"_target_": "seq2seq_attn.search.limits.Limits"}],
    "search.limits": [{"_target_": OURS}, [[{"_target_": "seq2seq_attn.search.finished.Finished"}]]],
    "data": [WRITES, {"_target_": "seq2seq_attn.data.data_module.TranslationDataModule"}],
    "data.cleaning": [{"_target_": "seq2seq_attn.data.demo.DemoCorpus"}],
    "metric": [{"bleu": WRITES}, {"bleu": {"_target_": "seq2seq_attn.metric.token_mean.TokenMean"}}],
}  # fmt: skip


@pytest.mark.parametrize("option", MISPLACED)
def test_a_class_of_ours_is_refused_in_a_slot_of_others(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for node in MISPLACED[option]:
        changed(tmp_path / "a.ckpt", option, node)
        with pytest.raises(UserError, match=r"asks for .+, which is not a class of seq2seq_attn for \w+; it was"):
            load(str(tmp_path / "a.ckpt"))
    assert not (tmp_path / "ran").exists()


def changed(file: Path, option: str, value: Any) -> None:
    """A whole checkpoint with another value of one option; `None`: without it."""
    checkpoint = write_checkpoint(file)
    *path, last = ("config." + option).split(".")
    node = checkpoint
    for key in path:
        node = node[key]
    node[last] = node[last] | value if isinstance(value, dict) and last in node else value
    if value is None:
        del node[last]
    torch.save(checkpoint, file)


GROUPS = {
    "model": "model", "encoder": "encoder", "decoder": "decoder", "attention": "cross_attention",
    "attention/score": "score", "attention/pattern": "pattern", "attention/normalizer": "normalizer",
    "attention/mix": "mix", "attention/gate": "gate",
    "attention/feature_map": "feature_map", "attention/decay": "decay",
    "position": "position", "feed_forward": "feed_forward", "search": "search", "metric": "metric",
    "search/length_penalty": "length_penalty", "data": "data", "data/cleaning": "cleaning",
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_a_group_is_a_class_of_its_slot(group: str) -> None:
    nodes = [OmegaConf.load(file) for file in sorted((CONF / group).glob("*.yaml"))]
    if group == "metric":
        nodes = [metric for node in nodes for metric in node.values()]
    targets = [node._target_ for node in nodes if "_target_" in node]
    assert targets
    assert [target for target in targets if not is_class_of(GROUPS[group], target)] == []


SMALLEST = ("model.source_vocab_size=7", "model.target_vocab_size=7", "paths.run_dir=run")


@pytest.mark.parametrize(
    "choices",
    [
        ["model=transformer", "attention=alternating", "search=mbr", "data=documents"],
        ["model=transformer", "attention=performer", "attention@cross_attention=gated_linear"],
        ["model=conv", "attention=synthesizer_dense_vanilla", "search=diverse_beam", "metric=[bleu,ter]"],
    ],
)
def test_every_part_that_a_run_saves_is_in_its_slot(choices: list[str]) -> None:
    config = composed(*choices, "model.source_vocab_size=7", "model.target_vocab_size=7")
    for slot in ("model", "search", "data", "metric"):
        check_targets(OmegaConf.to_container(config[slot], resolve=True), slot, Path("a.ckpt"))


def test_a_run_of_documents_has_the_cleaning_of_their_sentences() -> None:
    composed_config = composed("data=documents", "data.corpus.cleaning.lowercase=true", *SMALLEST)
    slots = ("model", "search", "data", "metric")
    config = {slot: plain(composed_config[slot]) for slot in slots}
    check_saved_config(config, Path("a.ckpt"))
    assert cleaning_options(config["data"])["lowercase"] is True
    del config["data"]["corpus"]["cleaning"]
    with pytest.raises(UserError, match=r"holds no data\.cleaning among its options"):
        check_saved_config(config, Path("a.ckpt"))


@pytest.mark.parametrize("damaged", [[], "multihead", {"attention": 5}, {"attention": ["a"]}])
def test_choices_that_are_no_names_are_refused(damaged: Any) -> None:
    composed_config = composed(*SMALLEST)
    config = {slot: plain(composed_config[slot]) for slot in ("model", "search", "data", "metric")}
    check_saved_config(config | {"choices": None}, Path("a.ckpt"))
    check_saved_config(config | {"choices": {"attention": None}}, Path("a.ckpt"))
    with pytest.raises(UserError, match="holds no choices"):
        check_saved_config(config | {"choices": damaged}, Path("a.ckpt"))


def plain(node: Any) -> Any:
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code_is_refused_and_nothing_runs(legacy: bool, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt") | {"more": [Hostile(tmp_path / "ran")]}
    torch.save(checkpoint, tmp_path / "a.ckpt", _use_new_zipfile_serialization=not legacy)
    says = "is not a readable checkpoint" if legacy else "asks for posix.mkdir, which is no plain data; it was not run"
    with pytest.raises(UserError, match=rf"a.ckpt {says}"):
        load(str(tmp_path / "a.ckpt"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_module_and_a_torchscript_are_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": nn.Linear(2, 3)}, tmp_path / "module.ckpt")
    with pytest.raises(UserError, match=r"module.ckpt asks for torch.nn.modules.linear.Linear, which is no plain"):
        read_checkpoint(tmp_path / "module.ckpt")
    if sys.version_info < (3, 14):  # where torch.jit is gone
        torch.jit.script(nn.Linear(2, 3)).save(tmp_path / "script.ckpt")
        with pytest.raises(UserError, match=r"script.ckpt is not a readable checkpoint"):
            read_checkpoint(tmp_path / "script.ckpt")


def test_another_format_and_a_file_of_another_program_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    torch.save(checkpoint | {"format": 97}, tmp_path / "b.ckpt")
    with pytest.raises(UserError, match=r"b.ckpt has format 97, this version reads 3; use the version that wrote"):
        load(str(tmp_path / "b.ckpt"))
    for key in ("format", "config", "tokenizer", "state_dict"):
        torch.save({k: v for k, v in checkpoint.items() if k != key}, tmp_path / "c.ckpt")
        with pytest.raises(UserError, match=r"c.ckpt is not a checkpoint of seq2seq-attn; give one that train.py"):
            load(str(tmp_path / "c.ckpt"))
    torch.save([checkpoint], tmp_path / "d.ckpt")
    with pytest.raises(UserError, match=r"d.ckpt is not a checkpoint of seq2seq-attn"):
        load(str(tmp_path / "d.ckpt"))


def test_a_broken_best_is_named_and_no_other_model_takes_its_position(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoints" / "last.ckpt")
    best = tmp_path / "checkpoints" / "best.ckpt"
    write_whole(checkpoint, best)
    assert find_checkpoint(str(tmp_path)) == best
    load(str(tmp_path))
    os.truncate(best, best.stat().st_size - 1)
    with pytest.raises(UserError, match=rf"^{best} is not a readable checkpoint .+; use another one, such as last"):
        load(str(tmp_path))


def test_a_reference_is_refused_since_it_could_become_a_target() -> None:
    hidden = "${oc.create:'{_target_: os.mkdir, path: here}'}"
    for node in ({"_target_": OURS, "max_length": hidden}, {"parts": [{"_target_": OURS}, hidden]}):
        with pytest.raises(
            UserError, match=r"^a.ckpt holds the reference \$\{oc.create:.+\}, which no run saves; it was"
        ):
            check_targets(node, "search", Path("a.ckpt"))


def test_a_defaults_list_is_refused_at_any_depth_since_hydra_would_compose_it() -> None:
    for node in ({"defaults": []}, {"_target_": OURS, "parts": [{"score": {"defaults": ["_self_"]}}]}):
        with pytest.raises(UserError, match=r"^a.ckpt holds a defaults list among its options, which no run saves; it"):
            check_targets(node, "search", Path("a.ckpt"))
    check_targets({"corpora": {"defaults": {"train": "a.tsv"}}}, "data", Path("a.ckpt"))  # the name of a corpus


def test_plain_data_and_targets_of_ours_pass() -> None:
    check_targets(
        {"_target_": OURS, "_partial_": True, "max_length": 7, "names": ["a", None, "$b"]}, "search", Path("a.ckpt")
    )


@pytest.mark.parametrize(
    "option", ["model", "search", "data", "data.cleaning", "data.source_language", "model.encoder", "search.limits"]
)
@pytest.mark.parametrize("value", [None, 7, "text", []], ids=str)
def test_an_option_that_is_missing_or_of_another_type_is_a_sentence(option: str, value: Any, tmp_path: Path) -> None:
    if option == "data.source_language" and value == "text":
        return
    changed(tmp_path / "a.ckpt", option, value)
    with pytest.raises(UserError, match=r"a.ckpt holds (no [\w.]+ among its|options (from which|that describe) no)"):
        load(str(tmp_path / "a.ckpt"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", None),
        ("model_type", 3),
        ("source_model", None),
        ("source_model", torch.zeros(5)),
        ("source_model", torch.zeros(5, dtype=torch.uint8)),
        ("source_model", "text"),
        ("sampling_alpha", {}),
    ],
)
def test_a_tokenizer_that_is_none_is_a_sentence(key: str, value: Any, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint["tokenizer"][key] = value
    if value is None:
        del checkpoint["tokenizer"][key]
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(UserError, match=r"a.ckpt holds no readable tokenizer \(.+\); use an intact file$"):
        load(str(tmp_path / "a.ckpt"))


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint["tokenizer"] = small_tokenizer(["abc"]).get_state()
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(UserError, match=r"a.ckpt holds a tokenizer of another vocabulary than its model; use an"):
        load(str(tmp_path / "a.ckpt"))


def test_a_language_model_needs_no_vocabulary_of_the_source(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_larger(tmp_path / "a.ckpt", "model=lm"))
    other = small_tokenizer(["abc"]).get_state()["source_model"]
    checkpoint["tokenizer"] |= {"joint": False, "source_model": other}
    torch.save(checkpoint, tmp_path / "a.ckpt")
    loaded = load(str(tmp_path / "a.ckpt"))
    assert loaded.tokenizer.source_vocab_size < loaded.tokenizer.target_vocab_size
    assert loaded.model.embed_target.num_embeddings == loaded.tokenizer.target_vocab_size
    checkpoint["tokenizer"] |= {"target_model": other}
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(UserError, match=r"a.ckpt holds a tokenizer of another vocabulary than its model; use an"):
        load(str(tmp_path / "a.ckpt"))


@pytest.mark.parametrize("key", ["config", "tokenizer", "state_dict", "weight", "name"])
def test_a_checkpoint_with_something_else_in_a_key_is_no_checkpoint(key: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    name, weight = next(iter(checkpoint["state_dict"].items()))
    wrong = {
        "weight": {name: [0.0]},
        "name": {3: weight},
        "spread": {name: torch.zeros(1).expand(weight.shape)},
        "nowhere": {name: weight.to("meta")},
    }
    for value in ([checkpoint[key]], None, "text") if key in checkpoint else wrong.values():
        part = {key: value} if key in checkpoint else {"state_dict": checkpoint["state_dict"] | value}
        torch.save(checkpoint | part, tmp_path / "a.ckpt")
        with pytest.raises(UserError, match=r"a.ckpt is not a checkpoint of seq2seq-attn; give one that train.py"):
            load(str(tmp_path / "a.ckpt"))


HUGE = [
    ("model.encoder.num_layers", 10**7), ("model.decoder.num_layers", 10**9), ("model.encoder.dim", 10**9),
    ("model.decoder.dim", 10**6), ("model.embedding_dim", 10**12), ("model.source_vocab_size", 10**30),
    ("model.decoder.attention.num_heads", 10**9),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), HUGE)
def test_options_of_a_model_that_its_weights_cannot_be_are_refused_at_once(
    option: str, value: int, tmp_path: Path
) -> None:
    changed(tmp_path / "a.ckpt", option, value)
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"a.ckpt (has options for another model than its weights: \w+ is over|holds)"):
        load(str(tmp_path / "a.ckpt"))
    assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize(
    ("overrides", "part", "option"),
    [
        (["attention=performer"], ("self_attention", "feature_map"), "num_features"),
        (["position=t5"], ("position",), "max_distance"),
    ],
)
def test_options_that_no_weight_bounds_take_no_time_before_the_weights_are_compared(
    overrides: list[str], part: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt", "model=transformer", *overrides)
    node = checkpoint["config"]["model"]["encoder"]
    for key in part:
        node = node[key]
    assert option in node
    node[option] = 2**24
    torch.save(checkpoint, tmp_path / "a.ckpt")
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"a.ckpt holds (weights that do not fit its options|options from which no)"):
        load(str(tmp_path / "a.ckpt"))
    assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize(("option", "value"), [("model.encoder.dim", 16), ("model.encoder.num_layers", 2)])
def test_weights_that_do_not_fit_their_options_are_named(option: str, value: int, tmp_path: Path) -> None:
    changed(tmp_path / "a.ckpt", option, value)
    with pytest.raises(UserError, match=r"a.ckpt holds weights that do not fit its options, (en|de)coder\.\S+ first;"):
        load(str(tmp_path / "a.ckpt"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    weights = checkpoint["state_dict"]
    weights["model.output.bias"] = weights["model.output.bias"].to(dtype)
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(UserError, match=rf"a.ckpt holds output.bias as {dtype}; use a file with weights in float32 or"):
        load(str(tmp_path / "a.ckpt"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_of_a_training_that_diverged_are_refused(value: float, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint["state_dict"]["model.output.bias"][3] = value
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(
        UserError, match=r"^\S+a.ckpt holds NaN or infinity in output.bias: its training diverged; use an earlier"
    ):
        Translator.load(tmp_path / "a.ckpt")


OWN = """
from torch import nn
from seq2seq_attn.search.greedy import GreedySearch
from seq2seq_attn.search.search import Search

class Mine(Search):
    def __init__(self, *, inner=None):
        self.inner = inner
    hypotheses_at_once = 1
    def __call__(self, *arguments, **options):
        raise NotImplementedError

class Inner(nn.Module):
    pass

class Plain:
    pass
"""
MINE = "mine_of_tests"


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{MINE}.py").write_text(OWN)
    (tmp_path / f"{MINE}evil.py").write_text(OWN)
    (tmp_path / f"{MINE}_broken.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (MINE, f"{MINE}evil"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def check_search(target: str, trust: Any, **options: Any) -> None:
    check_targets({"_target_": target, **options}, "search", Path("a.ckpt"), trust)


@pytest.mark.usefixtures("own_package")
def test_a_class_of_a_package_is_admitted_if_the_caller_trusts_the_package() -> None:
    for trust in ([MINE], MINE, ["other", MINE]):
        check_search(f"{MINE}.Mine", trust)
        check_search(f"{MINE}.Mine", trust, inner={"_target_": f"{MINE}.Inner"})
    assert f"{MINE}evil" not in sys.modules


@pytest.mark.usefixtures("own_package")
def test_without_trust_the_sentence_names_the_class_and_nothing_is_imported() -> None:
    sentence = (
        rf"^a.ckpt asks for {MINE}.Mine, which is not a class of seq2seq_attn for search; it was not run; if you trust "
        rf"{MINE}, add trust=\[{MINE}\] \(--trust {MINE} for draw, "
        rf"compare, heads, rerank and export ctranslate2\)$"
    )
    for trust in ((), "", [""], ["mine_of"], [f"{MINE}.other"]):
        with pytest.raises(UserError, match=sentence):
            check_search(f"{MINE}.Mine", trust)
    assert MINE not in sys.modules


@pytest.mark.usefixtures("own_package")
@pytest.mark.parametrize("target", [f"{MINE}evil.Mine", f"{MINE}evil.Inner", "os.mkdir", "subprocess.Popen"])
def test_trust_ends_at_the_name_of_the_package(target: str) -> None:
    with pytest.raises(UserError, match=r"which is not a class of seq2seq_attn for search; it was not run"):
        check_search(target, [MINE])
    with pytest.raises(UserError, match=r"which is not a class of seq2seq_attn for inner; it was not run"):
        check_search(f"{MINE}.Mine", [MINE], inner={"_target_": target})
    assert f"{MINE}evil" not in sys.modules


@pytest.mark.usefixtures("own_package")
def test_trust_admits_classes_of_the_kind_that_a_slot_takes_only() -> None:
    for target in (f"{MINE}.Inner", f"{MINE}.Plain", f"{MINE}.OWN", f"{MINE}.GreedySearch"):
        with pytest.raises(UserError, match=rf"^a.ckpt asks for {target}, which is not a Search of a trusted package"):
            check_search(target, [MINE])
    with pytest.raises(UserError, match=r"Plain, which is not a Module of a trusted package, as inner takes$"):
        check_search(f"{MINE}.Mine", [MINE], inner={"_target_": f"{MINE}.Plain"})
    with pytest.raises(UserError, match=r"Popen, which is not a Search of a trusted package, as search takes$"):
        check_search("subprocess.Popen", ["subprocess"])


@pytest.mark.usefixtures("own_package")
def test_a_trusted_module_that_cannot_be_imported_says_why() -> None:
    sentence = (
        rf"^{MINE}_broken.Mine cannot be imported \(ModuleNotFoundError: No module named 'nowhere_at_all'\); install "
        "its package, run the command in the folder that contains it, or name that folder in PYTHONPATH$"
    )
    with pytest.raises(UserError, match=sentence):
        check_search(f"{MINE}_broken.Mine", [f"{MINE}_broken"])


@pytest.mark.usefixtures("own_package")
def test_a_checkpoint_cannot_trust_itself(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint["config"]["model"]["encoder"] = {"_target_": f"{MINE}.Inner"}
    torch.save(checkpoint | {"trust": [MINE], "config": checkpoint["config"] | {"trust": [MINE]}}, tmp_path / "a.ckpt")
    with pytest.raises(UserError, match=rf"add trust=\[{MINE}\]"):
        load(str(tmp_path / "a.ckpt"))
    assert MINE not in sys.modules
