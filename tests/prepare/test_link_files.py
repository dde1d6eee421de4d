"""Word alignments are stored with the pairs that they belong to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TinyText, number_pairs, write_pairs
from support.errors import message_of

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData, SentencePairs
from mtkit.prepare import prepare_files
from mtkit.prepare.link_files import encode_links
from mtkit.tokenizer import Tokenizer, Vocabularies


def write_links(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def backwards(pairs: list[tuple[str, str]]) -> list[str]:
    """The links of numbers with their translations, which are backwards."""
    counts = [len(src.split()) for src, _ in pairs]
    return [" ".join(f"{i}-{count - 1 - i}" for i in range(count)) for count in counts]


def links_of(pairs: SentencePairs, index: int) -> list[tuple[int, int]]:
    assert pairs.links is not None
    numbers = pairs.links[index]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def linked(text: TinyText, out: Path, *links: Path, **changes: Any) -> PreparedData:
    """The tiny corpus, or other text, with a file of links for each training source."""
    arguments = {**text.prepare_arguments(), "alignments": list(links), **changes}
    prepare_files("linked", out, **arguments)
    return PreparedData.open(out)


def test_every_kept_pair_keeps_its_own_links_although_others_are_dropped(tiny_text, tmp_path):
    good = number_pairs(40, seed=4)
    # One pair is empty, and five are repeated.
    pairs = [*good[:10], ("", "eins"), *good[10:], *good[:5]]
    links = [*backwards(good[:10]), "", *backwards(good[10:]), *["0-0"] * 5]
    train = write_pairs(tmp_path, "mixed", pairs)
    file = write_links(tmp_path / "links", links)
    data = linked(tiny_text, tmp_path / "linked", file, train=[train])
    kept_pairs = data.pairs("train")
    tokenizer = data.tokenizers().tgt
    kept = [tokenizer.decode(kept_pairs.src[i][:-1]) for i in range(len(kept_pairs))]
    by_source = {src: list(range(len(src.split()))) for src, _ in good}
    assert len(kept) == 40
    assert {*kept} == {*by_source}
    for index, text in enumerate(kept):
        words = by_source[text]
        assert links_of(kept_pairs, index) == [(i, len(words) - 1 - i) for i in words]
    assert data.pairs("valid").links is None


def test_links_of_two_corpora_follow_each_other(tiny_text, tmp_path):
    first, second = number_pairs(30, seed=5), number_pairs(30, seed=6)
    train = [write_pairs(tmp_path, "a", first), write_pairs(tmp_path, "b", second)]
    links = [write_links(tmp_path / link, [link] * 30) for link in ("0-0", "1-0")]
    all_kept = {"workers": 2, "overrides": ["drop_duplicates=false", "drop_overlap=false"]}
    pairs = linked(tiny_text, tmp_path / "two", *links, train=train, **all_kept).pairs("train")
    assert [links_of(pairs, i) for i in range(60)] == [[(0, 0)]] * 30 + [[(1, 0)]] * 30


def test_a_word_of_a_line_that_the_tokenizer_splits_is_linked_with_all_its_parts():
    # SentencePiece's normal form of the acute accent U+00B4 is a space and a combining accent.
    tokenizer = Tokenizer.learn(["a don't b c"] * 9, 269)
    (encoded,) = encode_links(
        Vocabularies.joint(tokenizer), [["a don\u00b4t c"], ["b c"]], [frozenset({(1, 0), (2, 1)})]
    )
    # The second word of the line becomes two, so the third word is number 3.
    assert np.frombuffer(encoded, "<u2").reshape(-1, 2).tolist() == [[1, 0], [2, 0], [3, 1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:2], "0-x", *lines[3:]], "line 3: '0-x' is not a link"),
        (lambda lines: [*lines[:2], "0p1", *lines[3:]], "line 3: has possible links"),
        (lambda lines: [*lines[:6], "0-99", *lines[7:]], "line 7: links target word 99, but the"),
        (lambda lines: [*lines[:6], "99-0", *lines[7:]], "line 7: links source word 99, but the"),
        (lambda lines: lines[:-1], "has 199 lines, but there are"),
        (lambda lines: [*lines, ""], "has 201 lines, but there are"),
        (lambda lines: [], "has 0 lines, but there are"),
    ],
)
def test_links_that_do_not_fit_the_pairs_are_refused_and_nothing_is_written(
    change, message, tiny_text, tmp_path
):
    lines = change(["0-0"] * 200)
    error = message_of(
        linked, tiny_text, tmp_path / "data" / "bad", write_links(tmp_path / "links", lines)
    )
    assert f"{tmp_path / 'links'}" in error
    assert message in error
    assert not (tmp_path / "data" / "bad").exists()


def test_links_that_probably_count_from_1_are_named_once(tiny_text, tmp_path, caplog):
    count = len(tiny_text.train[0].read_text().splitlines())
    linked(tiny_text, tmp_path / "out", write_links(tmp_path / "links", ["1-1"] * count))
    (warning,) = [text for text in caplog.messages if "counted from 1" in text]
    assert warning == (
        f"{tmp_path / 'links'}: no link has an index 0, so words are probably counted from 1; "
        "if so, subtract 1 from each index"
    )
    caplog.clear()
    linked(tiny_text, tmp_path / "other", write_links(tmp_path / "links", ["1-0"] * count))
    assert "counted from 1" not in caplog.text


def test_a_file_of_links_is_given_for_every_corpus_or_for_none(tiny_text, tmp_path):
    links = write_links(tmp_path / "links", ["0-0"] * 200)
    with pytest.raises(MtkitError, match="a file for each of the 2 training sources, not 1"):
        linked(tiny_text, tmp_path / "bad", links, train=[tiny_text.train, tiny_text.valid])


def test_the_manifest_names_the_file_of_links_and_its_checksum_changes_the_data(
    tiny_text, tmp_path
):
    folders = []
    for name, link in (("one", "0-0"), ("same", "0-0"), ("other", "0-1")):
        links = write_links(tmp_path / "links", [link] * 200)
        folders.append(linked(tiny_text, tmp_path / name, links))
    first, same, other = folders
    assert first.manifest.sources["train"][0]["alignments"]["path"] == "links"
    assert first.fingerprint == same.fingerprint != other.fingerprint
    for file in first.manifest.files:
        assert (first.path / file).read_bytes() == (same.path / file).read_bytes()
