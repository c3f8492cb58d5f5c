"""A model card: metadata in YAML and sections in Markdown, of what is known of a run. Mitchell et al. 2019."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from seq2seq_attn import __version__
from seq2seq_attn.attention.build import PARTS
from seq2seq_attn.checkpoint.admitted import is_class_of, other_packages
from seq2seq_attn.checkpoint.published import WEIGHTS
from seq2seq_attn.data.cleaning import cleaning_options
from seq2seq_attn.markdown import code, literal, one_line, table
from seq2seq_attn.metric.names import title_of
from seq2seq_attn.paths import typed

CONFIGURATION = "training.yaml"
OPTIONS = {
    "title": "its heading",
    "licence": "of the model, by its name on hubs, such as cc-by-4.0",
    "author": "who made it, for the citation",
    "url": "where it is published, for the citation",
    "dataset": "name of the training data, such as wmt/wmt14",
    "task": "what it does, by its name on hubs, such as summarization; if not given, what languages and metrics tell",
    "base": "name of the model that it was fine-tuned from, on a hub",
    "use": "what it is meant for",
    "limits": "what it is not meant for",
}
OF_USERS = ("parallel", "text", "mixture", "documents")  # choices of data= that name no corpus
OF_PARTS = "seq2seq_attn.attention.attention.Attention"  # the layer that its parts alone describe
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)?")
OF_TRANSLATION = ("bleu", "tokenized_bleu", "detokenized_bleu", "sentence_bleu", "chrf", "ter", "comet")  # metrics
FIGURES = {
    "loss": "loss, in nats for each target token",
    "ppl": "perplexity",
    "accuracy": "share of tokens ranked first",
}


class Known(NamedTuple):
    """What is known of a model; what is not is empty.

    Attributes:
        config: resolved, as its checkpoint holds it, without folders of a machine.
        command: that of its training, without folders of a machine.
        results, provenance: the contents of these files of its run.
        log: rows of metrics.csv.
        examples: source, reference and translation of test sentences.
        given_task: by its name on hubs.
        averaged: the number of checkpoints whose mean its weights are; 0: they are of one.
    """

    config: dict[str, Any]
    command: str
    results: dict[str, Any]
    provenance: dict[str, Any]
    log: list[dict[str, float]]
    examples: list[tuple[str, str, str]]
    given_task: str = ""
    averaged: int = 0

    @property
    def choices(self) -> dict[str, str]:
        """The names of model, attention and data, as far as the run had them."""
        return {name: str(value) for name, value in (self.config.get("choices") or {}).items() if value}

    @property
    def languages(self) -> list[str]:
        """That of the source and that of the target, or the one of both; a language model has that of its text."""
        if self.config["model"].get("encoder") is None:
            return [self.config["data"]["target_language"]]
        return list(dict.fromkeys(self.config["data"][f"{side}_language"] for side in ("source", "target")))

    @property
    def names_languages(self) -> bool:
        """Whether the languages are those of the texts: two that nobody has set may belong to another task."""
        return self.task == "translation" or len(self.languages) == 1

    @property
    def is_pretrained(self) -> bool:
        """Whether it was trained to restore text, and is to be fine-tuned."""
        return self.config.get("objective") is not None

    @property
    def task(self) -> str:
        """The task by its name on hubs; empty if they have none for it, or it is not known."""
        if self.given_task:
            return self.given_task
        if self.config["model"].get("encoder") is None:
            return "text-generation"
        targets = [str(metric.get("_target_")) for metric in (self.config.get("metric") or {}).values()]
        fits = any(target.split(".")[-2:-1] == [name] for target in targets for name in OF_TRANSLATION)
        of_languages = len(self.languages) == 2 and all(map(LANGUAGE_CODE.fullmatch, self.languages))
        return "translation" if of_languages and (fits or not targets) and not self.is_pretrained else ""

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the figures of each test set by name, those of the metrics first."""
        by_stage: dict[str, dict[str, float]] = {}
        for name in (*(self.config.get("metric") or {}), *FIGURES):
            for key, value in self.results.items():
                stage, _, last = key.rpartition("/")
                if stage and last == name and isinstance(value, int | float):
                    by_stage.setdefault(stage, {})[name] = value
        return by_stage

    def signature(self, stage: str, name: str) -> str | None:
        return self.results.get(f"{stage}/{name}_signature")

    def attentions(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield the slot of each attention of the model, and the kind and class of its parts and of their parts.

        A layer with a class of its own is before its parts.
        """
        for side in ("encoder", "decoder"):
            for slot, node in (self.config["model"].get(side) or {}).items():
                if str(slot).endswith("attention") and isinstance(node, dict):
                    layer = str(node.get("_target_"))
                    own = [] if layer == OF_PARTS else [("attention", layer)]
                    yield f"{side}.{slot}", [*own, *classes_of(node)]


def classes_of(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the kind and class of each part in a node, such as a mixture's scores after the mixture."""
    for part in PARTS:
        several = node.get(f"{part}s")
        children = several.values() if isinstance(several, dict) else several if isinstance(several, list) else []
        for child in (node.get(part), *children):
            if isinstance(child, dict):
                yield part, str(child.get("_target_"))
                yield from classes_of(child)


def card(known: Known, options: dict[str, str], folder: str, pictures: dict[str, str]) -> str:
    """Return the text of a model card; a section of which nothing is known is left out.

    Args:
        options: some of `OPTIONS`.
        folder: name of the model's folder, for the commands.
        pictures: captions by file in the folder.
    """
    known = known._replace(given_task=options.get("task", ""))
    title = options.get("title") or default_title(known, folder)
    sections = {
        f"# {literal(title)}": what_it_is(known),
        "## Intended use": [literal(options["use"])] if "use" in options else [],
        "## Risks and limits": risks_and_limits(known, options),
        "## Data": data(known, options),
        "## Training": training(known, options),
        "## Results": results(known),
        "## Curves and attention maps": [f"![{literal(text)}]({file})" for file, text in pictures.items()],
        "## How to use it": how_to_use(known, folder),
        "## How to cite it": how_to_cite(known, options, title),
    }
    head = yaml.safe_dump(metadata(known, options, title), sort_keys=False, allow_unicode=True)
    blocks = [block for heading, section in sections.items() if section for block in (heading, *section)]
    return f"---\n{head}---\n\n" + "\n\n".join(blocks) + "\n"


def metadata(known: Known, options: dict[str, str], title: str) -> dict[str, Any]:
    """Return the front matter, in the terms of Hugging Face's model cards."""
    dataset = dataset_of(known, options)
    metrics = list(dict.fromkeys(name for scores in known.scores().values() for name in scores if name not in FIGURES))
    front_matter: dict[str, Any] = {
        "language": [name for name in known.languages if LANGUAGE_CODE.fullmatch(name)]
        if known.names_languages
        else [],
        "license": options.get("licence"),
        "base_model": options.get("base"),
        "library_name": "seq2seq-attn",
        "pipeline_tag": known.task,
        "tags": ["seq2seq", "attention", *(known.choices[k] for k in ("model", "attention") if k in known.choices)],
        "datasets": [dataset] if dataset else [],
        "metrics": metrics,
    }
    if metrics and dataset and known.task:
        front_matter["model-index"] = [{"name": title, "results": evaluations(known, dataset)}]
    return {key: value for key, value in front_matter.items() if value}


def evaluations(known: Known, dataset: str) -> list[dict[str, Any]]:
    """Return the metrics of each test set, with their signatures as arguments."""
    entries = []
    for stage, scores in known.scores().items():
        metrics = []
        for name, value in scores.items():
            signature = known.signature(stage, name)
            arguments = {"args": {"signature": signature}} if signature else {}
            if name not in FIGURES:
                metrics.append({"type": name, "name": title_of(name), "value": round(value, 2)} | arguments)
        data_set = {"name": dataset, "type": dataset, "split": stage}
        entries.append({"task": {"type": known.task}, "dataset": data_set, "metrics": metrics})
    return entries


def dataset_of(known: Known, options: dict[str, str]) -> str | None:
    """Return the name of the training data: the one given, that of a hub, or the choice of a corpus."""
    chosen = known.choices.get("data")
    if "dataset" in options:
        return options["dataset"]
    if chosen == "huggingface":
        return known.config["data"].get("path")
    return None if chosen in OF_USERS else chosen


def default_title(known: Known, folder: str) -> str:
    if not {"model", "attention"} <= known.choices.keys():
        return folder
    languages = f", {' to '.join(known.languages)}" if known.names_languages else ""
    return f"{known.choices['model']} with {known.choices['attention']} attention{languages}"


def what_it_is(known: Known) -> list[str]:
    source, target = code(known.languages[0]), code(known.languages[-1])
    purposes = {
        "translation": f"A model that translates from {source} to {target}",
        "text-generation": f"A language model of text in {target}",
    }
    in_language = f" in {target}" if known.names_languages else ""
    purpose = purposes.get(known.task, f"A model from text to text{in_language}")
    if known.is_pretrained:
        purpose = f"A model that was pre-trained to restore text in {target}, and is to be fine-tuned"
    rows: list[tuple[str, str]] = [
        (name, text) for name, text in known.choices.items() if name in ("model", "attention")
    ]
    for slot, parts in known.attentions():
        rows.append((slot, " · ".join(target.rpartition(".")[2] for _, target in parts)))
    if "num_parameters" in known.results:
        rows.append(("parameters", f"{known.results['num_parameters']:,}"))
    for side in ("source", "target"):
        size = known.config["model"].get(f"{side}_vocab_size")
        rows += [(f"tokens of the {side} vocabulary", f"{size:,}")] if isinstance(size, int) else []
    return [f"{purpose}, trained with seq2seq-attn.", table(("part", "what it is"), rows)]


def risks_and_limits(known: Known, options: dict[str, str]) -> list[str]:
    lines = [literal(options["limits"])] if "limits" in options else []
    several = known.choices.get("data") == "mixture"  # perhaps languages
    if known.task == "translation" and len(known.languages) == 2 and not several:
        source, target = (code(language) for language in known.languages)
        lines += [f"It translates from {source} to {target} only."]
    lines += [
        "Its output can be wrong and still read well; a person must check whatever matters.",
        "It learned from its training data alone, so it can repeat errors and prejudices of that text, and is less "
        "reliable on other kinds of text.",
    ]
    cleaning = cleaning_options(known.config["data"])
    if isinstance(cleaning, dict) and isinstance(cleaning.get("max_words"), int):
        lines.append(f"Lines of more than {cleaning['max_words']} words were left out of its training.")
    measured = "Its quality was measured on the test sets under Results, and on no other text."
    if "test_train" in known.scores():
        measured = "The results under test_train are those of training pairs; on other text it is likely to be worse."
    lines.append(measured if known.scores() else "No measurement of its quality is known.")
    return ["\n".join(f"- {line}" for line in lines)]


def data(known: Known, options: dict[str, str]) -> list[str]:
    name, fingerprint = dataset_of(known, options), known.provenance.get("data_fingerprint")
    counts = known.provenance.get("data_report") or {}
    lines = [f"The training data is {code(name)}."] if name else []
    if name and name == known.choices.get("data"):
        lines = [f"The training data is the corpus that the option {code(f'data={name}')} of seq2seq-attn names."]
    lines += [table(("step", "count"), [(key, f"{value:,}") for key, value in counts.items()])] if counts else []
    return lines + ([f"SHA-256 of all its sentences: {code(str(fingerprint))}"] if fingerprint else [])


def training(known: Known, options: dict[str, str]) -> list[str]:
    results, origin = known.results, known.provenance
    rows: dict[str, Any] = {"seed": known.config.get("seed"), "commit": origin.get("commit")}
    rows |= {"updates": f"{results['steps']:,}"} if "steps" in results else {}
    for label, name in (("hours of training", "train_seconds"), ("hours of validation", "validation_seconds")):
        rows |= {label: f"{results[name] / 3600:,.2f}"} if name in results else {}
    rows |= {"platform": origin.get("platform"), "device": origin.get("device"), "devices": origin.get("devices")}
    rows |= {"CPU threads": origin.get("threads"), "precision": (known.config.get("trainer") or {}).get("precision")}
    rows |= {"python": origin.get("python")} | (origin.get("versions") or {})
    known_rows = [(name, str(value)) for name, value in rows.items() if value is not None]
    lines = base_model(known, options)
    lines += [f"```\n{known.command}\n```"] if known.command else []
    lines += [f"Its weights are the average of {known.averaged} checkpoints."] if known.averaged else []
    lines += [table(("training", "value"), known_rows)] if known_rows else []
    return [*lines, f"All its options are in [{CONFIGURATION}]({CONFIGURATION})."]


def base_model(known: Known, options: dict[str, str]) -> list[str]:
    """Return a sentence on the model whose weights the training started from; none if they were drawn."""
    given = (known.config.get("init_from") or {}).get("run")
    parent = known.provenance.get("init_from") or ({"path": given} if given else {})
    if not parent and "base" not in options:
        return []
    name = options.get("base")
    if name is None:
        file = Path(parent["path"])
        folders = {"checkpoints": file.parent.parent, WEIGHTS: file.parent}
        name = folders.get(file.parent.name, folders.get(file.name, file)).name
    step = "" if parent.get("step") is None else f" after {parent['step']:,} updates"
    digest = f", SHA-256 {code(str(parent['sha256']))}" if "sha256" in parent else ""
    return [f"It was fine-tuned: its training started from the weights of {code(name)}{step}{digest}."]


def results(known: Known) -> list[str]:
    scores = known.scores()
    if not scores:
        return []
    names = list(dict.fromkeys(name for figures in scores.values() for name in figures))
    rows: list[list[str]] = []
    signed: dict[str, None] = {}
    for name in names:
        cells = [f"{figures[name]:,.2f}" if name in figures else "" for figures in scores.values()]
        smoothing = known.config.get("label_smoothing")
        smoothed = f", with label smoothing {smoothing:g}" if name == "loss" and smoothing else ""
        rows.append([(FIGURES.get(name) or title_of(name)) + smoothed, *cells])
        signatures = (known.signature(stage, name) for stage in scores)
        signed |= {f"- {title_of(name)}: {code(signature)}": None for signature in signatures if signature}
    lines = [table(("score", *map(literal, scores)), rows)]
    lines += ["Signatures:", "\n".join(signed)] if signed else []
    if known.examples:
        lines += ["The first sentences of the test set:", table(("source", "reference", "translation"), known.examples)]
    return lines


def how_to_use(known: Known, folder: str) -> list[str]:
    path = typed(folder)
    if known.is_pretrained:
        return [f"```\nseq2seq-attn train data=parallel data.train=FILE init_from.run={path}\n```"]
    trust = other_packages({"model": {}, "search": {}, "data": {}, "metric": {}} | known.config)
    more = f" trust=[{','.join(trust)}]" if trust else ""
    sampled = " search=sampling" if known.task == "text-generation" else ""
    explore = "" if sampled else f"seq2seq-attn explore ckpt_path={path}{more}\n"
    shown = "" if sampled else "The second command shows in a browser what the model attends to. "
    sentence = one_line(known.examples[0][0]) if known.examples else "..."
    loaded = f"{folder!r}, trust={trust!r}" if trust else repr(folder)
    lines = [
        "With seq2seq-attn installed:",
        f"```\nseq2seq-attn translate ckpt_path={path} input=FILE{sampled}{more}\n{explore}```",
        f"{shown}In Python:",
        "```python\nfrom seq2seq_attn.inference.translator import Translator\n\n"
        f"translator = Translator.load({loaded})\nprint(translator.translate([{sentence!r}])[0].text)\n```",
    ]
    if trust:
        lines.append("The packages in `trust` contain parts of the model, and their code is run.")
    return lines


def how_to_cite(known: Known, options: dict[str, str], title: str) -> list[str]:
    entries = []
    if "author" in options:
        model = {"title": title, "author": options["author"]} | ({"url": options["url"]} if "url" in options else {})
        entries.append(bibtex("misc", "model", model))
    version = {} if "unknown" in __version__ else {"version": __version__}
    framework = {"title": "seq2seq-attn", "author": "The seq2seq-attn authors"} | version
    entries.append(bibtex("software", "seq2seq_attn", framework))
    lines = ["```bibtex\n" + "\n\n".join(entries) + "\n```"]
    parts = papers(known)
    return [*lines, "Its attention is made of:", "\n".join(f"- {literal(line)}" for line in parts)] if parts else lines


def papers(known: Known) -> list[str]:
    """Return the first line of the module of each part of the attentions; it has the formula and names the paper.

    Modules of this package alone are imported.
    """
    summaries: dict[str, None] = {}
    for _, parts in known.attentions():
        for slot, target in parts:
            if is_class_of(slot, target):
                module = import_module(target.rpartition(".")[0])
                summaries[(module.__doc__ or "").partition("\n")[0]] = None
    return [line for line in summaries if line]


def bibtex(kind: str, key: str, fields: dict[str, str]) -> str:
    """Return an entry; braces and backslashes in values are left out. Two braces keep a name of authors whole."""
    values = {name: re.sub(r"[{}\\]", "", value) for name, value in fields.items()}
    values |= {"author": f"{{{values['author']}}}"} if key == "seq2seq_attn" else {}
    return "\n".join([f"@{kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in values.items()), "}"])
