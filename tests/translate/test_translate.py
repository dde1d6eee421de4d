"""Translating: one line in, one line out, in order, whatever the neighbours."""

import contextlib
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENGLISH, slow
from support.forked import PIPE, Forked, run_mtkit
from support.translators import HOSTILE, loaded, numbers, with_batches_of

from mtkit.run_folder import Run
from mtkit.translate.reading import Window
from mtkit.translate.translator import Translator


@pytest.fixture(scope="module", params=["torch", "native"])
def translator(request: pytest.FixtureRequest, untrained: Run) -> Translator:
    """Translates with that run, by each engine."""
    return loaded(untrained, request.param)


def test_the_random_model_of_these_tests_tells_lines_apart(translator: Translator):
    lines = numbers(30)
    assert len(set(translator.translate(lines))) > len(set(lines)) / 2


def test_hostile_lines_give_one_line_each_and_leave_their_neighbours_alone(translator: Translator):
    together = list(translator.translate(HOSTILE))
    assert not any(re.search(r"[\n\r]", text) for text in together)
    assert together == [next(translator.translate([line])) for line in HOSTILE]


@pytest.mark.parametrize("line", ["", " ", " \t ", "\r", "\u3000\u00a0", "\u2028"])
def test_a_blank_line_stays_blank(line: str, translator: Translator):
    first, blank, last = translator.translate_nbest(["one", line, "two"], n_best=2)
    assert [(translation.text, translation.score) for translation in blank] == [("", 0.0)]
    assert first[0].text == next(translator.translate(["one"]))
    assert last[0].text == next(translator.translate(["two"]))


def test_several_threads_may_share_a_translator(translator: Translator):
    lines = [f"{first} {second}" for first in ENGLISH for second in ENGLISH]
    expected = list(translator.translate(lines))

    def align() -> list[str]:
        return list(map(str, translator.align(lines[:20], expected[:20])))

    links = align()
    with ThreadPoolExecutor(4) as threads:
        translations = [
            threads.submit(lambda part: list(translator.translate(part)), lines[number::3])
            for number in range(3)
        ]
        alignments = threads.submit(align)
        for number, part in enumerate(translations):
            assert part.result() == expected[number::3]
        assert alignments.result() == links


def test_nothing_in_is_nothing_out(translator: Translator):
    assert list(translator.translate([])) == []
    assert list(translator.translate([""])) == [""]
    assert list(translator.translate_windows([Window(1, [])])) == [(Window(1, []), [])]


def test_a_line_too_long_is_cut_with_a_warning_that_names_it(translator, caplog):
    ids = translator.tokenizer.encode("nine " * 200)
    cut = translator.tokenizer.decode(ids[:59])
    texts = list(translator.translate(["one", "", "nine " * 200, "two"]))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "line 3:" in record.getMessage()
    assert f"from {len(ids) + 1} to 60 tokens" in record.getMessage()
    caplog.clear()
    assert texts[2] == next(translator.translate([cut]))
    assert not caplog.records


@pytest.fixture(scope="module")
def alone(translator: Translator) -> dict[str, tuple[str, float]]:
    """Text and score of each line, translated by itself."""
    alone = {}
    for line in numbers(40):
        ((best,),) = translator.translate_nbest([line], n_best=1)
        alone[line] = best.text, best.score
    return alone


def assert_as_alone(
    translator: Translator, lines: list[str], alone: dict[str, tuple[str, float]]
) -> None:
    for line, (best,) in zip(lines, translator.translate_nbest(lines, n_best=1), strict=True):
        text, score = alone[line]
        assert best.text == text
        # The native engine has the same bits in every batch.
        tolerance = 1e-5 if translator.config.engine == "torch" else 0
        assert best.score == pytest.approx(score, abs=tolerance, rel=0)


@pytest.mark.parametrize("batch_tokens", [1, slow(7), slow(40), slow(300), 100_000])
def test_text_and_score_do_not_depend_on_the_size_of_the_batch(batch_tokens, translator, alone):
    assert_as_alone(with_batches_of(translator, batch_tokens), list(alone), alone)


def test_a_gpu_gets_larger_batches(untrained: Run):
    # PyTorch, because the native engine is not for a GPU.
    translator = loaded(untrained)
    window = Window(1, ["nine " * 15] * 400)
    sizes = []
    for device_type in ("cpu", "cuda"):
        translator.decoder.device_type = device_type
        sizes.append(len(translator._planned(window, n_best=1).batches))
    assert sizes[0] > 2
    assert sizes[1] == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_text_and_score_do_not_depend_on_the_order(seed, translator, alone):
    lines = list(alone)
    random.Random(seed).shuffle(lines)
    assert_as_alone(translator, lines, alone)
    # Twice, and beside a much longer one.
    assert_as_alone(translator, lines[:9] + lines[:9], alone)
    long = "nine " * 50
    ((best,),) = translator.translate_nbest([long], n_best=1)
    assert_as_alone(translator, [long, *lines[:10], long], alone | {long: (best.text, best.score)})


def test_translating_leaves_the_model_as_it_was(translator: Translator):
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    translator.model.train()
    list(translator.translate(["one two"]))
    assert translator.model.training
    translator.model.eval()
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("text", ["one two", b"one two"])
def test_a_string_instead_of_a_list_of_lines_is_refused_at_once(text, translator):
    lines: Any = text
    for call in (
        lambda: translator.translate(lines),
        lambda: translator.translate(["one"], prefixes=lines),
        lambda: translator.translate_nbest(lines, n_best=2),
        lambda: translator.score_given(lines, ["eins"]),
        lambda: translator.score_given(["one"], lines),
    ):
        with pytest.raises(TypeError, match=f"pass a list of lines.*not {type(text).__name__}"):
            call()


@pytest.mark.parametrize("split", [False, True])
def test_progress_counts_every_line_of_a_window(split: bool, untrained: Run):
    lines = [*numbers(20), "", "One two. Three four!"]
    changes = {"split_sentences": split, "batch_tokens": 20}
    config = untrained.config.decode.model_copy(update=changes)
    translator = Translator.load(untrained, device="cpu", config=config)
    progress: list[float] = []
    window = Window(1, lines)
    ((given, nbests),) = translator.translate_windows([window], progress=progress.append)
    assert given is window
    assert len(nbests) == len(lines)
    assert len(progress) > 3
    # All but the blank one, which is not counted.
    assert len(lines) - 2 < sum(progress) <= len(lines)


def test_the_n_best_are_different_and_in_order(translator: Translator):
    for nbest in translator.translate_nbest(numbers(8), n_best=5):
        scores = [translation.score for translation in nbest]
        assert len(nbest) == 5
        assert scores == sorted(scores, reverse=True)
        assert all(translation.log_prob <= translation.score <= 0 for translation in nbest)


def command(run: Run, *arguments: str | Path) -> list[str]:
    return ["translate", "--run", str(run.path), "--device", "cpu", *map(str, arguments)]


def started(run: Run, *arguments: str) -> Forked:
    return Forked(run_mtkit, command(run, *arguments), stdin=PIPE, stdout=PIPE, stderr=PIPE)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_line_is_answered_before_the_next_is_written(workers, untrained, translator):
    lines = ["one two three", "", "nine"]
    expected = list(translator.translate(lines))
    with started(untrained, "--workers", workers) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line, answer in zip(lines, expected, strict=True):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            # Would wait for ever, were the answer held back.
            assert process.stdout.readline().decode() == f"{answer}\n"
        process.stdin.close()
        assert process.wait(timeout=600) == 0


def test_a_reader_that_leaves_ends_it_quietly(untrained: Run):
    with started(untrained) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        # Until it notices; then it is the writer who finds the pipe closed.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"two\n" * 5)
            process.stdin.close()
        err = process.stderr.read().decode()
        process.wait(timeout=600)
    assert "Traceback" not in err
    assert "Exception" not in err
    assert "Error" not in err


def test_an_output_file_is_whole_and_has_numbered_rows_of_the_best(untrained, translator, place):
    lines = ["one", "", "two three"]
    place.write("in.txt", "".join(f"{line}\n" for line in lines))
    place.write("out.txt", "old\n")
    for options, target in (([], "out.txt"), (["--nbest", "3"], "out.tsv")):
        given = ["--input", place.folder / "in.txt", "--output", place.folder / target, *options]
        assert place.mtkit(*command(untrained, *given)).status == 0
    assert sorted(path.name for path in place.folder.iterdir()) == ["in.txt", "out.tsv", "out.txt"]
    nbests = list(translator.translate_nbest(lines, n_best=3))
    text = "".join(f"{best.text}\n" for best, *_ in nbests)
    assert (place.folder / "out.txt").read_text() == text
    rows = (place.folder / "out.tsv").read_text().removesuffix("\n").split("\n")
    expected = [(number, best) for number, nbest in enumerate(nbests, 1) for best in nbest]
    for row, (number, best) in zip(rows, expected, strict=True):
        first, score, text = row.split("\t", 2)
        assert (first, text) == (str(number), best.text)
        assert float(score) == pytest.approx(best.score, abs=1e-5)


@pytest.mark.parametrize("existing", [None, "old\n"])
def test_an_error_in_the_middle_leaves_no_output_file_or_the_old_one(existing, untrained, place):
    source, target = place.folder / "in.txt", place.folder / "out.txt"
    source.write_bytes(b"one\n" * 9 + b"\xff\n" + b"two\n")
    if existing:
        target.write_text(existing)
    arguments = command(untrained, "--input", source, "--output", target)
    assert "in.txt, line 10: not UTF-8" in place.refused(*arguments)


def test_a_minimum_length_that_outputs_cannot_reach_is_reported_once(untrained, caplog):
    limit = len(untrained.tokenizers().src.encode("x")) + 1 + 7  # with EOS
    for least, extra, count in (limit + 1, 7, 1), (limit + 1, 7, 0), (limit, 7, 0), (8, 0, 1):
        caplog.clear()
        changes = {"min_length": least, "max_extra_length": extra}
        config = untrained.config.decode.model_copy(update=changes)
        (text,) = Translator.load(untrained, config=config, device="cpu").translate(["x"])
        assert text
        messages = [record.getMessage() for record in caplog.records]
        assert [f"min_length {least}: some" in message for message in messages] == [True] * count
