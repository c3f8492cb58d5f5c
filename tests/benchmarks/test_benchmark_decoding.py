"""A benchmark compares what is alike: the plain loop says what our search says, and the page says what was measured."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from configs import ROOT
from small_transformer import collated, decoded, search_of, sentences, small_transformer
from tiny import SENTENCES, write_checkpoint

from scripts.benchmarks import decode_plainly as plainly
from scripts.benchmarks import decode_with_joeynmt as joeynmt
from scripts.benchmarks import decoding as benchmark
from scripts.benchmarks import draw_decoding as drawing
from seq2seq_attn.checkpoint.load import Loaded
from seq2seq_attn.errors import UserError
from seq2seq_attn.search.search import TargetVocabulary


@pytest.fixture
def loaded(taught_transformer: Loaded) -> Loaded:
    return taught_transformer


@pytest.mark.parametrize(("most", "alpha"), [(3, 0.6), (23, 0.0), (23, 2.5)])
def test_the_plain_loop_says_what_our_search_says(loaded: Loaded, most: int, alpha: float) -> None:
    lengths = {"max_length": most, "max_relative_length": 0.0, "max_extra_length": most}
    beam = ("search=beam", "search.beam_size=5", f"search.length_penalty.alpha={alpha}", "search.patience=1.0")
    limits = [f"search.limits.{name}={value}" for name, value in lengths.items()]
    source, mask = collated(loaded, sentences())
    loop = plainly.PlainTransformer(loaded.model, TargetVocabulary.of(loaded.tokenizer))
    for found, overrides in (
        (loop.greedy(source, mask, most), ("search=greedy",)),
        (loop.beam(source, mask, most, 5, alpha), beam),
    ):
        expected = [best.token_ids for best, *_ in decoded(loaded, search_of(*overrides, *limits), sentences())]
        assert found == expected
        assert len({tuple(tokens) for tokens in found}) > 3


def test_a_forced_length_is_met_by_every_sentence(loaded: Loaded) -> None:
    source, mask = collated(loaded, sentences())
    loop = plainly.PlainTransformer(loaded.model, TargetVocabulary.of(loaded.tokenizer))
    ours = benchmark.search_of("greedy", 17, 17)(loaded.model, source, mask, TargetVocabulary.of(loaded.tokenizer))
    assert loop.greedy(source, mask, 17, 17) == [best.token_ids for best, *_ in ours]
    assert {len(best.token_ids) for best, *_ in ours} == {17}


def test_the_plain_loop_refuses_what_it_does_not_compute() -> None:
    for override in ("model.decoder.norm=post", "position=rotary", "position.join=concat"):
        model, tokenizer, _ = small_transformer(override)
        with pytest.raises(UserError, match="supports only model=transformer with norm=pre"):
            plainly.PlainTransformer(model, TargetVocabulary.of(tokenizer))


def test_layers_that_fill_up_change_no_score() -> None:
    loaded = small_transformer()
    source, mask = collated(loaded, sentences())
    target = torch.randint(4, 9, (len(source), 5))
    before = loaded.model(source, mask, target).hidden
    assert benchmark.fill_up(loaded.model, 5) == 3
    assert [len(side.layers) for side in (loaded.model.encoder, loaded.model.decoder)] == [5, 5]
    torch.testing.assert_close(loaded.model(source, mask, target).hidden, before, rtol=0, atol=0)


def test_batches_are_cut_from_sorted_sentences_and_put_back_in_order(loaded: Loaded) -> None:
    seen = []

    def reversed_tokens(source: torch.Tensor, mask: torch.Tensor, kind: str) -> list[list[int]]:
        seen.append(mask.sum(1).tolist())
        return [row[: int(n) - 1][::-1] for row, n in zip(source.tolist(), mask.sum(1), strict=True)]

    sources = [[5, 6, 7], [8], [9, 10], [4, 5, 6, 7]]
    found = benchmark.in_batches(loaded.tokenizer, 3, reversed_tokens)(sources, "greedy")
    assert found == [[7, 6, 5], [8], [10, 9], [7, 6, 5, 4]]
    assert seen == [[2, 3, 4], [5]]


def test_joeynmt_gets_every_weight_once_and_its_specials_in_its_order(tmp_path: Path) -> None:
    model, tokenizer, _ = small_transformer()
    table = torch.randn(joeynmt.POSITIONS, 24)
    joeynmt.write_model(model, tokenizer, table, tmp_path, most=7, batch=3)
    checkpoint = torch.load(tmp_path / "best.ckpt")
    weights = checkpoint["model_state"]
    zeros = [name for name, weight in weights.items() if not weight.any()]
    assert all(name.endswith("_layer.bias") for name in zeros)
    written = sum(w.numel() for name, w in weights.items() if name not in zeros and not name.endswith("pe.pe"))
    untied = model.output.weight.numel()
    assert written + checkpoint["output_bias"].numel() == sum(p.numel() for p in model.parameters()) + untied
    words = (tmp_path / "target.vocabulary").read_text(encoding="utf-8").splitlines()
    assert words[:5] == ["<unk>", "<pad>", "<s>", "</s>", tokenizer.target_tokens([4])[0]]
    for i, word in enumerate(words):
        ours = tokenizer.target_model.piece_to_id(word)
        torch.testing.assert_close(weights["trg_embed.lut.weight"][i], model.embed_target.weight[ours])
        torch.testing.assert_close(checkpoint["output_bias"][i], model.output.bias[ours])


@pytest.mark.slow
def test_programs_in_processes_of_their_own_translate_alike(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path / "run.ckpt", "model=transformer", scale=1.5)
    for language in ("en", "fr"):
        with gzip.open(tmp_path / f"test_2016_flickr.{language}.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{sentence}\n" for sentence in SENTENCES[:9])
    sizes = ["--batch", "4", "--turns", "1", "--lengths", "3", "--most", "9", "--threads", "2"]
    options = ["--data", str(tmp_path), "--output", str(tmp_path), "--peers", "processes", "plain", *sizes]
    benchmark.main([str(run), *options])
    results = json.loads((tmp_path / "decoding_cpu.json").read_text())
    for search in ("greedy", "beam"):
        assert {name: found["same"] for name, found in results["searches"][search].items()} == {
            "ours": 1.0, "processes": 1.0, "plain": 1.0
        }  # fmt: skip
    assert list(results["seconds_per_step"]) == ["ours", "plain"]


def test_the_page_says_the_median_ratio_of_the_turns_and_that_of_the_fastest(tmp_path: Path) -> None:
    ways = {
        "ours": {"seconds": [2.0, 4.0, 4.0], "bleu": 31.0, "same": 1.0},
        "plain": {"seconds": [9.0, 3.0, 5.0], "bleu": 30.0, "same": 0.985},
        "ctranslate2": {"seconds": [1.0, 3.0], "bleu": 31.5, "same": 0.5},
    }
    results = {
        "commit": "abcdef0123456789",
        "searches": {"greedy": ways, "beam": {"ours": ways["ours"]}},
        "seconds_per_step": {"ours": {"25": 0.004, "400": 0.006}, "plain": {"25": 0.005, "50": 0.004, "400": 0.01}},
        "model": {"layers": "4+4", "filled": 1, "dim": 128, "ff_dim": 256, "heads": 2, "tokens": 8000},
        "beam": {"size": 5, "alpha": 0.6},
        "steps": 64,
        "options": {"sentences": 1000, "most": 54, "batch": 64, "threads": 2, "turns": 2},
        "machine": {"processor": "one", "python": "3.11", "torch": "2.13.0"},
    }
    (tmp_path / "decoding.json").write_text(json.dumps(results))
    page = drawing.draw(tmp_path / "decoding.json").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows[1:4] == [
        "| CTranslate2, float32 | 2 | 0.62 | 0.50 | 500 | 1,000 | 50.0% | 31.50 |",
        "| ours | 3 | 1.00 | 1.00 | 250 | 500 | 100.0% | 31.00 |",
        "| plain cached loop | 3 | 1.25 | 1.50 | 200 | 333 | 98.5% | 30.00 |",
    ]
    assert "| ours | 4.00 ms | 6.00 ms | 1.50 |" in rows
    assert "| plain cached loop | 5.00 ms | 4.00 ms | 10.00 ms | 2.50 |" in rows  # over the least, not the first
    assert "the fastest of 2 turns" in page
    assert "; commit `abcdef01`." in page
    assert "RUN --layers 4 --batch 64 --turns 2 --lengths 25 400 --peers plain ctranslate2`" in page
    assert "for their cost: 1 on each side" in page
    assert "](decoding.png)" in page
    assert (tmp_path / "decoding.png").stat().st_size > 1000


def test_the_committed_page_is_that_of_its_figures(tmp_path: Path) -> None:
    page = ROOT / "docs/benchmarks/decoding_cpu.md"
    shutil.copy(page.with_suffix(".json"), tmp_path)
    drawn = drawing.draw(tmp_path / "decoding_cpu.json").read_text(encoding="utf-8")
    assert drawn == page.read_text(encoding="utf-8")
    assert "| JoeyNMT 2.3 | 1 |" in drawn
    assert "--joeynmt-turns 1`" in drawn
