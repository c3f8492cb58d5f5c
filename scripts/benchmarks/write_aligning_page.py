"""Pages of the runs of `aligning.py`.

python -m scripts.benchmarks.aligning page --bitext FOLDER --runs RUNS --data DATA
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from scripts.benchmarks.draw_aligning import Rates, draw_rates
from scripts.benchmarks.home_runs import commits_and_processors
from scripts.benchmarks.write_homes_page import spread
from seq2seq_attn.alignment.gold import AlignedPair, agreement
from seq2seq_attn.alignment.symmetrize import METHODS, symmetrize
from seq2seq_attn.alignment.word_alignment import from_pharaoh
from seq2seq_attn.markdown import code, literal

Rows = Sequence[dict[str, Any]]  # of rows.jsonl or measures.jsonl
ALIGNERS = {"eflomal": "eflomal", "fast_align": "fast_align, model 2"}
DIRECTIONS: dict[str, tuple[str, str | None]] = {  # a run, and one of the other direction, by what the row is called
    "Transformer, guided by links of eflomal": ("transformer_guided", "transformer_rev_guided"),
    "Transformer, guided by its own links": ("transformer_self", "transformer_rev_self"),
    "Transformer, not guided": ("transformer_plain", "transformer_rev_plain"),
    "RNN, guided by links of eflomal": ("rnn_guided", None),
    "RNN, guided by links of eflomal, `shift=true`": ("rnn_guided_shift", None),
    "RNN, not guided": ("rnn_plain", None),
}
JOINED = [method for method in METHODS if method != "union"]  # of the links of both directions
TEST_SETS = {"test_tatoeba": "Tatoeba", "test_2016": "Multi30k, 2016"}
GUIDANCE = """\
# Guided alignment: word links and translations

Alignment error rate (AER, in percent, lower is better) on {pairs} aligned pairs of the Canadian Hansards (WPT 2003),
and BLEU with and without guided alignment ([docs/guided_alignment.md](../guided_alignment.md)). The aligners read
{training:,} pairs of lower-cased words: Tatoeba, Multi30k and 447 sentences of the Hansards without their links. The
models are trained on the same pairs, those of the Hansards ten times. The Transformer has rotary positions, the RNN a
conditional GRU (`rnn_conditional`). Guided runs have `guided_alignment.weight=0.2` and `unlinked=end`, the Transformers
`shift=true`, too. The only attention of the RNN also supplies the context of the next word, hence no `shift` there by
default. The links of eflomal are not all of one run: it takes no seed, and was run again on each machine.
{aligner_runs}
## Word links

{links}

A model that translates from English links each French word (forward), one from French each English word (reverse). A
guided run is measured by its guided head, and a run without guidance by its best one: for each seed, the head with the
fewest errors on one half of the pairs is measured on the other half. The other columns join both directions (Koehn et
al. 2003), of seed 1. ± is the standard deviation over seeds, and over the runs of eflomal.
{heads}
{maps}## Translations

{translations}

BLEU of beam search with 5 hypotheses on words in lower case, {signature}; ± is the standard deviation over seeds.
Tatoeba's test set has one reference for each sentence here.

{end}
"""
MAPS = """\
![Attention maps of one sentence, without guidance and with it]({picture})

*Weights of the two Transformers, seed 1, along one given translation: light is 0, dark is 1. The links that are read
from them are outlined. Left: the best head of the run without guidance, in the step that writes the word; right: the
guided head, in the step that reads it. The sentence is ours, is not among the training pairs, and was chosen before its
maps were drawn.*

"""
ATTENTIONS = """\
# Which attention aligns best?

Alignment error rate (AER, in percent, lower is better) of the guided head of each attention on aligned pairs of the
Canadian Hansards (WPT 2003). Each model was trained once, for {updates} updates on the pairs of
[guided_alignment.md](guided_alignment.md), with its head guided by eflomal's links as there. The attention is the one
from the decoder to the source. {finished} of {all} runs have finished; the commands below train what a folder of runs
lacks.

{table}

![Alignment error rates by attention]({name}.png)

*The table's error rates; a ring is the best head of a run without guidance.*

"Not guided" is the best head of a run without guidance, chosen for each half of the pairs on the other half. BLEU is
that of the validation set by greedy search. There is one seed; the three seeds of one Transformer in
[guided_alignment.md](guided_alignment.md) are up to 1.7 points of AER apart, so a difference of two points or less says
nothing.

{refused}{end}
"""
END = """\
## Commands

```
python -m scripts.benchmarks.alignment --data DATA --output FOLDER --repeats 5
python -m scripts.benchmarks.aligning run --plan {plan} --bitext FOLDER --runs RUNS
python -m scripts.benchmarks.aligning measure --plan {plan} --bitext FOLDER --runs RUNS --data DATA
python -m scripts.benchmarks.aligning page --plan {plan} --bitext FOLDER --runs RUNS --data DATA
```

Commits of the runs: {commits}. The raw figures are in [{name}.json]({name}.json)."""


def write_guidance_page(
    page: Path, rows: Rows, measures: Rows, pairs: Sequence[AlignedPair], statistical: Path, picture: Path | None
) -> None:
    """Write the page of guided alignment, and its figures beside it.

    Args:
        statistical: the file alignment.json of the statistical aligners.
        picture: of the maps with and without guidance, in the folder of the page; None: there is none.
    """
    names = {name for both in DIRECTIONS.values() for name in both if name is not None}
    rows, measures = ([row for row in some if row["name"] in names] for some in (rows, measures))
    aligners = json.loads(statistical.read_text(encoding="utf-8"))
    aligner_runs = len(aligner_rates(aligners, "eflomal", "forward"))
    unguided: dict[str, dict[str, None]] = {}
    for row in measures:
        if not row["guided"]:
            unguided.setdefault(row["name"], {}).update(dict.fromkeys(row["heads"]))
    text = GUIDANCE.format(
        pairs=len(pairs),
        training=aligners["pairs"],
        aligner_runs=f"The row of eflomal is the mean of {aligner_runs} runs.\n" if aligner_runs > 1 else "",
        links=links_table(measures, pairs, aligners),
        heads=best_heads(unguided),
        maps="" if picture is None else MAPS.format(picture=picture.name),
        translations=translation_table(rows, measures),
        signature=", ".join(code(one) for one in sorted(signatures(measures))) or "not measured yet",
        end=end("guidance", page, rows),
    )
    write(page, text, {"rows": rows, "measures": measures, "aligners": aligners})


def best_heads(unguided: dict[str, dict[str, None]]) -> str:
    """Return a paragraph with the best heads of the runs without guidance, which are given by name; else nothing."""
    found = []
    for title, both in DIRECTIONS.items():
        for name, where in zip(both, ("", ", from French"), strict=True):
            if name in unguided:
                found.append(f"{title.removesuffix(', not guided')}{where}: {' or '.join(unguided[name])}")
    text = literal(f"The best heads without guidance: {'; '.join(found)}.")
    return f"\n{fill(text, 120)}\n" if found else ""


def links_table(measures: Rows, pairs: Sequence[AlignedPair], aligners: dict[str, Any]) -> str:
    """Return the error rates of the aligners and of the runs, by direction and by method of joining both.

    Args:
        aligners: alignment.json of the statistical aligners.
    """
    columns = ("forward", "reverse", *JOINED)
    lines = [["links of", *columns]]
    for name, title in ALIGNERS.items():
        lines.append([title, *(spread(aligner_rates(aligners, name, column), 1, ".1f") for column in columns)])
    for title, both in DIRECTIONS.items():
        direction_rows = [[row for row in measures if row["name"] == name] for name in both]
        if any(direction_rows):
            joined = joined_rates([one for rows in direction_rows for one in rows if one["seed"] == 1], pairs)
            lines.append([title, *(spread(rates(rows), 1, ".1f") for rows in direction_rows), *joined])
    lines.append(["diagonal", f"{aligners['alignment']['diagonal']['error_rate']:.1f}", *["–"] * (len(columns) - 1)])
    return table(lines)


def aligner_rates(aligners: dict[str, Any], name: str, how: str) -> list[float]:
    """Return the error rate of each run of an aligner; a file without several runs has that of one."""
    runs = aligners.get("error_rates", {}).get(name, [])
    one = aligners["alignment"].get(f"{name}, {how}")
    return [run[how] for run in runs] or ([] if one is None else [one["error_rate"]])


def rates(measures: Rows) -> list[float]:
    return [row["error_rate"] for row in measures]


def joined_rates(both: Rows, pairs: Sequence[AlignedPair]) -> list[str]:
    """Return the error rates of the links of two runs of opposite directions, by each method of joining them."""
    if len(both) != 2:
        return ["–"] * len(JOINED)
    forward, reverse = ([from_pharaoh(line) for line in row["pharaoh"]] for row in both)
    joined = {method: [symmetrize(*one, method) for one in zip(forward, reverse, strict=True)] for method in JOINED}
    return [f"{agreement(links, pairs).error_rate:.1f}" for links in joined.values()]


def translation_table(rows: Rows, measures: Rows) -> str:
    """Return BLEU of the runs from English, the mean over seeds."""
    lines = [["model", "seeds", *TEST_SETS.values(), "parameters, M", "processor minutes"]]
    for title, (name, _) in DIRECTIONS.items():
        tested = [row for row in measures if row["name"] == name and "test" in row]
        trained = [row for row in rows if row["name"] == name]
        if tested:
            scores = [spread([row["test"][test]["bleu"] for row in tested], 1, ".1f") for test in TEST_SETS]
            lines.append([title, str(len(tested)), *scores, *costs(trained)])
    return table(lines)


def costs(rows: Rows) -> list[str]:
    """Return parameters in millions, and the mean of the processor minutes that are known."""
    minutes = [row["processor_minutes"] for row in rows if row["processor_minutes"] is not None]
    return [f"{rows[0]['parameters'] / 1e6:.2f}", f"{sum(minutes) / len(minutes):.0f}" if minutes else "–"]


def signatures(measures: Rows) -> set[str]:
    return {figures["signature"] for row in measures for figures in row.get("test", {}).values()}


def write_attentions_page(page: Path, rows: Rows, measures: Rows, planned: int) -> None:
    """Write the table of all attentions, and its figures beside it.

    Args:
        planned: number of runs of the plan.
    """
    rows, measures = ([row for row in some if row["name"].startswith("attentions/")] for some in (rows, measures))
    trained = {row["name"]: row for row in rows if "refused" not in row}
    guided = sorted((row for row in measures if row["guided"]), key=lambda row: row["error_rate"])
    plain = {row["name"].removesuffix("_plain"): row for row in measures if not row["guided"]}
    lines = [["attention", "model", "AER", "precision", "recall", "not guided", "BLEU", "processor minutes"]]
    for row in guided:
        _, model, preset = row["name"].split("/")
        figures = [f"{row[name]:.1f}" for name in ("error_rate", "precision", "recall")]
        run, other = trained[row["name"]], plain.get(row["name"])
        unguided = "–" if other is None else f"{other['error_rate']:.1f}"
        lines.append([literal(preset), literal(model), *figures, unguided, f"{run['bleu']:.1f}", costs([run])[1]])
    refused = [
        f"- {literal(row['name'].rpartition('/')[2])}: {literal(row['refused'])}" for row in rows if "refused" in row
    ]
    shown = []
    for row in guided:
        _, model, preset = row["name"].split("/")
        shown.append(Rates(preset, model, row["error_rate"], plain.get(row["name"], {}).get("error_rate")))
    draw_rates(page.with_suffix(".png"), shown)
    text = ATTENTIONS.format(
        name=page.stem,
        updates=max(row["updates"] for row in trained.values()),
        finished=len(trained),
        all=planned - len(refused),
        table=table(lines),
        refused="".join(["## Not guided\n\n", *(f"{line}\n" for line in refused), "\n"]) if refused else "",
        end=end("attentions", page, rows),
    )
    write(page, text, {"rows": rows, "measures": measures})


def table(lines: Sequence[Sequence[str]]) -> str:
    head, *others = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|---|{'---:|' * (len(lines[0]) - 1)}", *others])


def end(plan: str, page: Path, rows: Rows) -> str:
    return END.format(plan=plan, commits=commits_and_processors(rows), name=page.stem)


def write(page: Path, text: str, figures: dict[str, Any]) -> None:
    page.write_text(text, encoding="utf-8")
    page.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {page}: {len(figures['measures'])} measured runs")
