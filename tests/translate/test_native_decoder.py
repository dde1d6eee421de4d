"""What is around the native engine: when it is chosen, its threads, its end, and no PyTorch."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import CPU, copied_run
from support import native_engine
from support.native_engine import Copier
from support.translators import numbers

from mtkit.base.errors import MtkitError
from mtkit.config import DecodeConfig
from mtkit.native import available
from mtkit.run_folder import Run
from mtkit.translate import Glossary, Translator, choosing
from mtkit.translate.native_decoder import Native
from mtkit.translate.pytorch import models as torch_models


def natively(translator: Translator, model: Any, threads: int = 1, **changes: Any) -> Translator:
    """The same translator, which decodes with such a model."""
    runs = replace(translator.runs, config=translator.config.model_copy(update=changes))
    return Translator(runs, Native(model, runs, threads=threads))


def test_a_forked_process_translates_in_threads_of_its_own(translator: Translator):
    lines = numbers(5)
    with natively(translator, Copier({}, precision="fp32"), threads=2) as held:
        expected = list(held.translate(lines))
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork of a process with threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process == 0:
            status = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)  # so that a child that waits for ever ends
                status = int(list(held.translate(lines)) != expected)
                held.close()
            finally:
                os._exit(status)
        assert os.waitpid(process, 0)[1] == 0
        assert list(held.translate(lines)) == expected


def test_pytorch_loads_the_checkpoints_of_the_engine_once(tiny_run, tmp_path, monkeypatch):
    if not_here := available():
        pytest.skip(not_here)
    run = Run.open(copied_run(tiny_run, tmp_path / "run"))
    *_, older, newest = run.checkpoints()
    kept = newest.path.rename(tmp_path / "later")
    held = Translator.load(run, checkpoint="last", device="cpu")
    # Training goes on.
    kept.rename(newest.path)
    loaded = []
    load = torch_models.load_models

    def load_and_note(*arguments: Any, **options: Any) -> Any:
        loaded.append(arguments)
        return load(*arguments, **options)

    monkeypatch.setattr(torch_models, "load_models", load_and_note)
    held.variant(glossary=Glossary({"one": "eins"}))
    expected, _ = run.select(str(older.step))
    assert torch.equal(held.model.embedding.weight, expected["embedding.weight"])
    assert not torch.equal(held.model.embedding.weight, run.select("last")[0]["embedding.weight"])
    held.variant(glossary=Glossary({"two": "zwei"})).aligner()
    assert len(loaded) == 1


class Failing(Copier):
    def translate(self, *arguments: Any, **options: Any) -> Any:
        raise MemoryError


def test_an_error_in_a_thread_is_raised_where_the_translation_is_waited_for(translator: Translator):
    with (
        natively(translator, Failing({}, precision="fp32"), threads=2) as held,
        pytest.raises(MtkitError, match=r"^out of memory translating"),
    ):
        list(held.translate(["one two"]))


NATIVE, TORCH = ("native", "native"), ("PyTorch", "PyTorch")
ON_CPU, SEVERAL = "needs the native engine on a CPU, but", "several runs need PyTorch"


@pytest.mark.parametrize(
    ("settings", "given", "expected"),
    [
        ("", {}, (*NATIVE, "fp32", "")),
        ("precision=int8", {}, (*NATIVE, "int8", "")),
        ("engine=native", {}, (*NATIVE, "fp32", "")),
        ("engine=torch", {}, (*TORCH, "fp32", "")),
        ("", {"device": "cuda"}, (*TORCH, "fp32", "a GPU needs PyTorch")),
        ("precision=bf16", {"device": "cuda"}, (*TORCH, "bf16", "a GPU needs PyTorch")),
        ("precision=int8", {"device": "cuda"}, "decode.precision int8: is for CPUs"),
        ("", {"reason": "no compiler"}, (*TORCH, "fp32", "no compiler")),
        ("precision=int8", {"reason": "no one"}, f"decode.precision int8: {ON_CPU} no one; choose"),
        ("precision=bf16 engine=torch", {}, f"decode.precision bf16: {ON_CPU} decode.engine is"),
        ("precision=int8 gpu_path=device", {}, f"decode.precision int8: {ON_CPU} gpu_path device"),
        ("", {"device": "gpu"}, "device gpu: choose auto, cpu or cuda"),
        # By default bf16 is only for translations, and where it is fast.
        ("", {"bf16": "amx"}, (*NATIVE, "fp32", "")),
        ("", {"bf16": "amx", "exact": False}, (*NATIVE, "bf16", "")),
        ("", {"bf16": "avx512bf16", "exact": False}, (*NATIVE, "bf16", "")),
        ("", {"bf16": "vnni", "exact": False}, (*NATIVE, "fp32", "")),
        ("precision=int8", {"bf16": "amx", "exact": False}, (*NATIVE, "int8", "")),
        ("precision=bf16", {"bf16": "vnni"}, (*NATIVE, "bf16", "")),
        ("precision=int8", {"n_runs": 2}, ("native", "PyTorch", "int8", SEVERAL)),
    ],
)
def test_engine_and_precision_are_those_of_the_table(settings, given, expected, monkeypatch):
    reason, bf16 = given.get("reason", ""), given.get("bf16", "plain")
    native_engine.install(monkeypatch.setattr, reason=reason, bf16=bf16)
    given = {name: given[name] for name in given.keys() - {"reason", "bf16"}}
    config = DecodeConfig(**dict(setting.split("=") for setting in settings.split()))
    if isinstance(expected, str):
        with pytest.raises(MtkitError, match=f"^{expected}"):
            choosing.choose(config, **given)
    else:
        choice = choosing.choose(config, **given)
        assert choice == expected
        # What a resumed translation must have in common with its beginning.
        is_own = choice.model == "native" and choice.precision != "fp32"
        assert choice.precision_label == f"{'native ' if is_own else ''}{choice.precision}"


def test_what_the_native_engine_cannot_do_is_done_by_pytorch_which_says_why(untrained, monkeypatch):
    native_engine.install(monkeypatch.setattr)
    config = untrained.config.decode.model_copy(update={"precision": "int8"})
    # What a resumed translation must have in common with its beginning.
    assert Translator.load(untrained, device="cpu", config=config).precision == "native int8"
    with Translator.load(untrained, device="cpu", workers=2) as native:
        assert native.engine == "native, fp32, plain, 2 threads; search: native"
        assert native.precision == "fp32"
        assert list(native.translate(["one two"])) == ["one two"]
        # PyTorch is loaded for what needs it.
        assert native.device == CPU
        assert next(native.score_given(["one"], ["eins"])).log_prob < 0
    steps, pytorch = "native, fp32, plain; search: PyTorch", "PyTorch, .*; search: PyTorch"
    for run, how, why, options in (
        ([untrained, untrained], steps, SEVERAL, {}),
        (untrained, steps, "a glossary needs PyTorch", {"glossary": Glossary({"one": "eins"})}),
        (untrained, pytorch, "weights as trained need PyTorch", {"prepared": False}),
    ):
        with Translator.load(run, device="cpu", **options) as other:  # type: ignore[arg-type]
            assert re.search(rf"^{how} \({why}\)$", other.engine)
    demanded = untrained.config.decode.model_copy(update={"engine": "native"})
    with pytest.raises(MtkitError, match=r"^decode\.engine native: several runs need PyTorch"):
        Translator.load([untrained, untrained], device="cpu", config=demanded)


@pytest.mark.parametrize(
    ("workers", "device", "level"),
    [(None, "cpu", None), (2, "cpu", "WARNING"), (None, "cuda", "INFO")],
)
def test_pytorch_says_how_several_gpus_are_used(workers, device, level, caplog, monkeypatch):
    caplog.set_level("INFO", "mtkit")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    torch_models._note_process(workers, torch.device(device))
    assert [record.levelname for record in caplog.records] == [level] * (level is not None)
    assert all("one job for each with --shard I/N" in line for line in caplog.messages)


@pytest.mark.parametrize("what", ["ensemble", "glossary", "parser"])
def test_searches_in_python_find_the_same_with_steps_of_the_native_engine(untrained, parser, what):
    if reason := available():
        pytest.skip(reason)
    run: Any = {"ensemble": [untrained, untrained], "glossary": untrained, "parser": parser}
    lines = [*numbers(20), "nine " * 30]
    glossary = Glossary({"one": "eins", "nine": "zwei"}) if what == "glossary" else None
    decode = (parser if what == "parser" else untrained).config.decode
    nbests = []
    for engine in ("auto", "torch"):
        changes = {"engine": engine, "well_formed_trees": what == "parser"}
        options = {"config": decode.model_copy(update=changes), "glossary": glossary}
        with Translator.load(run[what], device="cpu", **options) as translator:
            assert translator.engine.startswith("native") == (engine == "auto")
            assert "; search: PyTorch" in translator.engine
            nbests.append(list(translator.translate_nbest(lines, n_best=2)))
    for own, plain in zip(*nbests, strict=True):
        for ours, theirs in zip(own, plain, strict=True):
            assert ours.text == theirs.text
            assert ours.score == pytest.approx(theirs.score, abs=1e-5)


def test_kernels_that_the_cpu_lacks_are_named_and_not_the_run(untrained, monkeypatch):
    if reason := available():
        pytest.skip(reason)
    monkeypatch.setenv("MTKIT_KERNELS", "none")
    with pytest.raises(MtkitError, match=r"^MTKIT_KERNELS: .* no kernels named none; it has"):
        Translator.load(untrained, device="cpu")


def command(*arguments: Any) -> list[str]:
    """The program with that engine, where PyTorch cannot be loaded."""
    return [sys.executable, native_engine.__file__, *map(str, arguments)]


def test_the_exit_status_is_that_of_an_error_and_all_that_was_said_is_written(untrained, tmp_path):
    done = subprocess.run(
        command("translate", "--run", tmp_path / "none"), capture_output=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"there is no such run folder" in done.stderr
    done = subprocess.run(command("translate", "--beam"), capture_output=True, timeout=600)
    assert done.returncode == 2
    lines = b"one two three\n" * 5000
    done = subprocess.run(
        command("translate", "--run", untrained.path), input=lines, capture_output=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, lines)
    assert b"mtkit: engine: native, fp32, plain" in done.stderr


def test_ctrl_c_ends_a_search_that_is_under_way(untrained: Run):
    with subprocess.Popen(
        command("-q", "translate", "--run", untrained.path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one two three four " * 50 + b"\n")
        process.stdin.close()
        try:
            notes = iter(process.stderr.readline, b"")
            # Before it there may be a warning of the long line.
            assert b"searching\n" in notes
            until = time.monotonic() + 600
            while process.poll() is None and time.monotonic() < until:
                # Python misses an interrupt that comes just before it waits.
                process.send_signal(signal.SIGINT)
                time.sleep(0.2)
            assert process.stderr.read().lstrip() == b"mtkit: interrupted: 0 lines were written\n"
            assert process.returncode == 130
        finally:
            process.kill()
