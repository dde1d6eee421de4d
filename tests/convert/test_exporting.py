"""Models for other software: they do there what they do here, or nothing is left behind."""

import functools
import json
import random
import re
import sys
import types
import unicodedata
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import GREEK, changed, random_ending_run
from support.command_line import full_disk
from support.errors import message_of
from support.exported import NUMBERS, TEXTS, needs
from support.program import printed, python, succeeded
from support.runs import contents, remade

from mtkit.base.errors import MtkitError
from mtkit.base.invisible import visible
from mtkit.cli import commands
from mtkit.config import ModelConfig
from mtkit.convert.export_run import TARGETS, export
from mtkit.convert.verification import Agreement, Bounds
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.run_manifest import ImportRecord
from mtkit.tokenizer import PAD_ID
from mtkit.train.assembly import run as train
from mtkit.translate import Translator

EXPORTED = Path(__file__).parents[1] / "support/exported.py"

OTHER_FOLDERS = ["ctranslate2", "huggingface", "onnx"]


def as_printed(printed: str, run: Run, lines: list[str]) -> tuple[str, list[str]]:
    """The printed program for these lines without a beam, and what the run translates so."""
    usage = printed.split("to use it in Python:\n")[1]
    config = run.config.decode.model_copy(update={"beam_size": 1})
    translator = Translator.load(run, config=config, device="cpu")
    program = ""
    for line in lines:
        longest = len(translator.src_tokenizer.encode(line)) + 1 + config.max_extra_length
        limits = f"beam_size=1, min_decoding_length=0, max_decoding_length={longest}"
        alone = usage.replace("**source", f"**source, num_beams=1, max_new_tokens={longest}")
        program += alone.replace("beam_size=4", limits).replace("Text to translate.", line)
    return program, [line.strip() for line in translator.translate(lines)]


Exporter = Callable[[str], tuple[Path, str]]


@pytest.fixture(scope="module")
def exported(ending_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Exporter:
    """Exports the run in a format, once, and gives the folder and what was printed."""

    @functools.cache
    def once(format: str) -> tuple[Path, str]:
        out = tmp_path_factory.mktemp("exported") / "below" / "out"
        done = python("-m", "mtkit", "export", ending_run.path, out, "--format", format)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return out, done.stderr

    return once


@pytest.mark.parametrize("format", [needs("ctranslate2"), needs("huggingface")])
def test_the_printed_lines_of_python_translate_as_the_run_does(format, ending_run, exported):
    out, printed = exported(format)
    assert "checked: 20 of 20 lines of the validation text of" in printed
    assert "BLEU" not in printed
    assert float(re.findall(r"differ by at most (\S+)", printed)[0]) < 1e-3
    facts = json.loads((out / "export.json").read_text())
    assert (facts["steps"], facts["check"]["identical"]) == ([1], 20)

    program, ours = as_printed(printed, ending_run, NUMBERS)
    used = succeeded("-c", program)
    assert [line.strip() for line in used.stdout.split("\n")[:-1]] == ours


@pytest.mark.parametrize("format", ["safetensors", *map(needs, [*OTHER_FOLDERS[:2], "argos"])])
def test_weights_that_are_damaged_on_the_way_leave_nothing(format, ending_run, tmp_path):
    done = succeeded(EXPORTED, "refusals", ending_run.path, tmp_path / "out", format)
    for message in json.loads(done.stdout):
        out = tmp_path / f"out{getattr(TARGETS[format], 'suffix', '')}"  # type: ignore[index]
        assert message.startswith(f"{out}: not written, because the export ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", [needs("huggingface")])
def test_the_tokenizer_there_gives_the_same_ids_and_text(format, ending_run, exported, tmp_path):
    out, _ = exported(format)
    rng = random.Random(1)
    assigned = [c for c in map(chr, range(1, 0x30000)) if unicodedata.category(c)[0] != "C"]
    mixed = ["".join(rng.choices(assigned, k=12)) for _ in range(500)]
    low = ["".join(rng.choices([c for c in assigned if c < "\u3100"], k=12)) for _ in range(500)]
    ends_in_space = [" ".join(rng.choices(TEXTS, k=2)) for _ in range(20)]
    # Their tokenizer keeps invisible characters, as the card of an export says.
    texts = [visible(text) for text in (*TEXTS, "", *mixed, *low, *ends_in_space)]
    language_code = ">>de<< has a meaning of its own there"
    (tmp_path / "texts").write_text(json.dumps([*texts, language_code]))
    done = succeeded(EXPORTED, "round_trips", out, tmp_path / "texts")
    *encoded, exception = json.loads(done.stdout)
    tokenizer, _ = ending_run.tokenizers()
    for text, other in zip(texts, encoded, strict=True):
        ids = tokenizer.encode(text)
        assert other["src"] == other["tgt"] == [*ids, tokenizer.eos_id], ascii(text)
        assert other["text"] == tokenizer.decode(ids), ascii(text)
    assert exception["src"][:-1] != tokenizer.encode(language_code)


@pytest.mark.parametrize("format", [needs("ctranslate2"), needs("huggingface")])
def test_a_run_with_two_vocabularies_does_the_same_there(format, uneven, greek_data, tmp_path):
    run = random_ending_run(tmp_path / "run", greek_data, 10, tokenizers=uneven.tokenizers())
    done = succeeded("-m", "mtkit", "export", run.path, tmp_path / "out", "--format", format)
    assert "checked: 20 of 20 lines of the validation text of" in done.stderr
    assert "BLEU" not in done.stderr
    usage = done.stderr.split("to use it in Python:\n")[1]
    program, ours = as_printed(done.stderr, run, NUMBERS)
    # As printed, with a beam.
    used = succeeded("-c", program + usage.replace("Text to translate.", "one two three"))
    *theirs, searched = [line.strip() for line in used.stdout.split("\n")[:-1]]
    assert theirs == ours
    assert set(searched) <= set(" ".join(GREEK))
    assert searched


@pytest.mark.parametrize("format", [needs("huggingface")])
def test_the_tokenizer_there_has_the_subwords_of_each_side(format, uneven, greek_data, tmp_path):
    out = tmp_path / "out"
    done = succeeded("-m", "mtkit", "export", uneven.path, out, "--format", format)
    src, tgt = uneven.tokenizers()
    texts = [visible(text) for text in (*TEXTS, *greek_data.text("valid")[1], "")]
    (tmp_path / "texts").write_text(json.dumps(texts))
    done = succeeded(EXPORTED, "round_trips", out, tmp_path / "texts")
    for text, other in zip(texts, json.loads(done.stdout), strict=True):
        assert other["text"] == tgt.decode(tgt.encode(text)).strip(), ascii(text)
        assert other["src"] == [*src.encode(text), src.eos_id], ascii(text)
        assert other["tgt"] == [*tgt.encode(text), tgt.eos_id], ascii(text)


def test_a_run_folder_with_two_vocabularies_is_exported_as_one(uneven: Run, tmp_path: Path):
    out = tmp_path / "out"
    export(uneven, out, format="safetensors")
    exported = Run.open(out)
    pairs = zip(exported.tokenizers(), uneven.tokenizers(), strict=True)
    assert all(exported_side.model == other.model for exported_side, other in pairs)
    ours, theirs = (Translator.load(run, device="cpu") for run in (uneven, exported))
    assert list(ours.translate(NUMBERS)) == list(theirs.translate(NUMBERS))


@pytest.mark.parametrize("format", [needs("ctranslate2")])
@pytest.mark.parametrize("positions", ["learned", "none"])
def test_ctranslate2_takes_other_norms_and_positions(positions, format, tiny_run, tmp_path):
    shape = {"norm": "pre", "positions": positions, "max_positions": 60, "encoder_layers": 2}
    config = changed(tiny_run.config, "model", **shape)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Transformer(config.model, len(tiny_run.tokenizers()[1]), PAD_ID)
        weights = {k: v + torch.randn(v.shape) * 0.3 for k, v in model.state_dict().items()}
    run = remade(tiny_run, tmp_path / "run", config=config, weights=weights)
    done = succeeded("-m", "mtkit", "export", run.path, tmp_path / "out", "--format", format)
    assert "checked: 20 of 20 lines" in done.stderr


@pytest.mark.parametrize("format", [needs("ctranslate2")])
def test_small_numbers_take_less_room_and_leave_the_model_as_it_was(format, ending_run, tmp_path):
    facts = json.loads(printed(EXPORTED, "quantized", ending_run.path, tmp_path))
    assert facts["unchanged"]
    whole, half, quarter = (facts["bytes"][key] for key in ("float32", "float16", "int8"))
    assert whole > half > quarter


def test_the_safetensors_format_is_a_run_folder_of_one_averaged_checkpoint(tiny_run, tmp_path):
    out = tmp_path / "out"
    usage = export(tiny_run, out, format="safetensors")
    assert usage == f"mtkit translate --run {out} < input.txt\n"
    exported = Run.open(out)
    (checkpoint,) = exported.checkpoints()
    assert checkpoint.step == 4
    assert not list(out.rglob("optimizer*"))
    assert exported.config.decode == tiny_run.config.decode
    assert exported.manifest.exported["run"] == "tiny"
    assert exported.manifest.exported["steps"] == [2, 4]
    # The mean of the two checkpoints, worked out here.
    two = [saved.load_weights() for saved in tiny_run.checkpoints()]
    for name, tensor in checkpoint.load_weights().items():
        torch.testing.assert_close(tensor, (two[0][name] + two[1][name]) / 2)
    ours, theirs = (Translator.load(run, device="cpu") for run in (tiny_run, exported))
    assert list(ours.translate(NUMBERS)) == list(theirs.translate(NUMBERS))


@pytest.mark.parametrize("by", ["export", "import"])
@pytest.mark.parametrize("restart", [False, True])
def test_training_keeps_off_a_run_that_was_converted(by, restart, tiny_run, tiny_data, tmp_path):
    out = tmp_path / "out"
    record = ImportRecord(source="m", commit="", licence="", citations=[], subwords=None)
    made = {"exported": {}} if by == "export" else {"imported": record}
    remade(tiny_run, out, **made)
    message = (
        f"{out}: was made by mtkit {by}, and has no state of a training; to train it further, "
        f"give another --run, and --init-from {out}"
    )
    for init_from in (None, str(tiny_run.path), str(out)):
        given = {"restart": restart, "init_from": init_from}
        assert message_of(train, tiny_run.config, tiny_data, out, device="cpu", **given) == message
    assert [saved.step for saved in Run.open(out).checkpoints()] == [4]


@pytest.mark.parametrize("format", ["safetensors", *map(needs, OTHER_FOLDERS)])
def test_every_file_of_an_export_has_the_usual_mode(format, exported, tiny_run, tmp_path):
    if format == "safetensors":
        out = tmp_path / "out"
        export(tiny_run, out, format="safetensors")
    else:
        out, _ = exported(format)
    (tmp_path / "other").touch()
    modes = {path.name: path.stat().st_mode for path in out.rglob("*") if path.is_file()}
    assert set(modes.values()) == {(tmp_path / "other").stat().st_mode}, modes


@pytest.mark.parametrize("format", ["safetensors", *map(needs, OTHER_FOLDERS)])
def test_an_export_on_a_full_disk_is_one_line_and_leaves_nothing(format, tiny_run, tmp_path):
    with full_disk(5000), pytest.raises(MtkitError, match="File too large") as caught:
        export(tiny_run, tmp_path / "out", format=format)
    assert str(caught.value).startswith(f"{tmp_path}/out")
    assert list(tmp_path.iterdir()) == []


def test_the_notes_of_an_export_name_no_unfinished_folder(tiny_run, tmp_path, caplog):
    run = Run.open(tiny_run.path)
    with caplog.at_level("INFO", logger="mtkit"):
        export(run, tmp_path / "out", format="safetensors")
    assert f"{run.path}: the average of 2 checkpoints, steps 2 to 4" in caplog.messages
    assert not any(".partial" in message for message in caplog.messages)


def test_the_check_of_an_export_leaves_the_threads_of_pytorch_as_they_are(tiny_run, tmp_path):
    # The order of sums depends on them: a training after it would have other last digits.
    export(tiny_run, tmp_path / "out", format="ctranslate2")
    assert torch.get_num_threads() == 1


def test_an_interrupted_export_leaves_what_was_there(tiny_run, tmp_path, monkeypatch):
    out = tmp_path / "out"
    export(tiny_run, out, format="safetensors")
    before = contents(tmp_path)

    for name in ("target.compare", "export_run.write_card"):
        with monkeypatch.context() as patch:
            patch.setattr(f"mtkit.convert.{name}", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                export(tiny_run, out, format="safetensors", force=True)
        assert contents(tmp_path) == before


def test_only_an_export_is_replaced_and_if_it_is_asked_for(tiny_run, begun, tmp_path):
    out = tmp_path / "out"
    export(tiny_run, out, format="safetensors", checkpoint="2")
    with pytest.raises(MtkitError, match="exists already; give --force to replace it, or another"):
        export(tiny_run, out, format="safetensors")
    export(tiny_run, out, format="safetensors", checkpoint="4", force=True)
    (checkpoint,) = Run.open(out).checkpoints()
    weights, _ = tiny_run.select("4")
    assert all(tensor.equal(weights[name]) for name, tensor in checkpoint.load_weights().items())
    for force in (True, False):
        with pytest.raises(MtkitError, match="--force does not replace it, because it is not an"):
            export(tiny_run, begun, format="safetensors", force=force)
    assert Run.open(begun).checkpoints()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "{}: exists already, and --force does not replace it, because it is not an ex"),
        ("link/out", "{}: no file can be created in {.parent}: No such file"),
        (f"{'n' * 250}", "{}: cannot be locked: File name too long"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    name, message, force, tiny_run, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    before = contents(tmp_path)
    monkeypatch.setattr(Translator, "load", None)
    out = tmp_path / name
    error = message_of(export, tiny_run, out, format="safetensors", force=force)
    assert error.startswith(message.format(out, out))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-"], "OUT: give a name; an export cannot go to standard output (-)"),
        (["out", "--check", "-"], "--check: give a file; standard input (-) is not read"),
    ],
)
def test_standard_streams_are_refused_in_one_line(arguments, message, trained):
    error = trained.refused("export", "runs/tiny", *arguments, "--format", "safetensors")
    assert error == f"mtkit: error: {message} (see mtkit export --help)"


@pytest.mark.parametrize(
    ("format", "library", "extra"),
    [
        ("ctranslate2", "ctranslate2", "export"),
        ("huggingface", "transformers", "export"),
        *(("argos", library, "export") for library in ("ctranslate2", "onnx", "language_data")),
        *(("onnx", library, "onnx") for library in ("onnx", "onnxruntime", "tokenizers")),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    format, library, extra, tiny_run, tmp_path, monkeypatch
):
    for name in ("ctranslate2", "onnx", "language_data"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, library, None)
    out = tmp_path / f"out{getattr(TARGETS[format], 'suffix', '')}"
    message = f"--format {format} needs the package {library}; install it with: pip install 'mtkit"
    with pytest.raises(MtkitError, match=rf"^{re.escape(message)}\[{extra}\]'$"):
        export(tiny_run, out, format=format)


# What the attention of these always does.
USUAL = ["ctranslate2", "huggingface", "argos"]


@pytest.mark.parametrize(
    ("settings", "refused", "key"),
    [
        ({"norm": "pre"}, ["huggingface"], "norm pre"),
        ({"positions": "learned"}, ["huggingface"], "positions learned"),
        ({"positions": "words"}, [*USUAL, "onnx"], "positions words"),
        ({"attention_window": 4}, USUAL, "attention_window 4"),
        ({"attention_scale": 1.0}, USUAL, "attention_scale 1.0"),
        ({"narrow_attention": True}, USUAL, "narrow_attention True"),
        ({"d_k": 32}, USUAL, "d_k 32"),
        ({"d_k": 64, "d_v": 32}, USUAL, "d_v 32"),
    ],
)
def test_what_a_format_cannot_express_is_refused_by_the_name_of_the_setting(settings, refused, key):
    for format, target in TARGETS.items():
        config = ModelConfig(**settings)
        if format in refused:
            with pytest.raises(MtkitError, match=rf"cannot express model\.{key}: "):
                target.check_expressible(config)
        else:
            target.check_expressible(config)
        target.check_expressible(ModelConfig())


def test_a_run_without_its_data_is_checked_with_samples_or_given_text(tiny_run, begun, tmp_path):
    data = tiny_run.manifest.data.model_copy(update={"path": str(tmp_path / "gone")})
    run = Run(tiny_run.path, tiny_run.config, tiny_run.manifest.model_copy(update={"data": data}))
    out = tmp_path / "out"
    export(run, out, format="safetensors")
    samples = len(run.samples()[-1]["samples"])
    assert json.loads((out / "export.json").read_text())["check"]["lines"] == samples

    text = tmp_path / "text"
    text.write_text("one two\n\n  \nthree\n")
    export(run, out, format="safetensors", check=text, force=True)
    assert json.loads((out / "export.json").read_text())["check"]["lines"] == 2
    text.write_text("\n")
    with pytest.raises(MtkitError, match=f"{text}: has no line that can be checked"):
        export(run, out, format="safetensors", check=text, force=True)

    (begun / "samples.jsonl").unlink()
    bare = Run(begun, run.config, run.manifest)
    with pytest.raises(MtkitError, match=r"no text to check the export with .* as --check FILE"):
        export(bare, out, format="safetensors", force=True)


def test_no_more_than_five_hundred_lines_are_translated(tiny_run: Run, tmp_path: Path):
    text = tmp_path / "text"
    text.write_text("one two\n" * 501)
    export(tiny_run, tmp_path / "out", format="safetensors", check=text)
    check = json.loads((tmp_path / "out" / "export.json").read_text())["check"]
    assert (check["lines"], check["compared"]) == (500, 32)


@pytest.mark.parametrize(
    ("lines", "identical", "difference", "holds"),
    [
        (500, 495, 1e-3, True),
        (500, 494, 0.0, False),
        (20, 19, 0.0, True),
        (20, 18, 0.0, False),
        (500, 500, 2e-3, False),
        (500, 500, float("nan"), False),
    ],
)
def test_a_check_allows_one_line_in_a_hundred(lines, identical, difference, holds):
    agreement = Agreement("text", lines, identical, 100.0, difference, 32)
    assert agreement.holds(Bounds(0.99, 1e-3)) == holds


def test_a_quantization_is_for_the_format_that_has_one(tiny_run: Run, tmp_path: Path):
    command = ["export", str(tiny_run.path), str(tmp_path / "out"), "--format", "safetensors"]
    with pytest.raises(
        MtkitError, match="--format safetensors does not support --quantization int8"
    ):
        commands.main([*command, "--quantization", "int8"], standalone_mode=False)
    commands.main(command, standalone_mode=False)
    assert Run.open(tmp_path / "out").checkpoints()
