"""Weights that compute no numbers are refused, and a line without a translation is named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import copied_run, slow
from torch import Tensor

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.run_folder import Run
from mtkit.search_settings import Hypothesis
from mtkit.translate import Glossary, Translator
from mtkit.translate.native_decoder import Native
from mtkit.translate.pytorch.decoder import Torch
from mtkit.translate.requests import Sentence

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


def with_one(part: str, value: float, kind: torch.dtype) -> Callable[[str, Tensor], Tensor]:
    """One number of a tensor is another, and all tensors are of a type."""

    def change(name: str, tensor: Tensor) -> Tensor:
        if name == part:
            tensor.view(-1)[-1] = value
        return tensor.to(kind)

    return change


BROKEN: dict[str, Callable[[str, Tensor], Tensor]] = {
    "too large": lambda _, tensor: tensor * 1e30,
    "the encoder is too large": filled("encoder", 1e38),
}
NORM = "decoder.1.residuals.2.norm.bias"
NOT_FINITE: dict[str, Callable[[str, Tensor], Tensor]] = {
    f"{name} in {kind}, {value}": with_one(name, value, kind)
    for name in ("embedding.weight", NORM)
    for kind in (torch.float32, torch.bfloat16, torch.float16)
    for value in (torch.nan, -torch.inf)
}
NOT_FINITE["all"] = filled("", torch.nan)


@pytest.fixture(scope="module", params=BROKEN)
def broken(request, untrained, tmp_path_factory) -> Run:
    place = tmp_path_factory.mktemp(request.param.replace(" ", "-")) / "run"
    return with_weights(untrained, place, BROKEN[request.param])


SETTINGS: list[dict[str, Any]] = [{}, {"beam_size": 1}, {"sample": True}, {"mbr_samples": 4}]
SETTINGS += [{"precision": "int8"}, {"precision": "bf16"}, {"min_length": 3, "no_repeat_ngram": 2}]
DEVICE = {"engine": "torch", "gpu_path": "device"}


@pytest.mark.parametrize("settings", [*SETTINGS, DEVICE, {**DEVICE, "beam_size": 1}], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_weights_that_compute_no_numbers_are_refused_with_their_name(engine, settings, broken):
    config = broken.config.decode.model_copy(update={"engine": engine, **settings})
    if engine == "torch" and "precision" in settings:
        pytest.skip("on a CPU PyTorch has float32 only")
    if engine == "native" and "int8" in settings.values():
        pytest.skip("in 8 bits, large weights have a scale")
    with pytest.raises(MtkitError, match=r"/run, .*step \d+: computes no numbers .*--checkpoint"):
        list(Translator.load(broken, device="cpu", config=config).translate(LINES))


def test_an_ensemble_and_a_glossary_refuse_them_too(broken, untrained):
    loads: list[Callable[[], Translator]] = [
        lambda: Translator.load([untrained, broken], device="cpu"),
        lambda: Translator.load(broken, device="cpu", glossary=Glossary({"one": "eins"})),
    ]
    for load in loads:
        with load() as translator, pytest.raises(MtkitError, match="computes no numbers"):
            list(translator.translate(LINES))


@pytest.mark.parametrize("kind", NOT_FINITE)
def test_weights_that_are_not_finite_are_refused_by_file_and_tensor(kind, untrained, tmp_path):
    run = with_weights(untrained, tmp_path / "run", NOT_FINITE[kind])
    run.save(9, weights=untrained.select("last")[0], optimizer=None, state={})
    tensor = "" if kind == "all" else kind.split(" in ")[0]
    file = rf"{run.checkpoints()[0].path}/model\.safetensors"
    message = rf"^{file}: {tensor}.* not finite \(NaN\); use"
    for engine in ENGINES:
        for precision in ("fp32", "int8", "bf16") if engine == "native" else ("fp32",):
            config = run.config.decode.model_copy(update={"engine": engine, "precision": precision})
            for checkpoint in ("1", "average:2"):
                with pytest.raises(MtkitError, match=message):
                    Translator.load(run, device="cpu", config=config, checkpoint=checkpoint)
            Translator.load(run, device="cpu", config=config, checkpoint="last").close()


def test_large_weights_are_finite_although_their_sum_is_not(untrained, tmp_path):
    weights = untrained.select("last")[0]
    weights["embedding.weight"] = torch.full_like(weights["embedding.weight"], 3e38)
    run = with_weights(untrained, tmp_path / "run", lambda name, _: weights[name])
    assert run.select("last")[0].keys() == dict(run.selection("last").arrays()).keys()


@pytest.mark.parametrize("kind", ["too large", slow("all")])
@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "--input", "in.txt"],
        ["translate", "--input", "in.txt", "--engine", "torch"],
        ["translate", "--input", "in.txt", "--format", "html"],
        ["score"],
        ["force-decode", "in.txt", "out.txt"],
        ["align", "in.txt", "in.txt"],
        ["serve", "--port", "0"],
    ],
    ids=" ".join,
)
def test_each_command_refuses_them_in_one_line(arguments, kind, prepared, tiny_run):
    with_weights(tiny_run, prepared.folder / "mine", (BROKEN | NOT_FINITE)[kind])
    prepared.write("in.txt", "one\ntwo\n")
    prepared.write("out.txt", "eins\nzwei\n")
    outcome = prepared.mtkit("-q", *arguments, "--run", "mine", "--device", "cpu")
    assert ("computes no numbers" if kind in BROKEN else "not finite") in outcome.error


def without(search: Any, lost: list[str], ends: bool) -> Any:
    """A search that finds nothing for some texts, or the end at once, and for others the source."""
    end = Hypothesis((), -1.0, -1.0, True, (-1.0,))

    def some(self: Any, sentences: Any, settings: Any, **options: Any) -> Any:
        return [
            [end] * ends if sentence.text in lost else [copied(hypotheses[0], sentence)]
            for sentence, hypotheses in zip(
                sentences, search(self, sentences, settings, **options), strict=True
            )
        ]

    return some


def copied(hypothesis: Hypothesis, sentence: Sentence) -> Hypothesis:
    tokens = tuple(sentence.ids)
    log_probs = (-1.0,) * len(tokens)
    return hypothesis._replace(tokens=tokens, finished=False, token_log_probs=log_probs)


LOST = ["two", "two.", "three"]
LINES_2_AND_3 = "2 lines are without a translation (lines 2, 3)"
OPTIONS = ([], ["--beam-size=1"], ["--engine=torch"], ["--json"], ["--nbest=2"], ["--format=html"])


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("options", "text", "named"),
    [
        ([], "one\n\ntwo\n", "1 line is without a translation (line 3)"),
        ([], "one. two.\nfour\n42\n", "1 line is without a translation (line 1)"),
        ([], "two\n" * 12, "12 lines are without a translation (lines 1, 2, 3, 4, 5, 6,"),
        ([], "one\n!\n", ""),
        *((options, "one\ntwo\nthree\n", LINES_2_AND_3) for options in OPTIONS),
    ],
)
def test_lines_without_a_translation_are_counted_and_named_at_the_end(
    options, text, named, ends, place, untrained, monkeypatch
):
    for kind in (Native, Torch):
        monkeypatch.setattr(kind, "search", without(kind.search, LOST, ends))
    place.write("in.txt", text)
    arguments = ["--input", "in.txt", "--device", "cpu", "--split-sentences"]
    outcome = place.mtkit("-q", "translate", "--run", untrained.path, *arguments, *options)
    expected = f"mtkit: warning: check the translations: {named}" if named else ""
    assert outcome.status == 0
    assert outcome.err.startswith(expected)
    assert outcome.err.count("\n") == bool(named)
