"""Subwords."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtkit.errors import MtkitError
from mtkit.tokenizer import Tokenizer

# The example of Sennrich et al. 2016, with the counts of their words.
TEXTBOOK = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
TEXT = ["der alte Hund läuft über die Straße", "ein kleines Mädchen isst Äpfel"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.learn(TEXT, 300)


def test_the_textbook_merges_come_out() -> None:
    # "es" occurs nine times (newest, widest) and no pair more often; then "est", nine times.
    # "lo" then occurs seven times and "low" as often.
    tokenizer = Tokenizer.learn(TEXTBOOK, 260 + 10 + 1 + 4)
    pieces = [tokenizer._pieces.id_to_piece(i) for i in range(260, 264)]
    assert pieces[:2] == ["es", "est"]
    assert {"lo", "low"} <= set(pieces)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "der alte Hund",
        "Äpfel über Straße",
        "naïve café, œuvre",
        "日本語 и русский",
        "smile 😀 and 👩‍👩‍👧",
        "a_b ▂ c",
        "100 % (sic!) <unk> </s>",
    ],
)
def test_decode_undoes_encode_for_text_in_normal_form(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_nothing_is_unknown_and_no_special_id_comes_out(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("日本 </s> <pad> \u0378")
    assert min(ids) > max(tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)


def test_the_normal_form_is_nfkc_with_single_spaces(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("  ﬁne\u00a0 \t x² \u2028 y ")) == "fine x2 y"


def test_decode_stays_on_one_line(tokenizer: Tokenizer) -> None:
    newline = tokenizer._pieces.piece_to_id("<0x0A>")
    carriage = tokenizer._pieces.piece_to_id("<0x0D>")
    text = tokenizer.decode([*tokenizer.encode("der"), newline, carriage, *tokenizer.encode("x")])
    assert "\n" not in text
    assert "\r" not in text


def test_special_ids_are_skipped_by_decode(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("der Hund")
    assert tokenizer.decode([1, *ids, 2, 0, 0]) == "der Hund"


def test_a_batch_is_encoded_as_its_lines_are(tokenizer: Tokenizer) -> None:
    lines = [*TEXT[:2], "", "x"]
    assert tokenizer.encode_batch(lines, threads=2) == [tokenizer.encode(line) for line in lines]


@pytest.mark.parametrize("size", [8000, 265])
def test_an_impossible_size_is_refused_with_one_that_is_possible(size: int) -> None:
    with pytest.raises(MtkitError, match="possible is") as caught:
        Tokenizer.learn(TEXT, size)
    possible = int(str(caught.value).rsplit("--vocab-size ", 1)[1].rstrip(")"))
    assert len(Tokenizer.learn(TEXT, possible)) == possible


def test_a_size_below_the_fixed_pieces_is_refused() -> None:
    with pytest.raises(MtkitError, match="260"):
        Tokenizer.learn(TEXT, 200)


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_no_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(MtkitError, match="no text"):
        Tokenizer.learn(lines, 300)


def test_learning_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Tokenizer.learn(TEXT, 300).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_saved_tokenizer_is_the_same_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "m")
    loaded = Tokenizer.load(tmp_path / "m")
    assert len(loaded) == len(tokenizer) == 300
    assert loaded.encode(TEXT[0]) == tokenizer.encode(TEXT[0])


def test_a_damaged_or_missing_model_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "broken.model").write_bytes(b"no model")
    for name in ("broken.model", "absent.model"):
        with pytest.raises(MtkitError, match=name):
            Tokenizer.load(tmp_path / name)
