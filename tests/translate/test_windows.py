"""Windows of lines: their order, how many are read in advance, and errors between them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mtkit.base.errors import MtkitError
from mtkit.translate.decoding import Backend
from mtkit.translate.native_decoder import Native
from mtkit.translate.reading import Window
from mtkit.translate.requests import PendingBatch, Sentence, Translation
from mtkit.translate.translator import Translator

THREADS = 2


def decode(_: object, sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
    """Each sentence to its text, behind its prefix of so many subwords."""
    texts = [f"{len(sentence.prefix)} {sentence.text}" for sentence in sentences]
    return [[Translation(text)] * n_best for text in texts]


class AtOnce(Backend):
    """Decodes when a batch must be finished, as PyTorch does."""

    decode = decode


class Threaded(Native):
    """Decodes in threads, as the native engine does."""

    decode = decode


class Stuck(Threaded):
    """One thread takes long over the first batch, and the others are idle."""

    def _is_saturated(self, *_: object) -> bool:
        return False


class Failing(Threaded):
    def decode(self, sentences: Sequence[Sentence], n_best: int) -> Any:
        raise MtkitError("a batch that failed")


def with_decoder(translator: Translator, kind: Any) -> Translator:
    runs, model = translator.runs, None
    decoder = kind(model, runs, threads=THREADS) if issubclass(kind, Native) else kind(runs)
    return Translator(runs, decoder)


@pytest.fixture(params=[AtOnce, Threaded])
def fake(request: pytest.FixtureRequest, translator: Translator) -> Iterator[Translator]:
    with with_decoder(translator, request.param) as held:
        yield held


def test_the_order_of_lines_prefixes_and_windows_is_kept(fake, monkeypatch):
    monkeypatch.setattr("mtkit.translate.reading.WINDOW_LINES", 7)
    monkeypatch.setattr("mtkit.translate.decoding.MIN_BATCH_TOKENS", 10)
    lines = [f"one {'two ' * (i * 7 % 9)}nine" if i % 5 else "" for i in range(40)]
    prefixes = ["acht" if i % 3 else "" for i in range(40)]
    count = len(fake.tokenizer.encode_batch(["acht"])[0])
    expected = [
        line and f"{count if prefix else 0} {line}"
        for line, prefix in zip(lines, prefixes, strict=True)
    ]
    for _ in range(2):
        assert list(fake.translate(lines, prefixes=prefixes)) == expected
        # A decoder that was closed begins again.
        fake.close()


def test_every_window_is_answered_before_more_is_read_than_an_empty_one(fake: Translator):
    asked = []

    def windows() -> Iterator[Window]:
        yield from (Window(number, ["one"]) for number in range(1, 7))
        yield Window(7, [])
        asked.append("more")
        yield Window(7, ["two", "three"])

    answers = fake.translate_windows(windows())
    assert [window.first_line for window, _ in itertools.islice(answers, 6)] == [1, 2, 3, 4, 5, 6]
    assert next(answers) == (Window(7, []), [])
    assert asked == []
    ((window, translations),) = answers
    assert (window, len(translations)) == (Window(7, ["two", "three"]), 2)


@pytest.mark.parametrize("kind", [AtOnce, Threaded, Stuck])
@pytest.mark.parametrize(("first", "rest"), [("one two", "one two"), ("", ""), ("one two", "")])
def test_memory_is_bounded_by_a_few_windows(first, rest, kind, translator):
    taken = 0

    def windows() -> Iterator[Window]:
        nonlocal taken
        for taken in range(1, 31):
            yield Window(taken, [first if taken == 1 else rest])

    with with_decoder(translator, kind) as held:
        for yielded, (window, translations) in enumerate(held.translate_windows(windows()), 1):
            assert (window.first_line, len(translations)) == (yielded, 1)
            # One that is yielded, and two batches for each thread.
            assert taken <= yielded + (0 if kind is AtOnce else 2 * THREADS)
    assert (taken, yielded) == (30, 30)


def test_an_error_of_the_input_comes_after_the_windows_before_it(fake: Translator):
    def windows() -> Iterator[Window]:
        yield Window(1, ["one"])
        yield Window(2, ["two"])
        raise MtkitError("no third")

    answers = fake.translate_windows(windows())
    assert [window.lines for window, _ in itertools.islice(answers, 2)] == [["one"], ["two"]]
    with pytest.raises(MtkitError, match="no third"):
        next(answers)


@pytest.mark.parametrize("kind", [Stuck, Failing])
def test_after_an_error_or_a_cancelled_translation_nothing_is_left_to_decode(kind, translator):
    batches: list[PendingBatch] = []
    with with_decoder(translator, kind) as held:
        plan = held.decoder.plan
        held.decoder.plan = lambda *args: batches.extend(made := plan(*args)) or made  # type: ignore
        answers = held.translate_windows(Window(i, ["one two"]) for i in range(1, 100))
        if kind is Failing:
            with pytest.raises(MtkitError, match="a batch that failed"):
                next(answers)
        else:
            next(answers)
            answers.close()  # type: ignore[attr-defined]
        futures = [batch.future for batch in batches if batch.future is not None]
        assert futures
        assert all(future.running() or future.done() for future in futures)
