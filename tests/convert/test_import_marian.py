"""Imported models do here what they do in transformers."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import changed, slow
from safetensors.torch import load_file, save_file
from support.hub import Hub, Repository, client_environment
from support.marian import Shape, edit, lines_in, unigram, write_marian, write_npz
from support.program import succeeded
from support.translators import loaded

from mtkit.base.errors import MtkitError
from mtkit.config import parse_config
from mtkit.convert.export_run import export
from mtkit.convert.huggingface import MarianModel
from mtkit.convert.import_run import import_model
from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mtkit.train import assembly as train
from mtkit.translate import Translator

pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
SHAPES = {
    "shared": Shape(),
    "separate": Shape(separate=True, activation="relu"),
    "tags": Shape(tags=("fra", "deu"), eos="middle", lost=5),
    "last": Shape(eos="last", activation="relu", lost=3),
}
# The log-probabilities of all shapes are compared in `make test`.
SOME_FIRST = ["shared", "tags", slow("separate"), slow("last")]
LINES = 12
CARD = """---
language:
- en
- de
license: cc-by-4.0
---
# A model

```bibtex
@inproceedings{tiedemann-thottingal-2020-opus,
    title = "{OPUS}-{MT}",
}
```
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("marian")
    for name, shape in SHAPES.items():
        write_marian(place / name, shape)
    (place / "shared" / "README.md").write_text(CARD)
    return {name: place / name for name in SHAPES}


@pytest.fixture(scope="module")
def imported(sources, tmp_path_factory):
    """The same models as run folders."""
    place = tmp_path_factory.mktemp("imported")
    results = {}
    for name, source in sources.items():
        text = lines_in(place / f"{name}.txt", SHAPES[name].lines[-LINES:])
        results[name] = import_model(str(source), place / name, check=text)
    return results


@pytest.fixture
def without_transformers(monkeypatch) -> None:
    """An import compares nothing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def tokens(source: Path, lines: list[str], tag: str = "") -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForSeq2SeqLM.from_pretrained(source, dtype=torch.float32).eval()
    return model, tokenizer([f"{tag} {line}" for line in lines], padding=True, return_tensors="pt")


@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_are_those_of_transformers_to_1e5(name, sources, imported):
    lines = SHAPES[name].lines[-LINES:]
    tags = SHAPES[name].tags
    tag = f">>{tags[-1]}<<" if tags else ""
    theirs, inputs = tokens(sources[name], lines, tag)
    pad = theirs.config.pad_token_id
    generator = torch.Generator().manual_seed(5)
    old = imported[name].run.manifest.imported.subwords.tgt
    tgt = torch.randint(0, old.size - 1, (len(lines), 7), generator=generator)
    tgt[tgt == pad] = old.eos
    tgt_in = torch.cat((torch.full((len(lines), 1), old.start), tgt[:, :-1]), dim=1)
    # In double precision, so that rounding, which depends on the CPU, is not compared.
    with torch.no_grad():
        logits = theirs.double()(**inputs, decoder_input_ids=tgt_in).logits
        # The class forbids padding when it translates (bad_words_ids).
        logits[..., pad] = -torch.inf
        wanted = logits.log_softmax(-1).gather(-1, tgt.unsqueeze(-1)).squeeze(-1)
    language = tags[-1] if tags else None
    translator = Translator.load(
        imported[name].run, device="cpu", prepared=False, tgt_lang=language
    )
    src_tokenizer, _ = translator.vocabularies
    begin = [src_tokenizer.language_tags[language]] if language else []
    # The ids as the module docstring of `marian` describes them: special ones, then the rest.
    special = [old.pad, None, old.eos, old.unk]
    rest = [i for i in range(old.size) if i not in special]
    ours_of = {theirs: ours for ours, theirs in enumerate([*special, *rest])}
    ours_tgt = torch.tensor([[ours_of[i] for i in row] for row in tgt.tolist()])
    for row, line in enumerate(lines):
        src = torch.tensor([[*begin, *src_tokenizer.encode(line), EOS_ID]])
        ours_in = torch.tensor([[BOS_ID, *ours_tgt[row, :-1].tolist()]])
        with torch.no_grad():
            log_probs = translator.model.double()(src, ours_in).log_softmax(-1)[0]
        log_probs = log_probs[torch.arange(7), ours_tgt[row]]
        assert (log_probs - wanted[row]).abs().max() < 1e-5, line


@pytest.mark.parametrize("count", [LINES, slow(500)])
@pytest.mark.parametrize("name", SOME_FIRST)
def test_greedy_translations_are_those_of_transformers(name, count, sources, imported):
    from transformers import AutoTokenizer

    lines = SHAPES[name].lines[-count:]
    tags = SHAPES[name].tags
    tag = f">>{tags[-1]}<<" if tags else ""
    theirs, inputs = tokens(sources[name], lines, tag)
    limits = {"num_beams": 1, "max_new_tokens": 12, "forced_eos_token_id": None}
    theirs.generation_config.forced_eos_token_id = None
    outputs = theirs.generate(**inputs, **limits)
    tokenizer = AutoTokenizer.from_pretrained(sources[name])
    wanted = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    run = imported[name].run
    greedy = run.config.decode.greedy().model_copy(update={"max_length": 12})
    language = tags[-1] if tags else None
    translator = Translator.load(run, device="cpu", config=greedy, tgt_lang=language)
    translations = [line.strip() for line in translator.translate(lines)]
    assert translations == [line.strip() for line in wanted]


@pytest.mark.parametrize("name", SOME_FIRST)
def test_an_export_for_transformers_gives_the_same_files_back(name, sources, imported, tmp_path):
    out = tmp_path / "out"
    text = lines_in(tmp_path / "text", SHAPES[name].lines[-5:])
    export(imported[name].run, out, format="huggingface", check=text)
    before, after = (load_file(place / "model.safetensors") for place in (sources[name], out))
    assert before.keys() == after.keys()
    for key, tensor in before.items():
        assert tensor.equal(after[key]), key
    for file in ("vocab.json", "target_vocab.json"):
        assert (out / file).exists() == (sources[name] / file).exists()
        if (out / file).exists():
            assert json.loads((out / file).read_text()) == json.loads(
                (sources[name] / file).read_text()
            )
    again, first = (json.loads((p / "config.json").read_text()) for p in (out, sources[name]))
    for key in ("activation_function", "pad_token_id", "decoder_start_token_id", "vocab_size"):
        assert again[key] == first[key]


@pytest.mark.parametrize("name", ["shared", slow("separate")])
def test_a_low_rank_change_of_an_import_keeps_the_other_tensors_of_its_layers_in_an_export(
    name, sources, imported, tiny_text, tiny_config, tmp_path
):
    run = imported[name].run
    arguments = tiny_text.prepare_arguments()
    del arguments["vocab_size"]
    prepare_files("more", tmp_path / "more", **arguments, tokenizer_from=run.path)
    settings = {"schedule": "constant", "learning_rate": 1e-2, "max_steps": 2, "valid_every": 2}
    tree = changed(tiny_config, "train", **settings, lora_rank=4).model_dump() | {"model": {}}
    config, data = parse_config(tree, origin="test"), PreparedData.open(tmp_path / "more")
    train.run(config, data, tmp_path / "tuned", device="cpu", init_from=str(run.path))
    # The export translates in transformers as the run does here.
    export(Run.open(tmp_path / "tuned"), tmp_path / "out", format="huggingface")
    before, after = (
        load_file(place / "model.safetensors") for place in (sources[name], tmp_path / "out")
    )
    assert before.keys() == after.keys()
    # The subwords may have another order.
    for key in (key for key in before if ".layers." in key):
        is_changed = key.endswith(("proj.weight", "fc1.weight", "fc2.weight"))
        assert before[key].equal(after[key]) != is_changed, key


@pytest.mark.parametrize(
    ("name", "format"),
    [("shared", "ctranslate2"), slow("last", "safetensors"), slow("tags", "ctranslate2")],
)
def test_other_exports_agree_with_the_import(name, format, imported, tmp_path):
    text = lines_in(tmp_path / "text", SHAPES[name].lines[-8:])
    run, out = imported[name].run, tmp_path / "out"
    # CTranslate2 changes how its process computes.
    succeeded("-m", "mtkit", "export", run.path, out, "--format", format, "--check", text)
    facts = json.loads((out / "export.json").read_text())
    assert facts["check"]["identical"] == facts["check"]["lines"] >= 7
    assert facts["imported"]["source"] == name


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_import_translates_in_each_precision(precision, imported):
    run = imported["shared"].run
    lines = SHAPES["shared"].lines[-4:]
    limits = {"max_length": 6, "precision": precision}
    plain = loaded(run, "native", config=run.config.decode.model_copy(update=limits))
    given = list(plain.translate(lines))
    assert len(given) == 4
    scores = [scored.log_prob for scored in plain.score_given(lines, given)]
    # No token that the output bias makes impossible.
    assert all(-1e6 < score < 0 for score in scores)


def test_padding_and_the_start_are_never_produced(imported):
    for name, result in imported.items():
        language = next(iter(SHAPES[name].tags), None)
        model = Translator.load(result.run, device="cpu", prepared=False, tgt_lang=language).model
        src = torch.tensor([[5, 6, EOS_ID]])
        log_probs = model(src, torch.tensor([[BOS_ID]])).log_softmax(-1)[0, 0]
        assert log_probs[[PAD_ID, BOS_ID]].max() < -1e8, name
        assert model.embedding.weight[BOS_ID].abs().max() == 0, name


def test_characters_outside_the_vocabulary_are_the_unknown_token_and_are_left_out(imported):
    src, tgt = imported["shared"].run.tokenizers()
    ids = src.encode("one 你 two")
    assert UNK_ID in ids
    assert "你" not in src.decode(ids)
    assert not tgt.has_bytes
    assert any("does not have are left out" in note for note in imported["shared"].notes)


def test_a_tag_is_one_subword_that_no_text_can_produce(imported):
    src, _ = imported["tags"].run.tokenizers()
    assert [*src.language_tags] == ["fra", "deu"]
    tag = src.language_tags["fra"]
    assert src.piece(tag) == ">>fra<<"
    assert tag not in src.encode(">>fra<< one two")
    assert src.decode([tag]) == ""
    assert "target languages (--tgt-lang): fra, deu" in imported["tags"].notes


def test_the_licence_and_what_to_cite_are_kept_and_shown(imported):
    run, notes, _ = imported["shared"]
    record = run.manifest.imported
    assert (record.source, record.licence) == ("shared", "cc-by-4.0")
    assert record.citations[0].startswith("@inproceedings{tiedemann-thottingal-2020-opus,")
    assert "licence of the model: cc-by-4.0" in notes
    assert any(note.endswith("tiedemann-thottingal-2020-opus") for note in notes)
    assert (run.manifest.data.src_lang, run.manifest.data.tgt_lang) == ("en", "de")


def test_beam_and_length_penalty_of_a_model_of_marian_are_those_of_its_decoder(source, tmp_path):
    file = write_npz(tmp_path / "marian", source)
    with (file.parent / "decoder.yml").open("a") as decoder:
        decoder.write("beam-size: 6\nnormalize: 0.7\nword-penalty: 0\n")
    decode = import_model(str(file), tmp_path / "run").run.config.decode
    assert (decode.beam_size, decode.length_penalty) == (6, 0.7)
    assert decode.length_penalty_form == "power"


@pytest.mark.usefixtures("without_transformers")
def test_weights_in_half_precision_and_in_a_file_of_pytorch_are_the_same_model(source, tmp_path):
    file = source / "model.safetensors"
    half = {name: tensor.half() for name, tensor in load_file(file).items()}
    save_file(half, file, metadata={"format": "pt"})
    first = import_model(str(source), tmp_path / "one").run
    file.unlink()
    # As older files have them: each copy, and the positions.
    shared = half["model.shared.weight"]
    for copy in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        half[f"{copy}.weight"] = shared
    torch.save(half, source / "pytorch_model.bin")
    two = import_model(str(source), tmp_path / "two").run
    weights = first.select(None)[0], two.select(None)[0]
    assert all(tensor.equal(weights[1][name]) for name, tensor in weights[0].items())


def test_a_model_of_marian_itself_gives_the_same_weights(source, imported, tmp_path):
    write_npz(tmp_path / "npz", source)
    run = import_model(str(tmp_path / "npz"), tmp_path / "run", src_lang="en", tgt_lang="de").run
    assert run.config.model.norm_epsilon == 1e-6
    assert run.config.model.activation == "silu"
    theirs, ours = imported["shared"].run.select(None)[0], run.select(None)[0]
    assert theirs.keys() == ours.keys()
    assert all(tensor.equal(ours[name]) for name, tensor in theirs.items())
    pieces = [
        [tokenizer.piece(i) for i in range(len(tokenizer))]
        for tokenizer in (*run.tokenizers(), *imported["shared"].run.tokenizers())
    ]
    assert pieces[0] == pieces[1] == pieces[2] == pieces[3]


def test_a_model_of_marian_itself_scores_as_ctranslate2_does_with_it(source, tmp_path):
    pytest.importorskip("ctranslate2")
    file = write_npz(tmp_path / "npz", source)
    run = import_model(str(file), tmp_path / "run").run
    program = (
        "import sys, json, ctranslate2; from ctranslate2.converters import MarianConverter\n"
        "model, vocabulary, out, pairs = sys.argv[1:]\n"
        "MarianConverter(model, [vocabulary] * 2).convert(out)\n"
        "translator = ctranslate2.Translator(out, intra_threads=1)\n"
        "found = translator.score_batch(*json.loads(pairs))\n"
        "print(json.dumps([one.log_probs for one in found]))\n"
    )
    lines, targets = SHAPES["shared"].lines[:6], ["eins zwei", "drei", "", "acht", "neun", "elf"]
    src, tgt = run.tokenizers()
    pieces = [
        [[side.piece(i) for i in side.encode(line)] for line in text]
        for side, text in ((src, lines), (tgt, targets))
    ]
    arguments = [file, file.with_name("vocab.yml"), tmp_path / "ct2", json.dumps(pieces)]
    done = succeeded("-c", program, *arguments)
    ours = Translator.load(run, device="cpu").score_given(lines, targets)
    for theirs, scored in zip(json.loads(done.stdout), ours, strict=True):
        # It adds 1e-5 in layer norms, where Marian adds 1e-6.
        assert np.allclose(theirs, scored.log_probs, rtol=0, atol=1e-3)


@pytest.mark.usefixtures("without_transformers")
@pytest.mark.parametrize(
    ("words", "given", "note"),
    [
        ({}, {}, "languages: en to de"),
        ({}, {"tgt_lang": "nds"}, "languages: en to nds"),
        (
            {"source_lang": None, "target_lang": None},
            {},
            "languages: unknown to unknown; to set them, import again with --src-lang, --tgt-lang "
            "and --force",
        ),
        (
            {"target_lang": None},
            {},
            "languages: en to unknown; to set them, import again with --tgt-lang and --force",
        ),
    ],
)
def test_an_import_says_its_languages_or_how_to_give_them(words, given, note, source, tmp_path):
    edit(source / "tokenizer_config.json", **words)
    assert note in import_model(str(source), tmp_path / "out", **given).notes


def test_the_command_imports_and_says_what_to_know(place, sources):
    done = place.done("import", sources["shared"], "runs/mine")
    assert done.out == ""
    assert "checked: 20 of 20 lines of random subwords identical" in done.err
    assert "mtkit: converted; now comparing it with transformers" in done.err
    assert "mtkit: languages: en to de" in done.err
    assert "mtkit: licence of the model: cc-by-4.0" in done.err
    assert "mtkit translate --run runs/mine" in done.err
    translated = place.done("translate", "--max-length", "5", stdin=b"one two\n\nthree\n")
    assert len(translated.out.split("\n")) == 4
    message = "runs/mine: was imported, so it has no test set; give --data, or HYP"
    assert message in place.refused("score")


def test_what_is_not_a_model_is_refused_in_one_line(place, sources, tiny_run):
    (place.folder / "empty").mkdir()
    shutil.copytree(sources["shared"], place.folder / "model")
    (place.folder / "model" / "onnx").mkdir()
    for source, message in (
        ("empty", "empty: has neither config.json (transformers) nor an .npz file"),
        ("missing", "missing: there is no such folder or file, and it is not a name on the hub"),
        ("a/b/c", "a/b/c: there is no such folder or file"),
        ("model/onnx", "model/onnx: has neither config.json"),
        (sources["shared"] / "config.json", f"give the folder, {sources['shared']}, as SOURCE"),
        (tiny_run.path, "is a run folder of mtkit, and needs no import"),
    ):
        assert message in place.refused("import", source, "out")


@pytest.fixture(scope="module")
def repositories(sources) -> dict[str, Repository]:
    """Models on a hub: one with weights of PyTorch, and a pull request with safetensors."""
    files = {file.name: file.read_bytes() for file in sources["shared"].iterdir()}
    weights = sources["shared"].parent / "pytorch_model.bin"
    torch.save(load_file(sources["shared"] / "model.safetensors"), weights)
    older = {name: file for name, file in files.items() if name != "model.safetensors"}
    older["pytorch_model.bin"] = weights.read_bytes()
    older["tf_model.h5"] = b"not needed"
    return {
        "tests/opus-mt-en-de": Repository(older),
        "tests/opus-mt-en-de@refs/pr/3": Repository(files),
        "tests/none": Repository({"README.md": files["README.md"]}),
        "tests/gated": Repository(files, gated=True),
    }


# The command for each argument, NAME or NAME@REVISION, in one process; it prints their statuses.
# What is written is in a folder of the number of the argument.
IMPORT_EACH = """
import sys
from mtkit.cli import main
for number, argument in enumerate(sys.argv[1:]):
    name, _, revision = argument.partition("@")
    more = ["--revision", revision] if revision else []
    sys.argv = ["mtkit", "import", name, *more, str(number)]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


def on_hub(hub: Hub, home: Path, *names: str) -> tuple[list[str], list[str]]:
    """The statuses of the commands, and what they printed as errors but for downloads."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *names],
        env=client_environment(hub.endpoint, home, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"),
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    return done.stdout.split(), [line for line in lines if "mtkit: downloading" not in line]


def test_a_model_is_downloaded_from_the_hub_and_a_refusal_is_one_line(repositories, tmp_path):
    name = "tests/opus-mt-en-de"
    refused = {
        "tests/unknown": "tests/unknown: is not a folder on this machine, and cannot be downloaded",
        "tests/none": "tests/none: has no config.json on the hub",
        "tests/gated": "tests/gated: is not a folder on this machine, and cannot be downloaded",
        f"{name}@v9": "--revision v9: tests/opus-mt-en-de has no",
    }
    models = [name, f"{name}@refs/pr/3"]
    with Hub({}, models=repositories) as hub:
        statuses, lines = on_hub(hub, tmp_path / "home", *refused, *models)
    assert statuses == ["1"] * len(refused) + ["0"] * len(models), lines
    for line, message in zip(lines, refused.values(), strict=False):
        assert message in line
    checked = "checked: 20 of 20 lines of random subwords identical"
    assert sum(checked in line for line in lines) == len(models)
    for number, key in enumerate(models, len(refused)):
        record = Run.open(tmp_path / str(number)).manifest.imported
        assert (record.source, record.commit) == (name, repositories[key].commit)
    # Weights of PyTorch only of the revision that has no others.
    assert not any("tf_model" in request for request in hub.requests)
    files = {request for request in hub.requests if request.endswith("pytorch_model.bin")}
    assert files
    assert all(repositories[name].commit in request for request in files)
    # The hub is gone.
    statuses, lines = on_hub(hub, tmp_path / "other", name)
    assert (statuses, len(lines)) == (["1"], 1)
    assert "cannot be downloaded from the Hugging Face hub at" in lines[0]
    assert not (tmp_path / "0").exists()


def test_characters_that_the_source_lacks_become_the_subwords_of_the_list(source, tmp_path, caplog):
    letters = set("zeronwthfuivsxg ")
    lines = ["".join(filter(letters.__contains__, line)) for line in SHAPES["shared"].lines]
    (source / "source.spm").write_bytes(unigram([line for line in lines if line.strip()], 60))
    assert "ß" in json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    # A run of several characters is one subword for SentencePiece, and the list may lack it.
    (tmp_path / "text").write_text("one\nß\none ß two\nonßeß\nßä\none äß\n你\ntwo\n")
    with caplog.at_level(logging.INFO):
        import_model(str(source), tmp_path / "out")
        import_model(str(source), tmp_path / "other", check=tmp_path / "text")
    checked = [message for message in caplog.messages if message.startswith("checked: ")]
    assert "20 of 20 lines of random subwords identical" in checked[0]
    assert "8 of 8 lines of the given text identical" in checked[1]
    for message in checked:
        assert float(message.split("differ by at most ")[1]) < 1e-5


def test_a_model_that_allows_padding_is_compared_without(source, tmp_path, monkeypatch, caplog):
    edit(source / "config.json", bad_words_ids=None)
    caplog.set_level(logging.INFO)
    # Some models do not name the token in their settings of search.
    for name, settings in (("named", {}), ("unnamed", {"pad_token_id": None})):
        edit(source / "generation_config.json", bad_words_ids=None, **settings)
        caplog.clear()
        import_model(str(source), tmp_path / name)
        assert "checked: 20 of 20 lines of random subwords identical" in caplog.text
    # In transformers padding has a share of the probability, unless the comparison forbids it.
    original = MarianModel.__init__
    monkeypatch.setattr(
        MarianModel, "__init__", lambda self, *given, bans_padding: original(self, *given)
    )
    with pytest.raises(MtkitError, match="does not agree with transformers"):
        import_model(str(source), tmp_path / "other")


@pytest.mark.usefixtures("without_transformers")
def test_without_transformers_an_import_says_that_nothing_was_compared(source, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        import_model(str(source), tmp_path / "out")
    advice = "the comparison needs the package transformers; install it with: pip install 'mtkit[ex"
    assert advice in caplog.text
