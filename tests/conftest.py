"""Tests run on one thread and in float64 unless they say otherwise."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shared_folder import shared_folder

if TYPE_CHECKING:
    from seq2seq_attn.checkpoint.load import Loaded

gc.disable()  # until the tests are collected
os.fsync = lambda descriptor: None  # no test sees the power fail


def pytest_configure(config: pytest.Config) -> None:
    """Prepare a process that runs tests; one that hands them out to others needs none of these imports."""
    of_others = hasattr(config, "workerinput")
    if not of_others:  # the others inherit it
        use_own_cache(config)
    if not of_others and config.getoption("numprocesses", None):
        return
    if of_others:  # the import hook would have what a module of the package imports compiled once more
        importlib.import_module("pytorch_lightning")
    import checked_types
    import faster_hydra
    import jaxtyping

    jaxtyping.jaxtyped = checked_types.jaxtyped  # with which the import hook decorates the package
    checked_types.check_arrays_faster()
    faster_hydra.compose_faster()


def use_own_cache(config: pytest.Config) -> None:
    """Have every process of this test run share a cache of its own, neither the user's nor one of an earlier run."""
    folder = tempfile.mkdtemp(prefix="seq2seq_attn_cache_")
    os.environ["SEQ2SEQ_ATTN_CACHE"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End a process that has reported all of its tests, without freeing what it holds, which takes seconds."""
    if hasattr(config, "workerinput"):
        os._exit(0)


def with_room(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method in a frame of half a megabyte, so that the frames of all that it calls are in one chunk.

    Python takes frames from chunks of 16 KiB. A loop whose calls cross the end of one maps and unmaps memory each time.
    """

    def call(*args: Any) -> Any:
        return method(*args)

    call.__code__ = call.__code__.replace(co_stacksize=2**16 + 1)
    return call


pytest.Function.setup = with_room(pytest.Function.setup)  # type: ignore[method-assign]
pytest.Function.runtest = with_room(pytest.Function.runtest)  # type: ignore[method-assign]


def pytest_collection_finish() -> None:
    """Let garbage collection leave out the million objects of the imports, which cost a tenth of the time.

    Let the fifty loggers of torch propagate, too: pytest adds two handlers to one that does not, six times a test.
    """
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("torch."):
            logger.propagate = True
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def own_config_store() -> Iterator[None]:
    """What the tests of a module store for Hydra, as `init_from.run=` does, is no choice in the next one."""
    from hydra.core.config_store import ConfigStore
    from hydra.core.plugins import Plugins

    Plugins.instance()  # some of which store options, when they are first asked for
    store = ConfigStore.instance()
    before = groups_of(store.repo)
    yield
    store.repo = before


def groups_of(node: Any) -> Any:
    """Return a copy of the store's groups, which shares their configs."""
    return {name: groups_of(child) for name, child in node.items()} if isinstance(node, dict) else node


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Of the whole session, so that models which several tests share are trained alike everywhere."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def hears_hang_ups() -> None:
    """Also under nohup, which would have the commands that tests start ignore SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def reproducible(one_thread: None) -> Iterator[None]:
    import torch

    # torch.manual_seed would record the stack for each kind of device that is absent.
    (torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed)(0)
    yield
    torch.set_num_threads(1)  # whatever a test has chosen


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Restore what a command that ran in this process has set of the package's loggers."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "seq2seq_attn"]
    loggers = [logging.getLogger(name) for name in {"seq2seq_attn", *names}]
    before = [(logger.level, logger.disabled, logger.propagate) for logger in loggers]
    yield
    for logger, (level, disabled, propagate) in zip(loggers, before, strict=True):
        if logger.level != level:  # to set it empties the caches of all loggers
            logger.setLevel(level)
        logger.disabled, logger.propagate = disabled, propagate


@pytest.fixture
def double() -> Iterator[None]:
    """New floating tensors are float64."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the warnings of Lightning and torch, which a command leaves out or shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def no_further_fonts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pictures find no font of the system, whatever is installed, but those that a test puts into the list."""
    from matplotlib.font_manager import fontManager

    from seq2seq_attn.alignment import fonts

    files: list[str] = []
    monkeypatch.setattr(fonts, "findSystemFonts", lambda: files)
    monkeypatch.setattr(fonts.FONTS, "__dict__", vars(fonts.Fonts()))
    monkeypatch.setattr(fontManager, "ttflist", list(fontManager.ttflist))
    return files


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that name three small sets of pairs."""
    from small_run import name_pairs, write_pairs  # whose imports take seconds, and most tests do without

    return name_pairs(shared_folder(tmp_path_factory, "pairs", write_pairs))


@pytest.fixture(scope="session")
def trained_run(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run_here(folder, *pairs)`: three epochs of the small model that were never stopped. Tests only read it."""
    from small_run import run_here

    return shared_folder(tmp_path_factory, "trained_run", lambda folder: run_here(folder, *pairs))


@pytest.fixture(scope="session")
def learned_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that translates some of its test set; see `evaluation.learned`. Tests only read it."""
    from evaluation.learned import learn

    return shared_folder(tmp_path_factory, "learned_run", learn) / "run"


@pytest.fixture(scope="session")
def taught_transformer(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """`small_transformer.taught()`, trained once."""
    import torch
    from small_transformer import small_transformer, taught

    def make(folder: Path) -> None:
        torch.save(taught().model.state_dict(), folder / "weights.pt")

    folder = shared_folder(tmp_path_factory, "taught_transformer", make)
    loaded = small_transformer(noise=0.0)
    loaded.model.load_state_dict(torch.load(folder / "weights.pt"))
    return loaded


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from explorer.browser import start_browser

    browser = start_browser(tmp_path_factory.mktemp("downloads"))
    if browser is None:
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    yield browser
    browser.quit()
