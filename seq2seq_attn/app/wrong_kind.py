"""A word typed where a number belongs, looked for once a job has failed: the libraries that meet it say it oddly."""

from __future__ import annotations

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq_attn.app.mistake import causes


def wrong_kind(error: Exception) -> str | None:
    """The sentence for the first override of the running job whose value is text, and its default a number.

    Other bugs keep their traceback, and so do those beside `auto`, a word that may stand for a number.
    """
    if not any(isinstance(cause, TypeError | ValueError) for cause in causes(error)):
        return None
    if not (HydraConfig.initialized() and GlobalHydra.instance().is_initialized()):
        return None
    hydra = HydraConfig.get()
    overrides = OverridesParser.create().parse_overrides(list(hydra.overrides.task))
    texts = {
        o.key_or_group: o.value() for o in overrides if isinstance(o.value(), str) and "." in o.key_or_group
    }
    if not texts:
        return None
    others = [o.input_line for o in overrides if o.input_line and o.key_or_group not in texts]
    try:
        config = compose(hydra.job.config_name, others)
    except (HydraException, OmegaConfBaseException, ValueError):
        return None
    for key, text in texts.items():
        default = OmegaConf.select(config, key, throw_on_resolution_failure=False)
        if isinstance(default, int | float) and text != "auto":
            kind = "true or false" if isinstance(default, bool) else "a number"
            return f"{key}={text} is to be {kind}; its default is {str(default).lower()}"
    return None
