"""The lexicon: which words translate each other."""

import random

import pytest

from mtkit.base.errors import MtkitError
from mtkit.check.model.lexicon import Lexicon, load_rows, save_rows
from mtkit.check.rules.marks import Text

# Nothing is too frequent in so many lines of different words.
WORDS = [f"s{chr(97 + i)}{chr(97 + j)}" for i in range(6) for j in range(5)]


def _pairs(count: int, *, seed: int = 1) -> list[tuple[str, str]]:
    """Lines of words whose translations are the same words with a t, in another order."""
    pick = random.Random(seed)
    pairs = []
    for _ in range(count):
        words = pick.sample(WORDS, 4)
        target = [f"t{word[1:]}" for word in words]
        pick.shuffle(target)
        pairs.append((" ".join(words), " ".join(target)))
    return pairs


def _model_1(pairs: list[tuple[list[str], list[str]]], rounds: int) -> dict[tuple[str, str], float]:
    """IBM Model 1 as in the textbook, word by word; NULL has a fixed count of 0.02."""
    probability = {(s, t): 1.0 for src, tgt in pairs for s in src for t in tgt}
    for _ in range(rounds):
        counts = dict.fromkeys(probability, 0.0)
        for src, tgt in pairs:
            for t in tgt:
                total = sum(probability[s, t] for s in src) + 0.02
                for s in src:
                    counts[s, t] += probability[s, t] / total
        sums: dict[str, float] = {}
        for (s, _), count in counts.items():
            sums[s] = sums.get(s, 0.0) + count
        probability = {(s, t): count / sums[s] for (s, t), count in counts.items()}
    return probability


def test_the_probabilities_are_those_of_the_textbook():
    pairs = _pairs(300)
    found = Lexicon.learn(pairs)
    expected = _model_1([(s.split(), t.split()) for s, t in pairs], 5)
    # Pairs of words that are only once in the same lines are left out there.
    for source, entry in found.src_to_tgt.items():
        for target, value in entry.items():
            assert value == pytest.approx(expected[source, target], abs=0.02)
    backwards = _model_1([(t.split(), s.split()) for s, t in pairs], 5)
    for target, entry in found.tgt_to_src.items():
        for source, value in entry.items():
            assert value == pytest.approx(backwards[target, source], abs=0.02)


def test_a_word_that_is_in_a_fifth_of_all_lines_has_a_share_and_no_entry():
    pairs = [(f"the {source}", f"das {target}") for source, target in _pairs(100)]
    found = Lexicon.learn(pairs)
    assert "the" not in found.src_to_tgt
    assert "das" not in found.tgt_to_src
    assert found.src_shares["the"] == found.tgt_shares["das"] == 1.0


def test_a_rare_word_has_neither():
    found = Lexicon.learn([*_pairs(100), ("rare", "selten"), ("rare", "selten")])
    assert "rare" not in found.src_to_tgt
    assert "rare" not in found.src_shares


def test_a_saved_lexicon_is_read_as_it_was(tmp_path):
    found = Lexicon.learn(_pairs(200))
    save_rows(tmp_path / "one.tsv", {"de": found.rows()})
    again = Lexicon.of_rows(load_rows(tmp_path / "one.tsv", "de"))
    save_rows(tmp_path / "two.tsv", {"de": again.rows()})
    assert (tmp_path / "one.tsv").read_bytes() == (tmp_path / "two.tsv").read_bytes()
    assert again.src_to_tgt.keys() == found.src_to_tgt.keys()
    for source, entry in found.src_to_tgt.items():
        assert again.src_to_tgt[source] == pytest.approx(entry, rel=0.01)


def test_each_target_language_has_its_own_lexicon(tmp_path):
    path = tmp_path / "lexicon.tsv"
    german, greek = (
        Lexicon({"one": {word: 1.0}}, {word: {"one": 0.5}}, {"one": 0.1}, {word: 0.1})
        for word in ("eins", "ena")
    )
    save_rows(path, {"de": german.rows(), "el": greek.rows()})
    assert Lexicon.of_rows(load_rows(path, "de")) == german
    assert Lexicon.of_rows(load_rows(path, "el")) == greek
    with pytest.raises(MtkitError, match=r"lexicon\.tsv: has no rows of fr; run mtkit check"):
        load_rows(path, "fr")


def test_no_pairs_give_an_empty_lexicon():
    assert Lexicon.learn([]) == Lexicon({}, {}, {}, {})
    assert Lexicon.learn([("", ""), ("a b", "")]).src_to_tgt == {}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("The houses, 12!", ["the", "houses", "12"]),
        ("Straßenbahnen", ["straße"]),
        ("l'Europe", ["l", "europe"]),
        ("我爱你 ok", ["我", "爱", "你", "ok"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("", []),
    ],
)
def test_a_key_is_the_beginning_of_a_word(text, keys):
    assert Text(text).keys == keys
    assert [text[a:b].lower()[:6] for a, b in Text(text).spans()] == keys


def test_words_and_keys_belong_together_where_lower_case_is_longer():
    # The capital İ has two code points in lower case.
    text = Text("İzmir İstanbul und Köln")
    assert len(text.spans()) == len(text.keys) == 4
