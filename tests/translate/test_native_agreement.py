"""Translations of the native engine: those of PyTorch, and the same bits in any batch."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import UNTRAINED, changed, random_run, slow
from support.program import printed
from support.translators import changed_to, loaded, numbers

from mtkit import native
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.translate import ForcedDecoder, Glossary, Translation, Translator, Window

pytestmark = pytest.mark.skipif(native.available() != "", reason=native.available())

LINES = [*numbers(15), "", "nine " * 12]
PREFIXES = ["acht neun", "", "eins"] * 5 + ["", "drei"]

SEARCHES: list[dict[str, Any]] = [
    *({"beam_size": W, "length_penalty": alpha} for W in (1, 4, 10) for alpha in (0.0, 0.6)),
    {"beam_size": 4, "length_penalty": 0.6, "length_penalty_form": "power"},
    *({"length_penalty": alpha, "stop": "likely"} for alpha in (0.6, 1.0)),
    *({"beam_size": W, "max_length": 4} for W in (1, 4)),
    *({"beam_size": W, "min_length": 6} for W in (1, 4)),
    {"beam_size": 1, "no_repeat_ngram": 2},
    {"beam_size": 4, "no_repeat_ngram": 1},
    {"sample": True},
    {"sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9},
    # With another seed a draw falls nearer to the limit of two tokens than float32 can tell.
    {"mbr_samples": 6, "temperature": 0.7, "seed": 2},
]


def reference(run: Run) -> Translator:
    """By PyTorch, in float64: which of two translations is better does not depend on the CPU."""
    translator = loaded(run, prepared=False)
    translator.model.double()
    return translator


def assert_near(ours: list[list[Translation]], theirs: list[list[Translation]]) -> None:
    """The same translations; sums of more than 10 in float32 have an error above 1e-5."""
    for our_best, their_best in zip(ours, theirs, strict=True):
        for mine, other in zip(our_best, their_best, strict=True):
            for name in ("text", "pieces", "finished"):
                assert getattr(mine, name) == getattr(other, name)
            for name in ("score", "log_prob", "log_probs"):
                wanted = pytest.approx(getattr(other, name), abs=1e-5, rel=1e-6)
                assert getattr(mine, name) == wanted


@pytest.mark.parametrize("name", [slow("tiny_run"), slow("untrained"), "uneven"])
def test_translations_are_those_of_pytorch(name, request):
    run: Run = request.getfixturevalue(name)
    with_pytorch = reference(run)
    for changes in SEARCHES:
        native = loaded(run, "native", config=run.config.decode.model_copy(update=changes))
        for n_best, prefixes in ((1, None), (3, PREFIXES)):
            ours, theirs = (
                list(translator.translate_nbest(LINES, n_best=n_best, prefixes=prefixes))
                for translator in (native, changed_to(with_pytorch, **changes))
            )
            assert_near(ours, theirs)


def facts(nbests: list[list[Translation]]) -> list[Any]:
    """All that is said of translations but for the time that they took."""
    return [[vars(best) | {"seconds": 0} for best in nbest] for nbest in nbests]


@pytest.mark.parametrize("precision", ["fp32", "int8", "bf16"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam_size": 1, "no_repeat_ngram": 2},
        {"min_length": 3, "no_repeat_ngram": 2, "length_penalty_form": "power"},
        {"sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
    ],
)
def test_every_bit_is_the_same_in_any_batch_and_thread(changes, precision, untrained, monkeypatch):
    lines = [*numbers(60, seed=2), "", "nine " * 12, "x" * 300, "one"]
    order = random.Random(1).sample(range(len(lines)), len(lines))
    # So that two threads have several batches, whose sizes differ from those of one thread.
    monkeypatch.setattr("mtkit.translate.decoding.MIN_BATCH_TOKENS", 60)
    results: list[list[Any]] = []
    for batch_tokens in (1, 100_000):
        for threads in (1, 2):
            update = {"precision": precision, "batch_tokens": batch_tokens, **changes}
            config = untrained.config.decode.model_copy(update=update)
            with loaded(untrained, "native", config=config, workers=threads) as translator:
                results.append(facts(list(translator.translate_nbest(lines, n_best=2))))
                # A sample depends on the number of its line.
                shuffled = Window(1, [lines[i] for i in order], numbers=[i + 1 for i in order])
                ((_, placed),) = translator.translate_windows([shuffled], n_best=2)
            by_line = dict(zip(order, facts(placed), strict=True))
            results.append([by_line[i] for i in range(len(lines))])
    assert len({str(of_line) for of_line in results[0]}) > 40
    assert all(result == results[0] for result in results)


def with_learned_positions(place: Path, data: PreparedData, count: int) -> Run:
    config = changed(UNTRAINED, "model", positions="learned", max_positions=count)
    return random_run(place, data, 1, config=config)


@pytest.mark.parametrize("engine", ["torch", "native", "an ensemble", "with a glossary"])
def test_a_source_is_cut_where_learned_positions_end(engine, tiny_data, tmp_path, caplog):
    sizes = [16, 19] if engine == "an ensemble" else [16]
    runs = [with_learned_positions(tmp_path / str(size), tiny_data, size) for size in sizes]
    settings = UNTRAINED.decode.model_copy(update={"max_source_tokens": 16})
    # With all of its 16 tokens, and no end of the sentence, of which a term is missing.
    longest = {"min_length": 16, "max_extra_length": 50}
    lines, given = ["one two", "nine " * 40], ["eins zwei", "neun " * 40]
    glossary = Glossary({"nine": "zehn"}) if engine == "with a glossary" else None
    options = {"workers": 1, "glossary": glossary}
    kind = engine if engine in ("torch", "native") else "auto"
    cut = re.compile(r"line 2: cut from \d+ to 16 tokens \(model\.max_positions\)")
    with (
        loaded(runs, kind, config=settings, **options) as cut_earlier,
        loaded(runs, kind, **options) as translator,
        loaded(runs, kind, config=UNTRAINED.decode.model_copy(update=longest), **options) as longer,
    ):
        expected = list(cut_earlier.translate(lines))
        caplog.clear()
        assert list(translator.translate(lines)) == expected
        assert len(cut.findall(caplog.text)) == 1
        assert len(list(longer.translate(lines))) == 2
        caplog.clear()
        assert len(list(translator.score_given(lines, given))) == 2
        assert len(cut.findall(caplog.text)) == 1
        (_, alignment) = translator.align(lines, given)
        assert "only 15 of" in caplog.text
        assert {i for link in alignment.links for i in link} <= set(range(16))
        with ForcedDecoder(translator) as forced:
            assert len(forced.log_probs(lines, given)[1]) == 15


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_translation_ends_where_learned_positions_end(engine, tiny_data, tmp_path, caplog):
    run = with_learned_positions(tmp_path / "run", tiny_data, 16)
    given = "eins " * 40
    cut = re.compile(r"line 2, translation: cut from \d+ to 16 tokens \(model\.max_positions\)")
    with loaded(run, engine, workers=1) as translator:
        # Without the end of a sentence, it would go on.
        longer = changed_to(translator, min_length=16, max_extra_length=50)
        for beginnings in (None, ["", given]):
            caplog.clear()
            window = Window(1, ["one two", "one"], beginnings)
            ((_, nbests),) = longer.translate_windows([window])
            assert [len(best.log_probs) for (best, *_) in nbests] == [16, 16]
            assert len(cut.findall(caplog.text)) == (beginnings is not None)
        caplog.clear()
        scored = list(translator.score_given(["one two", "one"], ["eins", given]))
        assert len(cut.findall(caplog.text)) == 1
        assert len(scored[1].log_probs) == 16
        caplog.clear()
        with ForcedDecoder(translator) as forced:
            (log_probs,) = forced.log_probs(["one"], [given])
        assert list(log_probs) == pytest.approx(scored[1].log_probs[:-1], abs=1e-4)
        assert caplog.text == ""


# The program

# A library that is not found cannot be loaded.
WITHOUT_PYTORCH = """
import sys
sys.modules["torch"] = None
from mtkit.__main__ import program
program()
"""


def said(run: Run, *arguments: str, text: str = "") -> str:
    """What the program prints where PyTorch cannot be loaded; the data is where the run says."""
    return printed("-c", WITHOUT_PYTORCH, "-q", *arguments, "--run", run.path, stdin=text)


def test_translating_loads_no_pytorch_and_gives_its_texts(tiny_run):
    lines = numbers(20)
    expected = "".join(f"{text}\n" for text in reference(tiny_run).translate(lines))
    text = "".join(f"{line}\n" for line in lines)
    for options in ((), ("--workers", "2", "--batch-tokens", "1")):
        assert said(tiny_run, "translate", *options, text=text) == expected
    # A document needs it for the places of its formats only.
    paragraphs = text.replace("\n", "\n\n")
    for ending in ("md", "html"):
        document = said(tiny_run, "translate", "--format", ending, text=paragraphs)
        assert len(document.splitlines()) == len(paragraphs.splitlines())
    sampled = ("--sample", "--nbest", "2", "--json", "--precision", "int8")
    assert len(said(tiny_run, "translate", *sampled, text=text).splitlines()) == len(lines)


def test_scoring_loads_no_pytorch_and_gives_its_score(place, tiny_run):
    expected = place.mtkit("-q", "score", "--run", tiny_run.path, "--engine", "torch")
    assert expected.status == 0
    assert said(tiny_run, "score") == expected.out
