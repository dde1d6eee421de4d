"""The log-probabilities of given translations."""

import pytest
import torch
from support.translators import HOSTILE, ids_of, loaded, numbers, with_batches_of

from mtkit import native
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.translate.pytorch.incremental import Engine
from mtkit.translate.samples import ForcedDecoder
from mtkit.translate.translator import Translator


def step_by_step(translator: Translator, source: str, translation: str) -> list[float]:
    """Log-probability of each token, by the cached steps that the search takes."""
    src = torch.tensor([[*translator.tokenizer.encode(source), EOS_ID]])
    steps, token = [], BOS_ID
    with torch.no_grad():
        engine = Engine(translator.model)
        cache = engine.start(src, 1)
        for wanted in (*translator.tokenizer.encode(translation), EOS_ID):
            log_probs = engine.step(torch.tensor([token]), torch.tensor([0]), cache)
            steps.append(float(log_probs[0, wanted]))
            token = wanted
    return steps


def test_given_translations_score_what_the_steps_of_the_search_give_them(translator):
    sources = [line for line in numbers(20) if line]
    targets = [line for line in numbers(20, seed=7) if line]
    for batch_tokens in (1, 4096):
        scores = with_batches_of(translator, batch_tokens).score_given(sources, targets)
        for scored, source, target in zip(scores, sources, targets, strict=True):
            wanted = step_by_step(translator, source, target)
            assert scored.log_probs == pytest.approx(wanted, abs=1e-5)
            assert scored.log_prob == pytest.approx(sum(wanted), abs=1e-5)
            # The paper's length penalty at its alpha of 0.6.
            penalty = ((5 + len(wanted)) / 6) ** 0.6
            assert scored.score == pytest.approx(sum(wanted) / penalty, abs=1e-5)
            assert len(scored.pieces) == len(wanted)
            assert scored.pieces[-1] == "</s>"


def test_what_the_search_found_scores_what_it_reported(ending_run, tiny_data):
    for engine in ("torch", *(["native"] if not native.available() else [])):
        translator = loaded(ending_run, engine)
        sources, _ = tiny_data.text("test")
        # A text says neither that it was cut off nor which of its segmentations the model chose.
        encode = translator.tokenizer.encode
        comparable = [
            (line, best)
            for line in sources
            for best in next(translator.translate_nbest([line], n_best=4))
            if best.finished and ids_of(translator, best.pieces) == [*encode(best.text), EOS_ID]
        ]
        assert len(comparable) >= 20
        lines, translations = zip(*comparable, strict=True)
        scored = translator.score_given(lines, [translation.text for translation in translations])
        for ours, translation in zip(scored, translations, strict=True):
            # Of sums of float32.
            for name in ("score", "log_prob"):
                wanted = pytest.approx(getattr(translation, name), rel=1e-6, abs=1e-5)
                assert getattr(ours, name) == wanted


def test_any_line_can_be_scored_in_order_and_blank_ones_as_they_are_translated(translator):
    backwards = HOSTILE[::-1]
    scores = translator.score_given(HOSTILE, backwards)
    for scored, source, target in zip(scores, HOSTILE, backwards, strict=True):
        (alone,) = translator.score_given([source], [target])
        assert scored.log_prob == pytest.approx(alone.log_prob, abs=1e-4)
    (blank,) = translator.score_given([" "], [""])
    assert (blank.pieces, blank.log_prob, blank.score) == ((), 0.0, 0.0)
    # Nothing as the translation of something is the end at once.
    (ended,) = translator.score_given(["one two"], [""])
    assert ended.log_probs == pytest.approx(step_by_step(translator, "one two", ""), abs=1e-5)


@pytest.mark.parametrize("engine", ["torch", *([] if native.available() else ["native"])])
def test_forced_decoding_gives_what_scoring_gives_whatever_is_beside_it(untrained, engine):
    translator = loaded(untrained, engine)
    # Two sentences are one text here, and a blank one has nothing.
    sources = ["one two. three four.", "", *numbers(8)]
    targets = ["eins zwei. drei vier.", "eins", *numbers(8, seed=7)]
    with ForcedDecoder(translator) as forced:
        together = forced.log_probs(sources, targets)
        alone = [forced.log_probs([s], [t])[0] for s, t in zip(sources, targets, strict=True)]
    if engine == "native":
        assert together == alone
    assert together[1] == ()
    scored = list(translator.score_given(sources, targets))
    for index in (0, *range(2, 10)):
        wanted = pytest.approx(scored[index].log_probs[:-1], abs=1e-4)
        assert list(together[index]) == wanted == list(alone[index])
