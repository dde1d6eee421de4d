"""Subword dropout: other pieces for the same text."""

import random
from collections import Counter

import numpy as np
import pytest
import sentencepiece as spm
from hypothesis import given
from hypothesis import strategies as st

from mtkit.base.errors import MtkitError
from mtkit.data import TokenArray
from mtkit.tokenizer import Tokenizer
from mtkit.train.bpe_dropout import BpeDropout

TEXT = [
    "der alte Hund läuft über die Straße <2de>",
    "ein kleines Mädchen isst 日本 Äpfel",
    "den er einst erlernte",
    "",
    "das unterste der kleinen Kinder unterhält die anderen",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.learn(TEXT[:3] * 5 + TEXT[4:] * 7, 360, symbols=["<2de>"])


def encoded(tokenizer: Tokenizer, lines: list[str]) -> TokenArray:
    rows = [[*tokenizer.encode(line), 2] for line in lines]
    flat = np.array([i for row in rows for i in row], np.int64)
    return TokenArray(flat, np.array([len(row) for row in rows]))


def sampled(
    tokenizer: Tokenizer,
    lines: list[str],
    probability: float,
    *,
    seed: int = 1,
    step: int = 1,
    side: int = 0,
    indices: list[int] | None = None,
    longest: int = 1000,
) -> list[list[int]]:
    dropout = BpeDropout(tokenizer, probability=probability, seed=seed)
    which = np.arange(len(lines)) if indices is None else np.array(indices, np.int64)
    drawn = dropout.sample(encoded(tokenizer, lines), which, step=step, side=side, longest=longest)
    return [drawn[i] for i in range(len(drawn))]


LINES = st.lists(
    st.text(st.sampled_from("derlinunterst äß日本<2de>") | st.characters(codec="utf-8"))
)


@given(LINES)
def test_without_anything_left_out_the_pieces_are_those_of_bpe(tokenizer, lines):
    assert sampled(tokenizer, lines, 0.0) == [[*tokenizer.encode(line), 2] for line in lines]


@given(LINES, st.sampled_from([0.1, 0.5, 0.99]))
def test_the_text_stays(tokenizer: Tokenizer, lines: list[str], probability: float) -> None:
    for line, ids in zip(lines, sampled(tokenizer, lines, probability), strict=True):
        assert ids[-1] == 2
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(line))
        symbol = spm.SentencePieceProcessor(model_proto=tokenizer.model).piece_to_id("<2de>")
        assert ids.count(symbol) == line.count("<2de>")


def as_in_the_paper(word: str, pieces: dict[str, int], p: float, rng: random.Random) -> list[str]:
    """Algorithm 1 of Provilkov et al. (2020), word for word."""
    split = list(word)
    while True:
        merges = [
            (pieces[split[i] + split[i + 1]], i)
            for i in range(len(split) - 1)
            if split[i] + split[i + 1] in pieces
        ]
        merges = [merge for merge in merges if rng.random() >= p]
        if not merges:
            return split
        _, i = min(merges)
        split[i : i + 2] = [split[i] + split[i + 1]]


@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_segmentations_are_as_frequent_as_in_the_paper(tokenizer, probability):
    number = 4000
    pieces = {tokenizer.piece(i): i for i in range(261, len(tokenizer))}
    rng = random.Random(1)
    expected, counts = Counter[str](), Counter[str]()
    for ids in sampled(tokenizer, ["unterste"] * number, probability):
        counts[" ".join(map(tokenizer.piece, ids[:-1]))] += 1
        expected[" ".join(as_in_the_paper("▁unterste", pieces, probability, rng))] += 1
    assert len(expected) > 5
    for segmentation in expected.keys() | counts.keys():
        # Five standard deviations of the difference of two counts.
        most = max(expected[segmentation], counts[segmentation])
        assert abs(expected[segmentation] - counts[segmentation]) < 5 * (2 * most) ** 0.5


def test_a_sentence_depends_on_seed_step_side_and_its_own_index_alone(tokenizer: Tokenizer) -> None:
    lines = [TEXT[4]] * 40
    whole = sampled(tokenizer, lines, 0.3)
    assert sampled(tokenizer, lines, 0.3) == whole
    for some in ([7], [39, 0, 7], []):
        assert sampled(tokenizer, lines, 0.3, indices=some) == [whole[i] for i in some]
    assert len({tuple(ids) for ids in whole}) > 30
    for other in ({"seed": 2}, {"step": 2}, {"side": 1}):
        different = sampled(tokenizer, lines, 0.3, **other)
        assert sum(a != b for a, b in zip(whole, different, strict=True)) > 30


def test_a_sentence_that_would_grow_too_long_stays_as_it_is(tokenizer: Tokenizer) -> None:
    lines = [TEXT[4], TEXT[2]] * 20
    free = sampled(tokenizer, lines, 0.4)
    for longest in range(min(map(len, free)) - 1, max(map(len, free)) + 1):
        bounded = sampled(tokenizer, lines, 0.4, longest=longest)
        for line, ids, kept in zip(lines, free, bounded, strict=True):
            assert kept == (ids if len(ids) <= longest else [*tokenizer.encode(line), 2])


def test_a_unigram_model_is_refused() -> None:
    tokenizer = Tokenizer.learn(TEXT * 5, 300, model_type="unigram")
    with pytest.raises(MtkitError, match=r"train\.bpe_dropout"):
        BpeDropout(tokenizer, probability=0.1, seed=1)
