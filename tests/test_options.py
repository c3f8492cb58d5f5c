"""Every option has a type and a range, and a value outside of them is answered with one sentence."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import pytest
import torch
import yaml
from configs import CONF, composed
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.align import align
from seq2seq_attn.evaluation.evaluate import evaluate
from seq2seq_attn.inference.translate import translate
from seq2seq_attn.options import (
    ALIGN,
    EVALUATE,
    EXPLORE,
    FIRST,
    SERVE,
    TRAIN,
    TRANSLATE,
    Factory,
    argument_types,
    check,
    check_added,
    check_deleted,
    check_kinds,
    check_options,
    groups_of_parts,
    hydra_literal,
)
from seq2seq_attn.training.monitor import choose_monitor

MODELS = ("rnn", "transformer", "conv")
FIRST_LEVEL = {
    "train": TRAIN, "translate": TRANSLATE, "evaluate": EVALUATE, "align": ALIGN, "explore": EXPLORE, "serve": SERVE,
}  # fmt: skip
KEYED = ("callback", "logger", "metric")  # a file holds one named group
FROM_PARENT = {  # sizes that the module around a part passes, which refuses an option of that name
    "query_dim", "key_dim", "value_dim", "context_dim", "value_head_dim", "input_dim", "summary_dim", "dim", "head_dim",
    "num_heads", "num_kv_heads", "scale", "layer", "total_steps",
}  # fmt: skip
UNBOUNDED = {"every_n_train_steps", "every_n_epochs"}  # of Lightning's ModelCheckpoint, which BestCheckpoints extends
FULL = "seq2seq_attn.attention.pattern.full.FullPattern"
NO_RANGE = "has no range; annotate the argument, as Annotated[float, '(0, inf)']"
GIVEN = ["paths.run_dir=nowhere", *(f"choices.{name}=null" for name in ("attention", "model", "data"))]


def checked(*overrides: str) -> DictConfig:
    """Return a config as a run checks it, with the figure to monitor."""
    config = copy.deepcopy(composed(*overrides))
    choose_monitor(config)
    return config


class Option(NamedTuple):
    path: str
    default: Any
    kind: Any


def options_below(node: dict[str, Any], path: str, kinds: dict[str, Any]) -> Iterator[Option]:
    """The leaves, with the type that the constructor around each declares."""
    for name, child in node.items():
        where = f"{path}.{name}".lstrip(".")
        if isinstance(child, dict):
            inner = get_args(kinds.get(name, Any))
            of_child = inner[1] if len(inner) == 2 else Any
            yield from options_below(
                child,
                where,
                argument_types(where, child | {"_partial_": True})
                if "_target_" in child
                else dict.fromkeys(child, of_child),
            )
        elif not name.startswith("_"):
            yield Option(where, child, kinds.get(name, Any))


def every_option() -> list[Option]:
    """Of every file of conf/ that names a constructor, by its path in a composed config, and of the first level."""
    found: list[Option] = []
    for file in sorted(CONF.rglob("*.yaml")):
        folder = file.relative_to(CONF).parts[:-1]
        node = yaml.safe_load(file.read_text("utf-8"))
        node = {name: child for name, child in node.items() if name not in ("defaults", "hydra")}
        if not folder or folder[0] in KEYED:
            found += options_below(node, ".".join(folder), FIRST_LEVEL.get(file.stem, {}))
        elif "_target_" in node and folder[0] != "hydra":  # Hydra reads its own before the job
            node["_partial_"] = True  # its parent gives the rest
            found += options_below(node, ".".join(folder), argument_types("", node))
    return found


def kinds_in(kind: Any) -> set[Any]:
    """A type and those that it is made of, as far as its own value goes."""
    inner = () if get_origin(kind) in (Literal, dict) else get_args(kind)
    return {kind, get_origin(kind)}.union(*map(kinds_in, inner))


def test_every_option_declares_its_type_and_a_number_its_range() -> None:
    found = every_option()
    assert len(found) > 300
    for path, default, kind in found:
        plain, interval = get_args(kind) if get_origin(kind) is Annotated else (kind, None)
        kinds = kinds_in(plain)
        assert kind is not Any or isinstance(default, str), f"{path} has no type; add it to options.py"
        if not (isinstance(default, str) and default.startswith(("${", "???"))):
            check(path, default, kind)
        for value, said in outside(path, kinds, interval):
            with pytest.raises(UserError, match=rf"^{path}=.* must be .*{re.escape(said)}"):
                check(path, [value, value] if kinds & {list, tuple} else value, kind)


def outside(path: str, kinds: set[Any], interval: str | None) -> Iterator[tuple[Any, str]]:
    """Values that an option refuses, and what its sentence says of them."""
    choices = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
    if kinds & {int, float}:
        assert interval is not None, f"{path} {NO_RANGE}"
        low, high = map(float, interval[1:-1].split(","))
        refused = [int(low) - 1, high + 1, math.nan]
        refused += [low] * (interval[0] == "(") + [high] * (interval[-1] == ")")
        yield from ((value, interval) for value in refused)
    elif bool in kinds:
        yield 99999, "bool"
    elif choices and str not in kinds:
        yield "nope", str(choices[0][0])


def own_constructors(node: Any) -> Iterator[str]:
    """The `_target_` of a node and of those inside of it, if it is of this package."""
    if isinstance(node, dict):
        if str(node.get("_target_")).startswith("seq2seq_attn."):
            yield node["_target_"]
        for child in node.values():
            yield from own_constructors(child)


def test_every_number_of_our_constructors_has_a_range_or_comes_from_the_module_around_it() -> None:
    targets = {
        name for file in CONF.rglob("*.yaml") for name in own_constructors(yaml.safe_load(file.read_text("utf-8")))
    }
    assert len(targets) > 130
    for target in sorted(targets):
        for name, kind in argument_types("", {"_target_": target, "_partial_": True}).items():
            bare = get_origin(kind) is not Annotated and kinds_in(kind) & {int, float}
            assert not bare or name in FROM_PARENT | UNBOUNDED, f"{target}: {name} {NO_RANGE}"


class Sharpened:
    """A part whose constructor gives the range of one of its options."""

    def __init__(self, *, sharpness: Annotated[float, "(0, inf)"], k: int = 1, dropout: float = 0.0) -> None: ...


class Schooled(torch.optim.SGD):
    """An optimizer with an option of its own."""

    def __init__(self, params: Any, *, momentum: float, warmth: Annotated[float, "[0, 1]"]) -> None: ...


class Renamed(torch.optim.SGD):
    """An optimizer with the constructor of its library."""


def test_a_range_in_the_constructor_holds() -> None:
    node = {"_target_": f"{__name__}.Sharpened", "sharpness": 10.0}
    check("part", node, object)
    for value in (0.0, -1.0, math.nan, "abc"):
        with pytest.raises(UserError, match=r"^part\.sharpness=.+ must be float in \(0, inf\)"):
            check("part", node | {"sharpness": value}, object)


def test_a_name_of_ours_gives_no_range_to_a_class_of_the_user() -> None:
    check("part", {"_target_": f"{__name__}.Sharpened", "sharpness": 1.0, "k": -3, "dropout": 7.0}, object)
    schooled = {"_target_": f"{__name__}.Schooled", "_partial_": True, "warmth": 0.5}
    check("optimizer", schooled | {"momentum": 2.0}, Factory)
    with pytest.raises(UserError, match=r"^optimizer\.warmth=2\.0 must be float in \[0, 1\]"):
        check("optimizer", schooled | {"momentum": 0.0, "warmth": 2.0}, Factory)


@pytest.mark.parametrize("target", ["torch.optim.SGD", f"{__name__}.Renamed"])
def test_the_constructor_of_a_library_has_its_ranges_wherever_it_is_named(target: str) -> None:
    for key in ("optimizer", "callback.mine.optimizer"):
        with pytest.raises(UserError, match=rf"^{key}\.momentum=1\.0 must be float in \[0, 1\)"):
            check(key, {"_target_": target, "_partial_": True, "momentum": 1.0}, Factory)


@pytest.mark.parametrize("model", MODELS)
def test_the_composed_options_are_within_their_ranges(model: str) -> None:
    check_options(checked(f"model={model}", *GIVEN), TRAIN)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("seed", "abc", "int in [0, 4294967295]"),
        ("seed", -1, "int in [0, 4294967295]"),
        ("batch_tokens", None, "int in [1, 1000000]"),
        ("num_threads", 1.5, "int | null in [1, 1000]"),
        ("num_threads", 0, "int | null in [1, 1000]"),
        ("val_sentences", True, "int | null in [1, 1000000]"),
        ("label_smoothing", "abc", "float in [0, 1)"),
        ("label_smoothing", 1, "float in [0, 1)"),
        ("r_drop_alpha", math.nan, "float in [0, inf)"),
        ("token_dropout", 3, "dict[str, float in [0, 1)]"),
        ("token_dropout.source", -0.1, "float in [0, 1)"),
        ("optimizer.lr", -1, "in [0, inf)"),
        ("optimizer.lr", math.nan, "in [0, inf)"),
        ("optimizer.lr", 10**400, "in [0, inf)"),
        ("optimizer.betas", [], "in [0, 1)"),
        ("optimizer.betas", [0.9, 1.0], "in [0, 1)"),
        ("scheduler.warmup_steps", -1, "int in [0, 1000000000]"),
        ("scheduler.warmup_steps", 1.5, "int in [0, 1000000000]"),
        ("attention.num_heads", 0, "int | null in [1, 1000]"),
        ("attention.dropout", 1.5, "float in [0, 1)"),
        ("attention.score.hidden_dim", 0, "int | null in [1, 16384]"),
        ("feed_forward.ff_dim", 0, "int | null in [1, 16384]"),
        ("position.base", 0, "float in (0, inf)"),
        ("position.base", math.nan, "float in (0, inf)"),
        ("model.encoder.num_layers", 0, "int in [1, 1000]"),
        ("model.encoder.num_layers", 10**7, "int in [1, 1000]"),
        ("model.encoder.dim", -3, "int in [1, 16384]"),
        ("model.encoder.cell", "nope", "gru or lstm"),
        ("model.tie_embeddings", "nope", "none, target or all"),
        ("model.tie_embeddings", True, "none, target or all"),
        ("trainer.precision", 17, "16, 32, 64, "),
        ("model.decoder", None, "a group with _target_ and _partial_=true"),
        ("tokenizer.joint", 99999, "bool"),
        ("data.cleaning.max_words", None, "int in [1, 1000000]"),
        ("trainer.gradient_clip_val", math.nan, "float | int | null in [0, inf)"),
        ("trainer.gradient_clip_val", -1, "float | int | null in [0, inf)"),
        ("trainer.accumulate_grad_batches", 0, "int in [1, 1000000]"),
        ("trainer.val_check_interval", 0, "in (0, inf)"),
        ("trainer.max_epochs", "abc", "int | null in [-1, 1000000000]"),
        ("callback.attention_map.slots", ["nope"], "[Literal['cross', 'self', 'encoder']"),
        ("callback.early_stopping.patience", -1, "int in [0, 1000000000]"),
        ("callback.autosave.every_steps", 0.5, "int | null in [1, 1000000000]"),
        ("callback.attention_entropy.num_sentences", 0, "int in [1, 1000000]"),
        ("trainer.log_every_n_steps", 0, "in [1, 1000000000]"),
        ("trainer.log_every_n_steps", "cpu", "in [1, 1000000000]"),  # a number, so no file of a group is offered
    ],
)
def test_a_value_outside_is_refused_by_its_name(key: str, value: Any, said: str) -> None:
    config = checked("model=rnn", *GIVEN)
    OmegaConf.update(config, key, value, merge=False)
    section = key.partition(".")[0]
    with pytest.raises(UserError, match=f"^{key}=.* must be .*{re.escape(said)}.*; `--cfg job` shows the default$"):
        check_options(config, {section: TRAIN[section]})


@pytest.mark.parametrize(
    ("key", "value", "way_out"),
    [
        ("search.length_penalty", "mean", "search/length_penalty=mean"),
        ("search.candidates", "beam", "search@search.candidates=beam"),
        ("model.encoder", "conv", "encoder@model.encoder=conv"),
        ("attention.score", "dot", "attention/score=dot"),
        ("data.cleaning", "long", "data/cleaning=long"),
    ],
)
def test_the_name_of_a_file_given_as_an_option_is_answered_with_the_group(key: str, value: str, way_out: str) -> None:
    section = key.partition(".")[0]
    given = ["search=mbr"] if key == "search.candidates" else ["search=beam"]
    config = checked("model=rnn", *given)
    OmegaConf.update(config, key, value, merge=False)
    with pytest.raises(UserError, match=f"^{key}={value} must be .*; give {way_out}$"):
        check_options(config, {section: TRAIN[section]})
    check_options(checked("model=rnn", *given, way_out), {section: TRAIN[section]})


def test_a_metric_of_another_kind_is_refused_before_it_is_asked_for_its_direction() -> None:
    config = OmegaConf.create({"metric": {"mine": {"_target_": FULL}}})
    with pytest.raises(UserError, match=f"^metric.mine._target_={FULL} is not a ChosenMetric; "):
        check_options(config, FIRST)


class Given:
    """Takes what a user may annotate as it is right."""

    def __init__(
        self,
        *,
        some: list = [],  # noqa: B006
        names: dict = {},  # noqa: B006
        pair: tuple = (),
        made: partial | None = None,
        read: Callable[[str], str] | None = None,
        shares: list[Annotated[float, "(0, 1]"]] | None = None,
        rate: Annotated[float, "must be above 0"] = 1.0,
        share: Annotated[float, "a word", "(0, 1]", "more"] = 1.0,
    ) -> None: ...


GIVEN_TARGET = f"{__name__}.Given"
GELU = {"_target_": "torch.nn.GELU", "_partial_": True}


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said"),
    [
        ("some", [1, "a"], 3, "list"),
        ("names", {"a": 1}, [1], "dict"),
        ("pair", [1, 2], "a", "tuple"),
        ("made", GELU, {"_target_": "torch.nn.GELU"}, "a group with _target_ and _partial_=true | null"),
        ("read", GELU, "gelu", "a group with _target_ | null"),
        ("shares", [0.5], [0.0], "list"),
        ("rate", 0.5, "a", "float"),
        ("share", 0.5, 1.5, "float in (0, 1]"),
    ],
)
def test_an_annotation_of_the_user_is_read_as_it_is_meant(name: str, right: Any, wrong: Any, said: str) -> None:
    def checked_here(value: Any) -> None:
        check("mine", {"_target_": GIVEN_TARGET, name: value}, object)

    checked_here(right)
    with pytest.raises(UserError, match=rf"^mine.{name}=.* must be {re.escape(said)}"):
        checked_here(wrong)


class Odd:
    """Has annotations that are no types, or that are there for type checkers alone."""

    def __init__(
        self,
        *,
        words: "how warm it is" = 1.0,  # type: ignore
        unknown: NotThere | None = None,  # type: ignore # noqa: F821
        attribute: torch.nothing = 1.0,  # type: ignore
        low: Annotated[float, "[low, high]"] = 1.0,
        rate: Annotated[float, "(0, 1)"] = 0.5,
    ) -> None: ...


def test_an_annotation_that_is_no_type_switches_off_the_check_of_its_argument_alone() -> None:
    odd = {"_target_": f"{__name__}.Odd"}
    check("mine", odd | {"words": "a", "unknown": 3, "attribute": "b", "low": 2.0, "rate": 0.25}, object)
    for option, said in (
        ({"rate": 1.5}, r"^mine.rate=1.5 must be float in \(0, 1\)"),
        ({"low": "a"}, r"^mine.low=a must be float$"),
        ({"rates": 0.5}, r"^mine.rates is no option of \S+Odd; it takes: words, unknown, attribute, low, rate; "),
    ):
        with pytest.raises(UserError, match=said):
            check("mine", odd | option, object)


@pytest.mark.parametrize(
    ("key", "target", "sentence"),
    [
        ("attention.score", "os.getcwd", "is not a class, and a checkpoint rebuilds nothing else; give a class"),
        ("attention.own", "pathlib.Path", "is not a Module; give a class of that kind"),
        ("attention", FULL, "is not an AttentionLayer; "),
        ("callback.mine", FULL, "is not a Callback; "),
        ("optimizer", FULL, "is not an Optimizer; "),
    ],
)
def test_a_class_that_no_checkpoint_could_rebuild_is_refused_before_the_training(
    key: str, target: str, sentence: str
) -> None:
    names, node = key.split("."), {"_target_": target}
    if names[0] == "attention" and len(names) > 1:
        node = {"_target_": "seq2seq_attn.attention.attention.Attention", names[1]: node}
    elif len(names) > 1:
        node = {names[1]: node}
    with pytest.raises(UserError, match=f"^{key}._target_={target} {re.escape(sentence)}"):
        check_kinds(names[0], node, names[0])
    check_kinds("trainer", {"_target_": "pytorch_lightning.Trainer", "own": {"_target_": "pathlib.Path"}}, "trainer")
    inner = {"_target_": "seq2seq_attn.attention.attention.Attention", "own": {"_target_": "torch.nn.GELU"}}
    check_kinds("attention", inner, "attention")


def test_a_corpus_within_documents_may_hold_out_no_sentences() -> None:
    given = [f"data.corpus.{name}_sentences=0" for name in ("val", "test")]
    corpus = ["data=documents", "data@data.corpus=parallel", "data.corpus.train=a.tsv"]
    config = checked("model=rnn", *corpus, *given, *GIVEN)
    check_options(config, {"data": TRAIN["data"]})


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["search=beam", "search.beam_size=100000"], r"^search.beam_size=100000 must be .* in \[1, 1000\]; "),
        (["search=sampling", "search.temperature=nan"], r"^search.temperature=nan must be .* in \(0, inf\); "),
        (["model=conv", "model.decoder.num_layers=0"], r"^model.decoder.num_layers=0 must be .* in \[1, 1000\]; "),
        (["optimizer.lr='???'"], r"^The option 'optimizer.lr' has no value; give optimizer.lr=...$"),
        (["trainer.accelerator='???'"], r"^The option 'trainer.accelerator' has no value; "),
        (["+optimizer.nope=3"], "^optimizer.nope is no option of torch.optim.Adam; it takes: params, lr, "),
        (["~search.limits"], "^search lacks the option limits of .*GreedySearch; give search.limits=...$"),
        (
            ["model._target_=nope"],
            r"^model._target_=nope cannot be imported \(ModuleNotFoundError: No module named 'nope'\); install its",
        ),
        (
            ["model._target_=seq2seq_attn.model.encoder_decoder.EncoderDecodr"],
            "EncoderDecodr is not in the module .*encoder_decoder; did you mean EncoderDecoder[?]$",
        ),
        (["model._target_=os.xyzzy"], "^model._target_=os.xyzzy is not in the module os; correct the name$"),
        (
            ["+attention.normalizer.temperature=0.5"],
            "^attention.normalizer.temperature is no option of .*SoftmaxNormalizer; it takes none; ~attention.norm",
        ),
        (
            [f"attention.normalizer._target_={FULL}"],
            f"^attention.normalizer._target_={FULL} is not a Normalizer; give a class of that kind$",
        ),
        (
            ["attention=synthesizer_dense_vanilla", f"attention.score.scores.vanilla._target_={FULL}"],
            f"^attention.score.scores.vanilla._target_={FULL} is not a Score; ",
        ),
        (["model._target_=os"], "^model._target_=os is no class or function; correct the name$"),
        ([f"data.path={'x' * 5000}"], "^data.path=xxx.* holds a NUL, or more than 255 bytes between slashes"),
    ],
)
def test_an_override_that_fits_no_constructor_is_refused(overrides: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refused:
        check_options(checked(*GIVEN, *overrides), TRAIN)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "option",
    [
        "+trainer.strategy={_target_:pytorch_lightning.strategies.DDPStrategy}"[1:],
        "+callback.checkpoint.train_time_interval={_target_:datetime.timedelta,minutes:3}",
        "trainer.devices=[0,1]",
        "trainer.max_time={minutes:3}",
        "trainer.val_check_interval=0.5",
        "+callback.sums={_target_:pytorch_lightning.callbacks.GradientAccumulationScheduler,scheduling:{0:1,4:2}}",
        "trainer.precision=64",
        "optimizer.fused=null",
        "model.tie_embeddings=false",
    ],
)
def test_what_a_library_takes_is_let_through(option: str) -> None:
    check_options(checked(*GIVEN, option), TRAIN)


@pytest.mark.parametrize(
    ("command", "override"),
    [
        ("translate", "batch_sentences=0"),
        ("translate", "engine=nope"),
        ("translate", "num_threads=-1"),
        ("translate", "interactive=99999"),
        ("evaluate", "bootstrap=-1"),
        ("evaluate", "batch_tokens=0"),
        ("align", "gold_start=2"),
        ("align", "alignment_threshold=1.5"),
    ],
)
def test_other_commands_check_before_they_read_the_checkpoint(command: str, override: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        given = ["paths.run_dir=nowhere", "choices.data=null"] if command == "evaluate" else []
        config = compose(command, [*given, "ckpt_path=nowhere", override])
    with pytest.raises(UserError, match=f"^{override} must be "):
        {"translate": translate, "evaluate": evaluate, "align": align}[command](config)


@pytest.mark.parametrize(
    ("override", "way_out"),
    [("+serach=beam", "did you mean 'search'?"), ("++foo.bar=1", "leave it out, or let another option refer to it")],
)
def test_an_added_option_that_nothing_reads_is_refused(override: str, way_out: str) -> None:
    name = override.lstrip("+").partition("=")[0].partition(".")[0]
    config = OmegaConf.create({"seed": 1, name: 1})
    with pytest.raises(
        UserError, match=f"^{re.escape(override)} would change nothing, since there is no option '{name}'"
    ):
        check_added(config, ["seed=2", override], TRAIN)
    with pytest.raises(UserError, match=re.escape(way_out)):
        check_added(config, [override], TRAIN)


def test_an_option_that_is_read_cannot_be_deleted_and_a_group_or_a_part_of_one_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # restored at the end
    parts = ["~callback.attention_map", "~metric.chrf", "~optimizer.betas"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["callback=[default,ema]", "paths.run_dir=run", *parts], return_hydra_config=True)
    choose_monitor(config)
    HydraConfig.instance().set_config(config)
    check_options(config, TRAIN)
    for name in ("token_dropout", "init_from.strict", "batch_tokens"):
        OmegaConf.set_readonly(config.hydra, False)
        config.hydra.overrides.task = [f"~{name}"]
        HydraConfig.instance().set_config(config)
        with pytest.raises(UserError, match=rf"^~{name} takes away an option that is read; give {name}=VALUE, or leav"):
            check_options(config, TRAIN)
    needed = TRAIN.keys() - groups_of_parts(TRAIN, ["attention@cross_attention"])
    check_deleted(["~cross_attention.dropout", "~attention.dropout", "seed=1"], needed)


def test_an_added_option_of_a_known_name_or_that_another_refers_to_is_let_pass() -> None:
    config = OmegaConf.create({"width": 3, "seed": "${width}"})
    check_added(config, ["+width=3", "+seed=4", "+trainer.max_time=1", "+experiment/mine=a", "~callback"], TRAIN)


@pytest.mark.parametrize(
    "value",
    ["a.tsv", "C:\\x", 'a "b"', "a\\", 'a\\"b', "1e5", "inf", "nan", "1_000", "true", "null", "", "a b", "é", "a,b",
     "[x", ["a b", None, 1, 2.5, True], {"x": "y z", "n": [1]}],
)  # fmt: skip
def test_a_value_that_is_written_in_full_is_read_as_it_is(value: Any) -> None:
    read = OverridesParser.create().parse_override(f"key={hydra_literal(value)}").value()
    assert (type(read), read) == (type(value), value)
