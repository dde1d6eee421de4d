"""Sampling translations, and minimum Bayes risk decoding."""

import pytest
from sacrebleu.metrics import CHRF
from support.translators import changed_to, numbers, texts_of

from mtkit.translate.decoding import rank_by_mbr
from mtkit.translate.reading import Window
from mtkit.translate.requests import Translation


def test_what_is_drawn_depends_on_the_seed_and_the_number_of_the_line_alone(exact):
    lines = [*numbers(20), "", "nine " * 30, "one two", "one two"]

    def drawn(lines: list[str], **settings: int) -> list[list[str]]:
        sampler = changed_to(exact, sample=True, **settings)
        return texts_of(sampler.translate_nbest(lines, n_best=3))

    texts = drawn(lines, batch_tokens=1)
    assert texts == drawn(lines, batch_tokens=100) == drawn(lines, batch_tokens=100_000)
    # Other lines before and after it, and it is the seventh all the same.
    sampler = changed_to(exact, sample=True)
    ((_, seventh),) = sampler.translate_windows([Window(7, [lines[6]])], n_best=3)
    assert texts_of(seventh) == [texts[6]]
    assert drawn(["x"] * 6 + lines[6:8])[6:] == texts[6:8]
    # As another line, or with another seed, it is drawn otherwise.
    assert texts[-1] != texts[-2]
    other = drawn(lines, seed=2)
    assert sum(a == b for a, b in zip(other, texts, strict=True)) <= 2
    assert other[20] == texts[20] == [""]


def test_several_samples_come_in_the_order_in_which_they_are_drawn(exact):
    sampler = changed_to(exact, sample=True, temperature=0.3)
    lines = numbers(10)
    few, many = (list(sampler.translate_nbest(lines, n_best=n)) for n in (2, 12))
    assert all(len(of_line) == 12 for of_line in many)
    assert texts_of(few) == [of_line[:2] for of_line in texts_of(many)]
    assert list(sampler.translate(lines)) == [of_line[0] for of_line in texts_of(many)]
    # By score they would fall, and equal ones would come once.
    falling = [sorted((x.score for x in xs), reverse=True) == [x.score for x in xs] for xs in many]
    assert not any(falling)
    assert any(len(set(of_line)) < 12 for of_line in texts_of(many))


def test_draws_from_one_subword_are_greedy_search(exact):
    lines = numbers(20)
    greedy = changed_to(exact, beam_size=1)
    for settings in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        sampler = changed_to(exact, sample=True, **settings)
        samples, expected = (x.translate_nbest(lines, n_best=1) for x in (sampler, greedy))
        for (ours,), (best,) in zip(samples, expected, strict=True):
            assert ours.pieces == best.pieces
            # Of the model, whatever was drawn from.
            assert ours.log_probs == pytest.approx(best.log_probs, abs=1e-5)


def test_minimum_bayes_risk_takes_the_sample_that_is_most_like_the_others(exact):
    lines = [*numbers(10), ""]
    settings = {"temperature": 0.1, "seed": 3}
    drawn = changed_to(exact, sample=True, **settings).translate_nbest(lines, n_best=12)
    chosen = changed_to(exact, mbr_samples=12, **settings)
    ranked = list(chosen.translate_nbest(lines, n_best=12))
    assert list(chosen.translate(lines)) == [of_line[0] for of_line in texts_of(ranked)]
    chrf = CHRF()
    repeated = 0
    for samples, chosen_of_line in list(zip(drawn, ranked, strict=True))[:-1]:
        texts = [sample.text for sample in samples]
        # Each text is compared with itself once less.
        of_text = {
            text: (sum(chrf.sentence_score(text, [other]).score for other in texts) - 100) / 11
            for text in texts
        }
        # Each text once; its own likeness to its repetitions counts.
        assert sorted(best.text for best in chosen_of_line) == sorted(of_text)
        scores = [best.score for best in chosen_of_line]
        assert scores == sorted(scores, reverse=True)
        # Everything else is of the first sample with this text.
        firsts = {sample.text: sample for sample in reversed(samples)}
        for best in chosen_of_line:
            assert best.score == pytest.approx(of_text[best.text], abs=1e-6)
            assert best.pieces == firsts[best.text].pieces
        repeated += len(of_text) < 12
    assert repeated
    assert [(best.text, best.score) for best in ranked[-1]] == [("", 0.0)]


def test_the_first_of_samples_with_equal_text_is_returned():
    # Three segmentations of two texts, and the text that comes twice is most like the others.
    drawn = [
        Translation(text, 0.0, log_prob, pieces=pieces)
        for text, log_prob, pieces in [
            ("neun", -3.0, ("▁neun",)),
            ("acht", -1.0, ("▁a", "cht")),
            ("acht", -2.0, ("▁acht",)),
        ]
    ]
    ranked = [(sample.text, sample.log_prob, sample.pieces) for sample in rank_by_mbr(drawn)]
    assert ranked == [("acht", -1.0, ("▁a", "cht")), ("neun", -3.0, ("▁neun",))]
