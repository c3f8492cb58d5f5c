"""User errors in a command line: Hydra's message as one sentence, with the closest name that there is."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from seq2seq_attn.errors import causes, command, sentence_of
from seq2seq_attn.paths import in_quotes, search_path, typed

SYNONYMS = {  # names that other toolkits have for an option, by its last word
    "lr learning_rate": "optimizer.lr=...",
    "epochs num_epochs n_epochs num_train_epochs": "trainer.max_epochs=...",
    "steps num_steps train_steps max_train_steps updates max_update max_updates": "trainer.max_steps=...",
    "batch batch_size max_tokens tokens_per_batch": "batch_tokens=..., which counts padded source and target tokens",
    "beam beams beam_size beam_width num_beams": "search=beam search.beam_size=...",
    "heads num_heads n_head n_heads nhead attention_heads": "attention.num_heads=...",
    "layers n_layers num_layers": "model.encoder.num_layers=... model.decoder.num_layers=...",
    "hidden_size hidden_dim d_model dim rnn_size": "model.encoder.dim=... model.decoder.dim=...",
    "dropout": "model.encoder.dropout=... model.decoder.dropout=..., or attention.dropout=... of the weights",
    "ffn_dim d_ff dim_feedforward": "feed_forward.ff_dim=...",
    "warmup warmup_steps warmup_updates": "scheduler=inverse_sqrt scheduler.warmup_steps=...",
    "gpus gpu num_gpus": "trainer.devices=...",
    "device use_cuda": "trainer.accelerator=cpu or gpu",
    "fp16 bf16 amp": "trainer.precision=bf16-mixed, or trainer.precision=16-mixed optimizer.fused=false",
    "clip grad_clip clip_grad_norm max_grad_norm": "trainer.gradient_clip_val=...",
    "grad_accum gradient_accumulation_steps update_freq": "trainer.accumulate_grad_batches=...",
    "wandb use_wandb": "logger=wandb",
    "tensorboard": "logger=tensorboard",
    "mlflow use_mlflow": "logger=mlflow",
    "vocab vocab_size src_vocab_size": "tokenizer.vocab_size=...",
    "train train_data train_file train_path dataset": "data=parallel data.train=FILE",
    "valid valid_data valid_file validation_file dev dev_file val_file": "data=parallel data.val=FILE",
    "test test_data test_file": "data=parallel data.test=FILE",
    "src_lang source_lang": "data.source_language=...",
    "tgt_lang trg_lang target_lang": "data.target_language=...",
    "output_dir save_dir out_dir": "hydra.run.dir=FOLDER",
    "checkpoint load_from restore resume_from": "ckpt_path=RUN",
    "arch": "model=conv, rnn or transformer",
    "embed_dim embedding_size word_vec_size encoder_embed_dim decoder_embed_dim": "model.embedding_dim=...",
    "encoder_layers enc_layers": "model.encoder.num_layers=...",
    "decoder_layers dec_layers": "model.decoder.num_layers=...",
    "rnn_type": "model.encoder.cell=... model.decoder.cell=...",
    "tie_weights tied_embeddings share_embeddings share_all_embeddings": "model.tie_embeddings=all, target or none",
    "weight_decay": "optimizer=adamw optimizer.weight_decay=...",
    "eval_metric early_stopping_metric best_checkpoint_metric metric_for_best_model": "monitor=val/...",
    "log_interval logging_steps logging_freq report_every": "trainer.log_every_n_steps=...",
    "eval_steps validation_freq valid_steps": "trainer.val_check_interval=... trainer.check_val_every_n_epoch=null",
    "validate_interval": "trainer.check_val_every_n_epoch=...",
    "keep_best_ckpts keep_best_checkpoints": "callback.best_checkpoints.save_top_k=...",
    "keep_checkpoint keep_last_epochs save_total_limit": "callback.history.save_top_k=...",
    "max_len max_length maxlen max_seq_length max_new_tokens": "search.limits.max_length=... of outputs, or "
    "data.cleaning.max_words=... of sentences",
    "beam_alpha alpha": "search=beam search.length_penalty.alpha=...",
    "lenpen length_penalty": "search=beam_mean search.length_penalty.power=...",
    "no_repeat_ngram_size no_repeat_ngram": "search=greedy search.no_repeat_ngram=..., or with search=beam, "
    "diverse_beam or sampling",
    "num_return_sequences n_best": "search=beam search.num_best=...",
    "top_k sampling_topk": "search=sampling search.top_k=...",
    "top_p sampling_topp": "search=sampling search.top_p=...",
    "temperature": "search=sampling search.temperature=...",
    "random_seed": "seed=...",
}
CHOICES = {  # names that other toolkits or papers have for a choice, by its group
    "model": {"lstm": "rnn, with model.encoder.cell=lstm model.decoder.cell=lstm", "gru": "rnn", "seq2seq": "rnn",
              "convs2s": "conv", "fconv": "conv"},
    "attention": {"additive": "bahdanau", "mlp": "bahdanau", "concat": "luong_concat", "dot": "luong_dot",
                  "general": "luong_general", "bilinear": "luong_general", "luong": "luong_general",
                  "self": "multihead"},
    "scheduler": {"noam": "inverse_sqrt", "reduce_lr_on_plateau": "plateau", "reduce_on_plateau": "plateau",
                  "polynomial_decay": "linear", "trapezoidal": "wsd", "warmup_stable_decay": "wsd"},
    "search": {"topk": "sampling", "top_k": "sampling", "topp": "sampling", "top_p": "sampling", "nucleus": "sampling"},
    "position": {"rope": "rotary", "sin": "sinusoidal", "absolute": "sinusoidal"},
    "tokenizer": {"sentencepiece": "unigram", "wordpiece": "bpe", "subword": "unigram", "character": "char"},
    "metric": {"sacrebleu": "bleu", "accuracy": "exact_match", "em": "exact_match", "rougeL": "rouge"},
}  # fmt: skip
OF_THE_RUN = {  # what is that of the run unless it is chosen, by command and group
    "translate": {"search": "a search"},
    "serve": {"search": "a search"},
    "evaluate": {"search": "a search", "data": "a corpus"},
}
FILE_OPTIONS = {  # the option, by command, that takes a file which is no model and was typed without one
    "train": "data=parallel data.train",
    "prepare": "data=parallel data.train",
    "translate": "input",
    "evaluate": "data=parallel data.test",
}
MOST_NAMED = 6  # choices of a group
MEANT = {word: option for words, option in SYNONYMS.items() for word in words.split()}


def sentence_of_composition(
    error: Exception, directory: Path, config_name: str, overrides: list[str], config_dir: str | None = None
) -> str | None:
    """Return the sentence for an error from before the job; None for a bug.

    Args:
        directory: of the project's YAML files.
        config_dir: of the user's, as `--config-dir` gives it.
    """
    if sentence := sentence_of(error):
        return sentence
    if isinstance(error, UnicodeDecodeError) and config_dir is not None:
        wrong = [file for file in sorted(Path(config_dir).rglob("*.yaml")) if not is_utf8(file)]
        return f"{wrong[0]} is not UTF-8; convert it: iconv -f latin1 -t utf-8 FILE" if wrong else None
    if isinstance(error, MissingConfigException):
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        choices = error.options or sorted(path.stem for path in (directory / group).glob("*.yaml"))
        meant = CHOICES.get(group, {}).get(name)
        hint = f"did you mean {group}={meant}?" if meant else closest_choice(name, choices)
        return f"There is no {group or 'config'} '{name}'; {hint}"
    if sentence := sentence_of_override(error, directory, config_name, overrides):
        return sentence
    if isinstance(error, OSError) and error.filename:  # Hydra makes the run folder before the job
        sweeps = bool({"-m", "--multirun"} & set(sys.argv)) or any(w.startswith("hydra.sweep.dir=") for w in overrides)
        option = "hydra.sweep.dir" if sweeps else "hydra.run.dir"
        return f"{error.filename} cannot be made ({error.strerror}); give another {option}"
    if not (isinstance(error, HydraException | OmegaConfBaseException | YAMLError) or raised_by_hydra(error)):
        return None
    lines = (str(cause).partition("\n    full_key:")[0].split() for cause in causes(error))
    message = ": ".join(" ".join(words) for words in lines if words)
    if match := re.search(r"Could not (override|delete from config\.) '(.+?)'", message):
        is_deleted, given = match[1] != "override", match[2]
        keys = [str(getattr(cause, "full_key", "")) for cause in causes(error)]
        name = next((key for key in keys if key.startswith(f"{given}.")), given)  # of a dictionary, the key in it
        searched = [] if config_dir is None else [search_path(Path(config_dir))]
        others = [word for word in overrides if word.partition("=")[0].lstrip("~") != given]
        config = compose_far(directory, config_name, [*searched, *others])
        folders = config_folders(config) or [directory]
        groups = [path.relative_to(folder).as_posix() for folder in folders for path in folder.rglob("*/")]
        names = dict.fromkeys(groups) | option_names(config)
        if is_deleted and name in names:
            return f"~{name} would change nothing, since {name} is null; leave it out"
        if name.partition("@")[0] in groups:
            return sentence_of_group(name, overrides, config, folders)
        if "Did you mean" not in message:
            return sentence_of_option(name, overrides, names, folders)
    where = "" if isinstance(error, HydraException) else f"Hydra cannot read {' '.join(overrides) or config_name}: "
    return f"{where}{message.rstrip('.')}; `{command()} --help` lists the choices, `{command()} --cfg job` the options"


def sentence_of_group(name: str, overrides: Sequence[str], config: Any, folders: Sequence[Path]) -> str:
    """Return the sentence for a group that exists, and of which nothing is chosen under this name.

    Args:
        name: of the group, with its place after an @ if it was given.
    """
    group = name.partition("@")[0]
    value = next((word.partition("=")[2] for word in overrides if word.partition("=")[0] == name), "NAME")
    choices = config["hydra"]["runtime"]["choices"] if config else {}
    parent, _, part = group.rpartition("/")
    if choices.get(parent) and name == group:
        having = choices_with(part, parent, folders)
        named = ", ".join([*having[:MOST_NAMED], "..."] if len(having) > MOST_NAMED else having)
        if having:
            return f"{parent}={choices[parent]} has no {part}; choose from those that have one: {named}"
    places = sorted(place for place in choices if place.partition("@")[0] == group)
    if places:
        return f"There is no group '{name}'; did you mean {' or '.join(f'{place}={value}' for place in places)}?"
    return f"'{group}' is no group of {command()}; `{command()} --help` names those that it has"


def sentence_of_option(
    name: str, overrides: Sequence[str], names: Mapping[str, str | None], folders: Sequence[Path]
) -> str:
    """Return the sentence for an option that is not there, also if it is one of a callback that is not chosen.

    Args:
        names: see `closest_option`.
    """
    callback = name.removeprefix("callback.").partition(".")[0]
    files = [folder / "callback" / f"{callback}.yaml" for folder in folders]
    if f"callback.{callback}" not in names and any(file.is_file() for file in files):
        chosen = [word.partition("=")[2] for word in overrides if word.startswith("callback=")]
        added = dict.fromkeys(["default", *re.findall(r"\w+", "".join(chosen)), callback])
        return f"'{callback}' is a callback that is not chosen; add it with callback=[{','.join(added)}]"
    return f"There is no option '{name}'; {closest_option(name, names)}`{command()} --cfg job` lists them."


def sentence_of_override(error: Exception, directory: Path, config_name: str, overrides: Sequence[str]) -> str | None:
    """Return the sentence for a mistake whose message by Hydra names neither the option nor a way out."""
    message = " ".join(str(cause) for cause in causes(error))
    if "Config group override must be a string or a list" in message:
        nulls = [word.partition("=")[0] for word in overrides if word.endswith("=null")]
        group = next((name for name in nulls if name in ("callback", "logger", "metric")), None)
        if group is not None:
            return f"{group}=null is no choice; {group}=[] chooses none"
    if isinstance(error, OverrideParseException) and (word := unparsed(overrides)):
        key, _, value = word.partition("=")
        items = re.split(r",\s*", value[1:-1])
        way_out = shlex.quote(f"[{','.join(map(in_quotes, items))}]") if value[0] == "[" else typed(value)
        return f"The value of {word} has characters that must be quoted; write {key}={way_out}"
    if match := re.search(r"Ambiguous value for argument '(.+?)'\s", message):
        key, _, value = match[1].partition("=")
        return (
            f"{match[1]} names several values; write {key}=[{value}] for a list of them, {key}={typed(value)} for one "
            "text, or add -m for a job with each value"
        )
    if "ValueType.INTERVAL_SWEEP" in message:
        word = next((word for word in overrides if "interval(" in word), "an interval")
        return f"{word} names no values to try; sweep=optuna searches it, or give values, such as range(1,6) or 0.1,0.2"
    if isinstance(error, OverrideParseException) and "=" not in error.override:
        word = error.override
        is_model = os.path.isdir(word) or word.endswith((".ckpt", ".safetensors"))
        option = "ckpt_path" if is_model else FILE_OPTIONS.get(config_name)
        example = f", such as {option}={typed(word)}" if option and os.path.exists(word) else ""
        return f"'{word}' lacks '=' and a value; write OPTION=VALUE{example}"
    match = re.search(r"Could not (?:override|find) '(?:attention/)?([\w/@.]+?)'", message)
    if match is None:
        return None
    group, *names = re.split(r"[./]", match[1])
    kind = OF_THE_RUN.get(config_name, {}).get(group)
    is_chosen = any(word.startswith(f"{group}=") for word in overrides)
    if kind and names and not is_chosen and (choices := choices_with(names[0], group, [directory])):
        return (
            f"There is no option '{match[1]}' until {kind} is chosen, since without one it is the run's; choose it "
            f"too, as {' or '.join(f'{group}={choice}' for choice in choices)}"
        )
    slot = re.fullmatch(r"((?:self|encoder|cross)_attention)/(\w+)", match[1])
    if slot:
        return f"A part of a slot is written attention/{slot[2]}@{slot[1]}.{slot[2]}=NAME"
    slot = re.fullmatch(r"(?:\w+@)?((?:self|encoder)_attention)\.\w+", match[1])
    if slot and not any(word.startswith(f"attention@{slot[1]}=") for word in overrides):
        return (
            f"'{match[1]}' belongs to the slot {slot[1]}, which is not chosen; choose it with "
            f"attention@{slot[1]}=NAME, or set the option of attention, which the slot takes otherwise"
        )
    return None


def is_utf8(file: Path) -> bool:
    try:
        file.read_text("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def choices_with(name: str, group: str, folders: Sequence[Path]) -> list[str]:
    """Return the choices of a group whose files have an option, or a part, of this name."""
    line = re.compile(rf"^[^#]*\b{name}:", re.MULTILINE)
    files = {file.stem: file for folder in folders for file in (folder / group).glob("*.yaml")}
    return sorted(choice for choice, file in files.items() if line.search(file.read_text("utf-8", errors="replace")))


def unparsed(overrides: Sequence[str]) -> str | None:
    """Return the first override of a value, or a list of values, that Hydra cannot parse, and could if in quotes."""
    for word in overrides:
        key, _, value = word.partition("=")
        is_list = re.fullmatch(r"\[[^\[\]{}'\"]+\]", value)
        if not re.fullmatch(r"[\w/@.]+", key, re.ASCII) or (value[:1] in ("", "[", "{", "'", '"') and not is_list):
            continue
        try:
            OverridesParser.create().parse_override(word)
        except HydraException:
            return word
    return None


def closest_choice(name: str, choices: Sequence[str]) -> str:
    """Return the closest choice, whatever its case and underscores, and else all of them."""
    plain = {plain_name(choice): choice for choice in choices}
    close = get_close_matches(plain_name(name), plain, n=1, cutoff=0.75)
    return f"did you mean '{plain[close[0]]}'?" if close else f"choose from: {', '.join(choices)}"


def plain_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def closest_option(key: str, names: Mapping[str, str | None]) -> str:
    """Return a question that names the option meant: a synonym's, one of the same last word, or the closest.

    Args:
        names: how each option is written, by its path; None: as its path.
    """
    names = {path: name for path, name in names.items() if not path.rpartition(".")[2].startswith("_")}
    close = get_close_matches(key, names, n=1, cutoff=0.8)
    last = key.rpartition(".")[2]
    first = re.split(r"[.=]", MEANT.get(last, ""))[0]
    if ("." not in key or not close) and (names.get(first) or f"hydra.runtime.choices.{first}" in names):
        return f"did you mean {MEANT[last]}? "
    same = sorted(path for path in names if path.rpartition(".")[2] == last and not path.startswith("hydra."))
    if not close and 0 < len(same) <= 3:
        return f"did you mean {' or '.join(repr(names[path] or path) for path in same)}? "
    close = close or get_close_matches(key, names, n=1)
    return f"did you mean '{names[close[0]] or close[0]}'? " if close else ""


def compose_far(directory: Path, config_name: str, overrides: list[str]) -> Any:
    """Return a config as plain data, of as many of the overrides as compose."""
    searched = [override for override in overrides if override.startswith("hydra.searchpath=")]
    keys = {override: override.partition("=")[0] for override in overrides}
    choices = [override for override, key in keys.items() if "@" in key or "." not in key]
    for trial in (overrides, [*searched, *choices], searched, []):
        try:
            with initialize_config_dir(version_base="1.3", config_dir=str(directory)):
                return OmegaConf.to_container(compose(config_name, trial, return_hydra_config=True))
        except (HydraException, OmegaConfBaseException, ValueError):
            continue
    return {}


def config_folders(config: Any) -> list[Path]:
    """Return the folders that Hydra has searched for the files of a config."""
    sources = config["hydra"]["runtime"]["config_sources"] if config else []
    return [Path(source["path"]) for source in sources if source["schema"] == "file"]


def option_names(config: Any) -> dict[str, str]:
    """Return how each option of a config is written, by its path: one below a reference, `${...}`, has another name."""
    names: dict[str, str] = {}

    def visit(node: Any, path: str, name: str) -> None:
        names[path] = name
        if isinstance(node, str) and (references := re.findall(r"\$\{([\w.]+)\}", node)):
            node, name = config, references[-1]
            for key in name.split("."):
                node = node.get(key) if isinstance(node, dict) else None
        for key, child in node.items() if isinstance(node, dict) else ():
            visit(child, f"{path}.{key}".lstrip("."), f"{name}.{key}".lstrip("."))

    visit(config, "", "")
    return names


def raised_by_hydra(error: Exception) -> bool:
    """Return whether Hydra raised a plain ValueError or TypeError, as for `attention=3` and `metric=[1]`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return isinstance(error, ValueError | TypeError) and module.partition(".")[0] == "hydra"
