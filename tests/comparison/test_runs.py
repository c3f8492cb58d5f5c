"""The page that compares attentions: its figures are those of the runs, and nothing is left out without a word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison.made_runs import METRIC, REFERENCES, SOURCES, bleu_of, only_group, spoilt, write_log, write_run

from seq2seq_attn.comparison import figures as figures_of_group
from seq2seq_attn.comparison import page, significance, translations
from seq2seq_attn.comparison import rows as rows_of_runs
from seq2seq_attn.comparison import runs as script
from seq2seq_attn.comparison.system import read_system
from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.by_length import score_by_length


def test_with_one_seed_the_scores_are_those_of_compare_translations(tmp_path: Path) -> None:
    said = {"baseline": spoilt(4), "good": spoilt(9), "poor": spoilt(2), "near": spoilt(4, shift=1)}
    for name, hypotheses in said.items():
        write_run(tmp_path / name, name, hypotheses)
    found = only_group(tmp_path, baseline="baseline", resamples=300).differences
    systems = [read_system(tmp_path / name, "test") for name in said]
    base, *others = translations.compare(systems, ["bleu"], "bootstrap", 300).results["bleu"]
    assert list(found) != list(said)  # sorted by BLEU, and without the baseline
    for name, other in zip([name for name in said if name != "baseline"], others, strict=True):
        assert found[name].p >= other.p_value  # sacreBLEU's is too small
        assert found[name].value == pytest.approx(other.score - base.score)
        assert found[name].low <= found[name].value <= found[name].high
    assert found["poor"].significant
    assert not found["near"].significant


def test_of_equal_systems_one_in_twenty_has_a_p_value_below_a_twentieth() -> None:
    generator = np.random.default_rng(1)
    deviation, resamples, trials = 0.7, 500, 4000
    values = deviation * generator.standard_normal(trials)  # the true difference is 0
    found = [
        significance.difference(value, value + deviation * generator.standard_normal(resamples)) for value in values
    ]
    below = np.array([one.p < 0.05 for one in found])
    outside = np.array([not one.low <= 0 <= one.high for one in found])
    assert below.mean() == pytest.approx(0.05, abs=0.01)  # 0.003 is one standard deviation
    assert (below == outside).mean() > 0.98  # the interval excludes 0 where p is below 0.05


def test_seeds_that_say_the_same_change_no_p_value(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"base{seed}", "base", spoilt(4), seed=seed)
        write_run(tmp_path / f"other{seed}", "other", spoilt(3), seed=seed)
    every = only_group(tmp_path, baseline="base").differences
    one = only_group(tmp_path / "base1", tmp_path / "other1", baseline="base").differences
    assert every["other"] == pytest.approx(one["other"])


def test_a_row_with_several_seeds_is_tested_by_their_mean(tmp_path: Path) -> None:
    said = [spoilt(3), spoilt(5)]
    write_run(tmp_path / "base", "base", spoilt(4))
    for seed, hypotheses in enumerate(said):
        write_run(tmp_path / f"other{seed}", "other", hypotheses, seed=seed)
    found = only_group(tmp_path, baseline="base").differences["other"]
    assert found.value == pytest.approx(sum(map(bleu_of, said)) / 2 - bleu_of(spoilt(4)))


def test_a_baseline_that_is_repeated_has_no_p_value(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "a", spoilt(4))
    write_run(tmp_path / "b", "b", spoilt(4))
    group = only_group(tmp_path, baseline="a")
    assert group.differences["b"] == (0.0, 0.0, 0.0, None, False)
    assert "Against a, with one seed: no significant difference: b." in figures_of_group.verdict(group)


def test_holm_stops_at_the_first_p_value_that_may_be_chance() -> None:
    p_values = {"d": 0.049, "a": 0.012, "c": 0.02, "b": 0.03, "same": None}
    found = significance.holm({name: significance.Difference(1.0, 0.5, 1.5, p, False) for name, p in p_values.items()})
    assert [name for name, one in found.items() if one.significant] == []  # 0.012 × 5
    del p_values["same"]
    found = significance.holm({name: significance.Difference(1.0, 0.5, 1.5, p, False) for name, p in p_values.items()})
    assert [name for name, one in found.items() if one.significant] == ["a"]  # 0.012 × 4, but 0.02 × 3 = 0.06


def test_a_clear_difference_among_many_rows_is_marked() -> None:
    references = [[f"the cat number {row} sees a red house"] for row in range(30)]
    metric = BLEU(lowercase=False, tokenize="13a")

    def counted(hypotheses: list[str]) -> list[significance.Counted]:
        counts = metric.sentence_counts(hypotheses, references)
        return [significance.Counted(metric, np.array(counts, dtype=float))]

    right = [reference for (reference,) in references]
    rows = {str(number): counted(right) for number in range(10)} | {"wrong": counted(["a dog"] * len(right))}
    found = significance.differences(rows, "0", 40)
    assert [name for name, one in found.items() if one.significant] == ["wrong"]


def test_without_a_chosen_baseline_equal_rows_are_seldom_marked() -> None:
    """The best of eleven equal rows is compared with ten, and the worst of them is far below it by chance alone."""
    generator = np.random.default_rng(1)
    trials, resamples, rows = 400, 300, 11
    wrong = {"chosen": 0, "best": 0}
    for _ in range(trials):
        means = generator.standard_normal(rows)
        samples = [mean + generator.standard_normal(resamples) for mean in means]
        best = int(means.argmax())
        by_label = {
            str(row): significance.difference(means[row] - means[best], samples[row] - samples[best])
            for row in range(rows)
            if row != best
        }
        wrong["chosen"] += any(one.significant for one in significance.holm(by_label).values())
        wrong["best"] += any(one.significant for one in significance.beyond_range(by_label, samples).values())
    assert wrong["best"] / trials < 0.08  # 0.011 is one standard deviation of 0.05
    assert wrong["chosen"] / trials > 0.1


def test_two_rows_are_marked_alike_whether_the_baseline_was_chosen_or_not(tmp_path: Path) -> None:
    for position, hypotheses in enumerate([REFERENCES, spoilt(12), spoilt(9), spoilt(7), spoilt(4)]):
        write_run(tmp_path / str(position), f"a{position}", hypotheses)
        if position:
            pair = [tmp_path / "0", tmp_path / str(position)]
            chosen, best = only_group(*pair, baseline="a0"), only_group(*pair)
            assert (chosen.chosen, best.chosen, best.baseline) == (True, False, "a0")
            assert chosen.differences == best.differences


def test_the_page_says_how_the_test_allows_for_several_rows(sweep: Path) -> None:
    without, with_baseline = only_group(sweep), only_group(sweep, baseline="good")
    assert "p < 0.05 corrected for the choice of the best row. " in figures_of_group.about_test(without)
    assert "p < 0.05 after Holm's correction for 2 comparisons. " in figures_of_group.about_test(with_baseline)


def test_bleu_by_length_is_that_of_an_evaluation(sweep: Path) -> None:
    group = only_group(sweep)
    buckets = score_by_length(
        BLEU(lowercase=False, tokenize="13a"), SOURCES, spoilt(4), [[reference] for reference in REFERENCES]
    )
    assert len(buckets) > 2
    assert group.lengths == {bucket.words: bucket.sentences for bucket in buckets}
    assert group.by_length["fair"] == pytest.approx({bucket.words: bucket.score for bucket in buckets})


def test_a_mean_over_seeds_has_the_deviation_of_a_sample(tmp_path: Path) -> None:
    for seed, speed in enumerate((1000.0, 1200.0, 1700.0)):
        write_run(tmp_path / str(seed), "sparse", spoilt(4), seed=seed, tokens_per_second=speed)
    group = only_group(tmp_path)
    assert group.means["sparse"]["tokens_per_second"] == pytest.approx((1300.0, 130000**0.5))
    assert "| 1,300 ± 361 |" in script.markdown_page([group], [], "page.html")
    assert not any("one seed" in note for note in group.notes)


def test_runs_that_differ_in_seed_and_folder_alone_share_a_row(sweep: Path) -> None:
    group = only_group(sweep)
    assert [(row.label, [run.seed for run in row.runs]) for row in group.rows] == [
        ("good", [1, 2]),
        ("fair", [1]),
        ("poor", [1]),
    ]
    assert [note for note in group.notes if "Rows differ" in note] == []
    assert group.notes[0].startswith("2 of 3 rows have one seed: the spread")


def test_another_setting_is_a_row_of_its_own_that_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "multihead", spoilt(4), options={"label_smoothing": 0.1})
    write_run(tmp_path / "b", "multihead", spoilt(3), seed=2, options={"label_smoothing": 0.2})
    group = only_group(tmp_path)
    assert [row.label for row in group.rows] == ["multihead (label_smoothing=0.1)", "multihead (label_smoothing=0.2)"]
    assert "Rows differ in more than their attention: label_smoothing (0.1 in 1, 0.2 in 1)." in group.notes
    with pytest.raises(UserError, match=r"baseline multihead could be any of multihead \(label_smoothing=0.1\), mult"):
        script.compare([tmp_path], "multihead", 50)
    assert only_group(tmp_path, baseline="multihead (label_smoothing=0.2)").chosen


def test_rows_with_different_tokenizers_are_not_ranked_by_figures_of_tokens(tmp_path: Path) -> None:
    for row, every in enumerate((9, 4, 2)):
        options = {"tokenizer": {"vocab_size": 4000 * min(row + 1, 2), "sampling_alpha": 0.1 * row}}
        figures = {"test/ppl": 3.0 - row, "tokens_per_second": 10.0 + row, "decode_sentences_per_second": 5.0 + row}
        write_run(tmp_path / str(row), "multihead", spoilt(every), options=options, **figures)
    group = only_group(tmp_path)
    assert any(note.startswith("Rows have, or may have, different tokenizers, so") for note in group.notes)
    bests = {key: figures_of_group.best_of(group, key, column) for key, column in group.columns.items()}
    assert (bests["test/ppl"], bests["tokens_per_second"], bests["decode_sentences_per_second"]) == (None, None, 7.0)
    assert "training speed" not in " ".join(figures_of_group.verdict(group))
    assert "speed of training" not in script.html_page([group], [], 0)
    alike = figures_of_group.columns_of(group.rows[1:])
    assert (alike["test/ppl"].best, alike["tokens_per_second"].best) == ("low", "high")


def test_tokens_are_shared_where_they_were_learned_from_one_text_or_kept_from_one_parent(tmp_path: Path) -> None:
    parent = {"run": "general", "tokenizer": "keep"}
    for name, init, model, text in (
        ("a", {"run": None}, None, "1"), ("b", {"run": None}, None, "2"), ("c", parent, None, "1"),
        ("d", parent, None, "2"), ("e", parent | {"tokenizer": "new"}, None, "2"), ("f", {"run": None}, "x.model", "1"),
        ("g", {"run": None}, "x.model", "2"),
    ):  # fmt: skip
        tokenizer = {"vocab_size": 4000, "model": model}
        folder = write_run(tmp_path / name, name, spoilt(4), options={"tokenizer": tokenizer, "init_from": init})
        (folder / "provenance.json").write_text(json.dumps({"data_fingerprint": text}))

    def share(*names: str) -> bool:
        return rows_of_runs.share_tokens(only_group(*(tmp_path / name for name in names)).rows)

    assert [names for names in ("ab", "ac", "cd", "de", "be", "fg") if share(*names)] == ["cd", "be", "fg"]


def test_runs_on_other_devices_are_named(tmp_path: Path) -> None:
    for number, device in enumerate(("NVIDIA A100", "NVIDIA H200"), 1):
        folder = write_run(tmp_path / device, "good", spoilt(4), seed=number)
        (folder / "provenance.json").write_text(json.dumps({"device": device, "devices": number}))
    notes = " ".join(only_group(tmp_path).notes)
    assert "Runs differ in the device (NVIDIA A100 in 1, NVIDIA H200 in 1): times and memory may not be comp" in notes
    assert "Runs differ in the number of devices (1 in 1, 2 in 1)" in notes


def test_training_pairs_that_are_the_test_set_of_another_run_have_a_table_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "good", spoilt(9))
    folder = write_run(tmp_path / "b", "poor", spoilt(2))
    for file in (*folder.glob("translations.*"), folder / "results.json"):
        renamed = file.with_name(file.name.replace("translations", "translations_train"))
        text = file.read_text("utf-8").replace("test/", "test_train/")
        file.unlink()
        renamed.write_text(text, "utf-8")
    groups, left_out = script.compare([tmp_path], None, 50)
    assert [[row.label for row in group.rows] for group in groups] == [["good"], ["poor"]]
    assert left_out == []


def test_a_slot_that_repeats_the_attention_is_no_difference_beside_it() -> None:
    def config(name: str, cross: str) -> dict[str, Any]:
        return {
            "seed": 1,
            "paths": {},
            "attention": {"name": name},
            "cross_attention": {"name": cross},
            "self_attention": None,
            "model": {"self_attention": {"name": name}, "cross_attention": {"name": cross}},
        }

    alike = [rows_of_runs.settings(config(name, "multihead")) for name in ("sparse", "multihead")]
    assert rows_of_runs.differing(alike) == ["attention.name"]
    apart = [rows_of_runs.settings(config("sparse", cross)) for cross in ("sparse", "multihead")]
    assert rows_of_runs.differing(apart) == ["cross_attention.name"]


def test_an_attention_of_the_encoder_alone_is_one_difference() -> None:
    def config(name: str, of_encoder: str | None) -> dict[str, Any]:
        alone = None if of_encoder is None else {"name": of_encoder}
        encoder, decoder = alone or {"name": name}, {"name": name}
        sides = {"encoder": {"self_attention": encoder}, "decoder": {"self_attention": decoder}}
        return {"seed": 1, "paths": {}, "attention": {"name": name}, "encoder_attention": alone, "model": sides}

    apart = [rows_of_runs.settings(config("sparse", encoder)) for encoder in ("local", "sparse")]
    assert rows_of_runs.differing(apart) == ["encoder_attention.name"]
    apart = [rows_of_runs.settings(config(name, "local")) for name in ("sparse", "local")]
    assert rows_of_runs.differing(apart) == ["attention.name"]


def test_of_runs_with_one_seed_the_last_counts_and_the_other_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "9", "sparse", spoilt(4))
    write_run(tmp_path / "runs" / "10", "sparse", spoilt(5))
    (group,), left_out = script.compare([tmp_path / "runs"], None, 50)
    assert [run.name for run in group.rows[0].runs] == ["runs/10"]
    assert left_out == [("runs/9", "has the configuration and seed of runs/10, which comes after it")]


def test_another_model_or_test_set_is_another_group(tmp_path: Path) -> None:
    others = [*REFERENCES[1:], "Oui."]
    write_run(tmp_path / "0", "sparse", spoilt(4))
    write_run(tmp_path / "1", "sparse", spoilt(4), model="rnn")
    write_run(tmp_path / "2", "sparse", spoilt(3), references=others)
    write_run(tmp_path / "3", "local", spoilt(3))
    groups, left_out = script.compare([tmp_path], None, 50)
    assert [(group.title, [row.label for row in group.rows]) for group in groups] == [
        ("transformer on demo, test set 1", ["sparse", "local"]),
        ("rnn on demo", ["sparse"]),
        ("transformer on demo, test set 2", ["sparse"]),
    ]
    assert left_out == []
    (first, *rest), _ = script.compare([tmp_path], "local", 50)
    assert first.baseline == "local"
    assert any("No run here has attention=local: the baseline is" in note for note in rest[0].notes)


def test_a_metric_with_other_options_is_another_group(tmp_path: Path) -> None:
    bleu, chrf = METRIC["bleu"], {"_target_": "seq2seq_attn.metric.chrf.CHRF", "char_order": 6, "beta": 2}
    metrics = [
        {"bleu": bleu},
        {"bleu": bleu | {"lowercase": True}},
        {"bleu": bleu | {"tokenize": "auto", "language": "fr"}},
        *({"f": chrf | {"word_order": order, "lowercase": False}} for order in (0, 2)),
    ]
    for number, metric in enumerate(metrics):
        write_run(tmp_path / str(number), f"a{number}", spoilt(4), options={"metric": metric}, **{"test/f": 50.0})
    groups, left_out = script.compare([tmp_path], None, 50)
    assert left_out == []
    assert [(group.title, [row.label for row in group.rows]) for group in groups] == [
        ("transformer on demo, by BLEU (case:mixed)", ["a0", "a2"]),
        ("transformer on demo, by BLEU (case:lc)", ["a1"]),
        ("transformer on demo, by f (nw:0)", ["a3"]),
        ("transformer on demo, by f (nw:2)", ["a4"]),
    ]


def test_rows_that_no_other_beats_at_both_are_the_front(tmp_path: Path) -> None:
    speeds = {"slow": (9, 100.0), "quick": (2, 900.0), "middle": (4, 500.0), "beaten": (3, 400.0)}
    for name, (every, speed) in speeds.items():
        write_run(tmp_path / name, name, spoilt(every), tokens_per_second=speed)
    group = only_group(tmp_path)
    front = [row.label for row in figures_of_group.efficient(group, group.rows, "tokens_per_second", lower=False)]
    assert front == ["slow", "middle", "quick"]
    least = [row.label for row in figures_of_group.efficient(group, group.rows, "tokens_per_second", lower=True)]
    assert least == ["slow"]
    assert figures_of_group.verdict(group)[-1].endswith(": slow, middle and quick.")


def test_the_verdict_tells_better_from_worse_and_from_neither_once_there_are_three_seeds(tmp_path: Path) -> None:
    for name, hypotheses in {"good": REFERENCES, "base": spoilt(3), "near": spoilt(3, 1), "bad": spoilt(1)}.items():
        for seed in (1, 2, 3):
            write_run(tmp_path / name / str(seed), name, hypotheses, seed=seed)
    first, second, _ = figures_of_group.verdict(only_group(tmp_path, baseline="base"))
    assert first == f"Highest BLEU: good, 100.0, {100 - bleu_of(spoilt(3, 1)):.1f} above near."
    assert second == "Against base: better: good; no significant difference: near; worse: the other 1."
    good = figures_of_group.verdict(only_group(tmp_path / "good", tmp_path / "bad", baseline="good"))[1]
    assert good == "good is better than bad beyond the chance of the sentences."
    shutil.rmtree(tmp_path / "bad" / "3")
    second = figures_of_group.verdict(only_group(tmp_path, baseline="base"))[1]
    assert second == (
        "Against base, with these seeds: higher: good; no significant difference: near; lower: the other 1."
    )
    good = figures_of_group.verdict(only_group(tmp_path / "good", tmp_path / "bad", baseline="good"))[1]
    assert good == "good scores higher than bad beyond the chance of the sentences, with these seeds."


def test_a_row_with_a_seed_on_the_other_side_of_the_baseline_is_not_called_better(tmp_path: Path) -> None:
    below = [spoilt(1)[1] if row == 1 else text for row, text in enumerate(spoilt(3))]
    rows = {"base": [spoilt(3)] * 3, "uneven": [REFERENCES, REFERENCES, below], "even": [REFERENCES] * 3}
    for name, of_seeds in rows.items():
        for seed, hypotheses in enumerate(of_seeds):
            write_run(tmp_path / name / str(seed), name, hypotheses, seed=seed)
    found = only_group(tmp_path, baseline="base")
    assert found.differences["uneven"].significant
    second = figures_of_group.verdict(found)[1]
    assert second == "Against base: better: even; different, but seeds overlap: uneven."
    without = figures_of_group.verdict(only_group(tmp_path / "base", tmp_path / "uneven", baseline="base"))[1]
    assert without == "Against base: different, but seeds overlap: uneven."


def test_a_run_that_diverged_stands_last(tmp_path: Path) -> None:
    write_run(tmp_path / "0", "diverged", spoilt(4), **{"test/bleu": float("nan"), "test/ppl": float("nan")})
    write_run(tmp_path / "1", "poor", spoilt(1))
    write_run(tmp_path / "2", "fair", spoilt(2), **{"test/ppl": 1.25})
    group = only_group(tmp_path)
    assert [row.label for row in group.rows] == ["fair", "poor", "diverged"]
    assert "| **1.25** |" in script.markdown_page([group], [], "page.html")
    assert page.html_page([group], [], 0).count('class="best"') == 2  # BLEU and perplexity; all else is equal


def test_attentions_that_have_learned_nothing_have_a_page_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_log(write_run(tmp_path / name, name, ["Non !"] * len(REFERENCES)), [(9, 0.0)])
    group = only_group(tmp_path)
    assert figures_of_group.verdict(group)[0] == "Highest BLEU: a, 0.0, as b has."
    assert 'class="best"' not in page.html_page([group], [], 0)


def test_rows_named_by_folder_are_runs_that_differ_in_anything(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "plain" / str(seed), "same", spoilt(4), seed=seed, options={"r_drop_alpha": 0.0})
        write_run(tmp_path / "r_drop" / str(seed), "same", spoilt(7), seed=seed, options={"r_drop_alpha": 5.0})
    found = only_group(tmp_path / "plain", tmp_path / "r_drop", baseline="plain", by="folder")
    assert [(row.label, [run.seed for run in row.runs]) for row in found.rows] == [
        ("r_drop", [1, 2]),
        ("plain", [1, 2]),
    ]
    assert list(found.differences) == ["r_drop"]
    assert "Rows differ in r_drop_alpha (0.0 in 1, 5.0 in 1)." in found.notes
    assert figures_of_group.head_of(found)[0] == "folder"
    assert page.markdown_page([found], [], "page.html").startswith("# Runs compared\n")


def test_options_that_only_look_like_the_seed_or_change_no_figure_split_no_row(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        data = {"seed": 1, "num_processes": seed, "corpus": {"seed": 2, "verify": seed == 1, "copy_to": str(seed)}}
        write_run(tmp_path / str(seed), "same", spoilt(4), seed=seed, options={"data": data})
    (row,) = only_group(tmp_path).rows
    assert [run.seed for run in row.runs] == [1, 2, 3]
    assert [row.label for row in only_group(tmp_path, by="folder").rows] == [tmp_path.name]


@pytest.mark.parametrize(
    ("callback", "option"),
    [
        ("best_checkpoints", "save_top_k"),
        ("history", "save_top_k"),
        ("memory_probe", "on_cpu"),
        ("throughput", "_target_"),
        ("translation_table", "num_sentences"),
        ("validation_line", "_target_"),
    ],
)
def test_callbacks_that_change_no_figure_split_no_row(callback: str, option: str, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / str(seed), "same", spoilt(4), seed=seed, options={"callback": {callback: {option: seed}}})
    (row,) = only_group(tmp_path).rows
    assert (row.label, len(row.runs)) == ("same", 2)


def test_the_page_of_folders_names_no_folder_attention(tmp_path: Path) -> None:
    write_run(tmp_path / "plain" / "1", "same", spoilt(4))
    write_run(tmp_path / "other" / "1", "same", spoilt(7), options={"r_drop_alpha": 5.0})
    text = page.html_page([only_group(tmp_path / "plain", tmp_path / "other", by="folder")], [], 200)
    assert "Black: this folder, a line for each seed." in text
    assert "<button>attention</button>" not in text


def test_folders_with_folders_inside_give_each_run_to_the_innermost(tmp_path: Path) -> None:
    write_run(tmp_path / "all" / "0", "same", spoilt(4))
    write_run(tmp_path / "all" / "ema" / "0", "same", spoilt(7), options={"ema": 0.9})
    found = only_group(tmp_path / "all", tmp_path / "all" / "ema", by="folder")
    assert [row.label for row in found.rows] == ["all/ema", "all"]


def test_a_folder_of_runs_that_differ_in_more_than_their_seed_makes_no_row(tmp_path: Path) -> None:
    write_run(tmp_path / "mixed" / "0", "same", spoilt(4), options={"r_drop_alpha": 0.0})
    write_run(tmp_path / "mixed" / "1", "same", spoilt(4), options={"r_drop_alpha": 5.0}, seed=2)
    with pytest.raises(UserError, match=r"runs in mixed differ in r_drop_alpha; with --by folder give a folder"):
        only_group(tmp_path / "mixed", by="folder")
