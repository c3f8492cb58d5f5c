"""The search that a caller names: from any thread, within any program, and checked as that of a command."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from configs import CONF, built, composed
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.choose_search import choose_search, composed_search, with_defaults
from seq2seq_attn.search.beam import BeamSearch
from seq2seq_attn.search.diverse_beam import DiverseBeamSearch
from seq2seq_attn.search.length_penalty.mean import MeanPenalty
from seq2seq_attn.search.mbr import MBRSearch
from seq2seq_attn.search.sampling import SamplingSearch

DEFAULT: dict[str, Any] = {}


def test_several_threads_name_a_search_at_once() -> None:
    composed_search.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        searches = list(pool.map(lambda _: choose_search("beam", DEFAULT), range(12)))
    assert all(isinstance(search, BeamSearch) for search in searches)


def test_a_program_of_hydra_keeps_its_state() -> None:
    composed_search.cache_clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        program = GlobalHydra.instance().hydra
        assert isinstance(choose_search("beam", DEFAULT), BeamSearch)
        assert GlobalHydra.instance().hydra is program


@pytest.mark.slow
def test_a_new_process_of_python_may_name_a_search() -> None:
    """There Hydra has no version base yet."""
    code = "from seq2seq_attn.inference.choose_search import choose_search; print(choose_search('beam', {}).beam_size)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"5\n"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"name": "beam", "length_penalty": "nope"}, r"^search.length_penalty=nope must be "),
        ({"name": "beam", "beam_size": 2.5}, r"^search.beam_size=2.5 must be int"),
        ({"name": "beam", "num_best": None}, r"^search.num_best=null must be int"),
        ({"name": "greedy", "limits": {"max_extra_length": -9}}, r"^search.limits.max_extra_length=-9 must be int"),
    ],
)
def test_an_option_of_another_type_or_range_is_refused(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        choose_search(wanted, DEFAULT)


@pytest.mark.parametrize(
    ("candidates", "kind", "most"),
    [("diverse_beam", DiverseBeamSearch, 5), ({"name": "beam", "num_best": 3}, BeamSearch, 3)],
    ids=["name", "options"],
)
def test_candidates_with_a_name_are_that_search(candidates: Any, kind: type, most: int) -> None:
    search = choose_search({"name": "mbr", "candidates": candidates, "by_probability": True}, DEFAULT)
    assert isinstance(search, MBRSearch)
    assert isinstance(search.candidates, kind)
    assert (search.by_probability, search.most_hypotheses) == (True, most)


def test_an_option_that_an_older_run_does_not_have_can_be_given() -> None:
    saved: Any = OmegaConf.to_container(composed("search=mbr").search)
    del saved["candidates"]["no_repeat_ngram"]
    search = choose_search({"candidates": {"no_repeat_ngram": 2}}, with_defaults(saved))
    assert isinstance(search, MBRSearch)
    assert isinstance(search.candidates, SamplingSearch)
    assert (search.candidates.no_repeat_ngram, search.candidates.num_samples) == (2, 32)


def test_a_whole_search_may_have_built_parts() -> None:
    config = composed("search=beam").search
    parts = {name: built(config[name]) for name in ("length_penalty", "limits")}
    options = {name: value for name, value in config.items() if name not in parts}
    assert isinstance(choose_search(options | parts, DEFAULT), BeamSearch)


def test_a_described_part_replaces_that_of_the_search() -> None:
    penalty = {"_target_": "seq2seq_attn.search.length_penalty.mean.MeanPenalty", "power": 0.5}
    search = choose_search({"name": "beam", "length_penalty": penalty, "beam_size": 3}, DEFAULT)
    assert isinstance(search, BeamSearch)
    assert isinstance(search.length_penalty, MeanPenalty)
    assert (search.length_penalty.power, search.beam_size) == (0.5, 3)
    search = choose_search({"name": "beam", "length_penalty": "mean"}, DEFAULT)
    assert isinstance(search, BeamSearch)
    assert isinstance(search.length_penalty, MeanPenalty)
    assert search.length_penalty.power == 1.0
    with pytest.raises(UserError, match=r"^search.length_penalty.beta is no option of "):
        choose_search({"name": "beam", "length_penalty": penalty | {"beta": 1.0}}, DEFAULT)
