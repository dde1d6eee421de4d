"""The queue: who is decoded with whom, in which order, and who is refused."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from support.served import FakeTranslator, sentence

from mtkit.serve.http_errors import RequestError
from mtkit.serve.scheduler import Scheduler
from mtkit.translate import Sentence, Translation, Translator


def scheduled(*, threads: int = 1, queue: int = 10_000, batch_tokens: int = 10_000) -> Any:
    """Run a test with a scheduler in an event loop, and end the threads."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        def in_loop(**given: Any) -> None:
            async def main() -> None:
                scheduler = Scheduler(given.get("threads", threads), queue, batch_tokens)
                try:
                    await asyncio.wait_for(test(scheduler, **given), 60)
                finally:
                    scheduler.close()

            asyncio.run(main())

        _, *fixtures = inspect.signature(test).parameters.values()
        in_loop.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return in_loop

    return decorate


async def ask(
    scheduler: Scheduler, fake: FakeTranslator, *texts: str, n_best: int = 1, tokens: int = 8
) -> list[str]:
    with scheduler.request(cast(Translator, fake), n_best) as request:
        translations = await request.translate([sentence(text, tokens) for text in texts])
    return [best.text for best, *_ in translations]


async def begun(fake: FakeTranslator) -> None:
    """Until a thread decodes with it."""
    await asyncio.to_thread(fake.begun.acquire)


def spawn(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Decoding waits until it is set."""
    event = threading.Event()
    yield event
    event.set()


@scheduled()
async def test_each_request_gets_the_translations_of_its_own_sentences_in_order(scheduler):
    fake = FakeTranslator()
    texts = await asyncio.gather(
        *(ask(scheduler, fake, *(f"{i}.{k}" for k in range(i))) for i in range(1, 20))
    )
    assert texts == [[f"{i}.{k}!" for k in range(i)] for i in range(1, 20)]


@scheduled()
async def test_requests_that_come_at_the_same_time_are_decoded_together(scheduler: Scheduler):
    fake = FakeTranslator()
    await asyncio.gather(*(ask(scheduler, fake, text) for text in "abc"))
    assert fake.batches == [["a", "b", "c"]]


@scheduled(threads=2)
async def test_a_sentence_does_not_wait_for_others_if_a_thread_is_free(scheduler, gate):
    fake = FakeTranslator(threads=2, gate=gate)
    first = spawn(ask(scheduler, fake, "a"))
    await begun(fake)
    second = spawn(ask(scheduler, fake, "b"))
    await begun(fake)
    gate.set()
    await asyncio.gather(first, second)
    assert fake.batches == [["a"], ["b"]]


# Four sentences make a batch.
@scheduled(batch_tokens=32)
async def test_a_long_document_lets_short_requests_go_in_turn(scheduler, gate):
    fake = FakeTranslator(gate=gate)
    done: list[str] = []

    async def noted(name: str, *texts: str) -> None:
        await ask(scheduler, fake, *texts)
        done.append(name)

    long = spawn(noted("long", *(f"long {i}" for i in range(40))))
    await begun(fake)
    short = [spawn(noted("short", f"short {i}")) for i in range(3)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(long, *short)
    assert done == ["short", "short", "short", "long"]
    assert sorted(fake.batches[1]) == ["long 4", "short 0", "short 1", "short 2"]


@scheduled(batch_tokens=64)
async def test_a_batch_has_at_most_its_tokens_and_a_longer_sentence_is_alone(scheduler: Scheduler):
    fake = FakeTranslator()
    await asyncio.gather(
        ask(scheduler, fake, *"abcde", tokens=30), ask(scheduler, fake, "long", tokens=500)
    )
    assert sorted(map(len, fake.batches)) == [1, 1, 2, 2]


@scheduled(threads=2)
async def test_waiting_sentences_are_divided_among_the_free_threads(scheduler, gate):
    fake = FakeTranslator(threads=2, gate=gate)
    asked = spawn(ask(scheduler, fake, *map(str, range(100))))
    await begun(fake)
    await begun(fake)
    gate.set()
    await asked
    assert list(map(len, fake.batches)) == [50, 50]


@scheduled()
async def test_sentences_of_a_batch_are_sorted_by_length(scheduler: Scheduler):
    fake = FakeTranslator()
    await asyncio.gather(*(ask(scheduler, fake, str(n), tokens=n) for n in (20, 40, 10, 30, 50)))
    assert fake.batches == [["50", "40", "30", "20", "10"]]


@scheduled()
async def test_other_numbers_of_translations_and_other_translators_have_batches_of_their_own(
    scheduler,
):
    fake, other = FakeTranslator(), FakeTranslator()
    await asyncio.gather(
        ask(scheduler, fake, "a"),
        ask(scheduler, fake, "b", n_best=3),
        ask(scheduler, other, "c"),
        ask(scheduler, fake, "d"),
    )
    assert fake.batches == [["a", "d"], ["b"]]
    assert fake.settings == [1, 3]
    assert other.batches == [["c"]]


@scheduled(queue=100)
async def test_what_waits_for_two_parts_of_a_request_counts_once(scheduler: Scheduler):
    fake = FakeTranslator()
    with scheduler.request(cast(Translator, fake), 1) as request:
        parts = [spawn(request.translate([sentence(text, 50)])) for text in "ab"]
        await asyncio.gather(*parts)
    with scheduler.request(cast(Translator, fake), 1) as request:
        parts = [spawn(request.translate([sentence(text, 51)])) for text in "ab"]
        results = await asyncio.gather(*parts, return_exceptions=True)
        assert isinstance(results[1], RequestError)
        assert results[1].status == 413


@pytest.mark.parametrize("count", [0, 2])
@scheduled()
async def test_requests_end_if_the_translator_loses_translations(scheduler: Scheduler, count: int):
    fake = FakeTranslator()
    decode = fake.decode

    def lose(sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
        results = decode(sentences, n_best)
        return results if sentences[0].text == "good" else results[:count]

    fake.decode = lose  # type: ignore[method-assign]
    results = await asyncio.gather(
        *(ask(scheduler, fake, text) for text in "abc"), return_exceptions=True
    )
    assert [isinstance(result, ValueError) for result in results] == [i >= count for i in range(3)]
    assert await ask(scheduler, fake, "good") == ["good!"]


@scheduled(queue=100)
async def test_a_request_that_was_admitted_is_not_refused_when_it_has_more(scheduler, gate):
    fake = FakeTranslator()
    slow = FakeTranslator(gate=gate)
    with scheduler.request(cast(Translator, fake), 1) as request:
        await request.translate([sentence("first")])
        others = [spawn(ask(scheduler, slow, "a"))]
        await begun(slow)
        others.append(spawn(ask(scheduler, slow, "b", tokens=90)))
        await asyncio.sleep(0)
        more = spawn(request.translate([sentence("second", 80)]))
        await asyncio.sleep(0)
        gate.set()
        ((best,),) = await more
        assert best.text == "second!"
        await asyncio.gather(*others)


@scheduled()
async def test_a_sentence_that_fails_does_not_make_others_fail(scheduler: Scheduler):
    fake = FakeTranslator()
    results = await asyncio.gather(
        ask(scheduler, fake, "a"),
        ask(scheduler, fake, "bad"),
        ask(scheduler, fake, "b"),
        return_exceptions=True,
    )
    assert isinstance(results[1], ValueError)
    assert [results[0], results[2]] == [["a!"], ["b!"]]
    assert await ask(scheduler, fake, "c") == ["c!"]


@pytest.mark.parametrize("texts", [2, 5, 20])
@pytest.mark.parametrize("terms", [0, 1, 4, 100])
@scheduled(batch_tokens=1024)
async def test_sentences_with_terms_have_small_batches(scheduler, texts, terms):
    fake = FakeTranslator()
    with scheduler.request(cast(Translator, fake), 1) as request:
        await request.translate([sentence(str(i), 20, terms) for i in range(texts)])
    most = {0: 51, 1: 3, 4: 1, 100: 1}[terms]
    assert max(map(len, fake.batches)) == min(most, texts)


@pytest.mark.parametrize("threads", [1, 2])
@scheduled()
async def test_a_glossary_does_not_hold_up_the_native_engine(scheduler, gate, threads):
    glossary, native = FakeTranslator(gate=gate), FakeTranslator()
    native.threads, native.needs_torch = threads, False
    with scheduler.request(cast(Translator, glossary), 1) as request:
        asked = spawn(request.translate([sentence(f"long {i}", 20, 100) for i in range(20)]))
        await begun(glossary)
        for i in range(10):
            assert await ask(scheduler, native, f"short {i}") == [f"short {i}!"]
        gate.set()
        await asked


@scheduled(threads=4)
async def test_pytorch_decodes_one_batch_at_a_time(scheduler: Scheduler, gate: threading.Event):
    fake, other = FakeTranslator(gate=gate), FakeTranslator(gate=gate)
    asked = [spawn(ask(scheduler, fake, "a"))]
    await begun(fake)
    asked += [spawn(ask(scheduler, fake, "b")), spawn(ask(scheduler, other, "c"))]
    await asyncio.sleep(0)
    assert scheduler.waiting == 16
    gate.set()
    await asyncio.gather(*asked)
