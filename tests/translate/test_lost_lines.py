"""Weights that compute no numbers are refused, and a line without a translation is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import copied_run
from support.command_line import Place
from torch import Tensor

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.run_folder import Run
from mtkit.translate import Glossary, Translator
from mtkit.translate.decoding import Backend
from mtkit.translate.requests import Sentence
from mtkit.translate.settings import Hypothesis

LINES = ["one two", "three", "", "four five six"]
ENGINES = ["torch"] if native.available() else ["torch", "native"]


def with_weights(run: Run, place: Path, change: Callable[[str, Tensor], Tensor]) -> Run:
    """A copy of a run whose weights are others."""
    copy = Run.open(copied_run(run, place))
    weights = copy.select("last")[0]
    step = copy.checkpoints()[-1].step
    for checkpoint in copy.checkpoints():
        shutil.rmtree(checkpoint.path)
    changed = {name: change(name, tensor.clone()) for name, tensor in weights.items()}
    copy.save(step, weights=changed, optimizer=None, state={})
    return copy


def filled(part: str, value: float) -> Callable[[str, Tensor], Tensor]:
    return lambda name, tensor: tensor.fill_(value) if part in name else tensor


BROKEN: dict[str, Callable[[str, Tensor], Tensor]] = {
    "NaN": filled("", torch.nan),
    "infinite": filled("", torch.inf),
    "too large": lambda _, tensor: tensor * 1e30,
    "a norm is NaN": filled("decoder.0", torch.nan),
    "the encoder is NaN": filled("encoder", torch.nan),
    "the encoder is too large": filled("encoder", 1e38),
}


@pytest.fixture(scope="module", params=BROKEN)
def broken(
    request: pytest.FixtureRequest, untrained: Run, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    place = tmp_path_factory.mktemp(request.param.replace(" ", "-")) / "run"
    return with_weights(untrained, place, BROKEN[request.param])


SETTINGS: list[dict[str, Any]] = [{}, {"beam_size": 1}, {"sample": True}, {"mbr_samples": 4}]
SETTINGS += [{"precision": "int8"}, {"precision": "bf16"}, {"min_length": 3, "no_repeat_ngram": 2}]
DEVICE = {"engine": "torch", "gpu_path": "device"}


@pytest.mark.parametrize("settings", [*SETTINGS, DEVICE, {**DEVICE, "beam_size": 1}], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_weights_that_compute_no_numbers_are_refused_with_their_name(
    engine: str, settings: dict[str, Any], broken: Run
) -> None:
    config = broken.config.decode.model_copy(update={"engine": engine, **settings})
    if engine == "torch" and "precision" in settings:
        pytest.skip("on a CPU PyTorch has float32 only")
    in_8_bits = engine == "native" and "int8" in settings.values()
    if in_8_bits and "large" in broken.path.parent.name:
        pytest.skip("in 8 bits, large weights have a scale")
    message = r"/run, .*step \d+: computes no numbers .*--checkpoint"
    message = r"/run: .*tensor .* not finite \(NaN\)" if in_8_bits else message
    with pytest.raises(MtkitError, match=message):
        list(Translator.load(broken, device="cpu", config=config).translate(LINES))


def test_an_ensemble_and_a_glossary_refuse_them_too(broken: Run, untrained: Run) -> None:
    loads: list[Callable[[], Translator]] = [
        lambda: Translator.load([untrained, broken], device="cpu"),
        lambda: Translator.load(broken, device="cpu", glossary=Glossary({"one": "eins"})),
    ]
    for load in loads:
        with load() as translator, pytest.raises(MtkitError, match="computes no numbers"):
            list(translator.translate(LINES))


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "--input", "in.txt"],
        ["translate", "--input", "in.txt", "--engine", "torch"],
        ["translate", "--input", "in.txt", "--format", "html"],
        ["score"],
        ["force-decode", "in.txt", "in.txt"],
        ["align", "in.txt", "in.txt"],
        ["serve", "--port", "0"],
    ],
    ids=" ".join,
)
def test_each_command_refuses_them_in_one_line(
    arguments: list[str], prepared: Place, tiny_run: Run
) -> None:
    with_weights(tiny_run, prepared.folder / "mine", BROKEN["NaN"])
    prepared.write("in.txt", "one\ntwo\n")
    outcome = prepared.mtkit("-q", *arguments, "--run", "mine", "--device", "cpu")
    assert "computes no numbers (NaN)" in outcome.error


@pytest.mark.parametrize(
    ("text", "lost", "named"),
    [
        ("one\ntwo\nthree\n", ["two"], "1 line is without a translation (line 2)"),
        ("one\ntwo\nthree\n", ["one", "three"], "2 lines are without a translation (lines 1, 3)"),
        ("one\n\ntwo\n", ["two"], "1 line is without a translation (line 3)"),
        ("one. two.\nthree\n", ["two."], "1 line is without a translation (line 1)"),
        ("one\n" * 12, ["one"], "12 lines are without a translation (lines 1, 2, 3, 4, 5, 6, 7,"),
        ("one\n!\n", [], ""),
    ],
)
@pytest.mark.parametrize(
    "options", [[], ["--beam-size", "1"], ["--engine", "torch"], ["--nbest", "2"]]
)
def test_lines_without_a_hypothesis_are_counted_and_named_at_the_end(
    options: list[str],
    text: str,
    lost: list[str],
    named: str,
    place: Place,
    untrained: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in Backend.__subclasses__():
        monkeypatch.setattr(kind, "search", without(kind.search, lost))
    place.write("in.txt", text)
    arguments = ["--input", "in.txt", "--device", "cpu"]
    outcome = place.mtkit("-q", "translate", "--run", untrained.path, *arguments, *options)
    assert outcome.status == 0
    assert (f"check the translations: {named}" in outcome.err) == bool(named)
    assert ("without a translation" in outcome.err) == bool(named)


def without(search: Any, lost: list[str]) -> Any:
    """A search that finds nothing for some texts, and the source for the others."""

    def some(self: Any, sentences: Any, settings: Any, **options: Any) -> Any:
        found = search(self, sentences, settings, **options)
        return [
            [] if sentence.text in lost else [copied(hypotheses[0], sentence)]
            for sentence, hypotheses in zip(sentences, found, strict=True)
        ]

    return some


def copied(hypothesis: Hypothesis, sentence: Sentence) -> Hypothesis:
    tokens = tuple(sentence.ids)
    return replace(hypothesis, tokens=tokens, finished=False, token_log_probs=(-1.0,) * len(tokens))
