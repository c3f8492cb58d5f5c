"""The searches that a request can choose: those of `conf/search/`, each with its options as a flat table."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from omegaconf import OmegaConf

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.choose_search import choose_search, compose_search
from seq2seq_attn.inference.json_fields import MAX_NUMBER, check_choice, shown
from seq2seq_attn.options import check
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.search.search import Search

OptionValue = bool | int | float | str | None
LARGEST: Final = {  # of options by the end of their names, so that a request ends in bounded time with finite numbers
    "beam_size": 64, "num_best": 64, "num_groups": 64, "num_samples": 128, "max_length": 1024,
    "max_extra_length": 1024, "min_length": 1024, "max_relative_length": 100.0, "min_relative_length": 100.0,
    "alpha": 10.0, "coverage_penalty": 100.0, "diversity": 100.0, "patience": 1000.0, "temperature": 1000.0,
}  # fmt: skip
SMALLEST: Final = {"temperature": 0.01, "top_p": 0.001}


@cache
def known_searches() -> dict[str, dict[str, Any]]:
    """Return the configuration of every search by its name; the first call takes a second."""
    names = sorted(path.stem for path in (conf_directory() / "search").glob("*.yaml"))
    return {name: OmegaConf.to_container(compose_search(name), resolve=True) for name in names}  # type: ignore[misc]


def flat(config: dict[str, Any], before: str = "") -> dict[str, OptionValue]:
    """Return the options by their dotted names, `limits.max_length`, without what builds them."""
    options: dict[str, OptionValue] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            options |= flat(value, f"{before}{key}.")
        elif not key.startswith("_"):
            options[f"{before}{key}"] = value
    return options


def name_of(config: dict[str, Any], known: dict[str, dict[str, Any]]) -> str | None:
    """Return the name of the search whose classes these are; of several, the one with the most options in common."""
    same = [name for name, other in known.items() if other["_target_"] == config["_target_"]]
    mine = flat(config)
    return max(
        same, key=lambda name: sum(mine.get(key) == value for key, value in flat(known[name]).items()), default=None
    )


def build_search(wanted: dict[str, Any] | None, default: dict[str, Any], known: dict[str, dict[str, Any]]) -> Search:
    """Build the search of a request.

    Args:
        wanted: a name and options; without a name, options of the default; None: the default as it is.
        default: the configuration of the run's search.

    Raises:
        UserError: for a name, an option or a value that there is not.
    """
    wanted = dict(wanted or {})
    name = wanted.pop("name", None)
    base = default if name is None else known[check_choice(name, "search", known)]
    options = flat(base)
    changed: dict[str, OptionValue] = {}
    for key, value in wanted.items():
        if key not in options:
            raise UserError(f"search has no option {shown(key)}; it has: {', '.join(options)}")
        changed[key] = checked(key, value, options[key])
    config = merged(base, changed)
    check("search", config, object)
    return choose_search(config, config)


def checked(key: str, value: Any, default: OptionValue) -> OptionValue:
    """Return the value of an option, whose type and range its class checks; here it is bounded."""
    if isinstance(value, str) and not (value.isascii() and value.isprintable() and len(value) <= 100):
        raise UserError(f"search.{key} is no printable text of up to 100 ASCII characters; choose another")
    if not isinstance(value, OptionValue):
        raise UserError(f"search.{key}={shown(value)} must be a number, a text, true, false or null")
    if isinstance(value, int | float) and not isinstance(value, bool):
        end = key.rpartition(".")[2]
        least, most = SMALLEST.get(end, -MAX_NUMBER), LARGEST.get(end, MAX_NUMBER)
        if not least <= value <= most:
            bound = f"at least {least:g}" if value < least else f"at most {most:g}"
            raise UserError(f"search.{key}={shown(value)} is out of range here; use a number of {bound}")
        return float(value) if isinstance(default, float) else value
    return value


def merged(config: dict[str, Any], changed: dict[str, OptionValue], before: str = "") -> dict[str, Any]:
    """Return the configuration with the changed options, by their dotted names."""
    return {
        key: merged(value, changed, f"{before}{key}.")
        if isinstance(value, dict)
        else changed.get(f"{before}{key}", value)
        for key, value in config.items()
    }
