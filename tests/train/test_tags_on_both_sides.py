"""Models whose sources and translations begin with the tag of their own language."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import UNTRAINED, changed, number_pairs, of_directions, random_run, write_pairs
from support.prepared import prepare_several
from support.served import Served

from mtkit.base.errors import MtkitError
from mtkit.batches import make_batch
from mtkit.check.model.fit import _training_pairs
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.inspect import inspect_pair
from mtkit.prepare import prepare_files
from mtkit.run_folder import Run
from mtkit.tokenizer import EOS_ID, Tokenizer
from mtkit.train import assembly as train
from mtkit.train.guided_alignment import GuidedAlignment
from mtkit.translate import Translator

DIRECTIONS = [("en", "de"), ("de", "en")]
Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """Numbers in English and German, and their alignments."""
    folder = tmp_path_factory.mktemp("text")
    files = {}
    for seed, (split, count) in enumerate({"train": 160, "valid": 12, "test": 10}.items(), 1):
        pairs = number_pairs(count, seed=seed)
        files[split] = write_pairs(folder, split, pairs)
        links = [" ".join(f"{i}-{i}" for i, _ in enumerate(src.split())) for src, _ in pairs]
        (folder / f"{split}.links").write_text("".join(f"{line}\n" for line in links))
    return files


def prepared(text: dict[str, Files], out: Path, **settings: Any) -> PreparedData:
    links = text["train"][0].parent / "train.links"
    directions: list[dict[str, Any]] = []
    for src, tgt in DIRECTIONS:
        files = {split: pair if src == "en" else pair[::-1] for split, pair in text.items()}
        files |= {"train": [files["train"]], "alignments": [links]}
        directions.append({"src_lang": src, "tgt_lang": tgt, **files})
    usual = {"vocab_size": 330, "max_ratio": 100.0, "workers": 1, "tags": "both"}
    prepare_several("both", out, directions=directions, **{**usual, **settings})
    return PreparedData.open(out)


@pytest.fixture(scope="module")
def both(text: dict[str, Files], tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(text, tmp_path_factory.mktemp("both") / "both")


@pytest.fixture(scope="module")
def untrained(both: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model with random weights, which writes something else for each line."""
    place = tmp_path_factory.mktemp("untrained") / "both"
    return of_directions(random_run(place, both, 5), *DIRECTIONS)


@pytest.fixture
def translator(untrained: Run) -> Iterator[Translator]:
    with Translator.load(untrained, config=UNTRAINED.decode, tgt_lang="de") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def lines(text: dict[str, Files]) -> list[str]:
    return text["test"][0].read_text("utf-8").splitlines()


def test_each_side_begins_with_the_tag_of_its_language(both: PreparedData, text: dict[str, Files]):
    tokenizer = both.tokenizers().src
    tags = tokenizer.language_tags
    assert sorted(map(tokenizer.piece, tags.values())) == ["<lang:de>", "<lang:en>"]
    for split in ("train", "valid"):
        sides = [file.read_text("utf-8").splitlines() for file in text[split]]
        pairs = both.pairs(split)
        english, german = (list(map(tokenizer.encode, side)) for side in sides)
        for place, (en, de) in enumerate(zip(english, german, strict=True)):
            encoded = [tags["en"], *en, EOS_ID], [tags["de"], *de, EOS_ID]
            back = place + len(english)
            assert (pairs.src[place], pairs.tgt[place]) == encoded
            assert (pairs.tgt[back], pairs.src[back]) == encoded


def test_separate_vocabularies_have_the_tags_on_both_sides(text: dict[str, Files], tmp_path: Path):
    data = prepared(text, tmp_path / "out", shared_vocab=False)
    src, tgt = data.tokenizers()
    assert sorted(src.language_tags) == sorted(tgt.language_tags) == ["de", "en"]
    assert data.pairs("valid").src[0][0] == src.language_tags["en"]
    assert data.pairs("valid").tgt[0][0] == tgt.language_tags["de"]


def test_earlier_versions_refuse_the_folders_by_their_formats(both: PreparedData, untrained: Run):
    # 4 and 2 are the formats of data and runs without such tags.
    assert both.manifest.format == 5
    assert untrained.manifest.format == 3


def test_data_for_a_run_has_its_tags_and_no_others(untrained, text, tmp_path):
    again = prepared(text, tmp_path / "again", tokenizer_from=untrained.path, tags=None)
    assert again.pairs("valid").tgt[0][0] == again.tokenizers().tgt.language_tags["de"]
    with pytest.raises(MtkitError, match="its tokenizer has tags: both, not source"):
        prepared(text, tmp_path / "other", tokenizer_from=untrained.path, tags="source")
    given = {"src_lang": "en", "tgt_lang": "de", "tokenizer_from": untrained.path}
    with pytest.raises(MtkitError, match="is for a multilingual model"):
        prepare_files("one", tmp_path, train=[text["train"]], valid=text["valid"], **given)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_both_engines_translate_alike_into_the_language_asked_for(untrained, lines, beam_size):
    texts = {}
    for engine in ("native", "torch"):
        changes = {"engine": engine, "beam_size": beam_size, "precision": "fp32"}
        config = UNTRAINED.decode.model_copy(update=changes)
        for src, tgt in DIRECTIONS:
            with Translator.load(untrained, config=config, src_lang=src, tgt_lang=tgt) as loaded:
                nbest = [best for best, *_ in loaded.translate_nbest(lines, n_best=1)]
            assert all(best.pieces[0] == f"<lang:{tgt}>" for best in nbest)
            assert all(best.log_probs[0] == 0.0 for best in nbest)
            assert not any("<lang:" in "".join(best.pieces[1:]) for best in nbest)
            texts[engine, tgt] = [best.text for best in nbest]
            assert any(texts[engine, tgt])
    for _, tgt in DIRECTIONS:
        assert texts["native", tgt] == texts["torch", tgt]
    assert texts["native", "de"] != texts["native", "en"]


def test_a_variant_for_the_other_direction_is_as_one_loaded_for_it(untrained, translator, lines):
    with Translator.load(untrained, config=UNTRAINED.decode, tgt_lang="en") as other:
        variant = translator.variant(src_lang="de", tgt_lang="en")
        assert list(variant.translate(lines)) == list(other.translate(lines))


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_samples_and_forced_beginnings_follow_the_tag(untrained: Run, engine: str):
    decode = UNTRAINED.decode.model_copy(update={"engine": engine, "sample": True})
    with Translator.load(untrained, config=decode, tgt_lang="de") as loaded:
        for sample in next(loaded.translate_nbest(["one two"], n_best=5)):
            assert sample.pieces[0] == "<lang:de>"
            assert sample.log_probs[0] == 0.0
    with Translator.load(untrained, tgt_lang="de") as loaded:
        (forced,) = loaded.translate(["one two"], prefixes=["drei"])
        assert forced.startswith("drei")


def test_given_scores_are_those_of_the_search(translator: Translator, lines: list[str]):
    for line in lines:
        ((best, *_),) = translator.translate_nbest([line], n_best=1)
        (scored,) = translator.score_given([line], [best.text])
        if best.finished and scored.pieces == best.pieces:
            assert scored.log_prob == pytest.approx(best.log_prob, abs=1e-4)
            assert scored.score == pytest.approx(best.score, abs=1e-4)
    (blank,) = translator.score_given([" "], [" "])
    assert blank.score == 0.0


def test_words_are_aligned_as_if_there_were_no_tags(translator: Translator):
    (alignment,) = translator.align(["one two three"], ["eins zwei"])
    assert all(0 <= i < 3 and 0 <= j < 2 for i, j in alignment.links)
    # The weights of a word are those of the decoder's input after the tag.
    inspection = inspect_pair(translator, "one two three", "eins zwei")
    assert inspection.predictions[0].subword == "<lang:de>"
    assert inspection.stacks["cross"].keys[0] == "<lang:en>"


def test_a_glossary_places_terms_behind_the_tag(untrained: Run, tmp_path: Path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("two\tZWEI\n", encoding="utf-8")
    decode = UNTRAINED.decode
    with Translator.load(untrained, config=decode, tgt_lang="de", glossary=terms) as loaded:
        ((best, *_),) = loaded.translate_nbest(["one two three"], n_best=1)
        assert "ZWEI" in best.text
        assert best.pieces[0] == "<lang:de>"


def test_training_validates_each_direction_and_guides_a_head(both, tiny_config, tmp_path):
    config = changed(tiny_config, "train", guided_alignment=0.1)
    train.run(config, both, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    (row,) = [row for row in run.metrics() if "valid_loss" in row]
    assert [*row["valid_also"]] == ["en-de", "de-en"]
    with Translator.load(run, src_lang="de", tgt_lang="en") as loaded:
        assert len(list(loaded.translate(["eins zwei"]))) == 1


def test_guided_links_are_those_of_words_without_the_tags(both: PreparedData):
    pairs, vocabularies = both.pairs("train"), both.tokenizers()
    rows = np.arange(3)
    batch = make_batch(pairs, rows)
    targets = GuidedAlignment(Config(), pairs, vocabularies).targets(batch, pairs, rows)
    # BOS and then the tag have no word, and the tag of the source gets nothing.
    assert not targets[:, 0].any()
    assert not targets[:, :, 0].any()
    assert torch.equal(targets[:, 2].sum(-1), torch.ones(3))
    assert (targets[:, 2, 1] > 0).all()


def test_the_pairs_that_checks_learn_from_are_of_their_target_language(both, text):
    german = {*text["train"][1].read_text("utf-8").splitlines()}
    by_language = _training_pairs(both)
    assert {tgt for _, tgt in by_language["de"]} == german
    assert {src for src, _ in by_language["en"]} == german


def test_a_direction_must_be_known_and_both_languages_have_a_tag(untrained: Run):
    run = of_directions(untrained)
    for languages, words in (
        ({"tgt_lang": "de"}, "from several languages, de, en; choose one with --src-lang"),
        ({"src_lang": "en"}, "to several languages, de, en; choose one with --tgt-lang"),
        ({"src_lang": "en", "tgt_lang": "fr"}, "does not translate to fr; it has de, en"),
        ({"src_lang": "fr", "tgt_lang": "de"}, "does not know fr; it has de, en"),
    ):
        with pytest.raises(MtkitError, match=words):
            Translator.load(run, **languages)


def test_a_tokenizer_spells_its_tags_by_their_scheme():
    counts = [(f"▁{word}", 5) for word in ("eins", "zwei", "drei")]
    tokenizer = Tokenizer.learn_from_counts(counts, 285, languages=["deu_Latn"], scheme="both")
    (tag,) = tokenizer.language_tags.values()
    assert tokenizer.piece(tag) == "<lang:deu_Latn>"
    assert tokenizer.scheme == "both"
    assert tag not in tokenizer.encode("<lang:deu_Latn> eins")
    assert tokenizer.decode([tag, *tokenizer.encode("eins")]) == "eins"


def test_codes_of_other_standards_find_the_language(untrained: Run, lines: list[str]):
    with (
        Translator.load(untrained, src_lang="eng_Latn", tgt_lang="deu") as loaded,
        Translator.load(untrained, src_lang="en", tgt_lang="de-DE") as same,
    ):
        assert (loaded.src_lang, loaded.tgt_lang) == ("en", "de")
        assert list(loaded.translate(lines)) == list(same.translate(lines))


def test_a_server_has_all_directions_of_a_run_that_does_not_say_them(untrained: Run):
    with Served([of_directions(untrained)]) as served:
        listed = served.get("/languages").json
        targets = {language["code"]: language["targets"] for language in listed}
        assert targets == {"de": ["de", "en"], "en": ["de", "en"]}
        for source, target in DIRECTIONS:
            answer = served.translate("one two", source=source, target=target).json
            with Translator.load(untrained, src_lang=source, tgt_lang=target) as direct:
                assert [answer["translatedText"]] == list(direct.translate(["one two"]))
