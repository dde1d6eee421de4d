"""Models for ONNX Runtime and transformers.js: they do there what they do here."""

import json
import random
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import changed, random_run
from support.exported import TEXTS as ALL_TEXTS
from support.marian import Shape, lines_in, write_marian
from support.runs import remade

from mtkit.base.errors import MtkitError
from mtkit.base.invisible import visible
from mtkit.convert import import_model
from mtkit.convert.export_run import export
from mtkit.convert.onnx import ONNX, OnnxModel
from mtkit.convert.onnx_graph import joint_ids
from mtkit.convert.target import Export
from mtkit.convert.tokenizer_json import tokenizer_json
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import EOS_ID, PAD_ID, UNK_ID, Tokenizer, Vocabularies

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

MARKUP = "</s> and <s>, <pad>, <unk>, <0x41> are text"
TEXTS = [
    *(text for text in ALL_TEXTS if "½\u0301" not in text),
    *("～", "g\u061cg", "👍🏽 🇩🇪 😀", "", " "),
]
PAGE = Path(__file__).parents[2] / "examples/browser"
# The names that optimum gives the inputs and outputs of a Marian model of one layer.
CACHE = ["0.decoder.key", "0.decoder.value", "0.encoder.key", "0.encoder.value"]


def varied(run: Run, place: Path, **settings: Any) -> Run:
    """A run with other settings of the model, and random weights that are far from a tie."""
    config = changed(run.config, "model", **settings)
    src, tgt = run.tokenizers()
    with torch.random.fork_rng():
        torch.manual_seed(3)
        own = None if src is tgt else len(src)
        model = Transformer(config.model, len(tgt), PAD_ID, own)
        weights = {k: v + torch.randn(v.shape) * 0.3 for k, v in model.state_dict().items()}
    # No bytes: where they are not a character, the other software leaves out their neighbours too.
    weights["embedding.weight"][UNK_ID + 1 : tgt.fixed_pieces] = 0
    return remade(run, place, config=config, weights=weights)


def sessions(out: Path) -> tuple[Any, Any]:
    graphs = out / "onnx"
    return tuple(
        onnxruntime.InferenceSession(str(graphs / f"{name}.onnx"))
        for name in ("encoder_model", "decoder_model_merged")
    )


def checked(out: Path) -> dict[str, Any]:
    return json.loads((out / "export.json").read_text())["check"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"encoder_layers": 2, "decoder_layers": 3},
        {"norm": "pre"},
        {"positions": "learned", "max_positions": 60},
        {"positions": "none"},
        {"attention_scale": 2.0, "narrow_attention": True},
        {"attention_window": 2},
        {"d_k": 5, "d_v": 7},
        {"activation": "silu", "output_bias": True, "norm_epsilon": 1e-2},
    ],
    ids=str,
)
def test_what_a_model_can_be_the_graphs_can(settings, tiny_run, tmp_path):
    run = varied(tiny_run, tmp_path / "run", **settings)
    out = tmp_path / "out"
    export(run, out, format="onnx")
    facts = checked(out)
    assert facts["identical"] == facts["lines"] == 20
    assert facts["difference"] < 1e-4
    for file in (out / "onnx").iterdir():
        onnx.checker.check_model(onnx.load(file), full_check=True)


def test_a_source_with_a_vocabulary_of_its_own_gets_ids_after_those_of_the_target(uneven, tmp_path):
    assert joint_ids([0, 3, 4, 9], 100) == [0, 3, 100, 105]
    out = tmp_path / "out"
    export(varied(uneven, tmp_path / "run"), out, format="onnx")
    assert checked(out)["identical"] == 20
    src, tgt = uneven.tokenizers()
    config = json.loads((out / "config.json").read_text())
    assert config["vocab_size"] == len(src) + len(tgt) - 4
    assert config["decoder_vocab_size"] == len(tgt)
    theirs = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    for text in map(visible, TEXTS):
        assert theirs.encode(text).ids == [*joint_ids(src.encode(text), len(tgt)), EOS_ID]
        ids = tgt.encode(text)
        assert theirs.decode(ids).strip() == tgt.decode(ids).strip()


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(Shape(), id="shared"),
        pytest.param(
            Shape(separate=True, activation="relu"), id="separate", marks=pytest.mark.slow
        ),
        pytest.param(Shape(tags=("fra", "deu"), lost=5), id="tags", marks=pytest.mark.slow),
    ],
)
def test_an_imported_model_does_the_same(shape, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    write_marian(tmp_path / "marian", shape)
    text = lines_in(tmp_path / "text", shape.lines[-12:])
    run = import_model(str(tmp_path / "marian"), tmp_path / "run", check=text).run
    export(run, tmp_path / "out", format="onnx", check=text)
    facts = checked(tmp_path / "out")
    assert facts["identical"] == facts["lines"] >= 11
    assert facts["difference"] < 1e-4


def test_a_translation_does_not_depend_on_others_in_its_batch(tiny_run, tmp_path):
    run = varied(tiny_run, tmp_path / "run")
    export(run, tmp_path / "out", format="onnx")
    model = OnnxModel(tmp_path / "out", run.config.decode)
    lines = ["one two three", "four five six", "seven eight nine ten", "one"]
    together = model.translate(lines)
    assert together == [model.translate([line])[0] for line in lines]
    scored = model.log_probs(lines, together)
    for line, translation, log_probs in zip(lines, together, scored, strict=True):
        (alone,) = model.log_probs([line], [translation])
        torch.testing.assert_close(log_probs, alone, atol=1e-4, rtol=0)


def test_inputs_and_outputs_have_the_names_of_a_marian_model(tiny_run, tmp_path):
    export(tiny_run, tmp_path / "out", format="onnx")
    encoder, decoder = sessions(tmp_path / "out")
    assert {port.name for port in encoder.get_inputs()} == {"input_ids", "attention_mask"}
    assert [port.name for port in encoder.get_outputs()] == ["last_hidden_state"]
    given = {"input_ids", "encoder_attention_mask", "encoder_hidden_states", "use_cache_branch"}
    assert {port.name for port in decoder.get_inputs()} == {
        *given,
        *(f"past_key_values.{name}" for name in CACHE),
    }
    assert [port.name for port in decoder.get_outputs()] == [
        "logits",
        *(f"present.{name}" for name in CACHE),
    ]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("marian", ["MarianMTModel"])
    assert config["transformers.js_config"] == {"dtype": "fp32"}
    # Its ids are those of mtkit: padding 0, BOS 1, EOS 2.
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    names = ("pad_token_id", "decoder_start_token_id", "eos_token_id", "num_beams")
    assert [generation[name] for name in names] == [0, 1, 2, 4]


def step(decoder: Any, cache_length: int, *, use_cache: bool) -> dict[str, Any]:
    """What the decoder gives for one id after a cache of ones."""
    inputs = {
        "input_ids": np.array([[5]]),
        "encoder_attention_mask": np.ones((1, 3), dtype=np.int64),
        "encoder_hidden_states": np.ones((1, 3, 16), dtype=np.float32),
        "use_cache_branch": np.array([use_cache]),
    }
    shape = (1, 2, cache_length, 8)
    inputs |= {f"past_key_values.{name}": np.ones(shape, dtype=np.float32) for name in CACHE}
    if use_cache:
        for kind in ("key", "value"):
            inputs[f"past_key_values.0.encoder.{kind}"] = np.ones((1, 2, 3, 8), dtype=np.float32)
    names = [port.name for port in decoder.get_outputs()]
    return dict(zip(names, decoder.run(None, inputs), strict=True))


def test_the_first_step_ignores_the_cache_that_it_is_given(tiny_run, tmp_path):
    export(tiny_run, tmp_path / "out", format="onnx")
    _, decoder = sessions(tmp_path / "out")
    # transformers.js gives an empty cache, and optimum one with a position.
    empty, full = (step(decoder, length, use_cache=False) for length in (0, 1))
    for name, values in empty.items():
        np.testing.assert_array_equal(values, full[name])
    assert empty["present.0.decoder.key"].shape == (1, 2, 1, 8)
    assert empty["present.0.encoder.key"].shape == (1, 2, 3, 8)
    later = step(decoder, 4, use_cache=True)
    assert later["present.0.decoder.key"].shape == (1, 2, 5, 8)
    assert (later["present.0.encoder.key"] == 1).all()


def test_positions_beyond_the_last_one_are_no_error(tiny_run, tmp_path):
    run = varied(tiny_run, tmp_path / "run", positions="learned", max_positions=60)
    export(run, tmp_path / "out", format="onnx")
    encoder, decoder = sessions(tmp_path / "out")
    ids = np.full((1, 70), 5)
    (states,) = encoder.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    assert np.isfinite(states).all()
    for length in (59, 60, 300):
        assert np.isfinite(step(decoder, length, use_cache=True)["logits"]).all()


def test_the_card_says_how_transformers_js_loads_the_folder(tiny_run, tmp_path):
    printed = export(tiny_run, tmp_path / "out", format="onnx")
    assert f'pipeline("translation", "{tmp_path}/out")' in printed
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: transformers.js\n" in card
    assert "(opset)" in card
    assert card.split("```js\n")[1].split("```")[0] == printed.replace(f"{tmp_path}/out", ".")


def test_the_page_in_the_browser_names_no_other_host():
    for name in ("index.html", "page.js", "page.css"):
        assert "//" not in re.sub("^ *//.*", "", (PAGE / name).read_text(), flags=re.MULTILINE)
    assert "default-src 'self'" in (PAGE / "index.html").read_text()


def as_theirs(tokenizer: Tokenizer) -> Any:
    content = tokenizer_json(Vocabularies.joint(tokenizer), has_one_list=True)
    return tokenizers.Tokenizer.from_str(json.dumps(content))


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_their_tokenizer_gives_the_same_ids_and_the_same_text(model_type, tiny_data):
    lines = [line for side in tiny_data.text("valid") for line in side]
    tokenizer = Tokenizer.learn([*lines, *TEXTS[:6]], 390, model_type=model_type)
    theirs = as_theirs(tokenizer)
    rng = random.Random(1)
    assigned = [c for c in map(chr, range(1, 0x30000)) if unicodedata.category(c)[0] not in "CM"]
    mixed = ["".join(rng.choices(assigned, k=12)) for _ in range(200)]
    glued = ["".join(rng.choices("aenstu ", k=40)) for _ in range(200)]
    # They keep invisible characters, as the card of an export says.
    texts = [visible(text) for text in (*TEXTS, *lines, *mixed, *glued)]
    if model_type == "unigram":
        # Where a letter of it is not in the vocabulary, `</s>` is the end there.
        texts.remove(MARKUP)
    for text in texts:
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == [*ids, EOS_ID], ascii(text)
        assert theirs.decode(ids) == tokenizer.decode(ids), ascii(text)


def test_symbols_are_one_subword_there_and_decode_to_themselves(tiny_data):
    symbols = ["<url>", "｟a｠", "@@", "@@@"]
    tokenizer = Tokenizer.learn(tiny_data.text("valid")[0], 300, symbols=symbols)
    theirs = as_theirs(tokenizer)
    for text in ["<url>", "one<url> two", " <url> ｟a｠ @@@", "a@@b @@@@@ <ur"]:
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == [*ids, EOS_ID], text
        assert theirs.decode(ids) == tokenizer.decode(ids), text


def test_a_tag_before_a_text_is_one_subword_there(tiny_data):
    words = [(word, 1) for line in tiny_data.text("valid")[0] for word in line.split()]
    tokenizer = Tokenizer.learn_from_counts(dict(words).items(), 300, languages=["de", "fr"])
    theirs = as_theirs(tokenizer)
    tag = tokenizer.language_tags["fr"]
    assert theirs.encode(">>fr<< one two").ids == [tag, *tokenizer.encode("one two"), EOS_ID]


def test_bytes_that_are_not_a_character_are_left_out_there(tiny_run):
    tokenizer, _ = tiny_run.tokenizers()
    theirs = as_theirs(tokenizer)
    byte = tokenizer.encode("😀")[-1]
    word = tokenizer.encode("one")
    assert theirs.decode([*word, byte]) == tokenizer.decode([*word, byte]) == "one"


def test_a_normalisation_that_cannot_be_expressed_is_refused_by_its_name(tiny_run):
    from sentencepiece import sentencepiece_model_pb2

    tokenizer, _ = tiny_run.tokenizers()
    message = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)
    message.normalizer_spec.name = "nmt_nfkc_cf"
    other = Tokenizer(message.SerializeToString())
    with pytest.raises(MtkitError, match="cannot express the normalisation 'nmt_nfkc_cf'"):
        tokenizer_json(Vocabularies.joint(other), has_one_list=True)


def test_int8_takes_less_room_and_has_files_of_its_own(tiny_data, tiny_config, tmp_path):
    wide = changed(tiny_config, "model", d_model=64, d_ff=256)
    run = random_run(tmp_path / "run", tiny_data, 5, config=wide)
    size = {}
    for quantization, end in (("float32", ""), ("int8", "_quantized")):
        out = tmp_path / quantization
        export(run, out, format="onnx", quantization=quantization)  # type: ignore[arg-type]
        names = [f"decoder_model_merged{end}.onnx", f"encoder_model{end}.onnx"]
        assert sorted(file.name for file in (out / "onnx").iterdir()) == names
        size[quantization] = sum(file.stat().st_size for file in (out / "onnx").iterdir())
        config = json.loads((out / "config.json").read_text())
        dtype = {"float32": "fp32", "int8": "q8"}[quantization]
        assert config["transformers.js_config"] == {"dtype": dtype}
    assert size["int8"] < size["float32"] * 0.7


def edited(change: Callable[[Any, dict[str, Any]], None]) -> Callable[[Export], None]:
    """Writes an export, and changes its decoder."""
    original = ONNX.write

    def write(export: Export) -> None:
        original(export)
        (file,) = export.folder.rglob("decoder*.onnx")
        model = onnx.load(file)
        change(model.graph, {tensor.name: tensor for tensor in model.graph.initializer})
        onnx.save(model, file)

    return write


def numbers(tensor: Any, values: Any) -> None:
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))


def scale_a_matrix(_: Any, tensors: dict[str, Any]) -> None:
    matrix = tensors["decoder.0.feed_forward.inner.weight"]
    numbers(matrix, onnx.numpy_helper.to_array(matrix) * np.float32(1.05))


def confuse_the_cache(graph: Any, _: dict[str, Any]) -> None:
    # Without the cache, nothing changes.
    (choice,) = (node for node in graph.node if node.op_type == "If")
    (given,) = (branch.g for branch in choice.attribute if branch.name == "then_branch")
    (value,) = (node for node in given.node if node.input[0].endswith("0.decoder.value"))
    value.input[0] = "past_key_values.0.decoder.key"


@pytest.mark.parametrize("change", [scale_a_matrix, confuse_the_cache])
def test_a_decoder_that_computes_something_else_is_refused(change, tiny_run, tmp_path, monkeypatch):
    run = varied(tiny_run, tmp_path / "run", decoder_layers=2)
    monkeypatch.setattr(ONNX, "write", edited(change))
    with pytest.raises(MtkitError, match="does not agree with"):
        export(run, tmp_path / "out", format="onnx")
    assert not (tmp_path / "out").exists()


def test_a_file_that_was_cut_off_is_refused(tiny_run, tmp_path, monkeypatch):
    original = ONNX.write

    def write(export: Export) -> None:
        original(export)
        (file,) = export.folder.rglob("encoder*.onnx")
        file.write_bytes(file.read_bytes()[:-1000])

    monkeypatch.setattr(ONNX, "write", write)
    with pytest.raises(MtkitError, match=r"cannot be loaded: encoder_model.onnx: "):
        export(tiny_run, tmp_path / "out", format="onnx")
