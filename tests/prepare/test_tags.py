"""Training corpora whose sources begin with a tag."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import UNTRAINED, TinyText, changed, number_pairs, random_run, write_pairs
from support.prepared import prepare_several

from mtkit.base.errors import MtkitError
from mtkit.batches import make_batch
from mtkit.data import PreparedData, also_split
from mtkit.prepare import parallel_files, parse_source, prepare_files
from mtkit.run_folder import Run
from mtkit.tokenizer import EOS_ID, Tokenizer
from mtkit.train import assembly as train
from mtkit.train.guided_alignment import GuidedAlignment
from mtkit.translate import Glossary, Translator

Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def synthetic(tiny_text, tmp_path_factory):
    """Thirty pairs that the tiny corpus does not have."""
    real = set(zip(*lines_of(tiny_text.train), strict=True))
    pairs = [pair for pair in dict.fromkeys(number_pairs(60, seed=8)) if pair not in real]
    return write_pairs(tmp_path_factory.mktemp("back"), "back", pairs[:30])


@pytest.fixture
def back(synthetic):
    """Those as training data with the tag bt."""
    return parallel_files(*synthetic, tag="bt")


def prepared(text: TinyText, out: Path, *more: Any, **changes: Any) -> PreparedData:
    """The tiny corpus, with further training sources."""
    usual = text.prepare_arguments()
    arguments = {**usual, "max_ratio": 100.0, "workers": 1, **changes}
    prepare_files("tagged", out, **{**arguments, "train": [*usual["train"], *more]})
    return PreparedData.open(out)


@pytest.fixture(scope="module")
def tagged(tiny_text, synthetic, tmp_path_factory):
    """The tiny corpus, and a second one with the tag bt, of which an epoch has half."""
    out = tmp_path_factory.mktemp("tagged") / "tagged"
    return prepared(
        tiny_text,
        out,
        parallel_files(*synthetic, weight=0.5, tag="bt"),
        valid_also={"other": synthetic},
    )


def lines_of(files: Files) -> list[list[str]]:
    return [file.read_text("utf-8").splitlines() for file in files]


def test_a_tokenizer_knows_its_tags_and_no_text_is_encoded_to_one():
    counts = [(f"▁{word}", 5) for word in ("eins", "zwei", "drei")]
    tokenizer = Tokenizer.learn_from_counts(
        counts, 285, languages=["pt-BR", "fr"], corpus_tags=["bt", "web-2"]
    )
    codes, tags = tokenizer.language_tags, tokenizer.corpus_tags
    assert sorted(codes) == ["fr", "pt-BR"]
    assert all(tokenizer.piece(i) == f">>{code}<<" for code, i in codes.items())
    assert sorted(tags) == ["bt", "web-2"]
    assert all(tokenizer.piece(i) == f"<tag:{name}>" for name, i in tags.items())
    assert {*tokenizer.tag_ids} == {*tags.values(), *codes.values()}
    for line in ("<tag:bt>", "a >>fr<< b", "<tag:bt> <tag:web-2> >>pt-BR<<", "▁<tag:bt>"):
        ids = tokenizer.encode(line)
        assert not set(ids) & set(tokenizer.tag_ids)
        assert tokenizer.decode(ids) == line.replace("▁", " ").strip()
    assert tokenizer.decode([*tokenizer.tag_ids]) == ""
    assert Tokenizer.learn_from_counts(counts, 278).tag_ids == ()


def test_a_symbol_with_the_name_of_a_tag_is_refused():
    with pytest.raises(MtkitError, match="has the name of a fixed subword"):
        Tokenizer.learn_from_counts([("▁eins", 5)], 280, symbols=["<tag:bt>"], corpus_tags=["bt"])


def test_the_sources_of_a_tagged_corpus_begin_with_its_tag_and_nothing_else_does(
    tagged, tiny_text, synthetic
):
    tokenizer = tagged.tokenizers().src
    tag = tokenizer.corpus_tags["bt"]
    expected = [
        ([*begin, *tokenizer.encode(src), EOS_ID], [*tokenizer.encode(tgt), EOS_ID])
        for begin, files in (([], tiny_text.train), ([tag], synthetic))
        for src, tgt in zip(*lines_of(files), strict=True)
    ]
    pairs = tagged.pairs("train")
    assert [(pairs.src[i], pairs.tgt[i]) for i in range(len(pairs))] == expected
    for split in ("valid", also_split("other")):
        held_out = tagged.pairs(split)
        assert not any(tag in held_out.src[i] for i in range(len(held_out)))
    first, second = tagged.manifest.sources["train"]
    assert "tag" not in first
    assert (second["tag"], second["weight"]) == ("bt", 0.5)


def test_the_tag_follows_the_tag_of_the_language(tiny_text, synthetic, back, tmp_path):
    usual = {"valid": tiny_text.valid, "test": tiny_text.test}
    real, reverse = tiny_text.train, tiny_text.train[::-1]
    swapped = {split: files[::-1] for split, files in usual.items()}
    directions = [
        {"src_lang": "en", "tgt_lang": "de", "train": [real, back], **usual},
        {"src_lang": "de", "tgt_lang": "en", "train": [reverse], **swapped},
    ]
    report = prepare_several(
        "many", tmp_path / "many", directions=directions, vocab_size=330, max_ratio=100.0
    )
    data = PreparedData.open(tmp_path / "many")
    tokenizer = data.tokenizers().src
    languages, bt = tokenizer.language_tags, tokenizer.corpus_tags["bt"]
    pairs = data.pairs("train")
    count = len(lines_of(real)[0])
    begins = (
        [[languages["de"]]] * count + [[languages["de"], bt]] * 30 + [[languages["en"]]] * count
    )
    sources = [line for files in (real, synthetic, reverse) for line in lines_of(files)[0]]
    for place, (begin, line) in enumerate(zip(begins, sources, strict=True)):
        assert pairs.src[place] == [*begin, *tokenizer.encode(line), EOS_ID]
    valid = data.pairs("valid")
    assert not any(bt in valid.src[i] for i in range(len(valid)))
    assert report.tags == {"bt": 30}


def test_the_tag_counts_for_the_limit_of_tokens(tiny_text, tmp_path):
    """A pair that just fits without the tag is too long with it."""
    line = "one two three four five six"
    files = write_pairs(tmp_path, "long", [(line, "eins")])
    origin = prepared(tiny_text, tmp_path / "first", parallel_files(*files, tag="bt"))
    most = len(origin.tokenizers().src.encode(line)) + 1
    kept = {
        tag: prepared(
            tiny_text, tmp_path / f"with-{tag}", parallel_files(*files, tag=tag), max_tokens=most
        ).manifest.sources["train"][1]["kept"]
        for tag in (None, "bt")
    }
    assert kept == {None: 1, "bt": 0}


def test_the_filters_compare_tagged_pairs_with_the_others(tiny_text, synthetic, back, tmp_path):
    """A pair that is real and synthetic is kept once, as the first."""
    data = prepared(tiny_text, tmp_path / "out", synthetic, back)
    assert [source["kept"] for source in data.manifest.sources["train"][1:]] == [30, 0]
    assert data.manifest.counts["dropped"] == {"duplicate": 30}


def test_a_source_with_noise_keeps_its_tag(tiny_text, synthetic, back, tmp_path):
    noise = {"vocab_size": 340, "overrides": ["noise.case=1"]}
    data = prepared(tiny_text, tmp_path / "out", back, **noise)
    tokenizer, sentences = data.tokenizers().src, data.pairs("train").src
    lines = lines_of(synthetic)[0]
    for index, line in enumerate(lines, len(sentences) - len(lines)):
        tag = tokenizer.corpus_tags["bt"]
        assert sentences[index] == [tag, *tokenizer.encode(line.upper()), EOS_ID]


def test_links_of_words_do_not_count_the_tag(tiny_text, tiny_config, tmp_path):
    pairs = number_pairs(8, seed=8)
    files = write_pairs(tmp_path, "back", pairs)
    counts = [len(src.split()) for src, _ in pairs]
    links = [" ".join(f"{i}-{count - 1 - i}" for i in range(count)) for count in counts]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in links))
    targets = {}
    for tag in (None, "bt"):
        arguments = tiny_text.prepare_arguments() | {"vocab_size": 290, "max_ratio": 100.0}
        arguments |= {"train": [parallel_files(*files, tag=tag)]}
        arguments |= {"alignments": [tmp_path / "links"]}
        prepare_files("linked", tmp_path / f"linked-{tag}", **arguments)
        data = PreparedData.open(tmp_path / f"linked-{tag}")
        config = changed(tiny_config, "train", guided_alignment=1.0)
        vocabularies = data.tokenizers()
        all_pairs, indices = data.pairs("train"), np.arange(len(pairs))
        guided = GuidedAlignment(config, all_pairs, vocabularies)
        batch = make_batch(all_pairs, indices)
        targets[tag] = guided.targets(batch, all_pairs, indices)
        if tag:
            assert (batch.src[:, 0] == vocabularies.src.corpus_tags[tag]).all()
    # Nothing attends to the tag, and the rest is as without it.
    assert targets["bt"][:, :, 0].abs().max() == 0
    words = targets["bt"].sum(-1)
    torch.testing.assert_close(words, words.round())
    assert words.max() == 1


@pytest.mark.parametrize("way", ["beam", "sample", "mbr_samples", "glossary"])
def test_no_tag_is_put_before_a_source_or_written_to_a_translation(way, tagged, tmp_path):
    run = random_run(tmp_path / "run", tagged, 5)
    changes: dict[str, Any] = {"max_extra_length": 20, "engine": "torch"}
    changes |= {"sample": {"sample": True}, "mbr_samples": {"mbr_samples": 4}}.get(way, {})
    config = UNTRAINED.decode.model_copy(update=changes)
    glossary = Glossary({"one": "eins"}) if way == "glossary" else None
    with Translator.load(run, config=config, device="cpu", glossary=glossary) as translator:
        assert list(translator.src_prefix) == []
        tag = translator.src_tokenizer.corpus_tags["bt"]
        with torch.no_grad():
            # Without the ban, a model with these weights would write little else.
            translator.model.embedding.weight[tag] *= 20
        for nbest in translator.translate_nbest(["one two three", "<tag:bt> four one"], n_best=2):
            assert not any("<tag:bt>" in translation.pieces for translation in nbest)


def test_training_learns_the_row_of_the_tag_and_translates_without_it(
    tiny_text, back, tiny_config, tmp_path
):
    # With a vocabulary of its own, only subwords that the source has are changed.
    data = prepared(tiny_text, tmp_path / "data", back, shared_vocab=False)
    train.run(changed(tiny_config, "train", bpe_dropout=0.1), data, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    before, after = (saved.load_weights()["src_embedding.weight"] for saved in run.checkpoints())
    tokenizer = data.tokenizers().src
    unused = tokenizer.encode("\N{SNOWMAN}")[-1]
    assert tokenizer.is_fallback[unused]
    for row, is_learned in ((tokenizer.corpus_tags["bt"], True), (unused, False)):
        assert torch.equal(before[row], after[row]) != is_learned
    with Translator.load(run, device="cpu") as translator:
        assert len(list(translator.translate(["one two", ""]))) == 2


def test_the_tag_of_an_existing_tokenizer_is_used(tagged, tiny_text, back, tmp_path):
    origin = {"tokenizer_from": tagged.path, "vocab_size": None}
    data = prepared(tiny_text, tmp_path / "out", back, **origin)
    assert data.tokenizers().is_same(tagged.tokenizers())
    pairs = data.pairs("train")
    assert pairs.src[len(pairs) - 1][0] == tagged.tokenizers().src.corpus_tags["bt"]


@pytest.mark.parametrize(("tag", "known"), [("bt", "none"), ("web", "bt")])
def test_a_tag_that_an_existing_tokenizer_lacks_is_refused_with_those_it_has(
    tag, known, tagged, tiny_data, tiny_text, synthetic, tmp_path
):
    origin = (tiny_data if known == "none" else tagged).path
    changes = {"tokenizer_from": origin, "vocab_size": None}
    message = rf"its tokenizer has no tag {tag} \(its tags: {known}\); remove"
    with pytest.raises(MtkitError, match=message):
        prepared(tiny_text, tmp_path / "out", parallel_files(*synthetic, tag=tag), **changes)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tag", ["", "b t", "<bt>", "-bt", "größe", "b" * 51, 3])
def test_a_name_that_cannot_be_that_of_a_tag_is_refused(tag, tiny_text):
    with pytest.raises(MtkitError, match="cannot be the name of a tag"):
        parallel_files(*tiny_text.train, tag=tag)


def test_a_validation_set_with_a_tag_is_refused(tiny_text, tmp_path):
    valid = parse_source(
        str(tiny_text.valid[0].with_suffix("")), src_lang="en", tgt_lang="de", tag="bt"
    )
    with pytest.raises(MtkitError, match="only training data can have a tag; remove bt"):
        prepared(tiny_text, tmp_path / "out", valid=valid)
