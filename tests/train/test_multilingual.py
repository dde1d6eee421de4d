"""Models of several languages: prepared with tags, trained, and asked for one of them."""

import json
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import (
    GERMAN,
    GREEK,
    UNTRAINED,
    changed,
    number_pairs,
    of_directions,
    random_run,
    slow,
    write_pairs,
)
from support.command_line import Place
from support.exported import needs
from support.prepared import prepare_several
from support.program import python
from support.runs import remade
from support.served import Served

from mtkit.base.errors import MtkitError
from mtkit.batches import TokenBatches
from mtkit.convert.export_run import _check_text
from mtkit.data import PreparedData, also_split
from mtkit.prepare import parallel_files, prepare_files
from mtkit.run_folder import Run
from mtkit.score import score
from mtkit.tokenizer import EOS_ID
from mtkit.train import assembly as train
from mtkit.train.start import initial_weights
from mtkit.translate import Translator

Files = tuple[Path, Path]
DIRECTIONS = [("en", "de"), ("de", "en"), ("en", "el")]


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> dict[str, Files]:
    """Numbers in English and German, the same with sides swapped, and in English and Greek."""
    folder = tmp_path_factory.mktemp("several")
    files = {}
    for name, words, trained in (("de", GERMAN, 160), ("el", GREEK, 40)):
        counts = {"train": trained, "valid": 12, "test": 10}
        for seed, (split, count) in enumerate(counts.items(), 1):
            pairs = number_pairs(count, seed=seed, words=words)
            files[f"{name}-{split}"] = write_pairs(folder, f"{name}-{split}", pairs)
            files[f"en-{split}"] = files[f"de-{split}"][::-1]
    return files


def direction(text: dict[str, Files], src: str, tgt: str) -> dict[str, Any]:
    name = "en" if tgt == "en" else tgt
    of_split = {split: text[f"{name}-{split}"] for split in ("train", "valid", "test")}
    return {"src_lang": src, "tgt_lang": tgt, **of_split, "train": [of_split["train"]]}


def prepared(text: dict[str, Files], out: Path, **settings: Any) -> PreparedData:
    directions = [direction(text, src, tgt) for src, tgt in DIRECTIONS]
    usual = {"directions": directions, "vocab_size": 330, "max_ratio": 100.0, "workers": 1}
    prepare_several("many", out, **{**usual, **settings})
    return PreparedData.open(out)


@pytest.fixture(scope="session")
def many(text, tmp_path_factory) -> PreparedData:
    """English to German and back, and English to Greek, in one folder."""
    return prepared(text, tmp_path_factory.mktemp("many") / "many")


@pytest.fixture(scope="session")
def many_run(many, tiny_config, tmp_path_factory) -> Run:
    place = tmp_path_factory.mktemp("many-run") / "many"
    train.run(tiny_config, many, place, device="cpu")
    return Run.open(place)


@pytest.fixture(scope="session")
def untrained_many(many, tmp_path_factory) -> Run:
    """A model with random weights of these languages, which writes something else for each line."""
    place = tmp_path_factory.mktemp("untrained-many") / "many"
    return of_directions(random_run(place, many, 5), *DIRECTIONS)


@pytest.fixture
def desk(place, many, many_run) -> Place:
    """A working directory with the run, whose data is where it was."""
    (place.folder / "runs").mkdir()
    (place.folder / "runs" / "many").symlink_to(many_run.path)
    return place


def test_each_source_begins_with_the_tag_of_its_target_language_and_no_target_has_one(many, text):
    tokenizer = many.tokenizers().src
    tags = tokenizer.language_tags
    assert sorted(tags) == ["de", "el", "en"]
    pairs, start = many.pairs("train"), 0
    for src, tgt in DIRECTIONS:
        (files,) = direction(text, src, tgt)["train"]
        ours, theirs = (file.read_text("utf-8").splitlines() for file in files)
        for place, (source, target) in enumerate(zip(ours, theirs, strict=True), start):
            assert pairs.src[place] == [tags[tgt], *tokenizer.encode(source), EOS_ID]
            assert pairs.tgt[place] == [*tokenizer.encode(target), EOS_ID]
        start += len(ours)
    assert start == len(pairs)


def test_of_separate_vocabularies_that_of_the_source_alone_has_tags(text, tmp_path):
    data = prepared(text, tmp_path / "out", shared_vocab=False)
    src, tgt = data.tokenizers()
    assert (sorted(src.language_tags), tgt.language_tags) == (["de", "el", "en"], {})
    assert data.pairs("valid").src[0][0] == src.language_tags["de"]


def test_the_folder_has_the_text_of_each_direction_without_tags(many, text):
    for texts, (src, tgt) in zip(many.texts("test"), DIRECTIONS, strict=True):
        assert (texts.src_lang, texts.tgt_lang) == (src, tgt)
        files = direction(text, src, tgt)["test"]
        assert [texts.src, texts.tgt] == [file.read_text("utf-8").splitlines() for file in files]
    assert (many.src_lang, many.tgt_lang) == ("en,de", "de,en,el")


def test_an_epoch_has_pairs_of_each_direction_by_the_temperature(text, tmp_path):
    data = prepared(text, tmp_path / "out", temperature=2)
    weights = [source["weight"] for source in data.manifest.sources["train"]]
    # 160, 160 and 40 pairs: the square roots are as 2, 2 and 1.
    assert weights == pytest.approx([1.0, 1.0, 2.0])
    pairs = data.pairs("train")
    batches = TokenBatches(pairs, budget=500, per_update=1, seed=1)
    tags = {i: code for code, i in data.tokenizers().src.language_tags.items()}
    drawn = Counter[str]()
    while batches.state_dict()["epoch"] == 0:
        drawn.update(tags[pairs.src[i][0]] for indices in next(batches) for i in indices.tolist())
    assert drawn["de"] == pytest.approx(160, abs=40)
    assert drawn["el"] == pytest.approx(80, abs=20)


def test_weights_of_corpora_are_multiplied_with_those_of_the_temperature(text, tmp_path):
    directions = [direction(text, src, tgt) for src, tgt in DIRECTIONS]
    directions[2]["train"] = [parallel_files(*text["el-train"], weight=4)]
    data = prepared(text, tmp_path / "out", temperature=5, directions=directions)
    # The weight makes the third direction as large as the others.
    weights = [source["weight"] for source in data.manifest.sources["train"]]
    assert weights == pytest.approx([1.0, 1.0, 4.0])


def test_the_same_sentences_in_two_directions_are_not_a_repetition(text, tmp_path):
    # All English sentences of the second direction are in the first.
    english = [text[name][0].read_text("utf-8").splitlines() for name in ("de-train", "el-train")]
    assert set(english[1]) < set(english[0])
    directions = [direction(text, "en", "de"), direction(text, "en", "el")]
    settings: dict[str, Any] = {"max_repeats": 1, "max_ratio": 100.0, "workers": 1}
    settings |= {"directions": directions, "vocab_size": 330}
    report = prepare_several("two", tmp_path / "out", **settings)
    assert report.dropped == {}
    assert report.shares == {"en-de": (160, 0.8), "en-el": (40, 0.2)}


def test_a_training_pair_that_is_validated_in_the_reverse_direction_is_counted(text, tmp_path):
    directions = [direction(text, "en", "de"), direction(text, "de", "en")]
    settings: dict[str, Any] = {"vocab_size": 300, "workers": 1}
    before = prepare_several("two", tmp_path / "out", directions=directions, **settings)
    some = [file.read_text("utf-8").splitlines()[:7] for file in text["en-train"]]
    directions[1]["valid"] = write_pairs(tmp_path, "leak", list(zip(*some, strict=True)))
    after = prepare_several("two", tmp_path / "after", directions=directions, **settings)
    # Seven pairs in each direction.
    assert after.overlap["both"] == before.overlap["both"] + 14


def test_training_measures_each_direction_and_selects_by_their_mean(many_run, many):
    (row,) = [row for row in many_run.metrics() if "valid_loss" in row]
    of_each = row["valid_also"]
    assert [*of_each] == ["en-de", "de-en", "en-el"]
    for name in ("bleu", "chrf"):
        mean = sum(scores[name] for scores in of_each.values()) / 3
        assert row[f"valid_{name}"] == pytest.approx(mean, rel=1e-12)
    greedy = many_run.config.decode.greedy()
    total = tokens = 0.0
    for src_lang, tgt_lang, src, tgt, _ in many.texts("valid"):
        translator = Translator.load(many_run, checkpoint="last", config=greedy, tgt_lang=tgt_lang)
        translations = list(translator.translate(src))
        scored = list(translator.score_given(src, tgt))
        name = f"{src_lang}-{tgt_lang}"
        assert of_each[name]["chrf"] == score(translations, [tgt], metric="chrf").value
        summed = -sum(line.log_prob for line in scored)
        count = sum(len(line.log_probs) for line in scored)
        assert of_each[name]["loss"] == pytest.approx(summed / count, rel=1e-4)
        total, tokens = total + summed, tokens + count
    assert row["valid_loss"] == pytest.approx(total / tokens, rel=1e-4)


def test_a_further_set_belongs_to_its_direction(text, tiny_config, tmp_path):
    directions = [direction(text, src, tgt) for src, tgt in DIRECTIONS]
    directions[2]["valid_also"] = {"again": text["el-valid"]}
    data = prepared(text, tmp_path / "out", directions=directions)
    tags = data.tokenizers().src.language_tags
    assert data.pairs(also_split("again")).src[0][0] == tags["el"]
    train.run(tiny_config, data, tmp_path / "run", device="cpu")
    (row,) = [row for row in Run.open(tmp_path / "run").metrics() if "valid_loss" in row]
    assert [*row["valid_also"]] == ["en-de", "de-en", "en-el", "again"]
    assert row["valid_also"]["again"] == row["valid_also"]["en-el"]


def test_the_tag_decides_the_translation_and_no_tag_is_in_an_output(untrained_many, text):
    lines = text["de-test"][0].read_text("utf-8").splitlines()
    changes = {"length_penalty": 0.0, "max_extra_length": 20, "engine": "torch"}
    config = UNTRAINED.decode.model_copy(update=changes)
    by_language = {}
    for language in ("de", "el", "en"):
        with Translator.load(untrained_many, config=config, tgt_lang=language) as translator:
            tags = translator.tokenizer.language_tags
            with torch.no_grad():
                # Without the ban, a model with these weights would write little else.
                translator.model.embedding.weight[list(tags.values())] *= 20
            nbests = list(translator.translate_nbest(lines, n_best=3))
        translations = by_language[language] = [best for nbest in nbests for best in nbest]
        assert not any(re.match(">>.+<<", piece) for best in translations for piece in best.pieces)
    assert len({tuple(best.text for best in of_one) for of_one in by_language.values()}) == 3


def test_text_that_contains_a_tag_is_translated_as_text(untrained_many):
    with Translator.load(untrained_many, tgt_lang="de") as translator:
        plain, tagged = "one two", ">>el<< one two"
        (ids,) = translator.reader.encode([tagged], [1])
        tags = translator.src_tokenizer.language_tags
        assert ids[0] == tags["de"]
        assert not set(ids[1:]) & set(tags.values())
        assert translator.src_tokenizer.decode(ids) == tagged
        assert len(list(translator.translate([plain, tagged, "", ">>de<<"]))) == 4
        assert list(translator.translate([""])) == [""]


def test_the_tag_counts_for_the_limit_of_source_tokens(untrained_many):
    config = UNTRAINED.decode.model_copy(update={"max_source_tokens": 6})
    with Translator.load(untrained_many, config=config, tgt_lang="el") as translator:
        (ids,) = translator.reader.encode(["one two three four five six"], [1])
        assert len(ids) == 5  # and EOS
        assert ids[0] == translator.src_tokenizer.language_tags["el"]


def test_the_command_at_the_end_of_a_training_chooses_a_language(desk):
    outcome = desk.mtkit("train", "--run", "runs/many", "--device", "cpu")
    assert outcome.status == 0
    assert "mtkit translate --run runs/many --tgt-lang de < input.txt" in outcome.err.splitlines()


def test_a_language_must_be_chosen_and_an_unknown_one_is_refused_with_those_there_are(desk):
    refused = desk.refused("translate", "--run", "runs/many", stdin=b"one\n")
    assert "translates to several languages, de, el, en; choose one with --tgt-lang" in refused
    for options in (["--tgt-lang", "fr"], ["--src-lang", "fr", "--tgt-lang", "de"]):
        refused = desk.refused("translate", "--run", "runs/many", *options, stdin=b"one\n")
        assert "de, el, en" in refused
        assert "fr" in refused


@pytest.mark.parametrize("option", ["--tgt-lang", "--src-lang"])
def test_an_empty_code_is_refused_and_does_not_mean_some_language(option, desk):
    languages = {"--tgt-lang": "de", "--src-lang": "en"} | {option: ""}
    given = [text for pair in languages.items() for text in pair]
    refused = desk.refused("translate", "--run", "runs/many", *given, stdin=b"one\n")
    assert f"{option}: is empty; give a language code, or leave the option out" in refused


def test_a_direction_that_was_not_trained_is_translated_with_a_warning(desk):
    arguments = ["translate", "--run", "runs/many", "--tgt-lang", "el"]
    for language, warned in (("de", True), ("en", False)):
        outcome = desk.mtkit(*arguments, "--src-lang", language, stdin=b"eins zwei\n")
        assert outcome.status == 0
        assert outcome.out.count("\n") == 1
        assert ("was not trained to translate de to el" in outcome.err) == warned


def test_a_model_of_two_languages_accepts_them_and_refuses_others(trained):
    outcome = trained.mtkit("translate", "--tgt-lang", "de", "--src-lang", "en", stdin=b"one\n")
    assert outcome.status == 0
    refused = trained.refused("translate", "--tgt-lang", "fr", stdin=b"one\n")
    assert refused.endswith("translates en to de, and not to fr")


def test_score_prints_each_direction_with_its_signature(desk):
    command = ("score", "--run", "runs/many", "--beam-size", "1")
    outcome = desk.mtkit(*command)
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert [line.split()[0] for line in lines] == ["en-de", "de-en", "en-el"]
    assert outcome.err.count("mtkit: runs/many: ") == 1
    assert all("BLEU" in line and "nrefs:1|case:mixed" in line for line in lines)
    as_json = json.loads(desk.mtkit("score", "--run", "runs/many", "--json").out)
    assert [*as_json] == ["en-de", "de-en", "en-el"]
    for alias in ("el", "ell", "ell_Grek", "EL"):
        of_alias = desk.mtkit(*command, "--tgt-lang", alias)
        assert of_alias.out == lines[2].removeprefix("en-el ") + "\n"
    refused = desk.refused("score", "--run", "runs/many", "--tgt-lang", "fr")
    assert "no test set for this direction; available: en-de, de-en, en-el" in refused
    assert "--sentence requires one direction" in desk.refused(*command, "--sentence")


def test_score_names_the_directions_that_have_no_test_set(desk, text, many_run, tmp_path):
    directions = [direction(text, src, tgt) for src, tgt in DIRECTIONS]
    del directions[1]["test"]
    prepared(text, tmp_path / "d", directions=directions, tokenizer_from=many_run.path)
    arguments = ["score", "--run", "runs/many", "--data", str(tmp_path / "d"), "--beam-size", "1"]
    outcome = desk.mtkit(*arguments)
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["en-de", "en-el"]
    assert f"{tmp_path / 'd'}: no test set for de-en, so not scored\n" in outcome.err
    assert "no test set" not in desk.mtkit(*arguments, "--src-lang", "en").err
    assert "no valid set" not in desk.mtkit(*arguments, "--split", "valid").err


def test_multilingual_and_bilingual_runs_are_compared_on_bilingual_data(desk, tiny_data, tiny_run):
    runs = ["--run", "runs/many", "--run", str(tiny_run.path)]
    outcome = desk.mtkit("score", *runs, "--data", str(tiny_data.path), "--beam-size", "1")
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("BLEU") >= 1


@pytest.mark.parametrize("format_", ["safetensors", slow("ctranslate2"), slow("huggingface")])
def test_an_export_agrees_with_the_run(format_, desk):
    if format_ != "safetensors":
        pytest.importorskip("ctranslate2" if format_ == "ctranslate2" else "transformers")
    outcome = desk.mtkit("export", "runs/many", "out", "--format", format_)
    assert outcome.status == 0, outcome.err
    assert ("--tgt-lang de" if format_ == "safetensors" else ">>de<<") in outcome.out + outcome.err


def test_the_tokenizer_of_a_multilingual_run_is_for_data_with_tags_and_no_other_is(
    many_run, many, tiny_data, text, tmp_path
):
    greek = direction(text, "en", "el")
    settings: dict[str, Any] = {"tokenizer_from": many_run.path, "workers": 1, "max_ratio": 100.0}
    prepare_several("more", tmp_path / "more", directions=[greek], **settings)
    data = PreparedData.open(tmp_path / "more")
    assert data.tokenizers().is_same(many.tokenizers())
    assert data.pairs("train").src[0] == many.pairs("train").src[320]
    with pytest.raises(MtkitError, match="describe the text in a corpus file, under directions"):
        prepare_files("bad", tmp_path / "bad", **greek, **settings)
    with pytest.raises(MtkitError, match="has no language tags"):
        prepare_several("bad", tmp_path / "bad", directions=[greek], tokenizer_from=tiny_data.path)
    french = {**greek, "tgt_lang": "fr"}
    with pytest.raises(MtkitError, match="with tags for de, el, en, not for en to fr"):
        prepare_several("bad", tmp_path / "bad", directions=[french], **settings)


def test_only_a_direction_that_a_run_has_not_learned_is_called_new(many_run, many, text, tmp_path):
    directions = [direction(text, "de", "en"), {**direction(text, "en", "el"), "src_lang": "de"}]
    out = tmp_path / "more"
    settings: dict[str, Any] = {"tokenizer_from": many_run.path, "workers": 1, "max_ratio": 100.0}
    prepare_several("more", out, directions=directions, **settings)
    more = PreparedData.open(out)
    assert initial_weights(many_run, "last", many).new_directions == []
    assert initial_weights(many_run, "last", more).new_directions == [("de", "el")]
    # An imported model with tags does not say which directions it was trained on.
    origin = many_run.manifest.data.model_copy(update={"directions": [], "tgt_lang": "de"})
    manifest = many_run.manifest.model_copy(update={"data": origin})
    imported = Run(many_run.path, many_run.config, manifest)
    assert initial_weights(imported, "last", more).new_directions == []


def test_a_corpus_file_gives_the_same_folder_as_the_function(place, text, many):
    directions = [
        {
            key: [list(map(str, files)) for files in value] if key == "train" else value
            for key, value in direction(text, src, tgt).items()
        }
        for src, tgt in DIRECTIONS
    ]
    place.write("many.yaml", json.dumps({"directions": directions}, default=str))
    options = ["--vocab-size", "330", "--set", "max_ratio=100.0", "--workers", "1"]
    outcome = place.mtkit("prepare", "many.yaml", *options)
    assert outcome.status == 0, outcome.err
    assert PreparedData.open(place.folder / "data" / "many").manifest == many.manifest
    assert re.search(r"en-el +40 +11.1% of an epoch", outcome.err)


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ([("en", "d<e")], "a character that a language tag cannot have"),
        ([("de", "de")], "the direction de to de has the same language twice"),
        *(
            ([("en", "de"), other], "de and DE are codes of the same language; use one")
            for other in (("en", "DE"), ("DE", "en"), ("de", "DE"))
        ),
        (
            [("en", "de-de"), ("en-de", "de")],
            "two directions have the name en-de-de; give all corpora",
        ),
    ],
)
def test_languages_that_cannot_be_told_apart_are_refused(languages, message, text, tmp_path):
    files = direction(text, "en", "de")
    directions = [{**files, "src_lang": src, "tgt_lang": tgt} for src, tgt in languages]
    with pytest.raises(MtkitError, match=message):
        prepare_several("bad", tmp_path / "bad", directions=directions)


def test_a_server_translates_in_all_directions_that_were_trained(untrained_many):
    with Served([untrained_many]) as server:
        listed = server.get("/languages").json
        targets = {language["code"]: language["targets"] for language in listed}
        assert targets == {"de": ["de", "en"], "el": [], "en": ["de", "el", "en"]}
        for src, tgt in DIRECTIONS:
            with Translator.load(untrained_many, src_lang=src, tgt_lang=tgt) as translator:
                (expected,) = translator.translate(["one two three"])
            reply = server.translate("one two three", source=src, target=tgt)
            assert reply.json == {"translatedText": expected}
        (error,) = server.translate("one", source="de", target="el").json.values()
        assert error == "Greek (el) is not available as a target language from German (de)"


@pytest.mark.parametrize("format", [needs("argos")])
def test_a_package_for_argos_has_one_direction_and_its_tag(format, untrained_many, text, tmp_path):
    # A trained model gives tags hardly any probability, and mtkit none; random weights do.
    tokenizer = untrained_many.tokenizers().src
    bias = torch.zeros(len(tokenizer))
    bias[list(tokenizer.tag_ids)] = -30
    weights = untrained_many.checkpoints()[0].load_weights() | {"output_bias": bias}
    config = changed(untrained_many.config, "model", output_bias=True)
    run = remade(untrained_many, tmp_path / "run", config=config, weights=weights)
    out, check = tmp_path / "en_el.argosmodel", text["el-valid"][0]
    command = ("-m", "mtkit", "export", run.path, out, "--format", format)
    command += ("--quantization", "float32", "--check", check)
    assert "several languages, de, el, en; choose one with --tgt-lang" in python(*command).stderr
    # The number of ties is the CPU's; all other lines must be equal to be written.
    done = python(*command, "--tgt-lang", "el")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(out) as archive:
        metadata = json.loads(archive.read("mtkit-en_el/metadata.json"))
        model = json.loads(archive.read("mtkit-en_el/model/config.json"))
    assert (metadata["from_code"], metadata["to_name"]) == ("en", "Greek")
    assert (model["add_source_bos"], model["bos_token"]) == (True, ">>el<<")
    assert model["decoder_start_token"] == "<s>"


def test_the_check_of_a_direction_has_its_own_lines_or_else_those_of_others(untrained_many, many):
    texts = many.texts("valid")
    (own,) = (text.src for text in texts if text[:2] == ("en", "el"))
    # No German line is translated into Greek, so lines of all directions are taken.
    for src, lines in (("en", own), ("de", [line for text in texts for line in text.src])):
        translator = Translator.load(untrained_many, device="cpu", src_lang=src, tgt_lang="el")
        checked = _check_text(untrained_many, translator, None).lines
        assert checked == list(lines)[: len(checked)]
        assert len(checked) >= len(own)
