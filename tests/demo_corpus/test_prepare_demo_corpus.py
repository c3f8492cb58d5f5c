"""Properties of the files of the demo corpus."""

import random
import re
from functools import cache
from hashlib import sha256
from itertools import pairwise

import pytest
from configs import ROOT

from scripts.demo_corpus import __main__ as corpus
from scripts.demo_corpus import sentence_sampler

SPLITS = ("train", "val", "test", "unseen")
DATA = ROOT / "data" / "demo"
DIGESTS = {
    "train": "901b6652890061681bed0c360e444482e9014be767b3432a717097c3712d3b43",
    "val": "5529b1dec330e3cad66ce44a7de1aaef64f96d5e302721f5e9fd1d735242ad09",
    "test": "daae2f2920bd61850c96500ff986b6e308f7c67ffde2fcd971d8080726289670",
    "unseen": "ce84d67df82e05563d3c37fccebb6ac54751aabe40c87173949fcb35fac05c84",
}
lexicon = corpus.Lexicon(DATA / "lexicon.yaml")


@pytest.mark.parametrize("infinitive", lexicon.data["conjugations"])
def test_an_irregular_verb_is_written_in_full(infinitive):
    assert len(lexicon.data["conjugations"][infinitive].split()) == 6


def test_the_lexicon_has_three_to_four_hundred_and_twenty_lemmas():
    assert 300 <= len(lexicon.lemmas) <= 420


@cache
def built() -> dict[str, list]:
    return corpus.build(1)


@cache
def committed(split: str) -> list[tuple[str, str]]:
    text = (DATA / f"{split}.tsv").read_text(encoding="utf-8")
    return [tuple(line.split("\t")) for line in text.splitlines()]


def test_the_first_committed_sentences_are_what_the_script_writes(monkeypatch):
    monkeypatch.setattr(corpus, "SIZES", {"train": 1500, "val": 10, "test": 10, "unseen": 10})
    few = corpus.build(1)
    assert (DATA / "train.tsv").read_bytes().startswith("".join(one.line for one in few["train"]).encode())
    assert not any(corpus.held_out(pair) for one in few["train"] for pair in one.pairs)
    assert all(any(map(corpus.held_out, one.pairs)) for one in few["unseen"])


@pytest.mark.parametrize("split", SPLITS)
def test_the_committed_file_is_the_one_that_the_slow_tests_have_made_again(split):
    assert sha256((DATA / f"{split}.tsv").read_bytes()).hexdigest() == DIGESTS[split]


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_the_committed_file_equals_the_generated_one(split):
    text = "".join(example.line for example in built()[split])
    assert (DATA / f"{split}.tsv").read_bytes() == text.encode()


def test_another_seed_gives_other_sentences():
    sampler = sentence_sampler.SentenceSampler
    first, again, other = (sampler(lexicon, random.Random(seed)) for seed in (1, 1, 2))
    lines = [[corpus.realise(one.sentence()).line for _ in range(50)] for one in (first, again, other)]
    assert lines[0] == lines[1] != lines[2]


def test_each_split_has_its_size():
    assert {split: len(committed(split)) for split in SPLITS} == corpus.SIZES


def test_no_english_sentence_occurs_twice():
    english = [pair[0] for split in SPLITS for pair in committed(split)]
    assert len(english) == len(set(english))


def test_the_files_weigh_at_most_four_megabytes():
    assert sum((DATA / f"{split}.tsv").stat().st_size for split in SPLITS) <= 4_000_000


@pytest.mark.slow
def test_a_held_out_pair_is_in_unseen_only():
    for split in ("train", "val", "test"):
        assert not any(corpus.held_out(pair) for example in built()[split] for pair in example.pairs)
    assert all(any(map(corpus.held_out, example.pairs)) for example in built()["unseen"])


def test_a_held_out_adjective_is_never_next_to_its_noun():
    """Check the same property in the text."""
    held = {
        (adjective, noun.english)
        for adjective, entry in lexicon.adjectives.items()
        for noun in lexicon.nouns.values()
        if noun.english in entry.describes and corpus.held_out(("adjective", adjective, noun.english))
    }
    assert held
    forms = {
        form
        for adjective, noun in held
        for form in (f"{adjective} {noun}", f"{adjective} {lexicon.nouns[noun].english_plural}")
    }
    for split in ("train", "val", "test"):
        for english, _ in committed(split):
            words = re.findall(r"[\w]+", english)
            assert not forms & {f"{first} {second}" for first, second in pairwise(words)}, english


def test_train_knows_each_word_of_unseen():
    known = {token for pair in committed("train") for text in pair for token in corpus.tokens(text)}
    for english, french in committed("unseen"):
        assert set(corpus.tokens(english)) | set(corpus.tokens(french)) <= known, english


@pytest.mark.slow
def test_each_lemma_is_frequent_in_train():
    counts = dict.fromkeys([*lexicon.nouns, *lexicon.adjectives, *lexicon.verbs], 0)
    for example in built()["train"]:
        for lemma in example.lemmas:
            if lemma in counts:
                counts[lemma] += 1
    assert min(counts.values()) >= 25, sorted(counts, key=counts.get)[:5]


def test_lengths_spread_from_three_to_twenty_five_words():
    lengths = [len(english.split()) for english, _ in committed("train")]
    assert (min(lengths), max(lengths)) == (3, 25)
    assert 9 <= sum(lengths) / len(lengths) <= 12
    assert sum(length >= 16 for length in lengths) / len(lengths) >= 0.15
    assert sum(length >= 20 for length in lengths) / len(lengths) >= 0.04


UNELIDED = re.compile(
    r"\b(?:le|la|je|ne|me|se|de|que|ce|beau|nouveau|ma|sa) (?!onze)[aeiouyàâéèêëîïôûœ]"
    r"|\b(?:de|à) les?\b|\bsi ils?\b|\b[ldjnmsq]u?' |\bvieux (?:ami|homme|arbre|hôtel)\b|  ",
    re.IGNORECASE,
)


@pytest.mark.parametrize("split", SPLITS)
def test_french_is_elided_contracted_and_spaced(split):
    for english, french in committed(split):
        assert not UNELIDED.search(french), french
        assert "  " not in english
        assert french[0].isupper()
        assert english[0].isupper()
        assert (english[-1], french[-2:]) == ("?", " ?") or (english[-1] == "." and re.search(r"[^ ]\.$", french))
        assert not set("’«»“”\u00a0\u202f") & set(english + french)


@pytest.mark.parametrize("split", SPLITS)
def test_the_english_article_suits_the_next_word(split):
    for english, _ in committed(split):
        for article, following in re.findall(r"\b(an?) (\w+)", english):
            vowel = following[0].lower() in "aeiou" and not following.startswith(("uni", "use"))
            assert article == ("an" if vowel or following == "honest" else "a"), english
