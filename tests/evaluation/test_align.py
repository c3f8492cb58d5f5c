"""`seq2seq-attn align`: runs and files of links measured by gold standards."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF
from hydra import compose, initialize_config_dir
from small_checkpoint import small_tokenizer, write_checkpoint

from seq2seq_attn.alignment import attention_links, tatoeba_gold
from seq2seq_attn.alignment.gold import read_aligned_pairs, read_pharaoh
from seq2seq_attn.alignment.symmetrize import METHODS
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation import align as module
    from seq2seq_attn.evaluation.align import align

SOURCE, TARGET = "a black dog sleeps", "un chien noir dort !"
LINES = f"{SOURCE} ||| {TARGET}  0-0 2-1 1-2 3-3 3p4\nthe cat ||| le chat  0-0 1-1\n"
RIGHT = [{0: 0, 1: 2, 2: 1, 3: 3, 4: 3}, {0: 0, 1: 1}]


def run(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return align(compose("align", ["device=cpu", *overrides]))


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    (tmp_path / "pairs.txt").write_text(LINES, encoding="utf-8")
    return f"pairs={tmp_path / 'pairs.txt'}"


@pytest.fixture
def model(tmp_path: Path) -> str:
    sizes = [f"model.{part}.num_layers=2" for part in ("encoder", "decoder")]
    sentences = [SOURCE, TARGET, "the cat", "le chat"]
    write_checkpoint(
        tmp_path / "a.ckpt", "model=transformer", *sizes, "model.encoder.dim=12", "model.decoder.dim=12",
        "model.embedding_dim=12", "attention.num_heads=2", "cross_attention.num_heads=2", sentences=sentences,
    )  # fmt: skip
    return f"ckpt_path={tmp_path / 'a.ckpt'}"


def test_every_head_and_mean_has_a_row_and_the_best_is_marked(
    model: str, pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(model, pairs, f"results={tmp_path / 'r.json'}", f"output={tmp_path / 'links'}", "alignment_sink=false")
    layers = [f"layer {layer}, {head}" for layer in (0, 1) for head in ("head 0", "head 1", "mean of all heads")]
    assert list(found) == [*layers, "mean of all heads", "diagonal"]
    assert found["diagonal"] == (
        7,
        pytest.approx(100 * 4 / 7),
        50.0,
        pytest.approx(100 * 6 / 13),
    )  # 0-0 1-1 2-2 2-3 3-4; 0-0 1-1
    best = min(list(found)[:-1], key=lambda name: found[name].error_rate)
    out = capsys.readouterr().out
    assert f"{best} * " in out
    assert "2 pairs, 6 sure links and 1 more that are possible; * has the fewest errors" in out
    results = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert results["best"] == {"forward": best}
    assert results["alignment"][best]["error_rate"] == found[best].error_rate
    links = read_pharaoh(tmp_path / "links", read_aligned_pairs([tmp_path / "pairs.txt"]))
    assert [len(of_pair) for of_pair in links] == [5, 2]
    (tmp_path / "again").write_bytes((tmp_path / "links").read_bytes())
    assert run(f"links={tmp_path / 'again'}", pairs)["links"] == found[best]


@pytest.mark.parametrize(("guided", "number"), [({"forward": "layer 0, head 0"}, 2), ({}, 1)])
def test_pairs_without_gold_links_are_linked_and_not_judged(
    guided: dict[str, str],
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "plain.txt").write_text("the cat ||| le chat\n", encoding="utf-8")
    heads = {"layer 0, head 0": [[(0, 0), (1, 1)]], "layer 0, head 1": [[]], "mean of all heads": [[(1, 0)]]}
    monkeypatch.setattr(module, "attention_directions", lambda *_: ({"forward": heads}, guided))
    given = ["ckpt_path=run", f"pairs={tmp_path / 'plain.txt'}"]
    assert run(*given, f"output={tmp_path / 'links'}") == {}
    name = next(iter(guided.values()), "mean of all heads")
    out = capsys.readouterr().out
    assert out == f"1 pairs without gold links, so there are no figures; {number} links of {name}\n"
    assert (tmp_path / "links").read_text() == ("0-0 1-1\n" if guided else "1-0\n")
    for refused in ([], [f"output={tmp_path / 'links'}", f"results={tmp_path / 'r.json'}"]):
        with pytest.raises(UserError, match=r"plain.txt has no links; give gold=FILE.*, give output=FILE alone$"):
            run(*given, *refused)


def test_words_may_be_counted_from_1_and_the_target_be_first(pairs: str, tmp_path: Path) -> None:
    """One gold standard and one set of links, in each of the ways that files write them."""
    texts = {"source": [SOURCE, "the cat"], "target": [TARGET, "le chat"]}
    gold = [[(0, 0), (2, 1), (3, 2)], [(0, 0), (1, 1)]]
    links = [[(0, 0), (2, 1), (3, 3)], [(0, 1)]]

    def written(name: str, rows: list[Any]) -> Path:
        (tmp_path / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        return tmp_path / name

    def pharaoh(name: str, of_pairs: Any, turned: bool = False, start: int = 0) -> Path:
        rows = [[(b, a) if turned else (a, b) for a, b in of_pair] for of_pair in of_pairs]
        return written(name, [" ".join(f"{a + start}-{b + start}" for a, b in row) for row in rows])

    sides = [written(name, rows) for name, rows in texts.items()]
    plain = [f"pairs=[{sides[0]},{sides[1]}]", f"gold={pharaoh('gold', gold)}", f"links={pharaoh('links', links)}"]
    expected = run(*plain)["links"]
    assert 0 < expected.error_rate < 100
    assert run(*plain[::2], f"gold={pharaoh('gold1', gold, start=1)}", "gold_start=1")["links"] == expected
    turned = [f"gold={pharaoh('goldt', gold, True)}", f"links={pharaoh('linkst', links, True)}", "target_first=true"]
    assert run(plain[0], *turned, f"output={tmp_path / 'out'}")["links"] == expected
    assert (tmp_path / "out").read_bytes() == (tmp_path / "linkst").read_bytes()


def test_words_are_lowercased_on_request(pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pairs.txt").write_text("A Dog ||| Un Chien  0-0 1-1\n", encoding="utf-8")
    (tmp_path / "links").write_text("0-0\n", encoding="utf-8")
    seen = []
    monkeypatch.setattr(module, "link_files", lambda _, read: seen.append(read) or {"links": {"links": [[]]}})
    for given in ("false", "true"):
        run(f"links={tmp_path / 'links'}", pairs, f"lowercase={given}")
    assert [read[0].source + read[0].target for read in seen] == [
        ["A", "Dog", "Un", "Chien"],
        ["a", "dog", "un", "chien"],
    ]


def test_a_pair_may_fill_the_positions_of_its_model_but_not_exceed_them(pairs: str, tmp_path: Path) -> None:
    sentences = [SOURCE, TARGET, "the cat", "le chat"]
    tokenizer, model = small_tokenizer(sentences), tmp_path / "p.ckpt"
    words = tokenizer.encode_source(SOURCE.split()), tokenizer.encode_target(TARGET.split())
    needed = max(sum(map(len, side)) for side in words) + 1  # the end
    for positions in (needed, needed - 1):
        given = ["model=transformer", "position=learned", f"position.max_length={positions}"]
        given += [f"model.{part}.dim=16" for part in ("encoder", "decoder")]
        write_checkpoint(model, *given, "model.embedding_dim=16", sentences=sentences)
        if positions == needed:
            run(f"ckpt_path={model}", pairs)
        else:
            with pytest.raises(UserError, match=f"has {needed} tokens, and the model has positions for {positions};"):
                run(f"ckpt_path={model}", pairs)


def test_one_head_alone_is_measured_where_it_is_chosen(model: str, pairs: str) -> None:
    every = run(model, pairs, "alignment_shift=true")
    found = run(model, pairs, "alignment_layer=1", "alignment_head=0", "alignment_shift=true")
    assert found == {name: every[name] for name in ("layer 1, head 0", "diagonal")}
    with pytest.raises(UserError, match="alignment_head=2 does not exist; choose from 0 to 1"):
        run(model, pairs, "alignment_head=2")


def guide(checkpoint: Path, **options: Any) -> None:
    """Make a checkpoint one of a run with guided alignment."""
    content = torch.load(checkpoint)
    content["config"]["guided_alignment"] = {"links": "eflomal", "weight": 0.05, "layer": None, "head": 0} | options
    torch.save(content, checkpoint)


def test_the_guided_head_of_a_guided_run_is_marked_and_written(
    model: str, pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = run(model, pairs, "alignment_sink=false")
    layer, head = next((i, j) for i in (0, 1) for j in (0, 1) if every[f"layer {i}, head {j}"] != best_of(every))
    guide(tmp_path / "a.ckpt", layer=layer, head=head)
    capsys.readouterr()
    results, links = tmp_path / "r.json", tmp_path / "links"
    assert run(model, pairs, f"results={results}", f"output={links}", "alignment_sink=false") == every
    out = capsys.readouterr().out
    assert f"layer {layer}, head {head} * " in out
    assert "; * is the head that guided alignment taught\n" in out
    name = f"layer {layer}, head {head}"
    assert json.loads(results.read_text(encoding="utf-8"))["best"] == {"forward": name}
    assert run(f"links={links}", pairs)["links"] == every[name]
    other = ["alignment_layer=0", f"alignment_head={1 - head}"]
    assert list(run(model, pairs, *other)) == [f"layer 0, head {1 - head}", "diagonal"]
    assert "guided" not in capsys.readouterr().out.partition("layer 0")[2]
    checkpoint = torch.load(tmp_path / "a.ckpt")
    del checkpoint["config"]["guided_alignment"]
    checkpoint["config"]["data"] |= {"source_language": "fr", "target_language": "en"}
    torch.save(checkpoint, tmp_path / "b.ckpt")
    run(model, f"reverse={tmp_path / 'b.ckpt'}", pairs, f"results={results}")
    best = json.loads(results.read_text(encoding="utf-8"))["best"]
    assert best["forward"] == f"forward, {name}"
    assert best["reverse"].startswith("reverse, ")
    ends = "; * is the head that guided alignment taught or has the fewest errors of its direction on these pairs\n"
    assert ends in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_guided_where_a_word_is_read_is_measured_there(model: str, pairs: str, tmp_path: Path) -> None:
    written, read = (run(model, pairs, f"alignment_shift={shift}") for shift in ("false", "true"))
    assert run(model, pairs) == written != read
    guide(tmp_path / "a.ckpt", shift=True)
    assert run(model, pairs) == read
    assert run(model, pairs, "alignment_shift=false") == written


def best_of(judged: dict[str, Any]) -> Any:
    return min((found for name, found in judged.items() if name != "diagonal"), key=lambda found: found.error_rate)


def test_attention_on_the_right_words_is_without_error(model: str, pairs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights put by hand on the tokens of the right words, instead of the model's."""
    original = attention_links.attention_along_words

    def along(*arguments: Any) -> Any:
        maps = original(*arguments)
        right = RIGHT[len(maps.source) < 10]
        weights = np.zeros_like(maps.maps[-1].weights)
        weights[:, :-1, :-1] = np.array([right[word] for word in maps.target])[:, None] == maps.source
        return maps._replace(maps=[one._replace(weights=weights) for one in maps.maps if "cross" in one.slot])

    monkeypatch.setattr(attention_links, "attention_along_words", along)
    assert run(model, pairs)["mean of all heads"] == (7, 100.0, 100.0, 0.0)


@pytest.mark.slow
def test_two_directions_are_symmetrized(model: str, pairs: str, tmp_path: Path) -> None:
    turned = tmp_path / "b.ckpt"
    checkpoint = torch.load(tmp_path / "a.ckpt")
    checkpoint["config"]["data"] |= {"source_language": "fr", "target_language": "en"}
    torch.save(checkpoint, turned)
    heads = ["alignment_layer=0", "alignment_head=1"]
    found = run(model, pairs, f"reverse={turned}", *heads, f"output={tmp_path / 'o'}", "symmetrization=union")
    assert list(found) == ["forward, layer 0, head 1", "reverse, layer 0, head 1", *METHODS, "diagonal"]
    assert (tmp_path / "o").read_text("utf-8").count("-") == found["union"].links
    alone = run(f"ckpt_path={turned}", pairs, *heads, "target_first=true")
    assert alone["layer 0, head 1"] == found["reverse, layer 0, head 1"]
    with pytest.raises(
        UserError, match="reverse translates from en to fr, and the reverse of ckpt_path must translate from fr"
    ):
        run(model, pairs, f"reverse={tmp_path / 'a.ckpt'}")


def test_two_files_of_links_are_symmetrized(pairs: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("0-0 1-1 3-3\n0-0\n", encoding="utf-8")
    (tmp_path / "r").write_text("0-0 1-2 3-3\n1-1\n", encoding="utf-8")
    found = run(f"links=[{tmp_path / 'f'},{tmp_path / 'r'}]", pairs)
    assert found["intersection"] == (2, 100.0, pytest.approx(100 / 3), 50.0)
    assert found["union"].links == 6


def test_words_unknown_to_a_word_tokenizer_are_words(pairs: str, tmp_path: Path) -> None:
    tokenizer = SentencePieceTokenizer("word", 9, joint=True, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train(["the dog", "the cat"], ["le chien", "the dog"])
    write_checkpoint(tmp_path / "w.ckpt")
    checkpoint = torch.load(tmp_path / "w.ckpt")
    checkpoint["tokenizer"] = tokenizer.get_state()
    size = tokenizer.target_vocab_size
    checkpoint["config"]["model"] |= {"source_vocab_size": size, "target_vocab_size": size}
    for name, weight in checkpoint["state_dict"].items():
        if name.startswith(("model.embed", "model.output")):
            checkpoint["state_dict"][name] = weight[:size].clone()
    torch.save(checkpoint, tmp_path / "w.ckpt")
    found = run(f"ckpt_path={tmp_path / 'w.ckpt'}", pairs, "alignment_sink=false")
    assert found["layer 0, head 0"].links == 7


def test_the_pairs_of_tatoeba_need_a_model_from_english(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, gold = tmp_path / "fra.txt", tmp_path / "gold.tsv"
    corpus.write_text(f"{SOURCE}\t{TARGET}\tby us\n", encoding="utf-8")
    gold.write_text(f"{tatoeba_gold.fingerprint(SOURCE, TARGET)}\t0-0 2-1 1-2 3-3\t3-4\n", encoding="utf-8")
    monkeypatch.setattr(tatoeba_gold, "GOLD", gold)
    assert run(model, f"tatoeba={corpus}")["diagonal"].links == 5
    (pair,) = tatoeba_gold.tatoeba_pairs(corpus)
    monkeypatch.setattr("seq2seq_attn.evaluation.align.tatoeba_pairs", lambda _: [pair._replace(source=["A"] * 4)])
    monkeypatch.setattr("seq2seq_attn.evaluation.align.word_maps", lambda _, __, texts, ___: pytest.fail(str(texts)))
    with pytest.raises(pytest.fail.Exception, match=r"\['a', 'a', 'a', 'a'\]"):
        run(model, f"tatoeba={corpus}", "lowercase=true")
    monkeypatch.setattr("seq2seq_attn.evaluation.align.tatoeba_pairs", tatoeba_gold.tatoeba_pairs)
    checkpoint = torch.load(tmp_path / "a.ckpt")
    checkpoint["config"]["data"] |= {"source_language": "fr", "target_language": "en"}
    torch.save(checkpoint, tmp_path / "b.ckpt")
    with pytest.raises(
        UserError, match="ckpt_path translates from fr to en, and a run for the pairs of Tatoeba must translate from en"
    ):
        run(f"ckpt_path={tmp_path / 'b.ckpt'}", f"tatoeba={corpus}")


@pytest.mark.parametrize("name", ["pairs.txt", "gold", "links", "runs/a.ckpt"])
@pytest.mark.parametrize("output", ["output", "results"])
def test_no_input_is_overwritten(name: str, output: str, pairs: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for file in ("gold", "links", "runs/a.ckpt"):
        (tmp_path / file).write_text("0-0\n0-0\n", encoding="utf-8")
    chosen = f"links={tmp_path / 'links'}" if name == "links" else f"ckpt_path={tmp_path / 'runs'}"
    (tmp_path / "link.json").symlink_to(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(UserError, match=f"and {output} are one file"):
        run(chosen, pairs, f"gold={tmp_path / 'gold'}", f"{output}={tmp_path / 'link.json'}")
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
    ("option", "name", "content", "what"),
    [
        ("results", "results.json", '{"test/bleu": 30.0}', "figures of this command"),
        ("output", "translations.tsv", "a cat\tun chat\tun chat\n", "links"),
        ("output", "gold", "0-0 1p1\n", "links"),
    ],
)
def test_a_file_with_other_content_is_not_overwritten(
    option: str, name: str, content: str, what: str, pairs: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    (tmp_path / "given").write_text("0-0\n0-0\n", encoding="utf-8")
    file.write_text(content, encoding="utf-8")
    typed = [f"links={tmp_path / 'given'}", pairs, f"{option}={file}"]
    with pytest.raises(UserError, match=rf"^{option}={file} exists and does not hold {what}; give another file"):
        run(*typed)
    assert file.read_text(encoding="utf-8") == content
    file.write_text("")
    for _ in range(2):  # what it has written itself may be written again
        run(*typed)
    assert file.read_text(encoding="utf-8") not in ("", content)


def test_a_file_of_an_option_that_has_no_lines_is_named_by_its_option(pairs: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for option in ("links", "gold"):
        for path, why in (("none", "does not exist"), ("", "is a folder"), ("empty", "is empty")):
            others = ["links=x"] if option == "gold" else []
            with pytest.raises(UserError, match=f"^{option}={tmp_path / path} {why}"):
                run(pairs, *others, f"{option}={tmp_path / path}")
    (tmp_path / "far").write_text("0-0\n0-5\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"far, line 2: there is no link 0-5 between 2 and 2 words counted from 0"):
        run(pairs, f"links={tmp_path / 'far'}")
    with pytest.raises(UserError, match=r"^pairs names 3 files; give pairs=FILE or pairs=\[SOURCE,TARGET\]$"):
        run(f"pairs=[{','.join([pairs.partition('=')[2]] * 3)}]", "links=x")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["links=a"], "needs pairs= or tatoeba=, and was given neither"),
        (["pairs=a"], "needs ckpt_path= or links=, and was given neither"),
        (["pairs=a", "links=a", "ckpt_path=b"], "needs ckpt_path= or links=, and was given both"),
        (["pairs=a", "links=a", "reverse=b"], r"reverse=RUN goes with ckpt_path=RUN"),
        (
            ["pairs=a", "links=a", "symmetrization=gdfa"],
            "symmetrization=gdfa does not exist; choose from: intersection",
        ),
        (
            ["pairs=a", "links=a", "symmetrization=union"],
            r"^symmetrization=union joins two directions; give reverse=RUN or links=\[FORWARD,REVERSE\], or leave it ",
        ),
        (["pairs=a", "ckpt_path=a", "symmetrization=union"], "^symmetrization=union joins two directions"),
        (["pairs=not/there", "links=a"], "pairs=not/there does not exist; give the path of a file"),
        (["pairs=[a,b,c]", "links=a"], "a does not exist"),
        (["tatoeba=a", "ckpt_path=b", "gold=c", "target_first=true"], r"leave out gold, target_first$"),
        (["tatoeba=a", "ckpt_path=b", "gold_start=1"], r"leave out gold_start$"),
        (["pairs=a", "links=b", "results=r.txt"], r"^results=r.txt is not a .json file; give results=FILE.json$"),
        (["pairs=a", "links=b", "results=r.json", "output=r.json"], r"^output and results are one file, r.json; give"),
        (["pairs=a", "links=b", "output=no/folder/x"], r"^output=no/folder/x cannot be written"),
        *(
            (["pairs=a", "links=b", f"{name}={value}"], f"^links=FILE gives links.*; leave out {name}$")
            for name, value in (
                ("alignment_layer", "0"),
                ("alignment_head", "1"),
                ("alignment_threshold", "0.2"),
                ("alignment_shift", "false"),
                ("alignment_sink", "false"),
            )
        ),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(*overrides)
