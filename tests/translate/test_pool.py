"""PyTorch in several processes: the same results, the same memory, and how they end."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from conftest import ENGLISH, UNTRAINED, changed, random_run, slow
from support.translators import loaded

from mtkit.base.errors import MtkitError
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.translate.decoder import Decoder
from mtkit.translate.decoding import rank_by_mbr
from mtkit.translate.linear import Int8Linear
from mtkit.translate.pool import Pool
from mtkit.translate.reading import Window
from mtkit.translate.requests import PendingBatch, Sentence, Translation
from mtkit.translate.translator import Translator


def some_lines(count: int) -> list[str]:
    """Short and long lines, some of them blank, no two neighbours of one length."""
    rng = random.Random(1)
    lines = [" ".join(rng.choices(ENGLISH, k=rng.randint(1, 9))) for _ in range(count)]
    lines[3] = lines[-1] = ""
    return lines


LINES = some_lines(40)


@pytest.fixture(scope="module")
def alone(untrained: Run) -> Translator:
    return loaded(untrained)


@pytest.fixture(scope="module")
def shared(untrained: Run) -> Iterator[Translator]:
    """A translator with two workers, for tests that leave them alive."""
    with loaded(untrained, workers=2) as translator:
        yield translator


def pool_of(translator: Translator) -> Pool:
    assert isinstance(translator.decoder, Pool)
    return translator.decoder


def is_running(pid: int) -> bool:
    """Whether a process is there and not just waiting for its parent to look after it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def all_end(pids: list[int]) -> bool:
    end = time.monotonic() + 600
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_running, pids))


# ---------------------------------------------------------------------------------------------
# The same results


@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
@pytest.mark.parametrize("order", ["as they come", "by length"])
def test_two_workers_translate_as_one_does(
    order: str,
    batch_tokens: int,
    alone: Translator,
    shared: Translator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = LINES if order == "as they come" else sorted(LINES, key=len)
    config = shared.config.model_copy(update={"batch_tokens": batch_tokens})
    monkeypatch.setattr(shared, "config", config)
    # Several windows, the last of which is not full.
    monkeypatch.setattr("mtkit.translate.reading.WINDOW_LINES", 15)
    monkeypatch.setattr("mtkit.translate.requests.MIN_BATCH_TOKENS", 30)
    expected = list(alone.translate_nbest(lines, n_best=2))
    found = list(shared.translate_nbest(lines, n_best=2))
    assert len(pool_of(shared).processes) == 2
    assert [[x.text for x in xs] for xs in found] == [[x.text for x in xs] for xs in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert [x.score for x in ours] == pytest.approx([x.score for x in theirs], abs=1e-5)
    assert list(shared.translate([*lines[:9], "nine " * 40])) == list(
        alone.translate([*lines[:9], "nine " * 40])
    )


def test_the_order_of_prefixes_and_windows_is_kept(alone: Translator, shared: Translator) -> None:
    prefixes = ["acht" if i % 3 else "" for i in range(len(LINES))]
    expected = list(alone.translate(LINES, prefixes=prefixes))
    assert list(shared.translate(LINES, prefixes=prefixes)) == expected
    assert expected[1].startswith("acht")
    ((_, (one,)),) = shared.translate_windows([Window(7, [LINES[0]])])
    assert one[0].text == expected[0]


def test_every_window_is_answered_before_more_is_read_than_an_empty_one(
    alone: Translator, shared: Translator
) -> None:
    asked = []

    def windows() -> Iterator[Window]:
        for number, line in enumerate(LINES[:6], 1):
            yield Window(number, [line])
        yield Window(7, [])
        asked.append("more")
        yield Window(7, LINES[6:8])

    found = shared.translate_windows(windows())
    texts = [
        (window.first_line, [best.text for (best,) in translations])
        for window, translations in itertools.islice(found, 6)
    ]
    expected = enumerate(alone.translate(LINES[:6]), 1)
    assert texts == [(first_line, [text]) for first_line, text in expected]
    assert next(found) == (Window(7, []), [])
    assert asked == []
    window, translations = next(found)
    assert (window, len(translations)) == (Window(7, LINES[6:8]), 2)
    assert asked == ["more"]
    assert list(found) == []


@pytest.mark.parametrize(("first", "rest"), [("one two", "one two"), ("", ""), ("one two", "")])
def test_memory_is_bounded_by_a_few_windows(first: str, rest: str, shared: Translator) -> None:
    taken = 0

    def windows() -> Iterator[Window]:
        nonlocal taken
        for taken in itertools.count(1):
            yield Window(taken, [first if taken == 1 else rest])

    found = shared.translate_windows(windows())
    for yielded in range(1, 30):
        window, translations = next(found)
        assert (window.first_line, len(translations)) == (yielded, 1)
        # One that is yielded, one that it is ahead of, and two batches for each of two workers.
        assert taken <= yielded + 2 * 2 + 1


class Stuck(Decoder):
    """What a pool is while one worker takes long over the first batch and others are idle."""

    capacity = 4

    def has_backlog(self, besides: Sequence[PendingBatch]) -> bool:
        return False


def test_memory_is_bounded_while_a_window_takes_long(alone: Translator) -> None:
    taken = 0

    def windows() -> Iterator[Window]:
        nonlocal taken
        for taken in range(1, 31):
            yield Window(taken, ["one two"])

    models, device = [alone.model], alone.device
    stuck = Stuck(models, alone.tokenizer, alone.config, device=device)
    translator = Translator(models, alone.vocabularies, alone.config, device=device, decoder=stuck)
    for yielded, _ in enumerate(translator.translate_windows(windows()), 1):
        assert taken <= yielded + 2 * 2
    assert (taken, yielded) == (30, 30)


def test_an_error_of_the_input_comes_after_the_windows_before_it(shared: Translator) -> None:
    def windows() -> Iterator[Window]:
        yield Window(1, ["one"])
        yield Window(2, ["two"])
        raise MtkitError("no third")

    found = shared.translate_windows(windows())
    answered = [
        (window.lines, len(translations)) for window, translations in itertools.islice(found, 2)
    ]
    assert answered == [(["one"], 1), (["two"], 1)]
    with pytest.raises(MtkitError, match="no third"):
        next(found)


def test_cancelled_batches_are_not_translated(alone: Translator, shared: Translator) -> None:
    found = shared.translate_windows([Window(i, [line]) for i, line in enumerate(LINES * 3, 1)])
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not pool_of(shared)._queue
    assert list(shared.translate(LINES)) == list(alone.translate(LINES))


def test_two_workers_draw_from_several_models_what_one_process_draws(
    untrained: Run, also_untrained: Run
) -> None:
    runs = [untrained, also_untrained]
    config = untrained.config.decode.model_copy(update={"sample": True, "batch_tokens": 30})
    expected = list(loaded(runs, config=config).translate_nbest(LINES, n_best=2))
    with loaded(runs, config=config, workers=2) as translator:
        found = list(translator.translate_nbest(LINES, n_best=2))
    assert [[x.pieces for x in xs] for xs in found] == [[x.pieces for x in xs] for xs in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert [x.log_prob for x in ours] == pytest.approx([x.log_prob for x in theirs], abs=1e-5)


def test_8_bit_weights_give_the_same_in_workers(tiny_data: PreparedData, tmp_path: Path) -> None:
    # As wide as matrices must be to be in 8 bits, which a worker decides for itself.
    wide = changed(changed(UNTRAINED, "model", d_ff=2**13), "decode", precision="int8")
    run = random_run(tmp_path / "run", tiny_data, 5, config=wide)
    try:
        one = loaded(run)
    except MtkitError:
        pytest.skip("no 8-bit arithmetic here")
    assert any(isinstance(module, Int8Linear) for module in one.model.modules())
    expected = list(one.translate(LINES))
    with loaded(run, workers=2) as translator:
        assert list(translator.translate(LINES)) == expected
        (theirs,) = translator.score_given(["one two"], ["eins"])
        (ours,) = one.score_given(["one two"], ["eins"])
        assert theirs == ours


def test_the_first_of_samples_with_equal_text_is_returned() -> None:
    # Three segmentations of two texts, and the text that comes twice is most like the others.
    drawn = [
        Translation(text, 0.0, log_prob, pieces=pieces)
        for text, log_prob, pieces in [
            ("neun", -3.0, ("▁neun",)),
            ("acht", -1.0, ("▁a", "cht")),
            ("acht", -2.0, ("▁acht",)),
        ]
    ]
    found = [(one.text, one.log_prob, one.pieces) for one in rank_by_mbr(drawn)]
    assert found == [("acht", -1.0, ("▁a", "cht")), ("neun", -3.0, ("▁neun",))]


# ---------------------------------------------------------------------------------------------
# One copy of the weights


def test_workers_decode_with_the_memory_of_this_process(
    alone: Translator, shared: Translator
) -> None:
    before = list(shared.translate(LINES))
    weight = shared.model.output.transposed  # type: ignore[union-attr]
    assert isinstance(weight, torch.Tensor)
    kept = weight.clone()
    weight.copy_(kept.roll(1, dims=1))
    try:
        assert list(shared.translate(LINES)) != before
    finally:
        weight.copy_(kept)
    assert list(shared.translate(LINES)) == before


def test_only_weights_that_decoding_reads_are_left_and_all_of_them_are_shared(
    shared: Translator,
) -> None:
    memory = pool_of(shared)._setup.memory.bytes
    start, end = memory.data_ptr(), memory.data_ptr() + len(memory)
    for module in shared.model.modules():
        tensors = [x for x in (vars(module) | module._parameters).values() if torch.is_tensor(x)]
        assert all(start <= tensor.data_ptr() < end for tensor in tensors)


# ---------------------------------------------------------------------------------------------
# Errors of workers


def test_an_error_that_a_user_can_fix_keeps_its_type(
    tiny_data: PreparedData, tiny_config: Config, tmp_path: Path
) -> None:
    config = changed(tiny_config, "model", positions="learned", max_positions=16)
    run = random_run(tmp_path / "run", tiny_data, 1, config=config)
    with loaded(run, workers=2) as translator:
        with pytest.raises(MtkitError, match=r"longer than model\.max_positions"):
            list(translator.translate(["one two", "nine " * 40]))
        # That is no reason to start anew.
        before = pool_of(translator).processes
        assert len(list(translator.translate(["one"]))) == 1
        assert pool_of(translator).processes == before != []


def test_bugs_keep_their_traceback_and_lost_workers_are_reported(
    untrained: Run, alone: Translator
) -> None:
    with loaded(untrained, workers=2) as translator:
        pool = pool_of(translator)
        pending = PendingBatch([Sentence(1, [10**6])], n_best=1)
        pool.begin([pending])
        with pytest.raises(RuntimeError, match=r"(?s)in a translation worker:.*IndexError"):
            pool.finish(pending)

        (pid,) = pool.processes
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(MtkitError) as lost:
            list(translator.translate(LINES))
        assert str(lost.value).startswith(
            "a translation worker ended unexpectedly (killed by SIGKILL); if memory ran out, "
        )
        assert pool.processes == []
        # Others are started where there is more to do.
        assert next(translator.translate(LINES)) == next(alone.translate(LINES))
        started = pool.processes
        assert started != []
    assert pool.processes == []
    assert not any(map(is_running, started))


def test_all_batches_of_a_lost_worker_end_in_an_error(untrained: Run) -> None:
    pending = [PendingBatch([Sentence(1 + i, [5 + i])], n_best=1) for i in range(5)]
    plain = loaded(untrained, prepared=False)
    pool = Pool([plain.model], plain.tokenizer, plain.config, devices=[plain.device])
    pool.begin(pending)
    pool.finish(pending[0])
    (pid,) = pool.processes
    os.kill(pid, signal.SIGKILL)
    while is_running(pid):
        time.sleep(0.01)
    for item in pending[1:]:
        with suppress(MtkitError):
            pool.finish(item)
    assert all(item.is_done for item in pending)
    assert pool.processes == []


def test_after_an_error_nothing_is_left_to_decode(untrained: Run, tmp_path: Path) -> None:
    config = untrained.config.decode.model_copy(update={"batch_tokens": 20})
    with loaded(untrained, config=config, workers=2) as translator:
        pool = pool_of(translator)
        finish = pool.finish

        def fail(pending: PendingBatch) -> list[list[Translation]]:
            finish(pending)
            raise MtkitError("a batch that failed")

        pool.finish = fail  # type: ignore[method-assign]
        with pytest.raises(MtkitError, match="a batch that failed"):
            list(translator.translate(["one two three four"] * 200))
        assert not pool._queue


# ---------------------------------------------------------------------------------------------
# How the command ends


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that these have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


# Windows of 100 lines, so that the second is begun before long.
CHILD = """
import sys
import mtkit.translate.reading
mtkit.translate.reading.WINDOW_LINES = 100
from mtkit.__main__ import program
program()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("who", "number", "status"),
    [
        slow("worker", signal.SIGKILL, 1),
        ("parent", signal.SIGKILL, -signal.SIGKILL),
        # What a terminal sends to everybody.
        slow("all", signal.SIGINT, 130),
        # What systemd sends to everybody.
        slow("all", signal.SIGTERM, 130),
    ],
)
def test_no_process_is_left_over(
    who: str, number: signal.Signals, status: int, untrained: Run, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one two three four five six seven eight nine\n" * 20_000)
    command = ["translate", "--run", untrained.path, "--engine", "torch", "--workers", "2"]
    with (
        lines.open("rb") as source,
        subprocess.Popen(
            [sys.executable, "-c", CHILD, "-q", *command],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        # Then both workers are busy, and there is much to do.
        for _ in range(300):
            assert process.stdout.readline()
        others = descendants(process.pid)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in others}
        workers = [pid for pid, words in commands.items() if b"spawn_main" in words]
        assert len(workers) == 2
        if who == "all":
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid if who == "parent" else workers[0], number)
        _, err = process.communicate(timeout=600)
        assert process.returncode == status
        assert all_end(others)
    said = err.decode().split("\n")
    said = [line for line in said if line]
    if who == "worker":
        assert len(said) == 1
        assert said[0].startswith("mtkit: error: a translation worker ended unexpectedly (killed")
    else:
        assert len(said) == (who == "all")
        assert all(line.startswith("mtkit: interrupted: ") for line in said)
