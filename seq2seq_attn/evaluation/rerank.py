"""Choose from an n-best list by further models: `seq2seq-attn rerank best.txt english.txt french.txt --reverse RUN`.

The score of a translation is that of its search plus, for each further model, a weight times the mean log-probability
of a token by this model. Yee et al. 2019, arXiv:1908.05731, take a model of the other direction and a language model.
A line is cut after 512 tokens of a model, or where its positions end. With --references, of a validation set, the
command tries the weights 0 to 3 and prints those with the highest BLEU, tokenized as by metric=bleu.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, product, zip_longest
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from seq2seq_attn.checkpoint.admitted import add_trust_option
from seq2seq_attn.checkpoint.load import find_checkpoint
from seq2seq_attn.checkpoint.same_text import Direction, check_directions, direction_of
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.evaluation.pair_log_prob import GivenPair, encode_pairs, read, score_encoded
from seq2seq_attn.inference.lines import Line, line_count, opened, read_lines
from seq2seq_attn.inference.models import Models, load_models
from seq2seq_attn.inference.output import BARS, model_files, refuse_one_file, written
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.language import metric_language
from seq2seq_attn.text import printable

MOST_TOKENS = 512  # of a line, after which it is cut, as translate.py does
WINDOW = 4096  # translations that are scored at once, sorted by length into batches
SAMPLE, MARGIN = 100, 1.0  # sentences by which the direction of a model is checked, and nats per token between both
GRID = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)  # the weights that are tried


class Sentence(NamedTuple):
    """The translations of a source.

    Attributes:
        location: the first line of them, such as `best.txt, line 7`.
        scores: of the search in the first column, then the mean log-probability of a token by each further model.
    """

    location: str
    source: str
    texts: list[str]
    scores: Float[np.ndarray, "translations scores"]

    def best(self, weights: Sequence[float]) -> int:
        """Return the number of the translation with the highest weighted sum, the first of several."""
        return int((self.scores @ [1.0, *weights]).argmax())


class Scorer(NamedTuple):
    """A further model, of the direction of the list or, if `reverse`, of the other one; `path` is as it was given."""

    path: str
    models: Models
    reverse: bool

    def __str__(self) -> str:
        return f"{option_of(self.reverse)} {self.path}"

    @property
    def direction(self) -> Direction | None:
        return direction_of(str(self), self.models.config, is_reversed=self.reverse)

    @property
    def language(self) -> str | None:
        """The language of the translations."""
        name: str | None = self.models.config["data"].get("source_language" if self.reverse else "target_language")
        return name

    def scores(self, sentences: Sequence[Sentence], batch_tokens: int) -> Float[np.ndarray, " translations"]:
        """Return the mean log-probability of a token of each translation, or of its source given it."""
        pairs = [
            GivenPair(one.location, *((text, one.source) if self.reverse else (one.source, text)))
            for one in sentences
            for text in one.texts
        ]
        positions = self.models.model.max_length  # that of the end token among them
        most = MOST_TOKENS if positions is None else min(MOST_TOKENS, positions - 1)
        with torch.inference_mode():
            found = score_encoded(self.models, *encode_pairs(self.models, pairs, most), batch_tokens)
        return np.array([one.log_prob / one.tokens for one in found])


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    given = parsed(arguments)
    check_files(given)
    count = count_sentences(given.nbest, given.source)
    references = None if given.references is None else read_references(given.references, count)
    scorers = [load_scorer(path, reverse, given.device, given.trust) for path, reverse in given.models]
    needs = "--model needs the direction of the list, and --reverse the other one"
    check_directions([scorer.direction for scorer in scorers], needs)
    with (
        line_count(count, shown=sys.stderr.isatty()) as advance,
        written("output", given.output, keeps_part=True) as stream,
    ):
        sentences: Iterable[Sentence] = read_sentences(given.nbest, given.source)
        sentences = scored(sentences, scorers, given.batch_tokens, advance)
        weights = given.weights
        if references is not None:
            sentences = list(sentences)
            weights = tuned(sentences, references, language_of(scorers))
        for sentence in sentences:
            stream.write(f"{sentence.texts[sentence.best(weights)]}\n".encode())


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command, which exits if they do not fit one another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nbest", help="an n-best list, as translate.py writes it with nbest=FILE")
    parser.add_argument("source", help="the file that was translated")
    parser.add_argument("output", help="the file to write, with the best translation of each line")
    for option, reverse, model in (
        ("--model", False, "a model of the same direction, or a language model of the target language"),
        ("--reverse", True, "a model of the other direction"),
    ):
        parser.add_argument(
            option, dest="models", action="append", default=[], metavar="RUN", help=f"{model}; may be repeated",
            type=partial(given_model, reverse),
        )  # fmt: skip
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--weights", nargs="+", type=float, metavar="W", help="one for each model, in their order")
    choice.add_argument("--references", nargs="+", metavar="FILE", help="translations by people, to find the weights")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="padded tokens of a batch; 4096 if not given")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    add_trust_option(parser)
    given = parser.parse_args(arguments)
    if given.batch_tokens < 1:
        parser.error(f"--batch-tokens {given.batch_tokens} leaves no token; give 1 or more")
    if not given.models:
        parser.error("there is no further model; give --model RUN or --reverse RUN")
    if not all(map(math.isfinite, given.weights or ())):
        parser.error(f"--weights {' '.join(map(str, given.weights))} must be finite numbers")
    if given.weights is not None and len(given.weights) != len(given.models):
        parser.error(f"weights: {len(given.weights)}, models: {len(given.models)}; give one weight for each model")
    return given


def given_model(reverse: bool, path: str) -> tuple[str, bool]:
    return path, reverse


def option_of(reverse: bool) -> str:
    return "--reverse" if reverse else "--model"


def check_files(given: argparse.Namespace) -> None:
    """Refuse one file under two arguments, and a list or a source that cannot be read twice."""
    files = [("the n-best list", given.nbest), ("the source", given.source), ("the output", given.output)]
    files += [("--references", file) for file in given.references or ()]
    for path, reverse in given.models:
        files += [(option_of(reverse), file) for file in model_files(path, option_of(reverse))]
    refuse_one_file(files)
    for what, file in files[:2]:
        if os.path.exists(file) and not os.path.isfile(file):
            raise UserError(
                f"{what}, {file}, is not a regular file, and it is read twice; save its content to a file first"
            )


def count_sentences(nbest: str, source: str) -> int:
    """Return the number of lines of the source, once every line of the list has been read without an error.

    Raises:
        UserError: for a line that does not fit, and for an empty list.
    """
    sizes = [len(one.texts) for one in read_sentences(nbest, source)]
    if not sizes:
        raise UserError(f"{nbest} is empty; give a list that translate.py has written with nbest=FILE")
    if max(sizes) == 1:
        print(
            f"{nbest} has one translation of each line, so there is nothing to choose; write the list with "
            "search=beam search.beam_size=10 search.num_best=10",
            file=sys.stderr,
        )
    return len(sizes)


def load_scorer(path: str, reverse: bool, device: str, trust: Sequence[str]) -> Scorer:
    """Load a further model onto its device."""
    models = load_models([str(find_checkpoint(path, option_of(reverse)))], device, trust)
    if reverse and not models.model.reads_source:
        raise UserError(f"--reverse {path} is a language model, which scores translations alone; give it as --model")
    models.model.to(models.device)
    return Scorer(path, models, reverse)


def language_of(scorers: Sequence[Scorer]) -> str | None:
    """Return the language of the translations, by the first model that translates them, else one that translates from
    them, else a language model, whose corpus is often called `text`.
    """
    preferred = min(scorers, key=lambda scorer: (not scorer.models.model.reads_source, scorer.reverse))
    return preferred.language


class Listed(NamedTuple):
    """A line of an n-best list.

    Attributes:
        line: its number in the list, from 1.
        number: that of its source, from 0.
        score: what the search ranked by.
    """

    line: int
    number: int
    text: str
    score: float


def read_nbest(file: str) -> Iterator[Listed]:
    """Yield the lines of an n-best list, `number ||| text ||| log_prob ||| score`."""
    for line in read(file, None):
        try:
            number, text, _, score = line.text.split(" ||| ")
            yield Listed(line.number, int(number), text.replace(BARS, "|||"), float(score))
        except ValueError as error:
            raise UserError(
                f"{file}, line {line.number}: not `number ||| text ||| log_prob ||| score`; give a list that "
                "translate.py has written with nbest=FILE"
            ) from error


def read_sentences(nbest: str, source: str) -> Iterator[Sentence]:
    """Yield each line of the source with its translations.

    Raises:
        UserError: for a list that is not of this source.
    """
    groups = groupby(read_nbest(nbest), lambda listed: listed.number)
    for number, (line, group) in enumerate(zip_longest(read_source(source), groups)):
        if line is None or group is None or group[0] != number:
            which = number if group is None else group[0]
            raise UserError(
                f"{nbest} and {source} do not match at line {min(number, which) + 1} of the source; give the file that "
                "was translated, and the whole list of its translations in their order"
            )
        listed = list(group[1])
        scores = np.array([[one.score] for one in listed])
        yield Sentence(f"{nbest}, line {listed[0].line}", line.text, [one.text for one in listed], scores)


def read_source(file: str) -> Iterator[Line]:
    """Yield the lines of a source as translate.py reads them: it has translated broken ones, too."""
    with opened(None, file) as stream:
        yield from read_lines(stream, file)


def read_references(files: Sequence[str], count: int) -> list[list[str]]:
    """Return the references of each line.

    Raises:
        UserError: if a file has not that many lines.
    """
    columns = [[line.text for line in read(file, None)] for file in files]
    for file, lines in zip(files, columns, strict=True):
        if len(lines) != count:
            raise UserError(
                f"--references {file} has {len(lines):,} lines, and the source {count:,}; give one for each"
            )
    return [list(row) for row in zip(*columns, strict=True)]


def scored(
    sentences: Iterable[Sentence], scorers: Sequence[Scorer], batch_tokens: int, advance: Callable[[int], None]
) -> Iterator[Sentence]:
    """Yield the sentences with the scores of the further models.

    Args:
        advance: is told how many more sentences are scored.
    """
    for number, window in enumerate(windows(sentences)):
        for scorer in scorers if number == 0 else ():
            warn_of_direction(scorer, window[:SAMPLE], batch_tokens)
        columns = [scorer.scores(window, batch_tokens) for scorer in scorers]
        ends = np.cumsum([len(one.texts) for one in window])[:-1]
        for sentence, *added in zip(window, *(np.split(column, ends) for column in columns), strict=True):
            yield sentence._replace(scores=np.column_stack([sentence.scores, *added]))
        advance(len(window))


def warn_of_direction(scorer: Scorer, sentences: Sequence[Sentence], batch_tokens: int) -> None:
    """Warn of a model to which the pairs are more probable in the other direction: nothing in a list names its own."""
    if not scorer.models.model.reads_source:
        return
    firsts = [one._replace(texts=one.texts[:1]) for one in sentences if one.source and one.texts[0]]
    turned = scorer._replace(reverse=not scorer.reverse)
    given, other = (float(one.scores(firsts, batch_tokens).mean()) if firsts else 0.0 for one in (scorer, turned))
    if other - given > MARGIN:
        print(
            printable(
                f"{scorer}: the pairs are more probable in the other direction (log-probability of a token "
                f"{other:.2f}, not {given:.2f}); is it a model for {option_of(turned.reverse)}?"
            ),
            file=sys.stderr,
        )


def windows(sentences: Iterable[Sentence]) -> Iterator[list[Sentence]]:
    """Yield runs of sentences with about WINDOW translations."""
    window: list[Sentence] = []
    translations = 0
    for sentence in sentences:
        window.append(sentence)
        translations += len(sentence.texts)
        if translations >= WINDOW:
            yield window
            window, translations = [], 0
    if window:
        yield window


def tuned(sentences: Sequence[Sentence], references: Sequence[Sequence[str]], language: str | None) -> list[float]:
    """Return the weights of GRID whose choice has the highest BLEU, the first of several, and print them.

    Args:
        language: of the translations, which with the script of the references chooses BLEU's tokenizer.
    """
    language = metric_language(language, (options[0] for options in references))
    metric = BLEU(lowercase=False, tokenize="auto", language=language)
    counts = [
        metric.sentence_counts(one.texts, [options] * len(one.texts))
        for one, options in zip(sentences, references, strict=True)
    ]
    most = max(len(one.texts) for one in sentences)
    all_scores = np.zeros((len(sentences), most, sentences[0].scores.shape[1]))
    all_scores[:, :, 0] = -np.inf  # of translations that a sentence lacks
    all_counts = np.zeros((len(sentences), most, len(counts[0][0])))
    for row, (one, its_counts) in enumerate(zip(sentences, counts, strict=True)):
        all_scores[row, : len(one.texts)], all_counts[row, : len(one.texts)] = one.scores, its_counts
    rows = np.arange(len(sentences))

    def bleu(weights: Sequence[float]) -> float:
        chosen = (all_scores @ [1.0, *weights]).argmax(1)
        return float(metric.score(all_counts[rows, chosen].sum(0).tolist()))

    tried = list(product(GRID, repeat=all_scores.shape[2] - 1))
    reached = [bleu(weights) for weights in tried]
    best = int(np.argmax(reached))
    weights = list(tried[best])
    written_out = " ".join(f"{weight:g}" for weight in weights)
    print(f"--weights {written_out}: BLEU {reached[best]:.2f}, without the models {reached[0]:.2f}")
    return weights
