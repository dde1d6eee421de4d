"""Packages for Argos Translate, read without mtkit, and by Argos itself where it is installed."""

import importlib.util
import json
import types
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from conftest import changed
from support.errors import message_of
from support.exported import NUMBERS, needs, skipped_without
from support.program import python, succeeded

from mtkit.base.errors import MtkitError
from mtkit.convert.argos import _ArgosAgreement, _ArgosModel
from mtkit.convert.export_run import export
from mtkit.convert.sentence_model import sentence_model
from mtkit.convert.verification import BOUNDS
from mtkit.run_folder import Run
from mtkit.translate import Translator

EXPORTED = Path(__file__).parents[1] / "support" / "exported.py"

# Reads a package as Argos does, and prints the greedy translation of lines; no code of mtkit.
READER = """
import json, pathlib, sys, ctranslate2, sentencepiece
(folder,) = pathlib.Path(sys.argv[1]).iterdir()
pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
engine = ctranslate2.Translator(str(folder / "model"), device="cpu", intra_threads=1)
found = engine.translate_batch(
    [pieces.encode(line, out_type=str) for line in json.loads(sys.argv[2])],
    replace_unknowns=True, max_batch_size=32, batch_type="tokens", beam_size=1,
    num_hypotheses=1, length_penalty=0.2, max_decoding_length=60,
)
print(json.dumps([pieces.decode_pieces(one.hypotheses[0]) for one in found]))
"""

# Installs a package with the library itself and translates lines; a connection is an error.
ARGOS_ITSELF = """
import json, socket, sys
def refuse(*_): raise AssertionError("it wants the network")
socket.socket.connect = socket.getaddrinfo = refuse
from argostranslate import package, translate
package.install_from_path(sys.argv[1])
lines = json.loads(sys.argv[2])
print(json.dumps([translate.translate(line, "en", "de") for line in lines]))
"""


def needs_library(name: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: CONTRIBUTING.md")


@pytest.fixture(scope="module")
def package(ending_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as a package in float32."""
    out = tmp_path_factory.mktemp("argos") / "below" / "any name.argosmodel"
    options = ("--format", "argos", "--quantization", "float32")
    done = python("-m", "mtkit", "export", ending_run.path, out, *options)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "checked: 20 of 20 lines of the validation text of" in done.stderr
    assert f'package.install_from_path("{out}")' in done.stderr
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    return out


def greedy(run: Run, lines: list[str], *, most: int, **languages: str) -> list[str]:
    """The translations of a run with greedy search and at most so many subwords."""
    limits = {"max_extra_length": most, "max_length": most}
    config = run.config.decode.greedy().model_copy(update={"engine": "torch", **limits})
    return list(Translator.load(run, config=config, device="cpu", **languages).translate(lines))


@pytest.mark.parametrize("format", [needs("argos")])
def test_a_package_is_one_folder_with_the_files_that_argos_reads(format, package, ending_run):
    with zipfile.ZipFile(package) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert {name.split("/")[0] for name in names} == {"mtkit-en_de"}
        files = {name.partition("/")[2] for name in names}
        model = {"config.json", "model.bin", "shared_vocabulary.json"}
        assert files == {
            *("metadata.json", "sentencepiece.model", "README.md", "export.json"),
            *("minisbd/sentences.onnx", *(f"model/{name}" for name in model)),
        }
        assert json.loads(archive.read("mtkit-en_de/metadata.json")) == {
            "package_version": "1.0",
            "argos_version": "1.11",
            "from_code": "en",
            "from_name": "English",
            "to_code": "de",
            "to_name": "German",
        }
        card = archive.read("mtkit-en_de/README.md").decode()
        assert 'package.install_from_path("en_de.argosmodel")' in card
        assert "one sentence at a time" not in card
        pieces = sentencepiece.SentencePieceProcessor(
            model_proto=archive.read("mtkit-en_de/sentencepiece.model")
        )
        check = json.loads(archive.read("mtkit-en_de/export.json"))["check"]
    tokenizer = ending_run.tokenizers().src
    assert [pieces.encode(line) for line in NUMBERS] == [tokenizer.encode(line) for line in NUMBERS]
    assert (check["identical"], check["ties"]) == (20, 0)
    assert not check["bleu_lost"]


@pytest.mark.parametrize("format", [needs("argos")])
def test_a_package_translates_without_mtkit_as_the_run_does(format, package, ending_run, tmp_path):
    zipfile.ZipFile(package).extractall(tmp_path)
    done = succeeded("-c", READER, tmp_path, json.dumps(NUMBERS))
    assert json.loads(done.stdout) == greedy(ending_run, NUMBERS, most=60)


@pytest.mark.parametrize("format", [needs("argos")])
@needs_library("argostranslate")
def test_argos_translates_as_the_run_does_without_a_network(format, package, ending_run, tmp_path):
    places = dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(tmp_path))
    greedy_search = {"ARGOS_BEAM_SIZE": "1", "ARGOS_COMPUTE_TYPE": "default"}
    lines = [*NUMBERS, "One two. Three four."]
    done = succeeded("-c", ARGOS_ITSELF, package, json.dumps(lines), **places, **greedy_search)
    *translations, split = json.loads(done.stdout)
    assert translations == greedy(ending_run, NUMBERS, most=256)
    assert split == " ".join(greedy(ending_run, ["One two.", "Three four."], most=256))


@pytest.mark.parametrize("format", [needs("argos")])
def test_bytes_are_the_same_and_only_a_package_is_replaced(format, package, ending_run, tmp_path):
    out = tmp_path / package.name
    command = ("-m", "mtkit", "export", ending_run.path, out, "--format", "argos")
    command += ("--quantization", "float32", "--force")
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("folder/other", "")
    assert "--force does not replace it, because it is not an export" in python(*command).stderr
    out.write_bytes(package.read_bytes()[:-1])
    assert "--force does not replace it, because it is not an export" in python(*command).stderr
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mtkit-en_de/export.json", "")
    succeeded(*command)
    assert out.read_bytes() == package.read_bytes()
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("format", [needs("argos")])
def test_a_package_has_small_numbers_by_default(format, package, ending_run, tmp_path):
    out = tmp_path / "small.argosmodel"
    succeeded("-m", "mtkit", "export", ending_run.path, out, "--format", "argos")
    with zipfile.ZipFile(out) as archive:
        record = json.loads(archive.read("mtkit-en_de/export.json"))
        assert record["quantization"] == "int8"
        assert record["check"]["ties"] is None
    assert out.stat().st_size < package.stat().st_size


def refusal(run: Run, out: Path, **options: Any) -> str:
    error = message_of(export, run, out, format="argos", **options)
    assert not out.exists()
    return error


@skipped_without("argos")
def test_what_a_package_cannot_express_is_refused_in_one_line(tiny_run, uneven, parser, tmp_path):
    out = tmp_path / "out.argosmodel"
    assert "a vocabulary for each side, because a package has one" in refusal(uneven, out)
    assert "a model for parsing, because Argos Translate only" in refusal(parser, out)
    assert "writes a file, whose name must end in .argos" in refusal(tiny_run, tmp_path / "out")
    short = replace(
        tiny_run, config=changed(tiny_run.config, "model", positions="learned", max_positions=1000)
    )
    assert "cannot express model.max_positions 1000: " in refusal(short, out)
    for language, words in (("", "does not say it; give --src-lang"), ("1", "has '1'; give")):
        data = tiny_run.manifest.data.model_copy(update={"src_lang": language})
        manifest = tiny_run.manifest.model_copy(update={"data": data})
        run = Run(tiny_run.path, tiny_run.config, manifest)
        assert f"needs a code such as en for each language, and {run.path} {words}" in (
            refusal(run, out)
        )


@skipped_without("argos")
def test_what_is_no_package_is_refused_before_any_work(tiny_run: Run, tmp_path: Path):
    out = tmp_path / "out.argosmodel"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("folder/export.json", "")
    # Its table of contents, whose place the end of the file still gives.
    out.write_bytes(out.read_bytes().replace(b"PK\1\2", b"PK\0\0"))
    assert zipfile.is_zipfile(out)
    with pytest.raises(MtkitError, match="--force does not replace it, because it is not an"):
        export(tiny_run, out, format="argos", force=True)
    out.unlink()
    out.mkdir()
    with pytest.raises(MtkitError, match="--format argos writes a file"):
        export(tiny_run, out, format="argos", force=True)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("format", [needs("argos")])
def test_a_package_with_another_weight_or_translation_is_refused(format, ending_run, tmp_path):
    done = succeeded(EXPORTED, "wrong_packages", ending_run.path, tmp_path / "out")
    in_float32, in_int8, other = json.loads(done.stdout)
    for message in (in_float32, in_int8, other):
        assert "out.argosmodel: not written, because the export does not agree with" in message
    assert "all lines but ties and at most 0.001 are required" in in_float32
    assert "at least 50% of the lines" in in_int8
    assert "and a BLEU that is at most 0.3 less than that of the run are required" in in_int8
    # All weights are right, and one of 500 lines would be less than one in a hundred.
    assert "19 of 20 lines of the validation text" in other
    assert "all lines but ties" in other
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("identical", "ties", "lost", "bounds", "difference", "holds"),
    [
        (500, 0, 0.0, "float32", 1e-4, True),
        (499, 1, 0.0, "float32", 1e-4, True),
        (499, 0, 0.0, "float32", 1e-4, False),
        (500, 0, 0.0, "float32", 2e-3, False),
        (500, 0, 0.0, "float32", float("nan"), False),
        (400, None, 0.29, "int8", 1.0, True),
        (400, None, 0.31, "int8", 1.0, False),
        (499, None, 0.31, "int8", 1.0, True),
        (249, None, 0.0, "int8", 1.0, False),
        (400, None, None, "int8", 1.0, True),
        (460, None, 0.31, "float16", 0.01, False),
    ],
)
def test_in_float32_only_ties_may_differ_and_small_numbers_may_lose_little(
    identical, ties, lost, bounds, difference, holds
):
    compared = ("text", 500, identical, 99.0, difference, 32)
    assert _ArgosAgreement(*compared, ties=ties, bleu_lost=lost).holds(BOUNDS[bounds]) == holds


@pytest.mark.parametrize(
    ("ours", "theirs", "ours_scored", "theirs_scored", "is_tie"),
    [
        # The second subwords are equally probable; the later ones do not count.
        ("a b", "a c d", [-1, -2, -9], [-1, -2.0009, -1, -1], True),
        ("a b", "a c d", [-1, -2, -1], [-1, -2.002, -1, -1], False),
        ("a b", "a c d", [-1, -2, -1], [-1, -1.9, -1, -1], False),
        # One ends where the other has a subword more.
        ("a", "a b", [-1, -0.7], [-1, -0.7, -5], True),
        ("a b", "a", [-1, -0.7, -5], [-1, -0.3], False),
        ("a b", "a b", [-1, -1, -1], [-1, -1, -1], True),
        # Argos writes one subword at least.
        ("", "a", [-0.1], [-3, -0.1], True),
    ],
)
def test_a_tie_is_where_the_first_other_subwords_are_equally_probable(
    ours, theirs, ours_scored, theirs_scored, is_tie
):
    scored = {tuple(ours.split()): ours_scored, tuple(theirs.split()): theirs_scored}
    model = object.__new__(_ArgosModel)
    model._pieces = types.SimpleNamespace(encode=lambda line, out_type: [line])
    model._engine = types.SimpleNamespace(
        translate_batch=lambda *_, **__: [types.SimpleNamespace(hypotheses=[theirs.split()])],
        score_batch=lambda _, targets: [
            types.SimpleNamespace(log_probs=scored[tuple(pieces)]) for pieces in targets
        ],
    )
    assert model.is_tie("line", ours.split()) == is_tie


SENTENCES = [
    ("en", ["Hello there.", "How are you?", "I'm fine!"]),
    ("en", ["He met J. Smith.", 'Then "Stop!" he said.', "“Go!”", "(Really?)", "Wait... what?"]),
    ("en", ["In 1998.", "It was 3.5 or more."]),
    ("de", ["Am 19. Mai und am 3. Juni kam z. B. Anna.", "„Ja!“", "Es war 1998.", "Ende."]),
    ("zh", ["你好。", "你是谁？", "“我是。”", "再见。"]),
]


@pytest.mark.parametrize(("language", "sentences"), SENTENCES)
@skipped_without("argos")
@needs_library("minisbd")
def test_minisbd_splits_text_by_the_rules(language: str, sentences: list[str], tmp_path: Path):
    import minisbd

    (tmp_path / "model.onnx").write_bytes(sentence_model(language))
    detector = minisbd.SBDetect(str(tmp_path / "model.onnx"), use_gpu=False)
    space = "" if language == "zh" else " "
    text = space.join(sentences)
    assert detector.sentences(text) == sentences
    # A text of more characters than it gives a model at once.
    many = sentences * 25
    assert detector.sentences(space.join(many)) == many
    (tmp_path / "whole.onnx").write_bytes(sentence_model(language, splits=False))
    assert minisbd.SBDetect(str(tmp_path / "whole.onnx"), use_gpu=False).sentences(text) == [text]
