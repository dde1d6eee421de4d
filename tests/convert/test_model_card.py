"""The card of an export, and how a model translates after an export and an import."""

import json
import math
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import yaml
from conftest import changed, reseal
from support.exported import LIBRARIES, NUMBERS, needs, skipped_without
from support.marian import lines_in
from support.program import succeeded

from mtkit.base.errors import MtkitError
from mtkit.base.sentences import LineFacts
from mtkit.convert.export_record import given_settings
from mtkit.convert.export_run import export
from mtkit.convert.import_run import import_model
from mtkit.convert.model_card import read_card
from mtkit.run_folder import Run
from mtkit.translate import Translator

BIBTEX = "@misc{someone-2020,\n    title = {A <model> & its data},\n}"


def front_matter(card: str) -> dict[str, Any]:
    facts = yaml.safe_load(re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)[1])
    assert isinstance(facts, dict)
    return facts


def code_of(card: str) -> str:
    (code,) = re.findall(r"^```(?:python|sh)\n(.*?)^```", card, re.DOTALL | re.MULTILINE)
    return str(code)


def copied(run: Run, place: Path, **manifest: Any) -> Run:
    """A copy of a run with other entries in its manifest."""
    shutil.copytree(run.path, place)
    reseal(place / "manifest.json", lambda content: content.update(manifest))
    return Run.open(place)


def card_of(run: Run, folder: Path, **more: Any) -> str:
    """The card of the run folder that a run is exported to, `out`."""
    export(run, folder / "out", format="safetensors", **more)
    return (folder / "out" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def text(tmp_path) -> Path:
    """Lines to check an export with, where the run has none."""
    return lines_in(tmp_path / "text", NUMBERS)


@pytest.fixture(scope="module")
def card(tiny_run, tmp_path_factory) -> str:
    return card_of(tiny_run, tmp_path_factory.mktemp("card"))


def test_a_card_says_languages_data_and_weights(card):
    assert front_matter(card) == {
        "language": ["en", "de"],
        "library_name": "mtkit",
        "pipeline_tag": "translation",
        "tags": ["mtkit"],
    }
    assert "\n# tiny\n" in card
    assert "**What it does:** translates en to de, sentence by sentence" in card
    assert "**Training data:** tiny, 200 sentence pairs" in card
    assert "**Licence of the data:** not known to mtkit" in card
    assert "mean of the checkpoints of steps 2, 4, float32" in card
    assert "score divided by ((5 + n) / 6) ** 0.6 for n subwords" in card


def test_a_card_of_a_model_of_whole_lines_says_line_by_line(tiny_run, tmp_path):
    data = tiny_run.manifest.data.model_dump() | {"lines": {"sampled": 100, "several": 50}}
    run = copied(tiny_run, tmp_path / "run", data=data)
    assert "translates en to de, line by line\n" in card_of(run, tmp_path)


def test_a_card_has_the_scores_of_the_validation_with_their_signatures(card, tiny_run):
    row = next(row for row in tiny_run.metrics() if "valid_loss" in row)
    bleu = sacrebleu.BLEU()
    bleu.corpus_score(["a"], [["a"]])
    assert (
        f"- validation set of tiny: BLEU {row['valid_bleu']:.2f} `{bleu.get_signature()}`\n" in card
    )
    assert f"chrF {row['valid_chrf']:.2f} `nrefs:1|case:mixed|eff:yes|nc:6|nw:0|" in card
    assert "by the weights of step 4" in card


def test_a_score_of_an_unknown_version_of_sacrebleu_has_no_version(tiny_run, tmp_path):
    card = card_of(copied(tiny_run, tmp_path / "old", versions={}), tmp_path)
    assert "`nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp`" in card


def test_a_card_says_the_licence_of_the_data_and_of_the_model_that_was_tuned(tiny_run, tmp_path):
    data = tiny_run.manifest.data.model_dump() | {"licence": "research use; see example.org"}
    started = {"run": "/home/someone/opus", "weights": "step 0", "sha256": "0"}
    started |= {"data": "Helsinki-NLP/opus-mt-en-de", "licence": "cc-by-4.0"}
    card = card_of(copied(tiny_run, tmp_path / "r", data=data, started_from=started), tmp_path)
    assert "**Licence of the data:** research use; see example.org" in card
    assert "**Fine-tuned from:** step 0 of opus, trained on Helsinki-NLP/opus-mt-en-de" in card
    assert "**Licence of that model:** cc-by-4.0" in card
    # The licence of the new weights is for their owner to choose.
    assert "license" not in front_matter(card)


def test_the_licence_and_citation_of_an_imported_model_are_read_again(tiny_run, text, tmp_path):
    record = {"source": "Helsinki-NLP/opus-mt-en-de", "commit": "abc", "licence": "cc-by-4.0"}
    record |= {"citations": [BIBTEX], "subwords": None}
    card = card_of(copied(tiny_run, tmp_path / "r", imported=record), tmp_path, check=text)
    assert front_matter(card)["license"] == "cc-by-4.0"
    assert front_matter(card)["base_model"] == "Helsinki-NLP/opus-mt-en-de"
    read = read_card(tmp_path / "out")
    assert (read.licence, read.citations) == ("cc-by-4.0", [BIBTEX])


def test_names_in_a_card_stay_on_their_line_and_are_no_markup(tiny_run, text, tmp_path):
    data = tiny_run.manifest.data.model_dump()
    data |= {"name": "a\n# <b>x</b>", "src_lang": 'no", "x": "', "tgt_lang": "no"}
    card = card_of(copied(tiny_run, tmp_path / "r", data=data), tmp_path, check=text)
    assert front_matter(card)["language"] == ["no"]
    assert "\n# <b>" not in card
    assert "<b>" not in card


def test_the_command_in_the_card_of_a_run_folder_runs_in_it(tiny_run, place, card):
    assert code_of(card) == "mtkit translate --run . < input.txt\n"
    export(tiny_run, place.folder / "out", format="safetensors")
    place.folder /= "out"
    assert place.done("translate", "--run", ".", stdin=b"one two\n").out.count("\n") == 1


@pytest.mark.parametrize("format", [needs("argos")])
def test_the_card_of_a_package_names_only_its_direction(format, tiny_run, text, tmp_path):
    data = tiny_run.manifest.data.model_dump()
    direction = {"src_lang": "en", "tgt_lang": "de"}
    data["directions"] = [direction, direction | {"src_lang": "cs"}, direction | {"tgt_lang": "fr"}]
    run = copied(tiny_run, tmp_path / "r", data=data)
    out = tmp_path / "out.argosmodel"
    options = ("--format", format, "--quantization", "float32", "--check", text)
    succeeded("-m", "mtkit", "export", run.path, out, *options)
    with zipfile.ZipFile(out) as archive:
        card = archive.read("mtkit-en_de/README.md").decode()
    assert front_matter(card)["language"] == ["en", "de"]
    assert "**What it does:** translates en to de, sentence by sentence" in card


@pytest.mark.parametrize("format", [needs("ctranslate2"), needs("huggingface")])
def test_the_code_in_a_card_runs_in_the_folder_of_the_export(format, untrained, tmp_path):
    out = tmp_path / "out"
    succeeded("-m", "mtkit", "export", untrained.path, out, "--format", format)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert front_matter(card)["library_name"] == LIBRARIES[format]
    done = succeeded("-c", code_of(card).replace("Text to translate.", NUMBERS[0]), cwd=out)
    assert done.stdout.strip()


@skipped_without("huggingface")
def test_an_import_of_an_export_translates_as_the_run_does(ending_run, tmp_path):
    decode = {"beam_size": 3, "length_penalty": 1.0, "no_repeat_ngram": 4}
    decode |= {"max_extra_length": 6, "max_source_tokens": 50}
    run = replace(ending_run, config=changed(ending_run.config, "decode", **decode))
    export(run, tmp_path / "out", format="huggingface")
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["num_beams"] == 3
    # The exponent of n by which ((5 + n) / 6) ** 1.0 rises at 25 subwords.
    wanted = math.log((5 + 25.01) / (5 + 24.99)) / math.log(25.01 / 24.99)
    assert generation["length_penalty"] == pytest.approx(wanted, abs=1e-4)
    again = import_model(str(tmp_path / "out"), tmp_path / "again").run
    assert again.config.decode == run.config.decode
    ours, theirs = (
        list(Translator.load(converted, device="cpu", config=run.config.decode).translate(NUMBERS))
        for converted in (run, again)
    )
    assert ours == theirs


@skipped_without("huggingface")
def test_an_import_of_an_export_knows_what_the_training_lines_were_like(tiny_run, text, tmp_path):
    lines = LineFacts(sampled=100, several=40, longest=900, shortest=0.3)
    data = tiny_run.manifest.data.model_dump() | {"lines": lines.model_dump()}
    run = copied(tiny_run, tmp_path / "r", data=data)
    export(run, tmp_path / "out", format="huggingface", check=text)
    assert "one sentence at a time" not in (tmp_path / "out" / "README.md").read_text()
    assert import_model(str(tmp_path / "out"), tmp_path / "again").run.manifest.data.lines == lines
    file = tmp_path / "out" / "export.json"
    record = json.loads(file.read_text())
    record["lines"]["sampled"] = "many"
    file.write_text(json.dumps(record))
    with pytest.raises(MtkitError, match=r"export.json: .*sampled"):
        import_model(str(tmp_path / "out"), tmp_path / "other")


@skipped_without("huggingface")
def test_a_card_says_that_other_software_must_get_single_sentences(untrained, tmp_path):
    for format in ("huggingface", "safetensors"):
        export(untrained, tmp_path / format, format=format)
        card = (tmp_path / format / "README.md").read_text(encoding="utf-8")
        assert ("Give it one sentence at a time" in card) == (format == "huggingface")


@skipped_without("huggingface")
def test_an_impossible_setting_in_the_record_of_an_export_is_named(untrained, tmp_path):
    export(untrained, tmp_path / "out", format="huggingface")
    file = tmp_path / "out" / "export.json"
    record = json.loads(file.read_text())
    record["decode"] |= {"beam_size": 0, "from_a_later_version": 1}
    file.write_text(json.dumps(record))
    with pytest.raises(MtkitError, match=re.escape(f"{file}: decode.beam_size: ")):
        import_model(str(tmp_path / "out"), tmp_path / "again")


@pytest.mark.parametrize(
    ("beam", "penalty", "expected"),
    [
        (6, None, (6, 1.0)),
        (0, 11, (4, 1.0)),
        (True, False, (4, 1.0)),
        ([6], {"a": 1}, (4, 1.0)),
        ("9" * 5000, "nan", (4, 1.0)),
    ],
)
def test_settings_of_other_software_are_taken_if_they_are_possible(beam, penalty, expected):
    decode = given_settings(beam, penalty)
    assert (decode.beam_size, decode.length_penalty) == expected
    assert decode.length_penalty_form == "power"
