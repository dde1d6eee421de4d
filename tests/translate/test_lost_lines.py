"""Weights that compute no numbers are refused, and a line without a translation is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import copied_run, random_run, slow, speaking
from support.command_line import Place
from torch import Tensor

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.search_settings import Hypothesis
from mtkit.tokenizer import BOS_ID, EOS_ID, Tokenizer
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
    if engine == "native" and "int8" in settings.values():
        pytest.skip("in 8 bits, large weights have a scale")
    message = r"/run, .*step \d+: computes no numbers .*--checkpoint"
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


@pytest.mark.parametrize("kind", NOT_FINITE)
def test_weights_that_are_not_finite_are_refused_by_file_and_tensor(
    kind: str, untrained: Run, tmp_path: Path
) -> None:
    run = with_weights(untrained, tmp_path / "run", NOT_FINITE[kind])
    run.save(9, weights=untrained.select("last")[0], optimizer=None, state={})
    tensor = "" if kind == "all" else kind.split(" in ")[0]
    message = (
        rf"^{run.checkpoints()[0].path}/model\.safetensors: {tensor}.* not finite \(NaN\); use"
    )
    for engine in ENGINES:
        for precision in ("fp32", "int8", "bf16") if engine == "native" else ("fp32",):
            config = run.config.decode.model_copy(update={"engine": engine, "precision": precision})
            for checkpoint in ("1", "average:2"):
                with pytest.raises(MtkitError, match=message):
                    Translator.load(run, device="cpu", config=config, checkpoint=checkpoint)
            Translator.load(run, device="cpu", config=config, checkpoint="last").close()


def test_large_weights_are_finite_although_their_sum_is_not(untrained: Run, tmp_path: Path) -> None:
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
        ["force-decode", "in.txt", "in.txt"],
        ["align", "in.txt", "in.txt"],
        ["serve", "--port", "0"],
    ],
    ids=" ".join,
)
def test_each_command_refuses_them_in_one_line(
    arguments: list[str], kind: str, prepared: Place, tiny_run: Run
) -> None:
    with_weights(tiny_run, prepared.folder / "mine", (BROKEN | NOT_FINITE)[kind])
    prepared.write("in.txt", "one\ntwo\n")
    outcome = prepared.mtkit("-q", *arguments, "--run", "mine", "--device", "cpu")
    assert ("computes no numbers" if kind in BROKEN else "not finite") in outcome.error


TWO_LOST = "2 lines are without a translation (lines 1, 3)"
SOME_LOST = ("one\ntwo\nthree\n", ["one", "three"], TWO_LOST)


@pytest.mark.parametrize(
    ("options", "text", "lost", "named"),
    [
        ([], "one\ntwo\nthree\n", ["two"], "1 line is without a translation (line 2)"),
        ([], "one\n\ntwo\n", ["two"], "1 line is without a translation (line 3)"),
        ([], "one. two.\nthree\n", ["two."], "1 line is without a translation (line 1)"),
        ([], "one\n" * 12, ["one"], "12 lines are without a translation (lines 1, 2, 3, 4, 5, 6,"),
        ([], "one\n!\n", [], ""),
        *((options, *SOME_LOST) for options in ([], ["--beam-size=1"], ["--engine=torch"])),
        (["--nbest=2"], *SOME_LOST),
    ],
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
    for kind in (Native, Torch):
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
    log_probs = (-1.0,) * len(tokens)
    return hypothesis._replace(tokens=tokens, finished=False, token_log_probs=log_probs)


# The logit of EOS at the first step for each of these texts.
ENDS = {"One two.": -99.0, "Three.": 99.0, "Four five six.": 99.0, "Seven eight.": -99.0}


@pytest.fixture(scope="module")
def silent_for_some(greek_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose model ends at once for two of these texts, by the embedding of EOS."""
    src, _ = greek_data.tokenizers()

    def change(model: Transformer, tokenizer: Tokenizer) -> None:
        speaking(model, tokenizer)
        model.eval()
        begin = torch.tensor([[BOS_ID]])
        sources = [torch.tensor([[*src.encode(text), EOS_ID]]) for text in ENDS]
        states = [model(source, begin, states_only=True)[0, 0] for source in sources]
        logits = torch.tensor(list(ENDS.values()))
        model.embedding.weight[EOS_ID] = torch.linalg.pinv(torch.stack(states)) @ logits

    return random_run(tmp_path_factory.mktemp("silent") / "run", greek_data, 5, change=change)


ALL_FOUR = (list(ENDS), "2 lines are without a translation (lines 2, 3)")


@pytest.mark.parametrize(
    ("options", "lines", "named"),
    [
        ([], ["", " ", "Three.", "One two.", ""], "1 line is without a translation (line 3)"),
        ([], ["One two. Three.", "Seven eight."], "1 line is without a translation (line 1)"),
        ([], ["Three. Four five six.", "42"], "1 line is without a translation (line 1)"),
        ([], ["One two. Seven eight.", "", "42"], ""),
        *((options, *ALL_FOUR) for options in ([], ["--json"], ["--beam-size=1"])),
        *((options, *ALL_FOUR) for options in (["--engine=torch"], ["--format=html"])),
        (["--format=html"], ["One two. Three.", "4"], "1 line is without a translation (line 1)"),
    ],
)
def test_lines_for_which_the_model_ends_at_once_are_counted_and_named(
    options: list[str], lines: list[str], named: str, place: Place, silent_for_some: Run
) -> None:
    tagged = [f"<p>{line}</p>" for line in lines] if "--format=html" in options else lines
    place.write("in.txt", "".join(f"{line}\n" for line in tagged))
    arguments = ["--input", "in.txt", "--device", "cpu", "--split-sentences"]
    outcome = place.mtkit("-q", "translate", "--run", silent_for_some.path, *arguments, *options)
    expected = f"mtkit: warning: check the translations: {named}" if named else ""
    assert outcome.status == 0
    assert outcome.err.startswith(expected)
    assert outcome.err.count("\n") == bool(named)
