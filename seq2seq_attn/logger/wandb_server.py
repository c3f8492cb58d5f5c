"""Whether Weights & Biases can be used, found out within seconds."""

from __future__ import annotations

import netrc
import os
import threading
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import wandb

ALIASES = ("api.wandb.ai", "api.forge.coreweave.com")  # of one server; a login is kept under either
ANSWER_SECONDS = 4.0  # the name's resolution included, which has no limit of its own


def unreachable() -> str | None:
    """Why W&B cannot be used at once; None: it can."""
    settings = wandb.setup().settings
    address: str = settings.base_url
    host = urlsplit(address).hostname or address
    if not (settings.api_key or any(has_login(name) for name in (host, *ALIASES))):
        return "no key is set (WANDB_API_KEY, or `wandb login`)"
    found: list[str | None] = [f"{host} does not answer within {ANSWER_SECONDS:.0f} seconds"]

    def ask() -> None:
        found[0] = no_answer(address, host)

    asking = threading.Thread(target=ask, daemon=True, name="question to W&B")
    asking.start()
    asking.join(ANSWER_SECONDS)
    return found[0]


def no_answer(address: str, host: str) -> str | None:
    """Why the server gives no answer, as W&B's own library would ask it, through a proxy too; any page is one."""
    try:
        urlopen(address, timeout=ANSWER_SECONDS).close()
    except HTTPError as answer:
        answer.close()
    except (OSError, HTTPException, ValueError) as error:
        return f"{host} cannot be reached ({getattr(error, 'reason', error)})"
    return None


def has_login(host: str) -> bool:
    """Whether `wandb login` has left a key for the host."""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
