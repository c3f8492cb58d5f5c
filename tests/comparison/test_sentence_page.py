"""The page of translations that differ: which, in which order, and how they are marked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import sacrebleu
from comparison.test_page import Checker
from comparison.test_translations import write
from explorer.browser import console, executed, requested

from seq2seq_attn.comparison import draw as drawing
from seq2seq_attn.comparison import sentence_page
from seq2seq_attn.comparison import translations as script
from seq2seq_attn.comparison.sentence_page import differing, marked, pieces
from seq2seq_attn.comparison.system import System, read_system
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.chrf import CHRF

SOURCES = ["A cat.", "Two <b>dogs</b> & a man.", "A very long sentence on three women.", "The sea.", "Nothing."]
REFERENCES = [
    ["Un chat."],
    ["Deux chiens et un homme.", "2 chiens & un homme."],
    ["Trois femmes."],
    ["La mer."],
    ["Rien."],
]
HOSTILE = "<img src=x onerror=run()> chiens & un homme."
BASE = ["Un chat.", "Deux chats.", "Trois femmes.", "La mer.", "Rien."]
OTHER = ["Un chien.", HOSTILE, "Trois femmes.", "La mer.", "Rien du tout."]
THIRD = ["Un chat.", "Deux chiens et un homme.", "Trois femmes.", "Une mer.", "Rien."]
NAMES = ("base", "<u>other", "third")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, rows in zip(NAMES, (BASE, OTHER, THIRD), strict=True):
        write(Path(name), rows, REFERENCES, SOURCES)
    script.main([*NAMES, "--resamples", "50", "--output", "new/page.html"])
    return tmp_path / "new" / "page.html"


def test_sentences_that_differ_come_with_their_chrf_the_largest_difference_first(page: Path) -> None:
    sentences = differing([read_system(Path(name), "test") for name in NAMES], sacrebleu.CHRF())
    assert sorted(sentence.number for sentence in sentences) == [1, 2, 4, 5]
    sizes = [max(abs(one - sentence.chrf[0]) for one in sentence.chrf[1:]) for sentence in sentences]
    assert sizes == sorted(sizes, reverse=True) == [sentence.largest for sentence in sentences]
    first = sacrebleu.CHRF().sentence_score(HOSTILE, REFERENCES[1]).score
    (second,) = [sentence for sentence in sentences if sentence.number == 2]
    assert (second.chrf[1], second.chrf[2]) == (pytest.approx(first), 100.0)
    assert second.above(2) == 100.0 - second.chrf[0]


def test_the_page_is_whole_escapes_what_it_shows_and_asks_for_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = Checker(text.replace(" hidden>", ">").replace('placeholder="any text">', 'placeholder="any text"/>'))
    assert found.open == []
    assert text.count("<article ") == 4
    assert all(link.startswith("#") for link in found.links)
    assert "Two &lt;b&gt;dogs&lt;/b&gt; &amp; a man." in text
    assert "<b>dogs" not in text
    assert "<img" not in text
    assert "All systems translate 1 of 5 sentences alike." in text
    assert "&lt;u&gt;other: 1 higher, 2 lower, 0 of equal chrF" in text
    assert "third: 1 higher, 1 lower, 0 of equal chrF" in text
    assert '<dd dir="auto">Un <u>chien</u>.</dd>' in text
    assert 'aria-label="chrF of &lt;u&gt;other above base"' in text
    assert text.count(">chrF above the baseline</text>") == 2  # names of systems may be too long for an axis


@pytest.mark.parametrize(
    ("text", "references", "expected"),
    [
        ("le chat, le chien", ["le chien, un chat"], "le chat, <u>le</u> chien"),
        ("le chat le", ["le un", "le le"], "le <u>chat</u> le"),
        ("le le le", ["le un", "le le"], "le le <u>le</u>"),
        ("l'eau <b>", ["l'air"], "l&#x27;<u>eau</u> <u>&lt;</u><u>b</u><u>&gt;</u>"),
        ("猫が好き", ["猫は好き"], "猫<u>が</u>好き"),
        ("हिन्दी में", ["हिन्दी"], "हिन्दी <u>में</u>"),
        ("", ["a"], ""),
    ],
)
def test_what_no_reference_has_as_often_is_underlined(text: str, references: list[str], expected: str) -> None:
    assert "".join(pieces(text)) == text
    assert "".join(marked(text, references)) == expected


def test_a_page_shows_no_more_than_the_largest_differences_of_a_large_test_set(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_page, "MOST", 2)
    script.main([*NAMES, "--resamples", "50", "--output", str(page)])  # replaces its own page
    text = page.read_text(encoding="utf-8")
    assert text.count("<article ") == 2
    assert "The 2 with the largest differences are here." in text


def test_systems_that_say_the_same_have_a_page_too(page: Path) -> None:
    script.main(["base", "base", "--resamples", "50", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "Both systems translate 5 of 5 sentences alike." in text
    assert "<article " not in text


def test_a_translation_of_equal_chrf_is_drawn_neither_above_nor_below(page: Path) -> None:
    with mpl.rc_context(drawing.STYLE):
        assert drawing.histogram([3.0, 0.0, -1.0], "a", "b", "c") == drawing.histogram([3.0, -1.0], "a", "b", "c")
    write(Path("spaced"), [text.replace(" ", "  ") for text in BASE], REFERENCES, SOURCES)
    script.main(["base", "spaced", "--resamples", "50", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "spaced: 0 higher, 0 lower, 4 of equal chrF" in text
    assert "<svg" not in text


def test_another_file_is_never_replaced_and_a_page_ends_in_html(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_text("<p>mine</p>", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        script.main([*NAMES, "--output", str(page)])
    assert page.read_text(encoding="utf-8") == "<p>mine</p>"
    with pytest.raises(SystemExit, match="2"):
        script.main([*NAMES, "--output", "page.tsv"])
    said = capsys.readouterr().err
    assert f"{page} already exists and is not a page of seq2seq-attn compare; give another --output" in said
    assert "--output page.tsv does not end in .html; give sentences.html" in said


@pytest.mark.slow
def test_the_page_sorts_and_searches_in_a_browser(page: Path, chromium: Any) -> None:
    console(chromium), requested(chromium)
    chromium.get(page.as_uri())

    def order(value: str | None = None) -> list[int]:
        if value is not None:
            script_of_choice = "const s = document.querySelector('select'); s.value = arguments[0]; s.onchange();"
            chromium.execute_script(script_of_choice, value)
        cards = "[...document.querySelectorAll('article')].filter(card => !card.hidden)"
        return [int(n) for n in chromium.execute_script(f"return {cards}.map(card => card.dataset.number)")]

    def search(text: str) -> list[int]:
        typed = "const i = document.querySelector('input'); i.value = arguments[0]; i.oninput();"
        chromium.execute_script(typed, text)
        return order()

    options = chromium.execute_script("return [...document.querySelectorAll('option')].map(o => [o.value, o.text])")
    assert dict(options)["above1 -1"] == "<u>other is better"
    assert order("number 1") == [1, 2, 4, 5]
    assert order("words -1") == [2, 1, 4, 5]
    sentences = {s.number: s for s in differing([read_system(Path(name), "test") for name in NAMES], sacrebleu.CHRF())}
    assert order("above2 1") == sorted(sentences, key=lambda number: sentences[number].above(2))
    assert order("above1 -1") == sorted(sentences, key=lambda number: -sentences[number].above(1))
    assert order("largest -1") == list(sentences)
    assert search("UN CHIEN") == [1]
    assert chromium.execute_script("return document.querySelector('output').textContent") == "1 of 4"
    assert search("") == list(sentences)
    assert not executed(chromium)
    assert console(chromium) == []
    assert requested(chromium) == {page.as_uri()}


@pytest.mark.slow
def test_long_names_stay_in_their_column_and_on_the_screen(page: Path, chromium: Any) -> None:
    name = "n" * 90
    write(Path(name), OTHER, REFERENCES, SOURCES)
    script.main(["base", name, "--resamples", "50", "--output", str(page)])
    chromium.get(page.as_uri())
    chromium.set_window_size(500, 800)
    try:
        wide = "const text = document.createRange(), cell = document.querySelectorAll('tbody th')[1];"
        wide += "text.selectNodeContents(cell);"
        wide += "return text.getBoundingClientRect().right <= cell.getBoundingClientRect().right"
        assert chromium.execute_script(wide)
        assert chromium.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        chromium.set_window_size(1280, 1000)


ZH = ["我喜欢猫。", "他在海边读书。", "她跑得很快。"]
TOKENS = ["L&apos; homme lit un livre .", "Il y a un chat .", "Elle court vite ."]


@pytest.mark.parametrize("writer", ["evaluate", "train"])
@pytest.mark.parametrize(
    ("signed", "tokenize", "lowercase", "texts"),
    [("case:mixed|eff:no|tok:zh", "zh", False, ZH), ("case:lc|eff:no|tok:13a|detok:moses-fr", "none", True, TOKENS)],
)
def test_bleu_tokenizes_as_the_evaluation_did(
    writer: str, signed: str, tokenize: str, lowercase: bool, texts: list[str], tmp_path: Path
) -> None:
    rows = [text.replace("猫", "狗").replace("un chat", "Un chat noir") for text in texts]
    folders = [write(tmp_path / name, rows, [[text] for text in texts], ["a", "b", "c"]) for name in ("a", "b")]
    signature = f"nrefs:1|{signed}|smooth:exp|version:2.6.0"
    written = {
        "evaluate": ("evaluation.json", {"splits": {"test": {"signatures": {"bleu": signature}}}}),
        "train": ("results.json", {"test/bleu_signature": signature}),
    }
    name, content = written[writer]
    (folders[1] / name).write_text(json.dumps(content))
    systems = [read_system(folder, "test") for folder in folders]
    found = script.compare(systems, ["bleu"], "bootstrap", 50).results["bleu"]
    bleu = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase)
    expected = bleu.corpus_score(rows, [texts]).score
    assert found[0].score == found[1].score == pytest.approx(expected)
    assert expected != pytest.approx(sacrebleu.BLEU().corpus_score(rows, [texts]).score)
    assert systems[0].signatures == {}


@pytest.mark.parametrize("writer", ["evaluate", "train"])
def test_chrf_and_ter_have_the_options_of_the_evaluation(writer: str, tmp_path: Path) -> None:
    rows = [text.replace("猫", "狗").replace("她", "Elle ") for text in ZH]
    folder = write(tmp_path / "a", rows, [[text] for text in ZH], ["a", "b", "c"])
    own = {
        "chrf": sacrebleu.CHRF(word_order=2, char_order=5, lowercase=True),
        "ter": sacrebleu.TER(normalized=True, no_punct=True, asian_support=True, case_sensitive=True),
    }
    expected = {name: metric.corpus_score(rows, [ZH]).score for name, metric in own.items()}
    signatures = {name: metric.get_signature().format() for name, metric in own.items()}
    if writer == "evaluate":
        (folder / "evaluation.json").write_text(json.dumps({"splits": {"test": {"signatures": signatures}}}))
    else:
        (folder / "results.json").write_text(
            json.dumps({f"test/{name}_signature": s for name, s in signatures.items()})
        )
    system = read_system(folder, "test")
    found = script.compare([system, system], ["chrf", "ter"], "bootstrap", 50).results
    assert {name: results[0].score for name, results in found.items()} == pytest.approx(expected)
    plain = {"chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}
    assert all(metric.corpus_score(rows, [ZH]).score != pytest.approx(expected[n]) for n, metric in plain.items())
    (sentence,) = [one for one in differing([system, system._replace(hypotheses=ZH)], own["chrf"]) if one.number == 1]
    assert sentence.chrf[0] == own["chrf"].sentence_score(rows[0], [ZH[0]]).score


def test_chrf_has_the_beta_of_the_evaluation(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [text[:2] for text in ZH], [[text] for text in ZH], ["a", "b", "c"])
    metric = CHRF(char_order=6, word_order=0, beta=3, lowercase=False)
    metric.update([text[:2] for text in ZH], [[text] for text in ZH])
    results = {"test/chrf": metric.compute().item(), "test/chrf_signature": metric.signature()}
    (folder / "results.json").write_text(json.dumps(results))
    system = read_system(folder, "test")
    found = script.compare([system, system], ["chrf"], "bootstrap", 50)
    assert found.results["chrf"][0].score == pytest.approx(results["test/chrf"])
    assert found.signatures["chrf"].endswith("|beta:3")
    unknown = system._replace(signatures={})
    usual = script.compare([unknown, unknown], ["chrf"], "bootstrap", 50)
    assert usual.results["chrf"][0].score != pytest.approx(results["test/chrf"])
    assert "beta" not in usual.signatures["chrf"]
    for damaged in ("nc:x|nw:0", "nc:6|nw:-1", "nc:6|nw:0|beta:", "nc:5000|nw:0"):
        broken = system._replace(signatures={"chrf": damaged})
        with pytest.raises(UserError, match=f"{re.escape(system.name)} has a damaged signature of chrF"):
            script.compare([broken, unknown], ["chrf"], "bootstrap", 50)


@pytest.mark.parametrize("known", ["evaluation", "config"])
def test_without_bleu_the_language_chooses_the_tokenizer(known: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", ZH, [[text] for text in ZH], ["a", "b", "c"])
    if known == "evaluation":
        (folder / "evaluation.json").write_text('{"languages": ["en", "zh"], "splits": {"test": {"signatures": {}}}}')
    else:
        (folder / "config.yaml").write_text("data: {target_language: zh}\n")
    systems = [read_system(folder, "test")]
    assert script.metric_of("bleu", systems).tokenizer.signature() == "zh"
    (folder / "config.yaml").write_text("data: [")
    (folder / "evaluation.json").write_text("{")
    (unknown,) = [read_system(folder, "test")]
    assert unknown.language is None
    assert script.metric_of("bleu", [unknown]).tokenizer.signature() == "zh"  # by the script
    assert ter_of(unknown) == "norm:yes|punct:yes|asian:yes"
    french = unknown._replace(references=REFERENCES[:3])
    assert script.metric_of("bleu", [french]).tokenizer.signature() == "13a"
    assert ter_of(french) == "norm:no|punct:yes|asian:no"
    evaluated = unknown._replace(signatures={"bleu": "tok:13a", "ter": "nrefs:1|case:lc|tok:tercom|norm:no|asian:no"})
    assert script.metric_of("bleu", [evaluated]).tokenizer.signature() == "13a"
    assert ter_of(evaluated) == "norm:no|punct:yes|asian:no"


def ter_of(system: System) -> str:
    signature = script.compare([system, system], ["ter"], "bootstrap", 50).signatures["ter"]
    return signature.partition("tok:tercom|")[2].partition("|version")[0]


def test_a_tokenizer_with_its_dictionary_in_its_signature_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(script, "scorer_of", lambda *, lowercase, tokenize: asked.append(tokenize))
    signatures = {"bleu": "nrefs:1|case:mixed|eff:no|tok:ja-mecab-0.996-IPA|smooth:exp|version:2.6.0"}
    script.metric_of("bleu", [System("a", [], [], [], signatures, None)])
    assert asked == ["ja-mecab"]


def test_options_of_bleu_come_before_the_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "a", ZH, [[text] for text in ZH], ["a", "b", "c"])
    (folder / "results.json").write_text('{"test/bleu_signature": "case:lc|tok:zh"}')
    script.main([str(folder), str(folder), "--resamples", "50", "--tokenize", "char", "--no-lowercase"])
    assert "|case:mixed|eff:no|tok:char|" in capsys.readouterr().out
    (folder / "results.json").write_text("[1]")
    script.main([str(folder), str(folder), "--resamples", "50", "--lowercase"])
    assert "|case:lc|eff:no|tok:zh|" in capsys.readouterr().out
