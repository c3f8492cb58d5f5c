"""The lock of a run folder, taken before Hydra writes into it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from seq2seq_attn.distributed.rank_overrides import is_first_rank
from seq2seq_attn.distributed.run_lock import locked
from seq2seq_attn.errors import EXIT_CODE, UserError

UNTIL_EXIT = ExitStack()


@final
class RunLock(Callback):
    """A callback of Hydra's; the first rank holds the lock for all, until its process ends."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        if not is_first_rank(os.environ):
            return
        HydraConfig.instance().set_config(config)  # the folder's name may refer to it
        try:
            UNTIL_EXIT.enter_context(locked(Path(config.hydra.run.dir)))
        except UserError as error:  # Hydra would make a warning of it
            print(error, file=sys.stderr)
            sys.exit(EXIT_CODE)
