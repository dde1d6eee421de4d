"""Models of Marian: they do here what they do in transformers, or nothing is left behind."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TinyText, changed, slow
from safetensors.torch import load_file, save_file
from support.command_line import Place
from support.hub import Hub, HubFile, Repository, client_environment
from support.marian import Shape, unigram, write_marian, write_npz

from mtkit.base.errors import MtkitError
from mtkit.config import Config, parse_config
from mtkit.convert.exporting import export
from mtkit.convert.importing import Imported, import_model
from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mtkit.train import assembly as train
from mtkit.translate import Translator

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)

ROOT = Path(__file__).parents[2]
SHAPES = {
    "shared": Shape(),
    "separate": Shape(separate=True, activation="relu"),
    "tags": Shape(tags=("fra", "deu"), eos="middle", lost=5),
    "last": Shape(eos="last", activation="relu", lost=3),
}
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
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of random models of transformers."""
    place = tmp_path_factory.mktemp("marian")
    for name, shape in SHAPES.items():
        write_marian(place / name, shape)
    (place / "shared" / "README.md").write_text(CARD)
    return {name: place / name for name in SHAPES}


@pytest.fixture(scope="module")
def imported(
    sources: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Imported]:
    """The same models as run folders."""
    place = tmp_path_factory.mktemp("imported")
    found = {}
    for name, source in sources.items():
        text = place / f"{name}.txt"
        text.write_text("".join(f"{line}\n" for line in SHAPES[name].lines[-LINES:]))
        found[name] = import_model(str(source), place / name, check=text)
    return found


@pytest.fixture
def source(sources: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a model, to be damaged."""
    shutil.copytree(sources["shared"], tmp_path / "model")
    return tmp_path / "model"


def tokens(source: Path, lines: list[str], tag: str = "") -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForSeq2SeqLM.from_pretrained(source, dtype=torch.float32).eval()
    return model, tokenizer([f"{tag} {line}" for line in lines], padding=True, return_tensors="pt")


def edit(file: Path, **changes: Any) -> None:
    """Change values of a JSON file; None deletes one."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    content = {key: value for key, value in content.items() if value is not None}
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def edit_npz(file: Path, **changes: Any) -> None:
    """Change arrays of a file of Marian."""
    with np.load(file) as opened:
        arrays = dict(opened)
    np.savez(file, **(arrays | changes))


def refused(source: Path | str, place: Path, **more: Any) -> str:
    """The message of an import that fails, after which nothing is left."""
    out = place / "below" / "out"
    with pytest.raises(MtkitError) as caught:
        import_model(str(source), out, **more)
    assert not (place / "below").exists()
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---------------------------------------------------------------------------------------------
# The same numbers


@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_are_those_of_transformers_to_1e5(
    name: str, sources: dict[str, Path], imported: dict[str, Imported]
) -> None:
    lines = SHAPES[name].lines[-LINES:]
    tags = SHAPES[name].tags
    tag = f">>{tags[-1]}<<" if tags else ""
    theirs, inputs = tokens(sources[name], lines, tag)
    pad = theirs.config.pad_token_id
    generator = torch.Generator().manual_seed(5)
    record = imported[name].run.manifest.imported
    assert record is not None
    assert record.subwords is not None
    old = record.subwords.tgt
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
            found = translator.model.double()(src, ours_in).log_softmax(-1)[0]
        found = found[torch.arange(7), ours_tgt[row]]
        assert (found - wanted[row]).abs().max() < 1e-5, line


@pytest.mark.parametrize("name", SHAPES)
def test_greedy_translations_are_those_of_transformers(
    name: str, sources: dict[str, Path], imported: dict[str, Imported], tmp_path: Path
) -> None:
    assert_same_translations(name, LINES, sources, imported[name].run)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_five_hundred_greedy_translations_are_those_of_transformers(
    name: str, sources: dict[str, Path], imported: dict[str, Imported]
) -> None:
    assert_same_translations(name, 500, sources, imported[name].run)


def assert_same_translations(name: str, count: int, sources: dict[str, Path], run: Run) -> None:
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
    greedy = run.config.decode.greedy().model_copy(update={"max_length": 12})
    language = tags[-1] if tags else None
    translator = Translator.load(run, device="cpu", config=greedy, tgt_lang=language)
    found = [line.strip() for line in translator.translate(lines)]
    assert found == [line.strip() for line in wanted]


@pytest.mark.parametrize("name", SHAPES)
def test_an_export_for_transformers_gives_the_same_files_back(
    name: str, sources: dict[str, Path], imported: dict[str, Imported], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in SHAPES[name].lines[-5:]))
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
    name: str,
    sources: dict[str, Path],
    imported: dict[str, Imported],
    tiny_text: TinyText,
    tiny_config: Config,
    tmp_path: Path,
) -> None:
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
def test_other_exports_agree_with_the_import(
    name: str, format: str, imported: dict[str, Imported], tmp_path: Path
) -> None:
    program = (
        "import sys; from pathlib import Path; from mtkit.run_folder import Run\n"
        "from mtkit.convert import export\n"
        "run, out, text, format = sys.argv[1:]\n"
        "export(Run.open(Path(run)), Path(out), format=format, check=Path(text))\n"
    )
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in SHAPES[name].lines[-8:]))
    out = tmp_path / "out"
    # CTranslate2 changes how its process computes.
    command = [sys.executable, "-c", program, imported[name].run.path, out, text, format]
    subprocess.run(list(map(str, command)), check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    facts = json.loads((out / "export.json").read_text())
    assert facts["check"]["identical"] == facts["check"]["lines"] >= 7
    assert facts["imported"]["source"] == name


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_import_translates_with_packed_weights_and_with_workers(
    precision: str, imported: dict[str, Imported], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtkit.translate.linear.INT8_SIZE", 1)
    run = imported["shared"].run
    lines = SHAPES["shared"].lines[-4:]
    limits = {"max_length": 6, "precision": precision}
    config = run.config.decode.model_copy(update=limits)
    plain = Translator.load(run, device="cpu", config=config)
    assert len(list(plain.translate(lines))) == 4
    given = [list(plain.translate(lines))]
    if precision == "fp32":
        with Translator.load(run, device="cpu", config=config, workers=2) as pooled:
            given.append(list(pooled.translate(lines)))
        assert given[0] == given[1]
    scores = [scored.log_prob for scored in plain.score_given(lines, given[0])]
    # No token that the output bias makes impossible.
    assert all(-1e6 < score < 0 for score in scores)


# ---------------------------------------------------------------------------------------------
# Subwords


def test_padding_and_the_start_are_never_produced(imported: dict[str, Imported]) -> None:
    for name, found in imported.items():
        language = next(iter(SHAPES[name].tags), None)
        translator = Translator.load(found.run, device="cpu", prepared=False, tgt_lang=language)
        model = translator.model
        src = torch.tensor([[5, 6, EOS_ID]])
        log_probs = model(src, torch.tensor([[BOS_ID]])).log_softmax(-1)[0, 0]
        assert log_probs[[PAD_ID, BOS_ID]].max() < -1e8, name
        assert model.embedding.weight[BOS_ID].abs().max() == 0, name


def test_characters_outside_the_vocabulary_are_the_unknown_token_and_are_left_out(
    imported: dict[str, Imported],
) -> None:
    src, tgt = imported["shared"].run.tokenizers()
    ids = src.encode("one 你 two")
    assert UNK_ID in ids
    assert "你" not in src.decode(ids)
    assert not tgt.has_bytes
    assert any("does not have are left out" in note for note in imported["shared"].notes)


def test_a_tag_is_one_subword_that_no_text_can_produce(imported: dict[str, Imported]) -> None:
    src, _ = imported["tags"].run.tokenizers()
    assert [*src.language_tags] == ["fra", "deu"]
    tag = src.language_tags["fra"]
    assert src.piece(tag) == ">>fra<<"
    assert tag not in src.encode(">>fra<< one two")
    assert src.decode([tag]) == ""
    assert "target languages (--tgt-lang): fra, deu" in imported["tags"].notes


def test_the_subwords_of_both_sides_are_one_list_and_one_matrix(
    imported: dict[str, Imported],
) -> None:
    run = imported["shared"].run
    src, tgt = run.tokenizers()
    assert src.model != tgt.model
    assert [src.piece(i) for i in range(len(src))] == [tgt.piece(i) for i in range(len(tgt))]
    assert run.config.model.shared_embedding
    weights = run.select(None)[0]
    assert "src_embedding.weight" not in weights
    assert not imported["separate"].run.config.model.shared_embedding


# ---------------------------------------------------------------------------------------------
# What is kept


def test_the_licence_and_what_to_cite_are_kept_and_shown(imported: dict[str, Imported]) -> None:
    run, notes, _ = imported["shared"]
    record = run.manifest.imported
    assert record is not None
    assert (record.source, record.licence) == ("shared", "cc-by-4.0")
    assert record.citations[0].startswith("@inproceedings{tiedemann-thottingal-2020-opus,")
    assert "licence of the model: cc-by-4.0" in notes
    assert any(note.endswith("tiedemann-thottingal-2020-opus") for note in notes)
    assert (run.manifest.data.src_lang, run.manifest.data.tgt_lang) == ("en", "de")


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_beam_and_length_penalty_are_those_of_the_model(
    file: str, source: Path, tmp_path: Path
) -> None:
    edit(source / "generation_config.json", num_beams=None, length_penalty=None)
    edit(source / file, num_beams=6, length_penalty=0.8)
    decode = import_model(str(source), tmp_path / "run").run.config.decode
    assert (decode.beam_size, decode.length_penalty) == (6, 0.8)
    assert decode.length_penalty_form == "power"


def test_beam_and_length_penalty_of_a_model_of_marian_are_those_of_its_decoder(
    source: Path, tmp_path: Path
) -> None:
    file = write_npz(tmp_path / "marian", source)
    with (file.parent / "decoder.yml").open("a") as decoder:
        decoder.write("beam-size: 6\nnormalize: 0.7\nword-penalty: 0\n")
    decode = import_model(str(file), tmp_path / "run").run.config.decode
    assert (decode.beam_size, decode.length_penalty) == (6, 0.7)
    assert decode.length_penalty_form == "power"


def test_an_import_shows_a_translation_or_how_to_get_one(imported: dict[str, Imported]) -> None:
    first = SHAPES["shared"].lines[-LINES]
    assert any(note.startswith(f"a translation: {first} -> ") for note in imported["shared"].notes)
    assert "| mtkit translate --run " in imported["shared"].command


def test_weights_in_half_precision_and_in_a_file_of_pytorch_are_the_same_model(
    source: Path, tmp_path: Path
) -> None:
    file = source / "model.safetensors"
    half = {name: tensor.half() for name, tensor in load_file(file).items()}
    save_file(half, file, metadata={"format": "pt"})
    one = import_model(str(source), tmp_path / "one").run
    file.unlink()
    # As older files have them: each copy, and the positions.
    shared = half["model.shared.weight"]
    for copy in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        half[f"{copy}.weight"] = shared
    torch.save(half, source / "pytorch_model.bin")
    two = import_model(str(source), tmp_path / "two").run
    weights = one.select(None)[0], two.select(None)[0]
    assert all(tensor.equal(weights[1][name]) for name, tensor in weights[0].items())


def test_a_model_of_marian_itself_gives_the_same_weights(
    source: Path, imported: dict[str, Imported], tmp_path: Path
) -> None:
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


def test_a_model_of_marian_itself_scores_as_ctranslate2_does_with_it(
    source: Path, tmp_path: Path
) -> None:
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
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours = Translator.load(run, device="cpu").score_given(lines, targets)
    for theirs, found in zip(json.loads(done.stdout), ours, strict=True):
        # It adds 1e-5 in layer norms, where Marian adds 1e-6.
        assert np.allclose(theirs, found.log_probs, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("words", "given", "note"),
    [
        ({}, {}, "languages: en to de"),
        ({}, {"tgt_lang": "nds"}, "languages: en to nds"),
        (
            {"source_lang": None, "target_lang": None},
            {},
            "languages: unknown; to set them, import again with --src-lang, --tgt-lang and --force",
        ),
        (
            {"target_lang": None},
            {},
            "languages: en to unknown; to set them, import again with --tgt-lang and --force",
        ),
    ],
)
def test_an_import_says_its_languages_or_how_to_give_them(
    words: dict[str, Any],
    given: dict[str, str],
    note: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # compares nothing
    edit(source / "tokenizer_config.json", **words)
    assert note in import_model(str(source), tmp_path / "out", **given).notes


# ---------------------------------------------------------------------------------------------
# Refusals


@pytest.mark.parametrize("code", ["", "e n", "en\n"])
def test_a_text_that_is_not_a_language_code_is_refused(
    code: str, source: Path, tmp_path: Path
) -> None:
    assert "--src-lang: " in refused(source, tmp_path, src_lang=code)
    assert "--tgt-lang: " in refused(source, tmp_path, tgt_lang=code)


def test_a_model_with_too_few_positions_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in (-1, 2, 3, 23):
        edit(source / "config.json", max_position_embeddings=count)
        message = refused(source, tmp_path)
        assert f"has {count} positions (max_position_embeddings), which are too few" in message
    # A line of 12 subwords, EOS and a tag, and a translation that is 10 longer.
    edit(source / "config.json", max_position_embeddings=24)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # compares nothing
    import_model(str(source), tmp_path / "out")


@pytest.mark.parametrize("kind", ["bart", "t5", "m2m_100"])
def test_another_kind_of_model_is_refused_by_its_name(
    kind: str, source: Path, tmp_path: Path
) -> None:
    edit(source / "config.json", model_type=kind)
    message = refused(source, tmp_path)
    assert message.startswith(
        f"{source / 'config.json'}: model_type is '{kind}'; mtkit import reads"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "gelu"}, "activation_function is 'gelu'; mtkit has relu, swish"),
        ({"scale_embedding": False}, "scale_embedding is False; only models with scale_embedding"),
        ({"scale_embedding": None}, "scale_embedding is False; only models with scale_embedding"),
        ({"normalize_before": True}, "normalize_before is True; only models with"),
        ({"decoder_ffn_dim": 32}, "encoder_ffn_dim is 64 and decoder_ffn_dim is 32; they must"),
        ({"d_model": 48}, "encoder_attention_heads"),
        ({"d_model": "32"}, "d_model is '32', which is not of type int"),
        ({"d_model": True}, "d_model is 'True', which is not of type int"),
        ({"encoder_layers": 3}, "has no tensor model.encoder.layers.2."),
        ({"encoder_layers": 1}, "has a tensor that is not of a Marian model: model.encoder.la"),
        ({"encoder_layers": 0}, "encoder_layers is 0, which is not between 1 and 1000"),
        ({"encoder_layers": None}, "encoder_layers is missing"),
        ({"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}, "has the shape [64, 32], but config.json"),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "divided by 2 and by 5"),
        ({"dropout": 2.0}, "dropout is 2.0, which is not a probability below 1"),
        ({"dropout": 10**400}, f"dropout is 1{'0' * 29}, which is not a probability below 1"),
        ({"vocab_size": 20, "decoder_vocab_size": 20}, "vocab_size is 20, but the vocabulary has"),
        ({"vocab_size": 9**9}, "vocab_size is 387420489, which is not between 1 and"),
        ({"vocab_size": 900, "decoder_vocab_size": 900}, "has the shape ["),
        ({"eos_token_id": 7}, "eos_token_id is 7, but the eos token has the id 0 in vocab.json"),
        ({"decoder_start_token_id": -1}, "decoder_start_token_id is -1, which is not a subword"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(
    changes: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    edit(source / "config.json", **changes)
    found = refused(source, tmp_path)
    if message != "encoder_attention_heads":
        assert message in found
    assert str(source) in found


@pytest.mark.parametrize(
    "file", ["source.spm", "target.spm", "vocab.json", "model.safetensors", "config.json"]
)
def test_a_missing_file_is_named(file: str, source: Path, tmp_path: Path) -> None:
    (source / file).unlink()
    message = refused(source, tmp_path)
    wanted = {"model.safetensors": "has no weights", "config.json": "has neither config.json"}
    assert wanted.get(file, str(source / file)) in message


@pytest.mark.parametrize(
    "file", ["source.spm", "target.spm", "vocab.json", "model.safetensors", "config.json"]
)
@pytest.mark.parametrize("how", ["cut off", "empty", "other bytes"])
def test_a_damaged_file_is_named(file: str, how: str, source: Path, tmp_path: Path) -> None:
    content = (source / file).read_bytes()
    other = {"cut off": content[: len(content) // 2], "empty": b"", "other bytes": b"\xff" * 50}
    (source / file).write_bytes(other[how])
    assert str(source / file) in refused(source, tmp_path)


class Surprise:
    """Runs a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.file),))


@pytest.mark.parametrize("what", ["code", "no weights", "text", "cut off", "numbers"])
def test_a_pickle_that_is_not_weights_is_refused_and_never_executed(
    what: str, source: Path, tmp_path: Path
) -> None:
    weights = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    file = source / "pytorch_model.bin"
    values: dict[str, Any] = {
        "code": {"model.shared.weight": Surprise(tmp_path / "executed")},
        "no weights": [1, 2],
        "numbers": weights | {"final_logits_bias": torch.zeros(1, 5, dtype=torch.int64)},
    }
    torch.save(values.get(what, weights), file)
    if what == "text":
        file.write_text("any text\n")
    if what == "cut off":
        file.write_bytes(file.read_bytes()[:5_000])
    assert str(file) in refused(source, tmp_path)
    assert not (tmp_path / "executed").exists()


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "source.spm"])
def test_a_pointer_of_git_lfs_is_named(file: str, source: Path, tmp_path: Path) -> None:
    if file == "pytorch_model.bin":
        (source / "model.safetensors").unlink()
    (source / file).write_text(POINTER)
    message = refused(source, tmp_path)
    assert message.startswith(f"{source / file}: ")
    assert "(a pointer of git-lfs; git lfs pull downloads the file)" in message


def test_a_pointer_of_git_lfs_for_a_model_of_marian_is_named(source: Path, tmp_path: Path) -> None:
    file = write_npz(tmp_path / "npz", source)
    content = file.read_bytes()
    file.write_text(POINTER)
    assert "(a pointer of git-lfs; git lfs pull downloads" in refused(file, tmp_path)
    file.write_bytes(content)
    spm = tmp_path / "npz" / "bad.spm"
    spm.write_text(POINTER)
    message = refused(file, tmp_path, vocabularies=(spm, spm))
    assert "(a pointer of git-lfs; git lfs pull downloads" in message


def test_weights_that_no_model_has_are_refused(source: Path, tmp_path: Path) -> None:
    file = source / "model.safetensors"
    weights = load_file(file)
    for changes, message in (
        ({"lm_head.weight": weights["model.shared.weight"] + 1}, "lm_head.weight and model.shared"),
        ({"model.encoder.embed_positions.weight": torch.ones(512, 32)}, "other positions than"),
        ({"model.encoder.embed_positions.weight": torch.ones(0, 32)}, "other positions than"),
        ({"final_logits_bias": weights["final_logits_bias"] / 0}, "values that are not finite"),
        ({"surprise": torch.zeros(1)}, "not of a Marian model: surprise"),
    ):
        save_file(weights | changes, file, metadata={"format": "pt"})
        assert message in refused(source, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"</s>": 0, "<unk>": 0, "<pad>": 2}, "two subwords have the id 0"),
        ({"</s>": 0, "<unk>": "1"}, "has 1, which is not an id"),
        ({"</s>": 0, "<unk>": -1}, "has -1, which is not an id"),
        ({"<unk>": 0, "<pad>": 1}, "has no subword '</s>', the eos token"),
        ({}, "has no subwords"),
    ],
)
def test_a_list_of_subwords_that_is_none_is_refused(
    content: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    (source / "vocab.json").write_text(json.dumps(content))
    assert message in refused(source, tmp_path)


@pytest.mark.parametrize("value", [["</s>"], {"content": []}, 7])
def test_a_special_token_that_is_not_a_text_is_refused(
    value: Any, source: Path, tmp_path: Path
) -> None:
    edit(source / "tokenizer_config.json", eos_token=value)
    assert f"{source / 'vocab.json'}: has no subword" in refused(source, tmp_path)


def test_a_conversion_that_differs_from_transformers_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A SiLU in transformers, and a ReLU here.
    monkeypatch.setitem(
        sys.modules["mtkit.convert.transformers_folder"]._ACTIVATIONS, "swish", "relu"
    )
    message = refused(source, tmp_path)
    assert ": not written, because it does not agree with transformers: " in message
    assert "at least 99% of the lines (of fewer than 200 lines, all but one)" in message


def test_settings_that_transformers_cannot_use_are_refused_in_one_line(
    source: Path, tmp_path: Path
) -> None:
    edit(source / "generation_config.json", bad_words_ids=5)
    message = refused(source, tmp_path)
    assert ": not written, because transformers cannot use the model: " in message


def test_a_run_or_a_folder_of_other_files_is_never_replaced(
    source: Path, tiny_run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(tiny_run.path, out)
    with pytest.raises(MtkitError, match="so --force does not replace it; give another OUT"):
        import_model(str(source), out, force=True)
    with pytest.raises(MtkitError, match="exists already; give --force to replace it"):
        import_model(str(source), source)
    assert Run.open(out).checkpoints()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("transformer-decoder-autoreg: rnn-ssru", "transformer-decoder-autoreg is 'rnn-ssru'"),
        ("transformer-preprocess: n", "transformer-preprocess is 'n'; only models with ''"),
        ("type: s2s", "type is 's2s'; only models with 'transformer' can be imported"),
        ("transformer-ffn-activation: gelu", "is 'gelu'; mtkit has relu and swish"),
        ("enc-depth: 9", "has no tensor encoder_l3_self_Wq"),
        (f"enc-depth: {0:020}9999", "enc-depth is '00000000000000000000"),
        ("enc-depth: many", "enc-depth is 'many', which is not a number from 1 to 1000"),
        ("dim-emb: 64", "has the shape"),
        ("{", "not YAML, or damaged"),
        ("lr: 1\nlr: 2", "not YAML, or damaged (while constructing a mapping, found duplicate key"),
    ],
)
def test_a_model_of_marian_that_mtkit_has_not_is_refused(
    change: str, message: str, source: Path, tmp_path: Path
) -> None:
    file = write_npz(tmp_path / "npz", source)
    with np.load(file) as opened:
        lines = opened["special:model.yml"].tobytes().decode().rstrip("\0").splitlines()
    key = change.partition(":")[0]
    settings = "\n".join([*(line for line in lines if not line.startswith(f"{key}:")), change])
    array = np.frombuffer(settings.encode() + b"\n\0", dtype=np.int8)
    edit_npz(file, **{"special:model.yml": array})
    assert message in refused(file, tmp_path)


def test_a_damaged_file_of_marian_is_refused(source: Path, tmp_path: Path) -> None:
    file = write_npz(tmp_path / "npz", source)
    content = file.read_bytes()
    for damaged in (content[:3_000], b"", b"PK\3\4 and more"):
        file.write_bytes(damaged)
        assert f"{file}: not an .npz file, or a damaged one" in refused(file, tmp_path)
    np.savez(file, objects=np.array([{"a": 1}], dtype=object))
    assert f"{file}: not an .npz file, or a damaged one" in refused(file, tmp_path)
    np.savez(file, numbers=np.zeros(3))
    assert f"{file}: has no special:model.yml" in refused(file, tmp_path)
    file.write_bytes(content)
    (tmp_path / "npz" / "decoder.yml").unlink()
    (tmp_path / "npz" / "vocab.yml").rename(tmp_path / "words.yml")
    assert "give them as --vocabs SRC TGT" in refused(file, tmp_path)
    words = tmp_path / "words.yml"
    words.write_text("a: b\n")
    assert "'a' has no id" in refused(file, tmp_path, vocabularies=(words, words))
    words.write_text('"</s>": 0\n"<unk>": 1\n')
    message = refused(file, tmp_path, vocabularies=(words, words))
    assert "embeddings for the 2 subwords of" in message


def test_damage_inside_of_a_file_of_marian_is_refused(source: Path, tmp_path: Path) -> None:
    file = write_npz(tmp_path / "npz", source)
    with np.load(file) as opened:
        arrays = dict(opened)
    np.savez_compressed(file, **arrays)
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        first = archive.infolist()[0]
    # The name follows the 30 bytes of a local header, and then the compressed data.
    begin = 30 + len(first.filename)
    damaged = content.copy()
    damaged[begin : begin + 40] = b"\xff" * 40
    # In the central directory: the flags at 8, and the compression at 10.
    entry = content.index(b"PK\1\2")
    encrypted, unknown = content.copy(), content.copy()
    encrypted[entry + 8] |= 1
    unknown[entry + 10] = 99
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    for bad in (damaged, encrypted, unknown, array.getvalue()):
        file.write_bytes(bad)
        assert f"{file}: not an .npz file, or a damaged one" in refused(file, tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("Wemb", np.zeros(()), "Wemb has the shape [], which is not that of a matrix"),
        ("Wemb", np.zeros(5), "Wemb has the shape [5], which is not that of a matrix"),
        ("encoder_l1_ffn_W1", np.zeros((2, 3, 4)), "encoder_l1_ffn_W1 has the shape [2, 3, 4]"),
        ("decoder_ff_logit_out_b", np.zeros(0), "final_logits_bias has the shape [1, 1]"),
        ("decoder_ff_logit_out_b", np.full((1, 400), 1e300), "final_logits_bias has"),
        ("encoder_l1_ffn_b1", np.full((1, 64), 1e300), "fc1.bias has values that are not finite"),
    ],
)
def test_an_array_of_marian_that_does_not_fit_is_named(
    name: str, array: Any, message: str, source: Path, tmp_path: Path
) -> None:
    file = write_npz(tmp_path / "npz", source)
    edit_npz(file, **{name: array})
    assert message in refused(file, tmp_path)


@pytest.mark.parametrize("name", ["", ".", "/", "a\\0.yml", "a\\0.spm", "a\\ud800.spm"])
def test_a_vocabulary_whose_name_no_file_can_have_is_refused(
    name: str, source: Path, tmp_path: Path
) -> None:
    file = write_npz(tmp_path / "npz", source)
    (tmp_path / "npz" / "decoder.yml").write_text(f'vocabs: ["{name}", "{name}"]\n')
    assert str(tmp_path / "npz") in refused(file, tmp_path)


@pytest.mark.parametrize("number", [f"{0:020}99999999", "1" * 5_000, "4194304"])
def test_an_id_of_a_vocabulary_that_is_too_large_is_refused(
    number: str, source: Path, tmp_path: Path
) -> None:
    file = write_npz(tmp_path / "npz", source)
    with (tmp_path / "npz" / "vocab.yml").open("a") as vocabulary:
        vocabulary.write(f"more: {number}\n")
    assert f"the id {number[:20]} is too large, or given twice" in refused(file, tmp_path)


def test_a_sentencepiece_model_that_ends_within_a_subword_is_refused(
    source: Path, tmp_path: Path
) -> None:
    file = write_npz(tmp_path / "npz", source)
    # A subword of eight bytes, of which three are missing.
    (tmp_path / "npz" / "bad.spm").write_bytes(b"\x0a\x08\x0a\x01a\x12\x03")
    spm = tmp_path / "npz" / "bad.spm"
    message = refused(file, tmp_path, vocabularies=(spm, spm))
    assert message.startswith(f"{spm}: not a SentencePiece model, or a damaged one")


# ---------------------------------------------------------------------------------------------
# The command line and the hub


def test_the_command_imports_and_says_what_to_know(place: Place, sources: dict[str, Path]) -> None:
    done = place.mtkit("import", sources["shared"], "runs/mine")
    assert done.status == 0, done.err
    assert done.out == ""
    assert "checked: 20 of 20 lines of random subwords identical" in done.err
    assert "mtkit: converted; now comparing it with transformers" in done.err
    assert "mtkit: languages: en to de" in done.err
    assert "mtkit: licence of the model: cc-by-4.0" in done.err
    assert "mtkit translate --run runs/mine" in done.err
    translated = place.mtkit("translate", "--max-length", "5", stdin=b"one two\n\nthree\n")
    assert translated.status == 0, translated.err
    assert len(translated.out.split("\n")) == 4
    message = "runs/mine: was imported, so it has no test set; give --data, or HYP"
    assert message in place.refused("score")


def test_what_is_not_a_model_is_refused_in_one_line(
    place: Place, sources: dict[str, Path], tiny_run: Run
) -> None:
    (place.folder / "empty").mkdir()
    shutil.copytree(sources["shared"], place.folder / "model")
    (place.folder / "model" / "onnx").mkdir()
    for source, message in (
        ("empty", "empty: has neither config.json (a model for transformers) nor an .npz file"),
        ("missing", "missing: there is no such folder or file, and it is not a name on the hub"),
        ("a/b/c", "a/b/c: there is no such folder or file"),
        ("model/onnx", "model/onnx: has neither config.json"),
        (sources["shared"] / "config.json", f"give the folder, {sources['shared']}, as SOURCE"),
        (tiny_run.path, "is a run of mtkit already, and needs no import"),
    ):
        assert message in place.refused("import", source, "out")


@pytest.fixture(scope="module")
def repositories(sources: dict[str, Path]) -> dict[str, Repository]:
    """Models on a hub: one with weights of PyTorch, and a pull request with safetensors."""
    files = {
        file.name: HubFile(file.read_bytes(), large=file.suffix in (".spm", ".safetensors"))
        for file in sources["shared"].iterdir()
    }
    weights = sources["shared"].parent / "pytorch_model.bin"
    torch.save(load_file(sources["shared"] / "model.safetensors"), weights)
    older = {name: file for name, file in files.items() if name != "model.safetensors"}
    older["pytorch_model.bin"] = HubFile(weights.read_bytes(), large=True)
    older["tf_model.h5"] = HubFile(b"not needed")
    return {
        "tests/opus-mt-en-de": Repository(older),
        "tests/opus-mt-en-de@refs/pr/3": Repository(files),
        "tests/none": Repository({"README.md": files["README.md"]}),
        "tests/gated": Repository(files, gated=True),
    }


def on_hub(hub: Hub, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtkit", "import", *arguments],
        env=client_environment(hub.endpoint, home, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"),
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("revision", [None, slow("refs/pr/3")])
def test_a_model_is_downloaded_from_the_hub(
    revision: str | None, repositories: dict[str, Repository], tmp_path: Path
) -> None:
    name = "tests/opus-mt-en-de"
    with Hub({}, models=repositories) as hub:
        more = [] if revision is None else ["--revision", revision]
        done = on_hub(hub, tmp_path / "home", name, "out", *more)
        assert done.returncode == 0, done.stderr
        assert "checked: 20 of 20 lines of random subwords identical" in done.stderr
        asked = " ".join(hub.requests)
    assert "tf_model" not in asked
    assert ("pytorch_model.bin" in asked) == (revision is None)
    record = Run.open(tmp_path / "out").manifest.imported
    assert record is not None
    key = name if revision is None else f"{name}@{revision}"
    assert (record.source, record.commit) == (name, repositories[key].commit)


def test_a_refusal_of_the_hub_is_one_line(
    repositories: dict[str, Repository], tmp_path: Path
) -> None:
    cases = [
        (
            ["tests/unknown"],
            "error: tests/unknown: is not a folder on this machine, and the Hugging",
        ),
        (["tests/unknown"], "has no model tests/unknown, or it is private (HTTP 401)"),
        (["tests/none"], "tests/none: has no config.json on the hub"),
        (["tests/gated"], "has no model tests/gated, or it is private (HTTP 401)"),
        (["tests/opus-mt-en-de", "--revision", "v9"], "--revision v9: tests/opus-mt-en-de has no"),
    ]
    with Hub({}, models=repositories) as hub:
        for arguments, message in cases:
            done = on_hub(hub, tmp_path / "home", *arguments, "out")
            assert done.returncode == 1
            assert message in done.stderr, done.stderr
            assert "Traceback" not in done.stderr
    done = on_hub(hub, tmp_path / "home", "tests/opus-mt-en-de", "out")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "opus-mt-en-de: is not a folder on this machine, and it cannot" in done.stderr
    assert "it cannot be downloaded from the Hugging Face hub at" in done.stderr
    assert not (tmp_path / "out").exists()


def test_characters_that_the_source_lacks_become_the_subwords_of_the_list(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letters = set("zeronwthfuivsxg ")
    lines = ["".join(filter(letters.__contains__, line)) for line in SHAPES["shared"].lines]
    (source / "source.spm").write_bytes(unigram([line for line in lines if line.strip()], 60))
    assert "ß" in json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    # A run of several characters is one subword for SentencePiece, and the list may lack it.
    text = "one\nß\none ß two\nonßeß\nßä\none äß\n你\ntwo\n"
    (tmp_path / "text").write_text(text)
    with caplog.at_level(logging.INFO):
        import_model(str(source), tmp_path / "out")
        import_model(str(source), tmp_path / "other", check=tmp_path / "text")
    checked = [message for message in caplog.messages if message.startswith("checked: ")]
    assert "20 of 20 lines of random subwords identical" in checked[0]
    assert "8 of 8 lines of the given text identical" in checked[1]
    for message in checked:
        assert float(message.split("log-probability ")[1].split()[0]) < 1e-5


# Some models do not name the token in their settings of search.
@pytest.mark.parametrize("unnamed", [{}, {"pad_token_id": None}], ids=["named", "unnamed"])
def test_a_model_whose_settings_do_not_forbid_padding_is_compared_without_it(
    unnamed: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    edit(source / "generation_config.json", bad_words_ids=None, **unnamed)
    edit(source / "config.json", bad_words_ids=None)
    (tmp_path / "lines").write_text("a\nthe house\n")
    # In transformers padding then has a share of the probability, and in mtkit it never has.
    import_model(str(source), tmp_path / "out", check=tmp_path / "lines")


def test_without_transformers_an_import_says_that_nothing_was_compared(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name == "transformers" else original(name, *more),
    )
    with caplog.at_level(logging.WARNING):
        import_model(str(source), tmp_path / "out")
    assert "not compared with other software: pip install 'mtkit[export]'" in caplog.text
