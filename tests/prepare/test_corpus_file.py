"""The corpus file of `mtkit prepare CORPUS.yaml`, and how each mistake in it is named."""

from pathlib import Path

import pytest
from conftest import number_pairs
from support.command_line import Place, prepare_arguments

from mtkit.data import PreparedData

EVERYTHING = """
src_lang: en
tgt_lang: de
train:
  - [train.en, train.de]             # two files
  - source: web.tsv                  # both sides in one file
    weight: 0.5
    tag: web
valid: [valid.en, valid.de]
valid_also:
  near: [test.en, test.de]
test: [test.en, test.de]
settings:
  vocab_size: 320
  max_ratio: 100.0
  noise: {case: 0.1}
"""


@pytest.fixture
def corpus(place, tiny_text):
    """A folder `texts` with the files that the corpus files below name."""
    for split in ("train", "valid", "test"):
        for file in getattr(tiny_text, split):
            place.write(f"texts/{split}{file.suffix}", file.read_bytes())
    place.write("texts/web.tsv", "".join(f"{a}\t{b}\n" for a, b in number_pairs(20, seed=9)))
    return place


def described(place: Place, text: str) -> Path:
    return place.write("texts/corpus.yaml", text)


def test_a_corpus_file_describes_data_beside_it(corpus):
    outcome = corpus.done("prepare", described(corpus, EVERYTHING))
    data = PreparedData.open(corpus.folder / "data" / "corpus")
    first, second = data.manifest.sources["train"]
    assert (first["pairs"], first["weight"], "tag" in first) == (200, 1, False)
    assert (second["pairs"], second["weight"], second["tag"]) == (20, 0.5, "web")
    assert data.manifest.counts["pairs"]["valid@near"] == len(data.text("test")[0])
    assert data.manifest.settings["vocab_size"] == 320
    assert data.manifest.settings["noise"]["case"] == 0.1
    assert "with tag web" in outcome.err


def test_a_plain_corpus_file_gives_the_same_bytes_as_the_options(corpus, tiny_text):
    arguments = prepare_arguments(tiny_text)
    assert corpus.mtkit(*arguments, "--out", "options").status == 0
    files = {split: list(map(str, getattr(tiny_text, split))) for split in ("valid", "test")}
    text = f"{{src_lang: en, tgt_lang: de, train: [[{', '.join(map(str, tiny_text.train))}]], "
    path = described(corpus, f"{text}valid: {files['valid']}, test: {files['test']}}}")
    more = arguments[arguments.index("--vocab-size") :][:2]
    assert corpus.mtkit("prepare", "tiny", path, *more, "--out", "file").status == 0
    for name in sorted(file.name for file in (corpus.folder / "options").iterdir()):
        ours, theirs = ((corpus.folder / out / name).read_bytes() for out in ("options", "file"))
        assert ours == theirs, name


def test_an_option_takes_precedence_over_the_file(corpus):
    path = described(corpus, EVERYTHING)
    options = ["--vocab-size", "315", "--set", "noise.case=0", "--set", "noise.seed=2"]
    assert corpus.mtkit("prepare", "other", path, *options).status == 0
    settings = PreparedData.open(corpus.folder / "data" / "other").manifest.settings
    assert settings["vocab_size"] == 315
    assert (settings["noise"]["case"], settings["noise"]["seed"]) == (0, 2)
    assert settings["max_ratio"] == 100.0


def test_links_of_words_go_with_their_pairs_into_the_folder(corpus):
    corpus.write("texts/train.links", "0-0\n" * 200)
    train = "{source: [train.en, train.de], alignments: train.links}"
    text = f"{{src_lang: en, tgt_lang: de, train: [{train}], valid: [valid.en, valid.de]}}"
    corpus.done("prepare", described(corpus, text), "--vocab-size", "300")
    links = PreparedData.open(corpus.folder / "data" / "corpus").pairs("train").links
    assert links is not None
    assert {tuple(links[i]) for i in range(len(links))} == {(0, 0)}


TRAIN = "{{src_lang: en, tgt_lang: de, train: [{{source: web.tsv, {}}}], valid: web.tsv}}"
START = "{src_lang: en, tgt_lang: de, train: [[train.en, train.de]], valid: [valid.en, valid.de]"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", "not YAML"),
        ("# nothing", "has no text; it must name src_lang, tgt_lang, train and valid"),
        ("- train.en", "expected src_lang, tgt_lang, train, valid"),
        ("{src_lang: en, tgt_lang: de, valid: v}", "train: is missing"),
        ("{src_lang: en, tgt_lang: de, train: [], valid: web.tsv}", "train: there is no training"),
        (f"{START}, vaild_also: {{}}}}", "unknown key vaild_also; did you mean valid_also?"),
        (f"{START}, settings: {{max_ration: 3}}}}", "did you mean max_ratio?"),
        (f"{START}, valid_also: {{a b: web.tsv}}}}", "valid_also: 'a b' cannot be the name"),
        (f"{START}, valid_also: {{a: web.tsv, A: web.tsv}}}}", "a is already the name"),
        (
            "{directions: [{src_lang: en, tgt_lang: zh-TW, train: [[train.en, train.de]],"
            " valid: [valid.en, valid.de], valid_also: {en-zh-tw: web.tsv}}]}",
            "en-zh-tw is already the name",
        ),
        (f"{START}, test: [a, b, c]}}", "test: expected a source, or a list of two files"),
        (f"{START}, test: nowhere.tsv}}", "texts/nowhere.tsv: No such file"),
        (f"{START}, temperature: 2}}", "unknown key temperature"),
        (f"{START}, directions: []}}", "unknown key src_lang"),
        (f"{{directions: [{START}}}, {START}}}]}}", "two directions have the name en-de; give all"),
        (f"{{directions: [{START}}}], temperature: 0.5}}", "temperature: must be at least 1"),
        (f"{START}, task: parsing}}", "unknown key tgt_lang"),
        ("{task: translation, train: [], valid: x}", "task: expected 'parsing'"),
        ("{task: parsing, train: [{source: a, tag: bt}], valid: x}", "entry 1: unknown key tag"),
        (TRAIN.format("weight: 0"), "weight: expected greater than 0, not 0"),
        (TRAIN.format("weight: .inf"), "weight: expected a finite number, not inf"),
        (TRAIN.format("tag: b t"), "'b t' cannot be the name of a tag"),
        (TRAIN.format("alignments: missing.links"), "texts/missing.links: No such file"),
    ],
)
def test_a_mistake_in_the_file_is_refused_by_file_and_key(text, error, corpus):
    path = described(corpus, text)
    line = corpus.refused("prepare", path)
    assert line.startswith(f"mtkit: error: {path}: ")
    assert error in line
    assert not (corpus.folder / "data").exists()


def test_alignments_of_some_sources_only_are_refused(corpus):
    corpus.write("texts/web.links", "0-0\n" * 20)
    train = "[[train.en, train.de], {source: web.tsv, alignments: web.links}]"
    text = f"{{src_lang: en, tgt_lang: de, train: {train}, valid: [valid.en, valid.de]}}"
    error = corpus.refused("prepare", described(corpus, text))
    assert "alignments: give a file for each of the 2 training sources, not 1" in error


@pytest.mark.parametrize("option", [["--train", "a", "b"], ["--src-lang", "en"]])
def test_options_about_data_cannot_be_combined_with_a_file(option, corpus):
    error = corpus.refused("prepare", described(corpus, EVERYTHING), *option)
    assert f"{option[0]} cannot be combined with" in error


def test_a_file_that_does_not_exist_is_named(place):
    assert "nowhere.yaml: No such file" in place.refused("prepare", "nowhere.yaml")
    assert "nowhere: No such file" in place.refused("prepare", "mine", "nowhere")
