"""Gold standards in every form, and the alignment error rate on worked numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from seq2seq_attn.alignment import tatoeba_gold
from seq2seq_attn.alignment.gold import (
    AlignedPair,
    agreement,
    agreement_table,
    diagonal,
    read_aligned_pairs,
    read_pharaoh,
)
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError

SOURCE, TARGET = "A black dog sleeps", "Un chien noir dort !"
SURE, POSSIBLE = frozenset({(0, 0), (2, 1), (1, 2), (3, 3)}), frozenset({(3, 4)})
PAIR = AlignedPair(SOURCE.split(), TARGET.split(), SURE, SURE | POSSIBLE)
GO = AlignedPair(["Go"], ["Va"], frozenset({(0, 0)}), frozenset({(0, 0)}))


def test_the_error_rate_is_that_of_och_and_ney() -> None:
    """Of five links two are sure and three possible; of four sure ones two are found: 1 - (2 + 3) / (5 + 4)."""
    found = [(0, 0), (1, 1), (1, 2), (2, 3), (3, 4)]
    assert agreement([found], [PAIR]) == (5, 60.0, 50.0, pytest.approx(100 * 4 / 9))


def test_all_sure_links_and_any_possible_ones_are_without_error() -> None:
    assert agreement([SURE], [PAIR]) == (4, 100.0, 100.0, 0.0)
    assert agreement([SURE | POSSIBLE], [PAIR]) == (5, 100.0, 100.0, 0.0)


def test_links_of_all_sentences_are_counted_together() -> None:
    """A pair of one link, right, beside one of four of which none is found: 1 - (1 + 1) / (1 + 5)."""
    assert agreement([[], [(0, 0)]], [PAIR, GO]) == (1, 100.0, 20.0, pytest.approx(100 * 2 / 3))


def test_a_table_marks_the_best() -> None:
    judged = {name: agreement([links], [PAIR]) for name, links in (("a", SURE), ("b", POSSIBLE))}
    assert list(agreement_table(judged, {"a"}).columns[0].cells) == ["a *", "b"]


def test_the_diagonal_goes_from_first_to_last_word() -> None:
    assert diagonal(["w"] * 3, ["w"] * 7) == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    assert diagonal(["w"] * 7, ["w"] * 3) == [(0, 0), (3, 1), (6, 2)]
    assert diagonal(["w"] * 3, ["w"]) == [(0, 0)]
    assert diagonal([], ["w"]) == []


def written(folder: Path, **files: str) -> dict[str, Path]:
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return {name: folder / name for name in files}


def test_links_end_the_lines_of_pairs_or_are_in_a_file_and_count_from_0_or_1(tmp_path: Path) -> None:
    lines = [f"{SOURCE}   ||| {TARGET}", "Go ||| Va"]
    of_wpt = ["4p5 1-1 3-2 2-3 4-4", "1-1"]
    of_pharaoh = ["0-0 2-1 1-2 3-3 3?4", "0-0"]
    files = written(
        tmp_path,
        whole="".join(f"{line}  {links}\n" for line, links in zip(lines, of_wpt, strict=True)),
        tabs=f"{SOURCE}\t{TARGET}\t{of_pharaoh[0]}\nGo\tVa\t0-0\n",
        pairs="\n".join(lines),
        columns=f"{SOURCE}\t{TARGET}\tby us\nGo\tVa\tby us\n",
        source=f"{SOURCE}\nGo\n",
        target=f"{TARGET}\nVa\n",
        gold="\n".join(of_pharaoh),
        wpt="\n".join(of_wpt),
    )
    assert read_aligned_pairs([files["whole"]], start=1) == [PAIR, GO]
    assert read_aligned_pairs([files["tabs"]]) == [PAIR, GO]
    assert read_aligned_pairs([files["pairs"]], files["gold"]) == [PAIR, GO]
    assert read_aligned_pairs([files["pairs"]], files["wpt"], start=1) == [PAIR, GO]
    assert read_aligned_pairs([files["columns"]], files["gold"]) == [PAIR, GO]
    assert read_aligned_pairs([files["source"], files["target"]], files["gold"]) == [PAIR, GO]
    turned = read_aligned_pairs([files["whole"]], start=1, target_first=True, lowercase=True)
    assert turned[0].source == TARGET.lower().split()
    assert turned[0].sure == {link[::-1] for link in SURE}
    assert read_aligned_pairs([files["source"], files["target"]], files["gold"], lowercase=True)[0].source[0] == "a"


def test_words_that_look_like_links_are_words_where_the_links_are_in_a_file(tmp_path: Path) -> None:
    files = written(tmp_path, pairs="it was two to one ||| es stand 2-1\nGo ||| Va\n", gold="0-0\n\n")
    assert read_aligned_pairs([files["pairs"]], files["gold"])[0].target == ["es", "stand", "2-1"]


def test_links_of_a_line_may_have_tabs_between_them(tmp_path: Path) -> None:
    (file,) = written(tmp_path, pairs="a cat ||| un chat  0-0\t1-1\nGo\tVa\t0-0\t0-0\n").values()
    assert [pair.sure for pair in read_aligned_pairs([file])] == [{(0, 0), (1, 1)}, {(0, 0)}]


def test_a_line_may_have_no_links_and_words_may_be_numbers(tmp_path: Path) -> None:
    (file,) = written(
        tmp_path, gold="on 10-11 ||| le 10-11\nGo ||| Va  0-0\n\t\nso 1-0 ||| a 1-0\nGo ||| le 10-11\n"
    ).values()
    date, go, empty, goals, other = read_aligned_pairs([file])
    assert (goals.target, other.target) == (["a", "1-0"], ["le", "10-11"])
    assert (date.target, date.possible, go.possible) == (["le", "10-11"], frozenset(), {(0, 0)})
    assert (empty.source, empty.target) == ([], [])


@pytest.mark.parametrize(
    ("pairs", "gold", "message"),
    [
        ("Go ||| Va\n", "\n", r"gold has no links; give gold=FILE"),
        ("Go ||| Va\n", None, r"pairs has no links; give gold=FILE"),
        ("Go ||| Va\nGo Va\n", None, r"pairs, line 2 is no pair; write `source \|\|\| target`"),
        ("Go ||| Va ||| a\n", None, r"pairs, line 1 is no pair"),
        ("Go ||| Va\n", "0-0\n0-0\n", r"gold has 2 lines and there are 1 pairs"),
        ("Go ||| Va  0-0\n", "0-0\n", r"pairs, line 1: the words '0-0' look like links; put two blanks"),
        ("Go ||| Va 0-0\n", None, r"pairs, line 1: the words '0-0' look like links; put two blanks"),
        ("Go ||| Va\n", "0-" + "1" * 5_000 + "\n", r"gold, line 1: '0-1{38}' is no link; write 0-0 for a sure link"),
        ("Go ||| Va\n", "0-0 0:0\n", r"gold, line 1: '0:0' is no link; write 0-0 for a sure link"),
        ("Go ||| Va\n", "1-1\n", r"no link 1-1 between 1 and 1 words counted from 0; set gold_start to 1, or correct"),
        ("Go ||| Va\nGo ||| Va\n", "0-0\n9-0\n", r"gold, line 2: there is no link 9-0 .* counted from 0; correct the"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_the_line(
    pairs: str, gold: str | None, message: str, tmp_path: Path
) -> None:
    files = written(tmp_path, pairs=pairs, **({} if gold is None else {"gold": gold}))
    with pytest.raises(UserError, match=message):
        read_aligned_pairs([files["pairs"]], files.get("gold"))


def test_pharaoh_files_are_read_line_by_line(tmp_path: Path) -> None:
    files = written(tmp_path, links="0-0 2-1\n\n", wrong="0-0\n0p0\n", one="1-1\n1-1\n", five="0-0 3-4\n\n")
    assert read_pharaoh(files["links"], [PAIR, GO]) == [[(0, 0), (2, 1)], []]
    assert read_pharaoh(files["links"], [PAIR, GO], target_first=True) == [[(0, 0), (1, 2)], []]
    with pytest.raises(UserError, match=r"wrong, line 2: not links in Pharaoh form"):
        read_pharaoh(files["wrong"], [PAIR, GO])
    outside = r"one, line 2: there is no link 1-1 between 1 and 1 words counted from 0; count words from 0, or correct"
    with pytest.raises(UserError, match=outside):
        read_pharaoh(files["one"], [PAIR, GO])
    assert read_pharaoh(files["five"], [PAIR, GO])[0] == [(0, 0), (3, 4)]
    with pytest.raises(UserError, match=r"five, line 1: there is no link 3-4 between 5 and 4 words"):
        read_pharaoh(files["five"], [PAIR, GO], target_first=True)
    with pytest.raises(UserError, match=r"has 2 lines and there are 3 pairs"):
        read_pharaoh(files["links"], [PAIR, GO, GO])


def test_pairs_of_tatoeba_are_found_by_the_hash_of_their_cleaned_text(tmp_path: Path) -> None:
    digest = tatoeba_gold.fingerprint(SOURCE, TARGET)
    files = written(
        tmp_path,
        corpus=f"{SOURCE}\t{TARGET.replace(' !', chr(0x202F) + '!')}\tby us\nGo\tVa\tby us\n",
        alignments=f"# a comment\n{digest}\t0-0 2-1 1-2 3-3\t3-4\n0123456789abcdef\t0-0\n",
        other="Go\tVa\n",
    )
    assert tatoeba_gold.tatoeba_pairs(files["corpus"], files["alignments"]) == [PAIR]
    with pytest.raises(UserError, match=r"has none of the 2 aligned pairs; give Tatoeba's fra\.txt"):
        tatoeba_gold.tatoeba_pairs(files["other"], files["alignments"])


def test_the_committed_links_are_well_formed_and_a_sure_one_is_not_listed_again() -> None:
    gold = tatoeba_gold.read_alignments(tatoeba_gold.GOLD)
    assert len(gold) == 40
    for line in read_lines(tatoeba_gold.GOLD):
        if not line.startswith("#"):
            digest, *columns = line.split("\t")
            links = " ".join(columns).split()
            assert len(digest) == tatoeba_gold.DIGITS
            assert len(links) == len(set(links)) == len(gold[digest][1])
            assert gold[digest][0]
