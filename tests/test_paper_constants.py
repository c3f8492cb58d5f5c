"""Defaults that are a paper's own numbers, which nothing else would miss."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from configs import CONF, options

SEARCHES_WITH_LIMITS = [
    name for name in options("search") if "\nlimits:" in (CONF / f"search/{name}.yaml").read_text("utf-8")
]
CONSTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "train": ("Szegedy et al. 2016, section 7; Vaswani et al. 2017, 5.4", {"label_smoothing": 0.1}),
    "optimizer/adam": ("Vaswani et al. 2017, 5.3", {"betas": [0.9, 0.98], "eps": 1e-9}),
    "optimizer/adamw": ("Vaswani et al. 2017, 5.3", {"betas": [0.9, 0.98], "eps": 1e-9}),
    "optimizer/muon": ("Liu et al. 2025", {"momentum": 0.95, "ns_steps": 5}),
    "scheduler/wsd": ("Hu et al. 2024", {"decay_share": 0.1}),
    "position/sinusoidal": ("Vaswani et al. 2017, 3.5", {"base": 10000.0}),
    "position/rotary": ("Su et al. 2021, 3.2", {"base": 10000.0}),
    "position/t5": ("Raffel et al. 2020, 2.1", {"num_buckets": 32, "max_distance": 128}),
    "position/relative": ("Shaw et al. 2018, 4.1", {"max_distance": 16}),
    "objective/denoising": ("Raffel et al. 2020, 3.3.4", {"noise_density": 0.15, "mean_span_length": 3.0}),
    "objective/infilling": (
        "Lewis et al. 2020, 2.2 and 5.1",
        {"noise_density": 0.3, "mean_span_length": 3.0, "permute_sentences": True},
    ),
    "search/mbr": ("Eikema and Aziz 2022", {"by_probability": False}),
    "search/diverse_beam": ("Vijayakumar et al. 2016, 0.2 to 0.8", {"diversity": 0.5}),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_default_is_the_number_of_the_paper(name: str) -> None:
    _, expected = CONSTANTS[name]
    found = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    assert {option: found[option] for option in expected} == expected


def test_all_searches_cut_a_translation_at_one_length_that_no_good_one_has() -> None:
    limits = [
        yaml.safe_load((CONF / f"search/{name}.yaml").read_text("utf-8"))["limits"] for name in SEARCHES_WITH_LIMITS
    ]
    assert len(limits) > 3
    assert all(one == limits[0] for one in limits)
    assert (limits[0]["max_relative_length"], limits[0]["max_extra_length"]) == (2.0, 20)
