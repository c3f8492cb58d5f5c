"""The shortcut of the tests to a composed config: it gives what Hydra gives."""

from __future__ import annotations

import os
from pathlib import Path

import faster_hydra
import pytest
from configs import compose_here, compose_train, options, sets_a_value
from hydra import compose, initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException

OVERRIDES = [
    ("attention=hard", "attention.num_heads=3", "model.encoder.dim=14", "encoder@model.encoder=conv"),
    ("model.decoder.dim=7", "model=transformer", "position=rotary", "attention/score=additive", "trainer=cpu"),
    ("+callback.killed={_target_:small_run.Killed,hook:a,step:1}", "seed=5", "search=beam", "search.beam_size=7"),
    ("attention=sparse", "model=conv", "model.encoder.num_layers=2", "attention.pattern.k=2"),
    ("attention=alternating", "~attention.pattern.patterns.local", "+attention.score.query_dim=9", "seed=3"),
    ("model=conv", "encoder@model.encoder=transformer", "decoder@model.decoder=rnn", "seed=4"),
    ("encoder@model.encoder=conv", "decoder@model.decoder=rnn_luong", "attention=local", "model.decoder.dim=6"),
    ("attention=luong_dot", "attention/pattern=local", "attention@cross_attention=sparse", "model=conv", "seed=6"),
    (
        "attention@self_attention=luong_general",
        "model=transformer",
        "search=mbr",
        "search@search.candidates=sampling",
        "seed=7",
    ),
    ("attention@encoder_attention=fixed_patterns", "model=transformer", "encoder_attention.num_heads=3", "seed=7"),
    ("search=mbr", "search@search.candidates=sampling", "seed=3"),
    ("experiment=tatoeba_best", "attention=local", "position=rotary", "search=greedy", "seed=8"),
    ("debug=fast", "trainer.max_steps=3", "logger=[tensorboard]", "ckpt_path=${paths.run_dir}/x"),
]


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_a_config_whose_values_are_set_later_is_the_one_that_hydra_composes(overrides: tuple[str, ...]) -> None:
    assert any(map(sets_a_value, overrides))
    assert compose_train(*overrides) == compose_here(*overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ("attention=local", "attention@self_attention=local", "self_attention.num_heads=3"),  # of one file
        *(
            pytest.param(overrides, marks=pytest.mark.slow)
            for overrides in (
                ("recipe=none", "seed=5"),
                ("data=multi30k", "model=transformer"),
                ("experiment=tatoeba_best",),
            )
        ),
    ],
)
def test_hydra_composes_as_without_the_shortcuts_of_the_tests(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Hydra 1.3.8: a named recipe, one by the interpolation of its default, and nodes that are set twice."""
    found = (compose_here(*overrides), compose_here(*overrides))
    monkeypatch.setattr(ConfigRepository, "load_config", faster_hydra.load_config)
    monkeypatch.setattr(defaults_list, "_create_interpolation_map", faster_hydra.interpolation_map)
    monkeypatch.setattr(CachingConfigRepository, "__init__", faster_hydra.own_cache)
    monkeypatch.setattr(ConfigLoaderImpl, "_embed_result_config", staticmethod(faster_hydra.embed_slowly))
    monkeypatch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", faster_hydra.merge_slowly)
    monkeypatch.setattr(OverridesParser, "parse_rule", faster_hydra.parse_slowly)
    hydra = compose_here(*overrides)
    assert found == (hydra, hydra)


def test_a_file_outside_of_conf_is_read_again(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "app.yaml").write_text(f"number: {number}\n")
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            assert compose("app").number == number


@pytest.mark.slow
@pytest.mark.parametrize("preset", options("attention"))
def test_a_preset_of_attention_is_the_same_node_beside_every_model(preset: str) -> None:
    for model in options("model"):
        overrides = (f"attention={preset}", f"model={model}")
        assert compose_train(*overrides) == compose_here(*overrides)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", options("encoder"))
@pytest.mark.parametrize("decoder", options("decoder"))
def test_an_encoder_is_the_same_node_beside_every_decoder(encoder: str, decoder: str) -> None:
    overrides = (f"encoder@model.encoder={encoder}", f"decoder@model.decoder={decoder}", "attention=local")
    assert compose_train(*overrides) == compose_here(*overrides)


def test_what_hydra_refuses_is_refused_with_its_sentence() -> None:
    for overrides in (("model.no_such_key=1",), ("seeed=1", "attention=hard"), ("seed=[1",)):
        with pytest.raises(Exception, match=r".") as expected:
            compose_here(*overrides)
        with pytest.raises(type(expected.value)) as found:
            compose_train(*overrides)
        assert str(found.value) == str(expected.value)
    with pytest.raises(ConfigCompositionException, match="Could not override"):
        compose_train("model.no_such_key=1")


def test_each_caller_has_a_config_of_its_own() -> None:
    compose_train("seed=5").seed = 6
    assert compose_train("seed=5").seed == 5


def test_the_cache_is_one_of_this_test_run_and_by_default_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_train()
    assert config.paths.cache_dir == os.environ["SEQ2SEQ_ATTN_CACHE"]
    monkeypatch.delenv("SEQ2SEQ_ATTN_CACHE")
    assert config.paths.cache_dir == "~/.cache/seq2seq_attn"
