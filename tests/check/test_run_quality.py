"""What a run knows of its translations: how it is fitted, stored and read."""

import logging
import shlex
import subprocess
from typing import Any

import pytest
from conftest import GERMAN, GREEK, copied_run, number_pairs, random_run, reseal, write_pairs
from support.kinds_of_runs import run_of_kind
from support.prepared import prepare_several

from mtkit.base.errors import MtkitError
from mtkit.check import Checker, Decoded, RunChecks, fit_pairs, fit_run, load_checker
from mtkit.check.model.lexicon import Lexicon, load_rows
from mtkit.check.model.run_quality import fit_command
from mtkit.check.rules.marks import Text
from mtkit.convert import export
from mtkit.data import PreparedData
from mtkit.run_folder import CONFIDENCE, LEXICON, Run
from mtkit.score import sentence_chrf
from mtkit.translate import Translator

PAIRS = number_pairs(700, 11)


@pytest.fixture
def changed_run(fitted, tmp_path):
    """A copy that a test may change."""
    return Run.open(copied_run(fitted, tmp_path / "run"))


def fitted_bytes(run: Run) -> list[bytes]:
    """The files that fitting it to the pairs writes."""
    fit_pairs(run, PAIRS, device="cpu")
    return [(run.path / name).read_bytes() for name in (CONFIDENCE, LEXICON)]


def test_fitting_twice_writes_the_same_bytes(changed_run):
    assert fitted_bytes(changed_run) == fitted_bytes(changed_run)


def test_the_quality_is_of_translations_of_held_out_pairs(fitted):
    checks = RunChecks.load(fitted.path)
    assert checks is not None
    (direction,) = checks.directions
    assert direction.forecast is not None
    quality = direction.forecast.quality
    held_out = PAIRS[::5]
    sources, references = zip(*held_out, strict=True)
    found = list(Translator.load(fitted, device="cpu").translate(list(sources)))
    chrf = sentence_chrf(found, list(references))
    assert quality.lines == len(held_out) == 140
    mean = sum(tenth.chrf for tenth in quality.tenths) / 10
    assert mean == pytest.approx(sum(chrf) / len(chrf), abs=0.1)


def test_the_words_of_the_corpus_are_in_the_lexicon(fitted):
    checker = load_checker(fitted)
    source, target = "one two three four", "vier drei zwei eins"
    assert not checker.check(source, target).findings
    kinds = {one.kind for one in checker.check("one two three four five six", "sechs").findings}
    assert "omission" in kinds


def test_the_words_of_markup_and_addresses_are_not_new(fitted):
    checker = load_checker(fitted)
    parts = "<blockquote>{username}</blockquote> https://example.com/help/page me@example.org"
    pair = f"one two three four {parts}", f"vier drei zwei eins {parts}"
    assert checker.check(*pair).findings == ()
    lost = {one.kind for one in checker.check(pair[0], "vier drei zwei eins").findings}
    assert lost - {"length", "omission"} == {"placeholders", "markup", "addresses"}


def test_there_is_a_confidence_only_with_log_probabilities(fitted):
    checker = load_checker(fitted)
    assert checker.check("one two", "zwei eins").confidence is None
    sure = checker.check("one two", "zwei eins", Decoded([-0.01] * 3)).confidence
    unsure = checker.check("one two", "zwei eins", Decoded([-4.0] * 3)).confidence
    assert sure is not None
    assert unsure is not None
    assert 0 <= unsure < sure <= 100


def test_characters_that_the_vocabulary_lacks_are_named(fitted):
    checker = load_checker(fitted)
    (finding,) = (
        one for one in checker.check("one 猫 two", "zwei eins").findings if one.kind == "unknown"
    )
    assert finding.reason == "the vocabulary lacks 猫"
    assert finding.src == range(4, 5)
    # NFKC makes it a letter that the vocabulary has.
    kinds = [one.kind for one in checker.check("\uff4fne two", "zwei eins").findings]
    assert "unknown" not in kinds
    # It is not lost if the translation has it too.
    kinds = [one.kind for one in checker.check("one 猫 two", "zwei 猫 eins").findings]
    assert "unknown" not in kinds


def test_characters_in_several_parts_are_known_if_the_whole_is(fitted):
    known = Checker(load_checker(fitted).facts, alphabet=frozenset("caf\u00e9"))
    assert not [one for one in known.check("cafe\u0301", "f").findings if one.kind == "unknown"]
    (finding,) = (one for one in known.check("<q>a</q> q", "f").findings if one.kind == "unknown")
    assert finding.src == range(9, 10)


def test_a_line_is_checked_the_same_whatever_was_checked_before(fitted):
    one, other = load_checker(fitted), load_checker(fitted)
    decoded = Decoded([-0.5, -0.1])
    first = [one.check(*pair, decoded) for pair in PAIRS[:50]]
    assert first == [other.check(*pair, decoded) for pair in PAIRS[49::-1]][::-1]


@pytest.mark.parametrize(("is_imported", "files"), [(False, ""), (True, " SRC TGT")])
def test_a_run_without_checks_says_how_to_get_them(is_imported, files, untrained, monkeypatch):
    record = object() if is_imported else None
    monkeypatch.setattr(
        untrained, "manifest", untrained.manifest.model_copy(update={"imported": record})
    )
    advice = f"; to make it now: mtkit check{files} --fit --run {untrained.path}$"
    with pytest.raises(MtkitError, match=advice):
        load_checker(untrained)


@pytest.mark.parametrize("kind", ["marian", "nllb", "bpe with tags on both sides"])
def test_the_command_for_files_has_the_languages_of_a_run_with_several(kind, tmp_path):
    pytest.importorskip("transformers")
    run = run_of_kind(tmp_path, kind)
    for given, shown in (
        (("en", "de"), "--src-lang en --tgt-lang de"),
        ((), "-lang L --tgt-lang L"),
    ):
        command = fit_command(run, *given, with_files=True)
        assert command.startswith(f"mtkit check SRC TGT --fit --run {run.path} ")
        assert command.endswith(shown)
        if run.manifest.imported is not None:
            assert command == fit_command(run, *given)
            with pytest.raises(MtkitError, match=f"to make it now: {command}$"):
                load_checker(run, **dict(zip(("src_lang", "tgt_lang"), given, strict=False)))


@pytest.mark.parametrize(
    "name", ["my run", "it's", "a;b", "$HOME", "*", "a&b", "(x)", '"', "größer", "a\\b", "-x", "~"]
)
def test_a_printed_command_is_what_the_shell_reads(name, untrained):
    run = Run(untrained.path.parent / name, untrained.config, untrained.manifest)
    with pytest.raises(MtkitError) as caught:
        load_checker(run)
    command = str(caught.value).split("to make it now: ")[1]
    assert shlex.split(command) == ["mtkit", "check", "--fit", "--run", str(run.path)]
    printed = subprocess.run(
        f"printf '%s' {run.in_command}", shell=True, capture_output=True, text=True
    )
    assert printed.stdout == str(run.path)


def test_a_changed_lexicon_is_refused_and_not_exported(changed_run, tmp_path):
    with (changed_run.path / LEXICON).open("a", encoding="utf-8") as file:
        file.write("one\tneun\t1\t1\n")
    for read in (load_checker, lambda run: export(run, tmp_path / "out", format="safetensors")):
        with pytest.raises(MtkitError, match=r"lexicon\.tsv: is missing, or was changed"):
            read(changed_run)


def test_a_changed_record_is_refused(changed_run):
    path = changed_run.path / CONFIDENCE
    path.write_text(path.read_text(encoding="utf-8").replace('"und"', '"xx"').replace("-", "+", 1))
    with pytest.raises(MtkitError, match=r"confidence\.json: "):
        load_checker(changed_run)


def test_a_record_with_fewer_features_is_refused(changed_run):
    def shorten(content: dict[str, Any]) -> None:
        del content["directions"][0]["forecast"]["weights"][0]

    reseal(changed_run.path / CONFIDENCE, shorten)
    with pytest.raises(MtkitError, match=r"features are needed\); run mtkit check --fit again"):
        load_checker(changed_run)


def test_the_characters_of_tags_are_not_unknown(fitted):
    checked = load_checker(fitted).check("<b>one</b> {two}", "<b>eins</b> {two}")
    assert "unknown" not in [one.kind for one in checked.findings]


def test_fitting_replaces_a_damaged_record_and_not_a_newer_one(changed_run):
    path = changed_run.path / CONFIDENCE
    expected = fitted_bytes(changed_run)
    path.write_text("{", encoding="utf-8")
    assert fitted_bytes(changed_run) == expected
    reseal(path, lambda content: content.update(format=99))
    newer = path.read_bytes()
    with pytest.raises(MtkitError, match="newer mtkit"):
        fit_pairs(changed_run, PAIRS, device="cpu")
    assert path.read_bytes() == newer


def test_a_run_that_is_created_anew_has_no_checks_of_the_old_one(changed_run):
    vocabularies = changed_run.tokenizers()
    Run.create(changed_run.path, changed_run.config, vocabularies, manifest=changed_run.manifest)
    assert not (changed_run.path / CONFIDENCE).exists()
    assert not (changed_run.path / LEXICON).exists()


def test_training_with_a_small_validation_set_goes_on_without(untrained, caplog):
    caplog.set_level(logging.INFO)
    assert fit_run(untrained, PreparedData.open(untrained.data_path), device="cpu") is None
    assert "confidence: not fitted, because the validation set has under 100 pairs" in caplog.text


def test_each_direction_of_a_multilingual_run_has_the_words_of_its_target_language(tmp_path):
    directions = []
    for tgt_lang, words in (("de", GERMAN), ("el", GREEK)):
        folder = tmp_path / tgt_lang
        folder.mkdir()
        files = {
            split: write_pairs(folder, split, number_pairs(count, seed, words=words))
            for split, count, seed in (("train", 400, 1), ("valid", 120, 2))
        }
        directions.append(
            {"src_lang": "en", "tgt_lang": tgt_lang}
            | {split: [pair] if split == "train" else pair for split, pair in files.items()}
        )
    prepare_several("two", tmp_path / "data", directions=directions, vocab_size=330, workers=1)
    data = PreparedData.open(tmp_path / "data")
    run = random_run(tmp_path / "run", data, 1)
    fit_run(run, data, device="cpu")
    for tgt_lang, words in (("de", GERMAN), ("el", GREEK)):
        found = Lexicon.of_rows(load_rows(run.path / LEXICON, tgt_lang))
        assert set(found.tgt_shares) == {Text(word).keys[0] for word in words}
        checker = load_checker(run, src_lang="en", tgt_lang=tgt_lang)
        assert checker.coverage is not None
        pair = checker.coverage.of(
            Text("one two three"), Text(" ".join(words[digit] for digit in (3, 2, 1)))
        )
        assert (pair.src.new, pair.tgt.new) == (0.0, 0.0)


def test_a_loop_lowers_the_confidence_of_its_line_to_the_worst_tenth(fitted):
    checker = load_checker(fitted)
    assert checker.forecast is not None
    worst = checker.forecast.quality.tenths[0].chrf
    sure = Decoded([-0.1] * 12)
    loop = checker.check("one two three four", "five six five six five six five six", sure)
    assert "loop" in {finding.kind for finding in loop.findings}
    assert loop.confidence == pytest.approx(worst)
    assert (checker.check("one two three four", "five six seven eight", sure).confidence or 0) > 50
