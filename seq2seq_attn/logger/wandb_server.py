"""Whether Weights & Biases can be used, answered within seconds."""

from __future__ import annotations

import netrc
import os
import threading
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import wandb

ALIASES = ("api.wandb.ai", "api.forge.coreweave.com")  # of one server; `wandb login` stores a key under either
ANSWER_SECONDS = 4.0  # of all, since resolving the name has no limit of its own


def unreachable() -> str | None:
    """Return why W&B cannot be used now; None: it can."""
    settings = wandb.setup().settings
    address: str = settings.base_url
    host = urlsplit(address).hostname or address
    if not (settings.api_key or any(has_login(name) for name in (host, *ALIASES))):
        return "no key is set (WANDB_API_KEY, or `wandb login`)"
    reason: list[str | None] = [f"{host} does not answer within {ANSWER_SECONDS:.0f} seconds"]

    def ask() -> None:
        try:
            urlopen(address, timeout=ANSWER_SECONDS).close()  # through a proxy too, as W&B's own library would
            reason[0] = None
        except HTTPError:  # any page is an answer
            reason[0] = None
        except (OSError, HTTPException, ValueError) as error:
            reason[0] = f"{host} cannot be reached ({getattr(error, 'reason', error)})"

    asking = threading.Thread(target=ask, daemon=True, name="probe of W&B")
    asking.start()
    asking.join(ANSWER_SECONDS)
    return reason[0]


def has_login(host: str) -> bool:
    """Whether `wandb login` has stored a key for the host."""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
