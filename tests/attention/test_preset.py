"""A layer by the name of its preset, outside of this framework: what it computes, takes, refuses and leaves alone."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import CONF, ROOT, attention_of, attentions_at_once, composed, options
from hydra import compose, initialize_config_dir, version
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from omegaconf.basecontainer import BaseContainer

from seq2seq_attn.attention import CrossAttention, SelfAttention, build, build_attention
from seq2seq_attn.errors import UserError

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs/alone.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
MASK = torch.arange(7) < torch.tensor([[7], [4]])
APPLICATION = """
import sys
import torch
from seq2seq_attn.attention import build_attention
assert "hydra" not in sys.modules, "an import alone should not pay for Hydra"

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

@hydra.main(version_base="1.2", config_path="conf", config_name="app")
def main(config: DictConfig) -> None:
    running, version = HydraConfig.instance(), hydra.version.getbase()
    layer = build_attention("sparse", "pattern.k=3", dim=16)
    assert layer.attention.pattern.k == 3
    assert HydraConfig.instance() is running and hydra.version.getbase() == version
    print(config.name, hydra.compose("app", ["width=3"]).width, layer(torch.ones(1, 5, config.width)).context.shape[-1])

assert not hydra.core.global_hydra.GlobalHydra.instance().is_initialized()
main()
"""


def taking_turns(turn: int, names: list[str]) -> list[Any]:
    """Return the presets; every second one is slow, for it takes its turn with the other kind of layer."""
    return [pytest.param(name, marks=pytest.mark.slow if i % 2 != turn else []) for i, name in enumerate(names)]


@pytest.mark.parametrize("name", taking_turns(0, attentions_at_once()))
def test_every_preset_is_the_self_attention_that_a_model_gets(name: str) -> None:
    torch.manual_seed(3)
    ours = build_attention(name, dim=24)
    torch.manual_seed(3)
    theirs = attention_of(name, query_dim=24, key_dim=24, value_dim=24).eval()
    assert type(ours) is SelfAttention
    x = torch.randn(2, 7, 24)
    for causal in (False, True):
        found = ours.eval()(x, MASK, causal=causal).context
        assert torch.equal(found, theirs.attend_self(x, MASK, causal=causal).context)


@pytest.mark.parametrize("name", taking_turns(1, options("attention")))
def test_every_preset_is_the_cross_attention_that_a_model_gets(name: str) -> None:
    value_dim = 16 if name == "latent" else 40  # it compresses keys and values by one matrix
    torch.manual_seed(3)
    ours = build_attention(name, query_dim=16, key_dim=16, value_dim=value_dim)
    torch.manual_seed(3)
    theirs = attention_of(name, query_dim=16, key_dim=16, value_dim=value_dim).eval()
    assert type(ours) is CrossAttention
    query, keys, values = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.randn(2, 7, value_dim)
    crossed = ours.eval()(query, keys, values, MASK, need_weights=True)
    expected = theirs(query, theirs.prepare(keys, values, MASK), need_weights=True)
    assert torch.equal(crossed.context, expected.context)
    assert torch.equal(crossed.weights, expected.weights)
    assert crossed.context.shape == (2, 5, ours.context_dim)


def test_values_are_the_keys_unless_given() -> None:
    layer, keys = build_attention("luong_general", query_dim=5, key_dim=3), torch.randn(2, 7, 3)
    query = torch.randn(2, 2, 5)
    assert torch.equal(layer(query, keys, mask=MASK).context, layer(query, keys, keys, MASK).context)
    assert layer.context_dim == 3


def test_a_sequence_goes_on_behind_its_past() -> None:
    layer, x = build_attention("multihead", dim=6, num_heads=2), torch.randn(2, 7, 6)
    first = layer(x[:, :4], causal=True)
    rest = layer(x[:, 4:], past=first.memory, causal=True)
    torch.testing.assert_close(rest.context, layer(x, causal=True).context[:, 4:])


@pytest.mark.parametrize(
    ("override", "whole"),
    [
        ("pattern.k=3", "attention.pattern.k=3"),
        ("score=dot", "attention/score=dot"),
        ("+score.scores.extra.max_length=3", "+attention.score.scores.extra.max_length=3"),
        ("~normalizer", "~attention/normalizer"),
        ("attention.dropout=0.1", "attention.dropout=0.1"),
        ("attention/pattern=local", "attention/pattern=local"),
        ("+attention/score@attention.score.scores.dense=dot", "+attention/score@attention.score.scores.dense=dot"),
    ],
)
def test_an_override_is_that_of_the_command_line_whole_or_short(override: str, whole: str) -> None:
    assert build.in_full(override) == whole


def test_overrides_reach_the_parts() -> None:
    overrides = ("normalizer=hard", "normalizer.entropy_weight=0.5", "attention.pattern.k=3", "dropout=0.25")
    attention = build_attention("local", *overrides, dim=6, num_heads=3).attention
    assert attention.normalizer.entropy_weight == 0.5
    assert (attention.pattern.k, attention.dropout, attention.num_heads) == (3, 0.25, 3)
    whole = composed("attention=local", "attention.pattern.k=3").attention
    assert build.compose_factory("local", "pattern.k=3").keywords["pattern"].keywords["k"] == whole.pattern.k


def test_a_mixture_takes_one_more_score_as_on_the_command_line() -> None:
    extra = "+attention/score@attention.score.scores.general=general"
    assert len(build_attention("synthesizer_random_dense", extra, dim=6).attention.score.scores) == 3


def test_the_layer_picks_the_pattern_of_alternating() -> None:
    names = [type(build_attention("alternating", dim=6, layer=layer).attention.pattern).__name__ for layer in range(3)]
    assert names == ["LocalPattern", "AtrousPattern", "LocalPattern"]


@pytest.mark.parametrize(
    ("name", "overrides", "sizes", "sentence"),
    [
        ("sparze", [], {"dim": 6}, r"^There is no attention 'sparze'; choose from: .*, sparse, .*$"),
        ("sparse", [], {}, "dim=None, query_dim=None, .*; give dim alone for self-attention, or query_dim and key"),
        ("sparse", [], {"dim": 6, "value_dim": 6}, "dim=6, query_dim=None, key_dim=None and value_dim=6; give dim"),
        ("sparse", [], {"query_dim": 6}, "query_dim=6, key_dim=None and value_dim=None; give dim alone"),
        (
            "sparse",
            ["pattern.kk=3"],
            {"dim": 6},
            "^attention 'sparse' does not take pattern.kk=3: Could not override 'attention.pattern.kk'",
        ),
        ("sparse", ["score=foo"], {"dim": 6}, "does not take score=foo: .* Available options in .*: additive concat"),
        ("sparse", ["score=3"], {"dim": 6}, "does not take score=3: Config group override must be a string"),
        ("sparse", ["pattern.k"], {"dim": 6}, "does not take pattern.k: Error parsing override"),
        ("sparse", ["dropout=${rate}"], {"dim": 6}, "does not take dropout=.*: Interpolation key 'rate' not found"),
        ("sparse", [], {"dim": 0}, r"^dim=0 must be a whole number of at least 1$"),
        ("sparse", [], {"dim": -4}, r"^dim=-4 must be a whole"),
        ("sparse", [], {"query_dim": 6, "key_dim": 0}, r"^key_dim=0 must be a whole"),
        ("sparse", [], {"dim": 6, "layer": -1}, r"^layer=-1 must be a whole number of at least 0$"),
        ("multihead", [], {"dim": 6, "num_heads": 4}, "attention.num_heads=4 does not divide query_dim=6"),
        ("luong_dot", [], {"query_dim": 6, "key_dim": 5}, "needs query_dim == key_dim, got 6 and 5"),
        ("local", ["pattern.length_ratio=2.0"], {"dim": 6}, "length_ratio=2.0 is for cross-attention"),
        ("soft_cap", ["score.cap=0"], {"dim": 6}, r"^attention\.score\.cap=0 must be float in \(0, inf\)$"),
        ("multihead", ["backend=fast"], {"dim": 6}, r"^attention\.backend=fast must be auto or dense"),
        ("multihead", ["qk_scale=nan"], {"dim": 6}, r"^attention\.qk_scale=nan must be float"),
        ("multihead", ["head_dim=0"], {"dim": 6}, r"^attention\.head_dim=0 must be int"),
        ("bahdanau", ["score.hidden_dim=-4"], {"dim": 6}, r"^attention\.score\.hidden_dim=-4 must be int"),
        ("multihead", ["dropout=1.5"], {"dim": 6}, r"^attention\.dropout=1\.5 must be float in \[0, 1\)"),
        ("dilated", ["pattern.segments=4"], {"dim": 6}, r"^attention\.pattern\.segments=4 must be "),
        ("multihead", ["+decay=gate"], {"dim": 6}, r"^attention\.decay is no option of .*Attention; it takes: "),
        (
            "linear",
            ["normalizer=sparsemax"],
            {"dim": 6},
            "^attention 'linear' does not take normalizer=sparsemax: .* No match in the defaults list.$",
        ),
        (
            "wait_k",
            ["score=forgetting", "pattern.length_ratio=0.5"],
            {"query_dim": 6, "key_dim": 6},
            r"^ForgettingScore reads the source token at the position of the query, which WaitKPattern .* may hide",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    name: str, overrides: list[str], sizes: dict[str, int], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        build_attention(name, *overrides, **sizes)


@pytest.mark.parametrize("sizes", [{"dim": 8.0}, {"dim": "8"}, {"dim": True}, {"dim": [8]}, {"dim": 6, "layer": 1.5}])
def test_sizes_of_another_type_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r" must be a whole number of at least [01]$"):
        inspect.unwrap(build_attention)("sparse", **sizes)  # as outside of the tests, whose types are checked


class Needs:
    """Needs a part that its YAML file leaves out."""

    def __init__(self, *, score: Any, dim: int) -> None: ...


def test_what_a_class_needs_and_is_not_given_is_named() -> None:
    with pytest.raises(UserError, match=r"^Needs is built without 'score', which it needs; give it in the YAML file"):
        build.instantiated(partial(Needs), dim=6)
    with pytest.raises(TypeError, match="unsupported operand"):  # another mistake stays what it is
        build.instantiated(partial(lambda dim: dim + "a"), dim=6)


def test_a_size_may_be_a_number_of_numpy() -> None:
    assert inspect.unwrap(build_attention)("sparse", dim=np.int64(6), num_heads=2).attention.num_heads == 2


def test_layers_are_built_in_several_threads_at_once() -> None:
    presets = ["multihead", "sparse", "bahdanau", "linear"] * 2
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda preset: build_attention(preset, query_dim=6, key_dim=6), presets))
    assert [type(layer.attention).__name__ for layer in built] == [
        "Attention",
        "Attention",
        "Attention",
        "KernelAttention",
    ] * 2


def hydra_state() -> dict[str, Any]:
    """Who is there, by identity, and what they say."""
    return {
        "hydra": GlobalHydra.instance(),
        "loader": GlobalHydra.instance().hydra,
        "store": ConfigStore.instance(),
        "version": version.getbase(),
        "resolvers": dict(BaseContainer._resolvers),
    }


@pytest.mark.parametrize("refused", [False, True])
def test_hydras_state_is_the_same_before_and_after_and_others_go_on_composing(refused: bool) -> None:
    OmegaConf.register_new_resolver("ours", lambda: 7, replace=True)
    try:
        with initialize_config_dir(str(CONF), version_base="1.2"):
            before = hydra_state()
            if refused:
                with pytest.raises(UserError, match="does not take"):
                    build_attention("sparse", "pattern.kk=3", dim=6)
            else:
                build_attention("sparse", dim=6)
            assert hydra_state() == before
            assert str(before["version"]) == "1.2"
            assert compose("train", ["seed=11"]).seed == 11
            assert OmegaConf.create({"a": "${ours:}"}).a == 7
        outside = GlobalHydra.instance()
        build_attention("sparse", dim=6)
        assert GlobalHydra.instance() is outside
        assert not outside.is_initialized()
    finally:
        OmegaConf.clear_resolver("ours")


@pytest.mark.slow  # the test above says it of this process
def test_it_works_inside_a_running_hydra_application_and_elsewhere_than_in_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/app.yaml").write_text("name: mine\nwidth: 16\nhydra: {output_subdir: null}\n")
    (tmp_path / "app.py").write_text(APPLICATION)
    command = [sys.executable, "app.py", "hydra.run.dir=.", "hydra/job_logging=none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("mine 3 16\n", "")


def test_the_example_of_the_docstring_is_right() -> None:
    assert doctest.testmod(build).attempted >= 6
    assert doctest.testmod(build).failed == 0


def test_the_code_of_the_page_runs() -> None:
    assert len(BLOCKS) >= 5
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(block, names)
    assert names["weights"].shape == (2, 8, 7, 7)
    assert (names["weights"][1, :, :, 4:] == 0).all()


@pytest.mark.parametrize(
    ("preset", "override"), [("cosine", "score.initial_scale=8"), ("scalable_softmax", "normalizer.initial_scale=1")]
)
def test_a_learned_number_may_begin_as_a_whole_one(preset: str, override: str) -> None:
    layer = build_attention(preset, override, dim=6)
    assert all(parameter.is_floating_point() for parameter in layer.parameters())
    assert layer(torch.randn(2, 3, 6)).context.isfinite().all()


@pytest.mark.parametrize(
    ("preset", "other", "sentence"),
    [
        (
            "l2",
            "normalizer=relu",
            "ReluNormalizer gives weight to positive scores, and L2Score has heads without any; use",
        ),
        (
            "l2",
            "normalizer=identity",
            "IdentityNormalizer gives weight to positive scores, and L2Score has heads without any; use",
        ),
        ("none", "normalizer=relu", "ReluNormalizer gives weight to positive scores, and UniformScore has heads with"),
        ("fixed_patterns", "normalizer=relu", "ReluNormalizer gives weight to positive scores, and FixedScore has "),
        ("forgetting", "normalizer=identity", "ForgettingScore subtracts from a score what is forgotten, and Identity"),
        ("fixed_patterns", "pattern=wait_k", "FixedScore reads the length of the source, which WaitKPattern does not"),
        ("l2", "pattern=lsh", "LshPattern selects keys by an inner product of queries and keys, which L2Score is not"),
        ("fixed_patterns", "mix=talking_heads", "TalkingHeadsMix mixes the scores of all heads, and FixedScore hides"),
    ],
)
def test_parts_that_give_no_weights_or_wrong_ones_together_are_refused(preset: str, other: str, sentence: str) -> None:
    with pytest.raises(UserError, match=rf"^{sentence}"):
        build_attention(preset, other, dim=16, num_heads=8)


def test_a_walk_does_not_go_on_from_weights_that_a_pattern_has_shrunk() -> None:
    build_attention("monotonic", "pattern=local", query_dim=6, key_dim=6)
    with pytest.raises(UserError, match=r"^LocalPPattern multiplies the weights from which MonotonicNormalizer"):
        build_attention("monotonic", "pattern=local_p", query_dim=6, key_dim=6)


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        (("attention/score=soft_cap", "attention/score@attention.score.score=l2"), "SoftCapScore"),
        (
            (
                "attention/score=mixture",
                "attention/score@attention.score.scores.first=l2",
                "attention/score@attention.score.scores.second=uniform",
            ),
            "MixtureScore",
        ),
    ],
)
def test_a_score_of_scores_that_are_never_positive_never_is(overrides: tuple[str, ...], kind: str) -> None:
    build_attention("multihead", *overrides, dim=16)
    with pytest.raises(UserError, match=rf"and {kind} has heads without any; use attention/normalizer=softmax"):
        build_attention("multihead", *overrides, "normalizer=relu", dim=16)


def test_the_way_out_of_a_mix_that_does_not_fit_works() -> None:
    with pytest.raises(UserError, match="use ~attention/mix, or"):
        build_attention("fixed_patterns", "mix=talking_heads", dim=16, num_heads=8)
    assert build_attention("talking_heads", "~attention/mix", dim=16).attention.mix is None


def test_self_attention_with_a_history_is_refused_wherever_it_is_called() -> None:
    layer = build_attention("coverage", query_dim=8, key_dim=8)
    with pytest.raises(UserError, match="reads the weights of the steps before"):
        layer.attention.attend_self(torch.zeros(1, 3, 8))
