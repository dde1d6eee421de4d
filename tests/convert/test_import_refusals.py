"""An import that fails is one line that names the file, and leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from safetensors.torch import load_file, save_file
from support.errors import message_of
from support.marian import edit, edit_npz, write_npz

from mtkit.base.errors import MtkitError
from mtkit.convert import import_model
from mtkit.run_folder import Run

pytest.importorskip("transformers")


@pytest.fixture
def npz(source: Path, tmp_path: Path) -> Path:
    """The same model as a file of Marian."""
    return write_npz(tmp_path / "npz", source)


def refused(source: Path | str, place: Path, **more: Any) -> str:
    """The message of an import that fails, after which nothing is left."""
    out = place / "below" / "out"
    error = message_of(import_model, str(source), out, **more)
    assert not (place / "below").exists()
    return error


@pytest.mark.parametrize("code", ["", "e n", "en\n"])
def test_a_text_that_is_not_a_language_code_is_refused(code: str, source: Path, tmp_path: Path):
    assert "--src-lang: " in refused(source, tmp_path, src_lang=code)
    assert "--tgt-lang: " in refused(source, tmp_path, tgt_lang=code)


def test_a_model_with_too_few_positions_is_refused(source, tmp_path, monkeypatch):
    for count in (-1, 2, 3, 23):
        edit(source / "config.json", max_position_embeddings=count)
        fault = refused(source, tmp_path)
        assert f"has only {count} positions (max_position_embeddings)" in fault
        assert fault.endswith(" needs 24")
    # A line of 12 subwords, EOS and a tag, and a translation that is 10 longer.
    edit(source / "config.json", max_position_embeddings=24)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # compares nothing
    import_model(str(source), tmp_path / "out")


@pytest.mark.parametrize("count", [40, slow(64), 65, slow(100), slow(128), 513])
def test_the_check_stays_within_the_positions_of_the_model(count, source, tmp_path, caplog):
    caplog.set_level("INFO")
    edit(source / "config.json", max_position_embeddings=count)
    import_model(str(source), tmp_path / "out")
    assert "checked: " in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "gelu"}, "activation_function: expected 'relu', 'swish' or"),
        ({"scale_embedding": None}, "scale_embedding is missing; such a model cannot be imported"),
        ({"normalize_before": True}, "normalize_before: expected False, not True"),
        ({"decoder_ffn_dim": 32}, "encoder_ffn_dim is 64 and decoder_ffn_dim is 32; they must"),
        ({"d_model": 48}, "encoder_attention_heads"),
        ({"d_model": "32"}, "d_model: expected a valid integer, not '32'"),
        ({"encoder_layers": 3}, "has no tensor model.encoder.layers.2."),
        ({"encoder_layers": 1}, "has a tensor that is not of a Marian model: model.encoder.la"),
        ({"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}, "the shape [64, 32], not [32, 32]"),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "divided by 2 and by 5"),
        ({"dropout": 2.0}, "dropout: expected less than 1, not 2.0"),
        ({"dropout": 10**400}, "dropout: expected "),
        ({"vocab_size": 20, "decoder_vocab_size": 20}, "vocab_size is 20, but the vocabulary has"),
        ({"vocab_size": 9**9}, "vocab_size: expected less than or equal to 4194304"),
        ({"vocab_size": 900, "decoder_vocab_size": 900}, "has the shape ["),
        ({"eos_token_id": 7}, "eos_token_id is 7, but the eos token has the id 0 in vocab.json"),
        ({"decoder_start_token_id": -1}, "decoder_start_token_id is -1, which is not a subword"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(changes, message, source, tmp_path):
    edit(source / "config.json", **changes)
    (source / "generation_config.json").unlink()
    fault = refused(source, tmp_path)
    if message != "encoder_attention_heads":
        assert message in fault
    assert str(source) in fault


def test_a_setting_of_the_search_that_does_not_fit_is_named_with_its_file(source, tmp_path):
    edit(source / "generation_config.json", decoder_start_token_id="x")
    fault = refused(source, tmp_path)
    assert f"{source / 'generation_config.json'}: decoder_start_token_id: expected" in fault


@pytest.mark.parametrize(
    "file", ["source.spm", "target.spm", "vocab.json", "model.safetensors", "config.json"]
)
@pytest.mark.parametrize("how", ["missing", "cut off", "empty", "other bytes"])
def test_a_missing_or_damaged_file_is_named(file: str, how: str, source: Path, tmp_path: Path):
    content, wanted = (source / file).read_bytes(), str(source / file)
    other = {"cut off": content[: len(content) // 2], "empty": b"", "other bytes": b"\xff" * 50}
    if how == "missing":
        (source / file).unlink()
        none = {"model.safetensors": "has no weights", "config.json": "has neither config.json"}
        wanted = none.get(file, wanted)
    else:
        (source / file).write_bytes(other[how])
    assert wanted in refused(source, tmp_path)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "source.spm"])
def test_a_pointer_of_git_lfs_is_named(file: str, source: Path, tmp_path: Path):
    if file == "pytorch_model.bin":
        (source / "model.safetensors").unlink()
    (source / file).write_text(POINTER)
    message = refused(source, tmp_path)
    assert message.startswith(f"{source / file}: ")
    assert "(a pointer of git-lfs; git lfs pull downloads the file)" in message


def test_a_pointer_of_git_lfs_for_a_model_of_marian_is_named(npz: Path, tmp_path: Path):
    (tmp_path / "bad.spm").write_text(POINTER)
    message = refused(npz, tmp_path, vocabularies=(tmp_path / "bad.spm",) * 2)
    assert "(a pointer of git-lfs; git lfs pull downloads" in message
    npz.write_text(POINTER)
    assert "(a pointer of git-lfs; git lfs pull downloads" in refused(npz, tmp_path)


def test_weights_that_no_model_has_are_refused(source: Path, tmp_path: Path):
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
        ({"</s>": 0, "<unk>": "1"}, "has '1', which is not an id"),
        ({"</s>": 0, "<unk>": -1}, "has '-1', which is not an id"),
        ({"<unk>": 0, "<pad>": 1}, "has no subword '</s>', the eos token"),
        ({}, "has no subwords"),
    ],
)
def test_a_list_of_subwords_that_is_none_is_refused(content, message, source, tmp_path):
    (source / "vocab.json").write_text(json.dumps(content))
    assert message in refused(source, tmp_path)


@pytest.mark.parametrize("value", [["</s>"], {"content": []}, 7])
def test_a_special_token_that_is_not_a_text_is_refused(value: Any, source: Path, tmp_path: Path):
    edit(source / "tokenizer_config.json", eos_token=value)
    assert f"{source / 'vocab.json'}: has no subword" in refused(source, tmp_path)


def test_a_conversion_that_differs_from_transformers_is_refused(source, tmp_path, monkeypatch):
    # A permutation of the position encodings that is not that of Marian.
    monkeypatch.setattr("mtkit.convert.marian.halves", torch.arange)
    message = refused(source, tmp_path)
    assert ": not written, because it does not agree with transformers: " in message
    assert "at least 99% of the lines (of fewer than 200 lines, all but one)" in message


def test_settings_that_transformers_cannot_use_are_refused_in_one_line(source, tmp_path):
    edit(source / "generation_config.json", early_stopping="maybe")
    assert ": not written, because transformers cannot use the model: " in refused(source, tmp_path)


def test_a_run_or_a_folder_of_other_files_is_never_replaced(source: Path, begun: Path):
    for out, force in ((begun, True), (begun, False), (source, False)):
        with pytest.raises(MtkitError, match="does not replace it, because it is not an import"):
            import_model(str(source), out, force=force)
    assert Run.open(begun).checkpoints()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("transformer-decoder-autoreg: rnn-ssru", "transformer-decoder-autoreg is 'rnn-ssru'"),
        ("type: s2s", "type is 's2s'; only models with 'transformer' can be imported"),
        ("transformer-ffn-activation: gelu", "-activation: expected 'relu' or 'swish', not 'gelu"),
        ("enc-depth: 9", "has no tensor encoder_l3_self_Wq"),
        (f"enc-depth: {0:020}9999", "enc-depth: expected less than or equal to 1000, not '000000"),
        ("dim-emb: 64", "has the shape"),
        ("{", "not YAML, or damaged"),
        ("lr: 1\nlr: 2", "not YAML, or damaged (while constructing a mapping, found duplicate key"),
    ],
)
def test_a_model_of_marian_that_mtkit_has_not_is_refused(change, message, npz, tmp_path):
    with np.load(npz) as opened:
        lines = opened["special:model.yml"].tobytes().decode().rstrip("\0").splitlines()
    key = change.partition(":")[0]
    settings = "\n".join([*(line for line in lines if not line.startswith(f"{key}:")), change])
    array = np.frombuffer(settings.encode() + b"\n\0", dtype=np.int8)
    edit_npz(npz, **{"special:model.yml": array})
    assert message in refused(npz, tmp_path)


def test_a_damaged_file_of_marian_is_refused(npz: Path, tmp_path: Path):
    content = npz.read_bytes()
    # test_hostile_models.py has other damages.
    npz.write_bytes(content[:3_000])
    assert f"{npz}: not an .npz file, or a damaged one" in refused(npz, tmp_path)
    np.savez(npz, numbers=np.zeros(3))
    assert f"{npz}: has no special:model.yml" in refused(npz, tmp_path)
    npz.write_bytes(content)
    (npz.parent / "decoder.yml").unlink()
    (npz.parent / "vocab.yml").rename(tmp_path / "words.yml")
    assert "give them as --vocabs SRC TGT" in refused(npz, tmp_path)
    words = tmp_path / "words.yml"
    words.write_text("a: b\n")
    assert "'a' has 'b', which is not an id" in refused(npz, tmp_path, vocabularies=(words, words))
    words.write_text('"</s>": 0\n"<unk>": 1\n')
    assert "embeddings for the 2 subwords of" in refused(npz, tmp_path, vocabularies=(words, words))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("Wemb", np.zeros(()), "Wemb has the shape [] and is no matrix"),
        ("encoder_l1_ffn_W1", np.zeros((2, 3, 4)), "encoder_l1_ffn_W1 has the shape [2, 3, 4]"),
        ("decoder_ff_logit_out_b", np.zeros(0), "final_logits_bias has the shape [1, 1]"),
        ("encoder_l1_ffn_b1", np.full((1, 64), 1e300), "fc1.bias has values that are not finite"),
    ],
)
def test_an_array_of_marian_that_does_not_fit_is_named(name, array, message, npz, tmp_path):
    edit_npz(npz, **{name: array})
    assert message in refused(npz, tmp_path)


@pytest.mark.parametrize("name", ["", ".", "/", "a\\0.yml", "a\\0.spm", "a\\ud800.spm"])
def test_a_vocabulary_whose_name_no_file_can_have_is_refused(name: str, npz: Path, tmp_path: Path):
    (npz.parent / "decoder.yml").write_text(f'vocabs: ["{name}", "{name}"]\n')
    assert str(npz.parent) in refused(npz, tmp_path)


@pytest.mark.parametrize("number", [f"{0:020}99999999", "1" * 5_000, "4194304"])
def test_an_id_of_a_vocabulary_that_is_too_large_is_refused(number: str, npz: Path, tmp_path: Path):
    with (npz.parent / "vocab.yml").open("a") as vocabulary:
        vocabulary.write(f"more: {number}\n")
    assert f"{number[:20]}', which is not an id" in refused(npz, tmp_path)
