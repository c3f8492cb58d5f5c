"""Records of a run at its end: its figures and translations, written, logged and printed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seq2seq_attn.callback.throughput import Throughput
from seq2seq_attn.checkpoint.admitted import other_packages
from seq2seq_attn.checkpoint.checkpoint_file import unwritable
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.errors import command
from seq2seq_attn.files import replacing
from seq2seq_attn.paths import display_path, typed
from seq2seq_attn.text import LINE_END, new_table, plain_console, printable
from seq2seq_attn.training.translation_module import TranslationModule

WITHOUT_EXAMPLE = ("parallel", "mixture", "huggingface", "text", "demo_summary", "demo_dialogue")
EXAMPLE, CONTINUED = 'echo "Where is the library?" | ', 'echo "Où est" | search=sampling'
LOGGED_ROWS = 200  # of a test set; translations.tsv has them all
COSTS = (  # names in results.json, and the label, unit and format of the printed table
    ("num_parameters", "parameters", 1, ",.0f"),
    ("steps", "steps", 1, ",.0f"),
    ("train_seconds", "minutes of training", 60, ",.1f"),
    ("validation_seconds", "minutes of validation", 60, ",.1f"),
    ("tokens_per_second", "tokens a second, training", 1, ",.0f"),
    ("padding_share", "padding of training batches", 1, ".1%"),
    ("decode_sentences_per_second", "sentences a second, translation", 1, ",.0f"),
    ("peak_memory_bytes", "MiB of memory, at most", 2**20, ",.0f"),
)


def collect_results(trainer: Any, module: TranslationModule) -> dict[str, Any]:
    """Return the figures of a tested run, as plain data; every rank calls it."""
    results: dict[str, Any] = {}
    scores = module.scores
    for stage in tested(module):
        results |= {f"{stage}/{name}": value for name, value in scores.figures[stage].items()}
        results |= {f"{stage}/{name}_signature": signature for name, signature in scores.signatures[stage].items()}
    counted = next((c for c in trainer.callbacks if isinstance(c, Throughput)), Throughput())
    decoded = sum(len(rows) for rows in scores.translations.values())
    return results | {
        "seed": module.config["seed"],
        **{name: module.config["choices"][name] for name in ("attention", "model", "data")},
        "num_parameters": sum(p.numel() for p in module.model.parameters()),
        "steps": trainer.global_step,
        "tokens_per_second": counted.tokens / max(counted.seconds, 1e-9),
        "train_seconds": counted.seconds,
        **validation_costs(counted.validation_seconds, counted.seconds),
        **padding_costs(counted.tokens, counted.padded_tokens),
        **({"decode_sentences_per_second": decoded / max(scores.decode_seconds, 1e-9)} if module.translates else {}),
        "peak_memory_bytes": counted.peak_memory_bytes(trainer.strategy.root_device),
        **({} if math.isnan(scores.entropy) else {"attention_entropy": scores.entropy}),
    }


def record_results(
    run_dir: Path, results: dict[str, Any], module: TranslationModule, corpus: LoadedCorpus, loggers: list[Any]
) -> None:
    """Write, log and print what the run has found; loggers that must be finished are."""
    write_translations(run_dir, module, corpus)
    if module.config["log_text"]:
        log_translations(loggers, module, corpus)
    with replacing(run_dir / "results.json") as stream:
        stream.write((json.dumps(results, indent=2, ensure_ascii=False) + "\n").encode())
    print_results(run_dir, results, other_packages(module.config), example=example_of(module))
    for logger in loggers:
        if finish := getattr(logger, "finish", None):
            finish()  # or the next run of this process would be written into this one


def tested(module: TranslationModule) -> list[str]:
    """Return the test sets that have figures; trainer.limit_test_batches=0 leaves none."""
    if not module.translates:
        return module.scores.tested
    return translated(module)


def translated(module: TranslationModule) -> list[str]:
    """Return the test sets that have a translation."""
    return [name for name in module.test_names if module.scores.translations.get(name)]


def validation_costs(validation: float, training: float) -> dict[str, float]:
    """Return the seconds of the validations, and their share of the time of these and all training steps."""
    share = validation / max(validation + training, 1e-9)
    return {"validation_seconds": validation, "validation_share": share}


def padding_costs(tokens: int, padded_tokens: int) -> dict[str, float]:
    """Return the share of padding in the training batches; a run without an update has none."""
    return {"padding_share": 1 - tokens / padded_tokens} if padded_tokens else {}


def write_translations(run_dir: Path, module: TranslationModule, corpus: LoadedCorpus) -> None:
    """Write three files per test set, in the order of the split.

    `translations.tsv`: source, reference, hypothesis, without control characters. `translations.hypotheses` and
    `translations.references`, which has all versions of each sentence, tab-separated, are for
    `sacrebleu --num-refs`; as that wants the same number everywhere, the first version is repeated, which changes
    neither BLEU nor chrF (but TER, which divides by the mean length of the versions).
    """
    for name in translated(module):
        rows = module.scores.translations[name]
        split = corpus.splits[name]
        most = max(len(split.references[row]) for row in rows)
        lines, hypotheses, versions = [], [], []
        for row in sorted(rows):
            references = [without_line_ends(reference) for reference in split.references[row]]
            columns = (split.sources[row], split.references[row][0], rows[row])
            lines.append("\t".join(map(printable, columns)) + "\n")
            hypotheses.append(without_line_ends(rows[row]) + "\n")
            versions.append("\t".join(references + references[:1] * (most - len(references))) + "\n")
        for file, content in zip(translation_files(run_dir, name), (lines, hypotheses, versions), strict=True):
            with replacing(file) as stream:
                stream.write("".join(content).encode())


def translation_files(run_dir: Path, name: str) -> list[Path]:
    """Return the table, the hypotheses and the references of a split."""
    suffix = "" if name == "test" else f"_{name.removeprefix('test_')}"
    return [run_dir / f"translations{suffix}.{kind}" for kind in ("tsv", "hypotheses", "references")]


def is_file_name(name: str) -> bool:
    """Return whether a name from a file, which may be a stranger's, leads out of no folder."""
    return name != "" and not any(separator in name for separator in ("/", "\\", "\0"))


def forget_results(run_dir: Path) -> None:
    """Remove the results of a run that continues, and the translations that they are of.

    Raises:
        UserError: if the folder cannot be written.
    """
    file = run_dir / "results.json"
    try:
        names = json.loads(file.read_bytes())
    except (OSError, ValueError):
        names = {}
    stages = {stage for key in names if is_file_name(stage := key.rpartition("/")[0])}
    for one in (*(one for stage in sorted(stages) for one in translation_files(run_dir, stage)), file):
        try:
            one.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(one, error) from error


def log_translations(loggers: list[Any], module: TranslationModule, corpus: LoadedCorpus) -> None:
    """Log the first translations of each test set as a table, to loggers that take one."""
    columns = ["source", "reference", "hypothesis"]
    for name in translated(module):
        rows = module.scores.translations[name]
        split = corpus.splits[name]
        lines = [
            [printable(text) for text in (split.sources[row], split.references[row][0], rows[row])]
            for row in sorted(rows)[:LOGGED_ROWS]
        ]
        for logger in loggers:
            if hasattr(logger, "log_table"):
                logger.log_table(f"{name}/translations", columns, lines)


def without_line_ends(text: str) -> str:
    """Return the text without tabs and line ends, and otherwise as it is scored."""
    return LINE_END.sub(" ", text)


def print_results(run_dir: Path, results: dict[str, Any], trust: Sequence[str] = (), example: str = EXAMPLE) -> None:
    """Print the scores of each test set, what the run has cost, the folder, and what to type next.

    Args:
        trust: other packages whose classes the run names.
        example: a line to translate, and the options that it needs; empty: the run is to be fine-tuned.
    """
    scores: dict[str, dict[str, str]] = {}  # by name, then by test set
    signatures: dict[str, list[str]] = {}  # each with its test sets
    for key, value in results.items():
        stage, _, name = key.rpartition("/")
        if name.endswith("_signature"):
            signatures.setdefault(f"{name.removesuffix('_signature')}: {value}", []).append(stage)
        elif stage:
            scores.setdefault(name, {})[stage] = f"{value:,.2f}"
    stages = list(dict.fromkeys(stage for row in scores.values() for stage in row))
    costs = [(label, f"{results[name] / unit:{form}}") for name, label, unit, form in COSTS if name in results]
    console = plain_console()
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(printable(f"{results['model']} · attention={results['attention']} · data={results['data']}"))
    if stages:
        console.print(
            new_table(("score", *stages), ([n, *(row.get(s, "") for s in stages)] for n, row in scores.items()))
        )
    if "attention_entropy" in results:
        say(f"attention entropy: {results['attention_entropy']:.2f} nats for each target token")
    for signature, names in signatures.items():
        say(printable(f"{signature} ({', '.join(names)})"))
    console.print(new_table(("cost", "value"), costs))
    say(f"Run folder: {display_path(run_dir)}")
    folder = typed(display_path(run_dir))
    trusted = f"trust=[{','.join(trust)}]" if trust else ""
    if not example:
        say(f"Next: {command('train')} data=parallel data.train=FILE init_from.run={folder} {trusted}".rstrip())
        return
    line, _, options = example.partition(" | ")
    if results["data"] in WITHOUT_EXAMPLE:
        line, options = "", f"{options} input=FILE".strip()
    words = [f"{line} | " if line else "", command("translate"), f" ckpt_path={folder}"]
    say(f"Next: {' '.join([''.join(words), *filter(None, (options, trusted))])}")


def example_of(module: TranslationModule) -> str:
    if not module.model.reads_source:
        return CONTINUED
    return EXAMPLE if module.translates else ""
