"""The configuration: what is refused and in which words, what wins, what comes back."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.errors import message_of

from mtkit.base.errors import MtkitError
from mtkit.config import (
    Config,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    config_name,
    dump_config,
    load_config,
    parse_config,
    presets,
)
from mtkit.prepare_config import prepare_config
from mtkit.run_manifest import differences
from mtkit.train.schedule import Schedule


def refused(text: str, folder: Path, *overrides: str) -> str:
    """The one line with which a configuration of this text is refused."""
    file = folder / "my.yaml"
    file.write_text(text, encoding="utf-8")
    return message_of(load_config, str(file), overrides)


# What is written, and words of the message.
MISTAKES: dict[str, tuple[str, ...]] = {
    "unknown key": ("model: {droput: 0.1}", "model.droput", "model.dropout"),
    "key of another section": ("model: {max_steps: 10}", "model.max_steps", "train.max_steps"),
    "key without its section": ("warmup_steps: 10", "warmup_steps", "train.warmup_steps"),
    "unknown section": ("trian: {max_steps: 10}", "trian", "did you mean train"),
    "unknown and like nothing": ("model: {zzzzqqqq: 1}", "model.zzzzqqqq"),
    "word for a number": ("train: {max_steps: many}", "train.max_steps", "'many'"),
    "number in quotes": ("train: {max_steps: '10'}", "train.max_steps", "'10'"),
    "fraction for a count": ("train: {max_steps: 1.5}", "train.max_steps", "1.5"),
    "zero for a count": ("model: {d_ff: 0}", "model.d_ff", "0"),
    "yes in quotes": ("train: {compile: 'yes'}", "train.compile: ", "true, false or auto", "'yes'"),
    "true for a count": ("model: {n_heads: true}", "model.n_heads", "True"),
    "none of the choices": ("model: {norm: middle}", "model.norm", "'middle'", "post", "pre"),
    "a certain dropout": ("model: {dropout: 1.0}", "model.dropout", "1.0"),
    "not a number": ("train: {adam_epsilon: .nan}", "train.adam_epsilon", "nan"),
    "infinite": ("decode: {length_penalty: .inf}", "decode.length_penalty", "inf"),
    "list": ("model: {d_model: [512]}", "model.d_model", "[512]"),
    **{
        f"tokens at a time: {text}": (
            f"train: {{device_batch_tokens: {text}}}",
            f"train.device_batch_tokens: expected a whole number from 1 to 10^18, auto or null, "
            f"not {shown}",
        )
        for text, shown in {
            "fast": "'fast'",
            "0": "0",
            "auto:0": "'auto:0'",
            "'8'": "'8'",
            f"{10**18 + 1}": f"{10**18 + 1}",
        }.items()
    },
    "text for true": ("decode: {split_sentences: x}", "split_sentences: expected true, false or"),
    "true for a language": ("data: {tgt_lang: true}", "data.tgt_lang", "True"),
    "heads that do not divide": ("model: {n_heads: 7}", "model.n_heads", "7", "512"),
    **{
        f"{width} of narrow attention": (
            f"model: {{narrow_attention: true, {width}}}",
            "narrow_attention: needs keys and values of d_model / n",
        )
        for width in ("d_k: 32", "d_v: 32", "n_heads: 3, d_k: 170")
    },
    "odd width": ("model: {d_model: 9, n_heads: 1}", "model.d_model", "multiple of 2", "9"),
    "no heat": ("decode: {sample: true, temperature: 0}", "decode.temperature", "0.001"),
    "all of nothing": ("decode: {sample: true, top_p: 0.0}", "decode.top_p", "than 0"),
    "temperature of a search": ("decode: {temperature: 0.5}", "decode.temperature: 0.5", "sample"),
    "top k of a search": ("decode: {sample: false, top_k: 5}", "decode.top_k: 5", "sample"),
    "seed of more than 64 bits": (f"decode: {{seed: {2**64}}}", "decode.seed", str(2**64)),
    "key given twice": ("train:\n  seed: 1\n  seed: 2\n", "duplicate key", "seed", "line 3"),
    "section given twice": ("train: {}\ntrain: {}", "duplicate key", "train", "line 2"),
    "section that is a number": ("model: 3", "model", "3"),
    "list of everything": ("- model\n- train\n", "sections", "model"),
    "not YAML": ("model: {d_model: 512", "not YAML", "line"),
    "tab": ("model:\n\td_model: 512\n", "not YAML", "line 2"),
    "object of Python": ("model: !!python/object/apply:os.getcwd []", "not YAML", "tags"),
    "two documents": ("model: {}\n---\nmodel: {}\n", "not YAML"),
    "day that does not exist": ("data: {dir: !!timestamp 2024-13-45}", "tags", "line 1"),
    "integer of 5,000 digits": (f"train: {{seed: {'9' * 5000}}}", "train.seed", "'999"),
    "tag of a number": ("train: {seed: !!int few}", "not YAML", "tags", "line 1"),
    "anchor": ("train: {seed: &a 1}", "not YAML", "aliases", "line 1"),
    "character that does not exist": ('data: {dir: "\\U00110000"}', "not YAML"),
    "YAML 1.3": ("%YAML 1.3\n---\ntrain: {}", "not YAML", "1, 3"),
    "3,000 brackets": ("model: " + "[" * 3000 + "]" * 3000, "not YAML", "depth", "line 1"),
    "more layers than anybody has": ("model: {encoder_layers: 10000000}", "10000000"),
    "count of more than 64 bits": ("train: {batch_tokens: 1" + "0" * 20 + "}", "batch_tokens"),
    "folder with a NUL": ('data: {dir: "a\\0b"}', "data.dir", "name of a folder"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_each_mistake_gives_one_line_that_names_the_file_and_the_key(mistake, tmp_path):
    message = refused(mistake[0], tmp_path)
    for word in ("my.yaml", *mistake[1:]):
        assert word in message


def aliases(levels: int, width: int) -> str:
    """Lists that say themselves the shorter, the more they hold: a "billion laughs"."""
    lines = ["a0: &a0 [lol]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * width)}]")
    return "\n".join([*lines, f"model: *a{levels - 1}", f"train: {{seed: *a{levels - 1}}}", ""])


@pytest.mark.parametrize(
    "text",
    [
        aliases(9, 9),
        f"{{model: {{{'k' * 10**5}: 1}}}}",
        f"train: {{seed: {'k' * 10**5}}}",
        f"{'k' * 10**5}",
        f"{{{'k' * 10**5}: 1, {'k' * 10**5}: 2}}",
        f"model: *{'k' * 10**5}",
    ],
    ids=["aliases", "key", "value", "text", "key given twice", "name"],
)
def test_a_message_is_short_however_long_the_value(text, tmp_path):
    assert len(refused(text, tmp_path)) < 1500


def test_an_override_is_read_and_cut_as_the_file_is(tmp_path):
    for value in ("9" * 5000, "[" * 3000, "!!timestamp 2024-13-45", "k" * 10**5, "\udcff"):
        message = refused("", tmp_path, f"train.seed={value}")
        assert "--set train.seed=" in message
        assert len(message) < 1500
        with pytest.raises(MtkitError, match=r"--set max_ratio|max_ratio: ") as caught:
            prepare_config({}, [f"max_ratio={value}"])
        assert len(str(caught.value)) < 1500


INTEGERS = [("12", 12), ("+12", 12), ("012", 12), ("0o17", 15), ("0x1f", 31), ("0x1F", 31)]
FRACTIONS = [(".5", 0.5), ("5.", 5.0), ("1e1", 10.0), ("+1.e-1", 0.1), ("2e-4", 0.0002)]
FRACTIONS += [("2E-4", 0.0002), ("1e3", 1000.0), ("2.5e-1", 0.25)]


@pytest.mark.parametrize(
    ("key", "written", "number"),
    [*(("seed", *row) for row in INTEGERS), *(("learning_rate_scale", *row) for row in FRACTIONS)],
)
def test_a_number_is_read_as_the_core_schema_of_yaml_says(key, written, number, tmp_path):
    # YAML 1.2.2, section 10.3.2.
    file = tmp_path / "my.yaml"
    file.write_text(f"train: {{{key}: {written}}}")
    for config in (load_config(str(file)), load_config("base", [f"train.{key}={written}"])):
        assert getattr(config.train, key) == number


@pytest.mark.parametrize(
    "written",
    [
        *("1:30", "1_000", "0b1", "0b_", "1e", "0o8", "0xg", "2024-01-01", "2024-13-45"),
        *("=", "<<", "yes", "No", "off", "y"),
    ],
)
def test_what_has_a_type_in_yaml_1_1_alone_is_text(written):
    assert load_config("base", [f"data.dir={written}"]).data.dir == written


@pytest.mark.parametrize("text", ["? [a]\n: 1\n", "1: 2", "null: {}", "model: {1: 2}"])
def test_a_key_that_is_not_a_word_is_refused_in_one_line(text, tmp_path):
    refused(text, tmp_path)


@pytest.mark.parametrize(
    "override",
    ["train.max_steps", "max_steps=3", "=3", "train.max_steps=[1", "train.max_steps=1: 2: 3"],
)
def test_a_malformed_override_is_quoted_in_one_line(override, tmp_path):
    assert f"--set {override}" in refused("", tmp_path, override)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.max_step=3", ("train.max_step", "train.max_steps")),
        ("trian.max_steps=3", ("trian",)),
        ("train.max_steps=", ("train.max_steps", "None")),
        ("data.tgt_lang=true", ("data.tgt_lang", "True")),
        ("train.freeze=*self*", ("not a YAML value", """--set 'train.freeze="*self*"'""")),
        ("model.n_heads=7", ("model.n_heads", "7")),
        ("train.max_steps.x=3", ("train.max_steps.x",)),
        (".max_steps=3", ("max_steps",)),
    ],
)
def test_an_override_is_checked_like_the_file(override, words, tmp_path):
    message = refused("", tmp_path, override)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "override",
    [
        "train.max_steps=few",
        "foo.bar=1",
        "train.freeze=[encoder, 1]",
        # Each of them alone does not fit to the other one.
        "model.n_heads=3",
        "model.d_model=17",
    ],
)
def test_a_mistake_in_an_override_is_not_blamed_on_the_file(override, tmp_path):
    message = refused("model: {d_model: 16, n_heads: 2}", tmp_path, override, "model.dropout=0.2")
    assert message.startswith(f"--set {override}: ")


@pytest.mark.parametrize(
    "text", ["model: {d_model: 16, n_heads: 3}", "model: 3", "modle: {n_heads: 3}"]
)
def test_a_mistake_in_the_file_is_not_blamed_on_an_override(text, tmp_path):
    message = refused(text, tmp_path, "model.dropout=0.2")
    assert message.startswith(f"{tmp_path}/")
    assert ".yaml: mod" in message or ".yaml: unknown key modle" in message


def test_an_unknown_preset_suggests_the_nearest_and_lists_them_all():
    error = message_of(load_config, "smal")
    assert "did you mean small" in error
    for name in ("base", "big", "demo", "small"):
        assert name in error


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_bytes(b"model: {d_ff: 64} # caf\xe9\n")
    with pytest.raises(MtkitError, match=r"my\.yaml"):
        load_config(str(file))


@pytest.mark.parametrize("text", ["", "# nothing\n", "model:\n", "model:\n  # d_ff: 64\n"])
def test_an_empty_file_or_section_is_the_defaults(text, tmp_path, caplog):
    file = tmp_path / "my.yaml"
    file.write_text(text)
    assert load_config(str(file)) == Config()
    assert ("has no settings" in caplog.text) == ("model" not in text)


@pytest.mark.parametrize("text", ["", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n"])
def test_norwegian_is_a_language_with_quotes_and_without(text, tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text(text + 'data: {src_lang: "no", tgt_lang: no}')
    data = load_config(str(file)).data
    assert (data.src_lang, data.tgt_lang) == ("no", "no")


def test_the_defaults_are_the_papers_base_model():
    # Table 3, first row; Sections 5.1 to 5.4 and 6.1.
    model, train, decode = ModelConfig(), TrainConfig(), DecodeConfig()
    assert (model.encoder_layers, model.decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.n_heads) == (512, 2048, 8)
    assert (model.key_width, model.value_width) == (64, 64)
    assert (model.dropout, model.attention_dropout, model.activation_dropout) == (0.1, 0.0, 0.0)
    assert (model.positions, model.norm, model.attention_window) == ("sinusoidal", "post", None)
    assert (train.max_steps, train.batch_tokens, train.warmup_steps) == (100_000, 25_000, 4000)
    assert (train.adam_beta1, train.adam_beta2, train.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (train.label_smoothing, train.learning_rate_scale) == (0.1, 1.0)
    assert (train.precision, train.compile, train.seed) == ("auto", "auto", 1)
    assert (decode.beam_size, decode.length_penalty, decode.max_extra_length) == (4, 0.6, 50)
    assert decode.average_checkpoints == 5


def test_base_is_the_defaults_with_an_exact_search():
    expected = Config(decode=DecodeConfig(stop="exact"))
    assert load_config("base") == load_config("base.yaml") == expected


def test_big_differs_from_base_in_what_the_paper_says():
    # Table 3, last row; 300,000 steps; the last 20 checkpoints averaged, ten minutes apart.
    tree, base = load_config("big").model_dump(), Config().model_dump()
    other = {key for key in tree["model"] if tree["model"][key] != base["model"][key]}
    assert other == {"d_model", "d_ff", "n_heads", "dropout"}
    big = load_config("big.yaml")
    assert (big.model.d_model, big.model.d_ff, big.model.n_heads) == (1024, 4096, 16)
    assert (big.model.dropout, big.model.key_width) == (0.3, 64)
    assert (big.train.max_steps, big.decode.average_checkpoints) == (300_000, 20)
    # Enough checkpoints are kept for the average, and the optimisation is that of base.
    assert big.train.keep_checkpoints >= 20
    optimisation = {"batch_tokens", "warmup_steps", "label_smoothing", "learning_rate_scale"}
    optimisation |= {"adam_beta1", "adam_beta2", "adam_epsilon", "decay_steps"}
    assert all(tree["train"][key] == base["train"][key] for key in optimisation)


# Table 3 as printed: what differs from the base model in each row, the widths of keys and values
# derived where the paper prints them.
TABLE_3: dict[str, dict[str, Any]] = {
    "a-h1": {"n_heads": 1, "key_width": 512, "value_width": 512},
    "a-h4": {"n_heads": 4, "key_width": 128, "value_width": 128},
    "a-h16": {"n_heads": 16, "key_width": 32, "value_width": 32},
    "a-h32": {"n_heads": 32, "key_width": 16, "value_width": 16},
    "b-dk16": {"key_width": 16},
    "b-dk32": {"key_width": 32},
    "c-n2": {"encoder_layers": 2, "decoder_layers": 2},
    "c-n4": {"encoder_layers": 4, "decoder_layers": 4},
    "c-n8": {"encoder_layers": 8, "decoder_layers": 8},
    "c-d256": {"d_model": 256, "key_width": 32, "value_width": 32},
    "c-d1024": {"d_model": 1024, "key_width": 128, "value_width": 128},
    "c-ff1024": {"d_ff": 1024},
    "c-ff4096": {"d_ff": 4096},
    "d-drop0": {"dropout": 0.0},
    "d-drop2": {"dropout": 0.2},
    "d-ls0": {"label_smoothing": 0.0},
    "d-ls2": {"label_smoothing": 0.2},
    "e-learned": {"positions": "learned"},
}
COLUMNS = {key for row in TABLE_3.values() for key in row} - {"label_smoothing"}


def columns_of_table_3(name: str) -> dict[str, Any]:
    config = load_config(name)
    row = {column: getattr(config.model, column) for column in COLUMNS}
    return row | {"label_smoothing": config.train.label_smoothing}


def test_every_row_of_table_3_is_a_preset():
    assert {f"table3-{row}" for row in TABLE_3} == {p for p in presets() if p.startswith("table3")}


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_of_table_3_differs_from_base_as_the_paper_prints_it(row):
    base, table = columns_of_table_3("base"), columns_of_table_3(f"table3-{row}")
    assert {key: value for key, value in table.items() if value != base[key]} == TABLE_3[row]
    config = load_config(f"table3-{row}")
    # The table is without averaging; everything else is the optimisation of base.
    assert config.decode.average_checkpoints == 1
    allowed = ("model.", "train.label_smoothing", "decode.average_checkpoints")
    assert not differences(load_config("base"), config, ignore=allowed)


def test_the_recipes_of_other_toolkits_have_their_learning_rates():
    def peak(name: str) -> float:
        config = load_config(name)
        rate = config.model.d_model**-0.5 * config.train.warmup_steps**-0.5
        return rate * config.train.learning_rate_scale

    assert load_config("paper") == load_config("base")
    assert peak("paper") == pytest.approx(6.99e-4, rel=1e-3)
    assert peak("big") == pytest.approx(4.94e-4, rel=1e-3)
    assert peak("t2t") == pytest.approx(9.88e-4, rel=1e-3)
    assert peak("fairseq") == pytest.approx(1e-3, rel=1e-3)


def test_only_the_presets_for_short_trainings_let_the_rate_fall_to_zero():
    falling = {name for name in presets() if Schedule.from_config(load_config(name)).decay_start()}
    assert falling == {"demo", "fine-tune", "fine-tune-large", "parsing-small", "small", "tiny"}


def test_differences_are_written_as_in_yaml():
    new = load_config(
        "base", ["train.schedule=linear", "train.learning_rate=1e-3", "train.compile=true"]
    )
    assert differences(load_config("base"), new) == [
        "train.schedule (paper became linear)",
        "train.learning_rate (null became 0.001)",
        "train.compile (auto became true)",
    ]
    assert differences(new, new) == []


def test_tiny_is_trained_like_small_and_has_most_of_its_layers_in_the_encoder():
    assert load_config("tiny").train == load_config("small").train
    model = load_config("tiny").model
    assert (model.encoder_layers, model.decoder_layers) == (6, 2)
    assert (model.d_model, model.d_ff, model.n_heads) == (256, 1024, 4)


@pytest.mark.parametrize("name", presets())
def test_a_preset_keeps_as_many_checkpoints_as_it_averages(name):
    config = load_config(name)
    assert config.train.keep_checkpoints >= config.decode.average_checkpoints
    assert config.train.max_steps >= config.train.warmup_steps


# What YAML writers get wrong: words that read as something else, and the smallest of numbers.
WORDS = st.sampled_from(["no", "yes", "on", "null", "~", "1e3", "1:30", "0x1f", "#a", "ä: b", ""])
WORDS |= st.sampled_from(
    ["0o17", "2024-01-01", "012", "1_000", ".5", "5.", ".inf", "-.INF", ".nan"]
)
WORDS |= st.sampled_from(
    ["=", "<<", "y", "Off", "0b1", "-", "?", "- a", "1.", "+1", "!!int 1", "&a"]
)
DIGITS = st.text("0123456789abxoe+-._:", max_size=6)
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FLOATS = st.floats(min_value=1e-300, max_value=1e300)


@example(text="1e3", epsilon=1e-9, penalty=0.6, dropout=0.1, steps=1, compiled=False)
@given(
    text=st.none() | WORDS | DIGITS | ANY,
    epsilon=FLOATS,
    penalty=st.floats(-10, 10),
    dropout=st.floats(0.0, 1.0, exclude_max=True),
    steps=st.integers(1, 10**18),
    compiled=st.sampled_from(["auto", True, False]),
)
def test_dumping_and_loading_is_the_identity(
    tmp_path_factory, text, epsilon, penalty, dropout, steps, compiled
):
    tree: dict[str, Any] = {
        "data": {"dir": text},
        "model": {"dropout": dropout},
        "train": {"adam_epsilon": epsilon, "max_steps": steps, "compile": compiled},
        "decode": {"length_penalty": penalty},
    }
    config = parse_config(tree, origin="test")
    file = tmp_path_factory.getbasetemp() / "identity.yaml"
    file.write_bytes(dump_config(config).encode())
    assert load_config(str(file)) == config


def test_a_dump_is_plain_yaml_with_every_setting():
    tree = yaml.safe_load(dump_config(Config()))
    assert tree["train"]["adam_beta2"] == 0.98
    assert tree.keys() == {"data", "model", "train", "decode"}
    assert tree["train"].keys() == TrainConfig.model_fields.keys()


def test_an_override_goes_before_the_file_and_the_file_before_the_default(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("train: {max_steps: 20, warmup_steps: 30}")
    train = load_config(str(file), ["train.max_steps=7"]).train
    assert (train.max_steps, train.warmup_steps, train.batch_tokens) == (7, 30, 25_000)


def test_the_last_of_two_overrides_wins():
    assert load_config("base", ["train.seed=2", "train.seed=3"]).train.seed == 3


def test_overrides_can_change_what_only_fits_together():
    model = load_config("base", ["model.n_heads=7", "model.d_model=14"]).model
    assert (model.n_heads, model.d_model, model.key_width) == (7, 14, 2)


def test_a_file_that_exists_goes_before_a_preset_of_its_name_and_a_folder_does_not(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("big").mkdir()
    Path("big.yaml").write_text("train: {seed: 99}")
    assert load_config("big.yaml").train.seed == 99
    assert load_config("big.yaml").model.d_model == 512
    assert load_config("big").model.d_model == 1024


@pytest.mark.parametrize("written", ["big", "big.yaml", "configs/big.yaml", "/a/b/big.yml"])
def test_a_run_is_named_after_its_configuration_however_it_was_given(written):
    assert config_name(written) == "big"


def test_a_configuration_does_not_change():
    config = Config()
    with pytest.raises(AttributeError, match="frozen"):
        config.train.max_steps = 1  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        config.model = ModelConfig()  # type: ignore[misc]


def test_heads_that_do_not_divide_are_fine_once_their_width_is_given():
    # Table 3, row (B), changes d_k alone; row (A) needs every width to be free.
    model = ModelConfig(n_heads=7, d_k=64)
    assert (model.key_width, model.value_width) == (64, 64)
    assert ModelConfig(d_k=16).value_width == 16
    assert ModelConfig(d_v=16).key_width == 64


@pytest.mark.parametrize("drawn", ["sample=true", "mbr_samples=8"])
def test_what_changes_draws_can_be_set_where_there_are_any(drawn):
    settings = ["decode.temperature=0.5", "decode.top_k=5", "decode.top_p=0.9"]
    decode = load_config("base", [*settings, f"decode.{drawn}"]).decode
    assert (decode.temperature, decode.top_k, decode.top_p) == (0.5, 5, 0.9)


def test_greedy_decoding_keeps_what_is_not_about_how_translations_are_found():
    kept = {"length_penalty": 0.9, "max_length": 30}
    drawn = DecodeConfig(sample=True, temperature=0.5, top_k=5, top_p=0.9, **kept)
    chosen = DecodeConfig(mbr_samples=8, top_k=5, split_sentences=True, **kept)
    plain = DecodeConfig(beam_size=1, split_sentences=False, copy_numbers=False, **kept)
    assert drawn.greedy() == chosen.greedy() == plain


def test_differences_leave_out_what_is_ignored_and_nothing_else():
    old = load_config("base")
    new = load_config("base", ["decode.beam_size=5", "train.seed=5", "train.log_every=7"])
    lines = differences(old, new, ignore=("decode.", "train.log_every"))
    assert [line.split()[0] for line in lines] == ["train.seed"]


# "A 4-layer transformer with d_model = 1024 ... all other parameters remained unchanged from the
# English-to-German base translation model. During inference, we increased the maximum output
# length to input length + 300. We used a beam size of 21 and alpha = 0.3."
SECTION_6_3 = [
    "model.encoder_layers (6 became 4)",
    "model.decoder_layers (6 became 4)",
    "model.d_model (512 became 1024)",
    # The paper chose these on section 22, and does not say what it chose.
    "model.dropout (0.1 became 0.2)",
    "model.attention_dropout (0.0 became 0.2)",
    "train.warmup_steps (4000 became 16000)",
    "train.best_metric (bleu became f1)",
    "decode.beam_size (4 became 21)",
    "decode.length_penalty (0.6 became 0.3)",
    "decode.max_extra_length (50 became 300)",
]
NO_POSITIONS = ["model.positions (sinusoidal became none)"]
NO_POSITIONS += ["decode.average_checkpoints (5 became 1)"]


@pytest.mark.parametrize(
    ("usual", "preset", "changes"),
    [
        ("big", "big-en-fr", ["model.dropout (0.3 became 0.1)"]),
        ("base", "no-positions", NO_POSITIONS),
        ("base", "parsing-wsj", SECTION_6_3),
        ("base", "parsing-semi", SECTION_6_3),
    ],
)
def test_a_preset_differs_from_another_as_the_paper_says(usual, preset, changes):
    assert differences(load_config(usual), load_config(preset)) == changes
