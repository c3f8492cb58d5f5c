"""BLEU, chrF and TER equal the `sacrebleu` command to the last digit it can print."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from urllib.error import URLError

import pytest
import sacrebleu
import torch
from omegaconf import OmegaConf
from torchmetrics import Metric

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.bleu import BLEU, tokenizer_of
from seq2seq_attn.metric.chrf import CHRF
from seq2seq_attn.metric.detokenized_bleu import DetokenizedBLEU
from seq2seq_attn.metric.distinct import Distinct
from seq2seq_attn.metric.rouge import ROUGE
from seq2seq_attn.metric.sentence_bleu import SentenceBLEU
from seq2seq_attn.metric.ter import TER, UNITS

HYPOTHESES = [
    "Le chat est assis sur le tapis.",
    "Une fille en robe rouge court à côté d'un lac",
    "L’homme n'a pas vu « la voiture » !",
    "",
    "Deux chiens jouent dans la neige fraîche.",
    "Où est-ce qu'ils vont ?",
    "bon",
]
REFERENCES = [
    ["Le chat est assis sur un tapis.", "Un chat se tient sur le tapis."],
    ["Une petite fille en robe rouge court au bord d'un lac.", "Une fille vêtue de rouge court près du lac"],
    ["L'homme n'a pas vu la voiture !"],
    ["Rien du tout."],
    ["Deux chiens jouent dans la neige.", "Des chiens s'amusent dans la neige fraîche.", "Deux chiens."],
    ["Où vont-ils ?", "Où est-ce qu'ils vont ?"],
    ["Très bon choix", "oui"],
]
FIRST_REFERENCES = [options[:1] for options in REFERENCES]
METRICS = {
    "bleu": (lambda: BLEU(lowercase=False, tokenize="13a"), ["-m", "bleu"]),
    "bleu_lowercase_intl": (lambda: BLEU(lowercase=True, tokenize="intl"), ["-m", "bleu", "-lc", "-tok", "intl"]),
    "chrf": (lambda: CHRF(char_order=6, word_order=0, beta=2, lowercase=False), ["-m", "chrf"]),
    "chrf_plus_plus": (
        lambda: CHRF(char_order=6, word_order=2, beta=3, lowercase=True),
        ["-m", "chrf", "--chrf-word-order", "2", "--chrf-beta", "3", "--chrf-lowercase"],
    ),
    "ter": (lambda: TER(normalized=False, no_punct=False, asian_support=False, case_sensitive=False), ["-m", "ter"]),
    "ter_normalized_case_sensitive": (
        lambda: TER(normalized=True, no_punct=True, asian_support=True, case_sensitive=True),
        ["-m", "ter", "--ter-normalized", "--ter-no-punct", "--ter-asian-support", "--ter-case-sensitive"],
    ),
}
each_metric = pytest.mark.parametrize(("make", "flags"), METRICS.values(), ids=METRICS.keys())


def signature(metric: Metric) -> str:
    """Without the field of another beta than 2, which sacrebleu writes in the name alone."""
    return metric.signature().removesuffix("|beta:3")


def sacrebleu_command(folder: Path, references: list[list[str]], flags: list[str]) -> tuple[str, str]:
    """The score with 15 decimals and the signature; one file a reference, blank lines where there is none."""
    files = []
    for i in range(max(len(options) for options in references)):
        lines = [options[i] if i < len(options) else "" for options in references]
        files.append(folder / f"reference_{i}")
        files[-1].write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    hypotheses = folder / "hypotheses"
    hypotheses.write_text("".join(line + "\n" for line in HYPOTHESES), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *map(str, files), "-i", str(hypotheses), "-w", "15"]
    environment = {**os.environ, "PYTHONUTF8": "1", "SACREBLEU_FORMAT": "text"}
    run = subprocess.run(
        [*command, "--no-color", *flags], env=environment, capture_output=True, encoding="utf-8", check=True
    )
    name, _, rest = run.stdout.strip().partition(" = ")
    return rest.split()[0], name.partition("|")[2]


def scored(metric: Metric, references: list[list[str]], batch_sentences: int = 100) -> Metric:
    for start in range(0, len(HYPOTHESES), batch_sentences):
        rows = slice(start, start + batch_sentences)
        metric.update(HYPOTHESES[rows], references[rows])
    return metric


@each_metric
def test_one_reference_equals_the_sacrebleu_command(make, flags, tmp_path):
    metric = scored(make(), FIRST_REFERENCES)
    found = f"{metric.compute():.15f}", signature(metric)
    assert found == sacrebleu_command(tmp_path, FIRST_REFERENCES, flags)


@each_metric
def test_several_references_equal_the_sacrebleu_command(make, flags, tmp_path):
    """The command knows no ragged references: it counts a blank line as an empty sentence, and so do we."""
    most = max(len(options) for options in REFERENCES)
    padded = [options + [""] * (most - len(options)) for options in REFERENCES]
    metric = scored(make(), padded)
    assert (f"{metric.compute():.15f}", signature(metric)) == sacrebleu_command(tmp_path, REFERENCES, flags)


@each_metric
def test_ragged_references_equal_sacrebleu_with_none_where_there_is_no_reference(make, flags):
    metric = scored(make(), REFERENCES)
    scorer = make().scorer
    streams = [[options[i] if i < len(options) else None for options in REFERENCES] for i in range(3)]
    assert metric.compute().item() == scorer.corpus_score(HYPOTHESES, streams).score
    assert signature(metric) == scorer.get_signature().format()
    assert metric.signature().startswith("nrefs:var|")


@each_metric
@pytest.mark.parametrize("batch_sentences", [1, 2, 3, 5])
def test_score_and_signature_do_not_depend_on_the_batches(make, flags, batch_sentences):
    whole, cut = scored(make(), REFERENCES), scored(make(), REFERENCES, batch_sentences)
    assert torch.equal(whole.compute(), cut.compute())
    assert whole.signature() == cut.signature()


@each_metric
def test_two_ranks_in_any_order_score_as_one(make, flags):
    whole, first, second = scored(make(), REFERENCES), make(), make()
    first.update(HYPOTHESES[4:][::-1], REFERENCES[4:][::-1])
    second.update(HYPOTHESES[:4], REFERENCES[:4])
    first.merge_state(second)
    assert torch.equal(whole.compute(), first.compute())
    assert whole.signature() == first.signature()


@each_metric
def test_score_is_a_float64_scalar_of_0_to_100_and_reset_forgets(make, flags):
    metric = scored(make(), REFERENCES)
    assert metric.compute().dtype == torch.float64
    assert 0 < metric.compute() < 100
    metric.reset()
    metric.update(["Oui, le chat dort."], [["Oui, le chat dort."]])
    assert metric.compute().shape == ()
    assert metric.compute() == pytest.approx(100 if metric.higher_is_better else 0)
    assert metric.signature().startswith("nrefs:1|")


@each_metric
def test_a_batch_without_sentences_changes_nothing_and_a_corpus_without_is_refused(make, flags):
    metric = make()
    metric.update([], [])
    with pytest.raises(UserError, match="there is no sentence to score; give the split at least one sentence"):
        metric.compute()
    with pytest.raises(UserError, match="the signature states the number of references; score a sentence"):
        metric.signature()
    scored(metric, REFERENCES).update([], [])
    assert torch.equal(metric.compute(), scored(make(), REFERENCES).compute())


@each_metric
def test_references_that_are_no_lists_per_hypothesis_are_refused(make, flags):
    with pytest.raises(
        ValueError,
        match=r"^references must be a list of references for each hypothesis, got a flat list of sentences; "
        r"wrap each one: \[\[reference\] for reference in references\]$",
    ):
        make().update(HYPOTHESES, [options[0] for options in REFERENCES])
    with pytest.raises(ValueError, match="got 1 hypotheses and 2 lists of references"):
        make().update(["oui"], [["oui"], ["non"]])
    with pytest.raises(ValueError, match="hypothesis 1 has no reference; give it at least one, or leave it out"):
        make().update(["oui", "non"], [["oui"], []])


class Tagger:
    """Like those in C."""

    def __deepcopy__(self, memo):
        raise TypeError("cannot pickle 'Tagger' object")


@each_metric
def test_a_copy_shares_the_scorer_that_may_hold_what_cannot_be_copied(make, flags):
    metric = scored(make(), REFERENCES)
    metric.scorer.tagger = Tagger()
    copied = metric.clone()
    assert copied.scorer is metric.scorer
    assert torch.equal(copied.compute(), metric.compute())
    copied.reset()
    copied.update(["oui"], [["oui"]])
    assert copied.counts[0] == 1
    assert metric.counts[0] == len(HYPOTHESES)
    assert torch.equal(scored(make(), REFERENCES).compute(), metric.compute())


def test_the_signature_of_chrf_has_a_beta_that_is_not_2():
    assert scored(METRICS["chrf_plus_plus"][0](), REFERENCES).signature().endswith("|beta:3")
    assert "beta" not in scored(METRICS["chrf"][0](), REFERENCES).signature()


def test_unknown_tokenizer_and_order_say_the_choices():
    with pytest.raises(UserError, match="BLEU has no tokenizer '13b'; choose from: auto, none, zh, 13a, intl, char"):
        BLEU(lowercase=False, tokenize="13b")
    with pytest.raises(UserError, match="chrF needs char_order >= 1, word_order >= 0 and beta >= 0, got 0, 0 and 2"):
        CHRF(char_order=0, word_order=0, beta=2, lowercase=False)


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh-TW", "zh"),
        ("Chinese", "zh"),
        ("fr", "13a"),
        ("ko-fake", "13a"),
        (None, "13a"),
        ("zhou", "13a"),
    ],
)
def test_the_tokenizer_follows_the_target_language(language, tokenizer):
    metric = BLEU(lowercase=False, tokenize="auto", language=language)
    metric.update(["我爱你。"], [["我爱你们。"]])
    assert f"|tok:{tokenizer}|" in metric.signature()
    chosen = BLEU(lowercase=False, tokenize="char", language=language)
    chosen.update(["我爱你。"], [["我爱你们。"]])
    assert "|tok:char|" in chosen.signature()


@pytest.mark.parametrize(
    ("language", "tokenizer", "replacement"), [("ja", "ja-mecab", "char"), ("ko", "ko-mecab", "13a")]
)
def test_a_tokenizer_of_mecab_is_used_where_it_is_installed(language, tokenizer, replacement, monkeypatch, caplog):
    def scorer(*, tokenize, **options):
        if tokenize in missing:
            raise RuntimeError("pip install it")
        return real(tokenize="char" if tokenize == tokenizer else tokenize, **options)

    real, missing = sacrebleu.BLEU, {tokenizer}
    scorer.TOKENIZERS = real.TOKENIZERS
    monkeypatch.setattr(sacrebleu, "BLEU", scorer)
    assert tokenizer_of(language) == replacement
    assert f"pip install 'sacrebleu[{language}]' for {tokenizer}" in caplog.text
    with pytest.raises(
        UserError, match=rf"^sacreBLEU's tokenizer '{tokenizer}' needs packages .* 'sacrebleu\[{language}\]'"
    ):
        BLEU(lowercase=False, tokenize=tokenizer)
    missing.clear()
    assert tokenizer_of(language) == tokenizer


@pytest.mark.parametrize(
    "make",
    [
        lambda tokenize: BLEU(lowercase=False, tokenize=tokenize),
        lambda tokenize: SentenceBLEU(max_ngram_order=4, lowercase=False, tokenize=tokenize),
        lambda tokenize: DetokenizedBLEU(language="fr", lowercase=False, tokenize=tokenize),
        lambda tokenize: ROUGE(variant="rouge1", tokenize=tokenize),
        lambda tokenize: Distinct(n=1, tokenize=tokenize),
    ],
    ids=["bleu", "sentence_bleu", "detokenized_bleu", "rouge", "distinct"],
)
def test_a_tokenizer_that_cannot_be_had_is_refused_in_a_sentence(make, monkeypatch):
    errors = {
        "ja-mecab": RuntimeError("pip install it"),
        "flores200": URLError(OSError(-2, "Name or service not known")),
    }
    real = sacrebleu.BLEU

    def scorer(*, tokenize, **options):
        if tokenize in errors:
            raise errors[tokenize]
        return real(tokenize=tokenize, **options)

    scorer.TOKENIZERS = real.TOKENIZERS
    monkeypatch.setattr(sacrebleu, "BLEU", scorer)
    with pytest.raises(UserError, match=r"has no tokenizer '13b'; choose from: "):
        make("13b")
    with pytest.raises(UserError, match=r"^sacreBLEU's tokenizer 'ja-mecab' needs packages that are not installed; "):
        make("ja-mecab")
    with pytest.raises(
        UserError, match=r"'flores200' cannot be downloaded or read \(.*Name or service not known.*\); try again with a"
    ):
        make("flores200")


def test_detokenized_bleu_follows_the_target_language_if_told_to():
    metric = DetokenizedBLEU(language="zh", lowercase=False, tokenize="auto")
    metric.update(["我爱你。"], [["我爱你们。"]])
    assert "|tok:zh|" in metric.signature()


def ter(hypothesis: str, references: list[str]) -> float:
    metric = METRICS["ter"][0]()
    metric.update([hypothesis], [references])
    return metric.compute().item()


def test_a_block_that_moved_is_one_edit_of_ter():
    assert ter("c d e a b", ["a b c d e"]) == 100 * 1 / 5


def test_ter_divides_the_fewest_edits_by_the_mean_length_of_the_references():
    assert ter("x y", ["a", "x b", "c d e f"]) == pytest.approx(100 * 1 / (7 / 3), rel=1e-15)


def test_mean_lengths_of_ter_add_up_without_rounding():
    metric = METRICS["ter"][0]()
    for length in range(1, 20):  # means with every denominator from 1 to 19, 1 + 1/2 + ... in all
        metric.update(["a"], [["b"] + [""] * (length - 1)])
    *_, edits, units = metric.counts.tolist()
    assert (edits, Fraction(units, UNITS)) == (19, sum(Fraction(1, length) for length in range(1, 20)))


def test_yaml_files_hold_one_key_of_their_own_name_with_the_standard_signature():
    expected = {
        "bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:",
        "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:",
        "ter": "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:",
    }
    for name, signature in expected.items():
        options = OmegaConf.load(Path(__file__).parents[2] / f"conf/metric/{name}.yaml")
        assert list(options) == [name]
        target = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[name]
        arguments = dict(options[name])
        assert arguments.pop("_target_") == f"{target.__module__}.{target.__name__}"
        assert scored(target(**arguments), FIRST_REFERENCES).signature().startswith(signature)


def test_sacrebleu_has_the_private_methods_of_the_version_that_the_adapter_names():
    """`metric.corpus` was written for sacrebleu 2.6; of another version look whether these mean the same."""
    assert sacrebleu.__version__.startswith("2.6."), "check metric/corpus.py against this version, and name it there"
    scorer = sacrebleu.BLEU(force=True)
    (counts,) = scorer._extract_corpus_statistics(["a b c d e"], [["a b c d f"]])
    assert counts == [5, 5, 4, 3, 2, 1, 5, 4, 3, 2]  # two lengths; matches and totals of each order
    assert scorer._compute_score_from_stats(counts).score == scorer.corpus_score(["a b c d e"], [["a b c d f"]]).score
