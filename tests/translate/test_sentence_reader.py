"""Lines of several sentences."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import changed, copied_run
from support.translators import changed_to, numbers

from mtkit.base.sentences import LineFacts
from mtkit.config import dump_config
from mtkit.run_folder import Run
from mtkit.translate.doubts import IncompleteTranslations
from mtkit.translate.reading import Window
from mtkit.translate.requests import Translation
from mtkit.translate.sentence_reader import align_by_sentence
from mtkit.translate.translator import Translator


def test_the_translator_knows_the_languages_of_its_run(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    assert (translator.src_lang, translator.tgt_lang) == ("en", "de")


def test_a_line_of_two_sentences_becomes_their_two_translations(translator):
    first, second = "One two three.", "Nine eight!"
    lines = ["", f"{first} {second}", first, " ", f"{second} {first} {second}"]
    by_sentence = changed_to(translator, split_sentences=True)
    ((a,), (b,)) = translator.translate_nbest([first, second], n_best=1)
    expected = [[], [a, b], [a], [], [b, a, b]]
    nbests = by_sentence.translate_nbest(lines, n_best=1)
    for (line,), parts in zip(nbests, expected, strict=True):
        assert line.text == " ".join(part.text for part in parts if part.text)
        assert line.pieces == tuple(piece for part in parts for piece in part.pieces)
        assert line.log_prob == pytest.approx(sum(part.log_prob for part in parts), abs=1e-5)
        assert sum(line.log_probs) == pytest.approx(line.log_prob, abs=1e-5)
        # The paper's length penalty at its alpha of 0.6.
        scores = [part.log_prob / ((5 + len(part.pieces)) / 6) ** 0.6 for part in parts]
        assert line.score == pytest.approx(sum(scores) / max(1, len(scores)), abs=1e-5)
    japanese = Translator(replace(by_sentence.runs, tgt_lang="ja"), by_sentence.decoder)
    assert next(japanese.translate([lines[1]])) == a.text + b.text


def test_sentences_of_a_line_are_drawn_each_by_itself(exact):
    sentence = "One two three."
    lines = ["x", f"{sentence} {sentence}", sentence]
    sampler = changed_to(exact, sample=True)
    by_sentence = changed_to(sampler, split_sentences=True, batch_tokens=1)
    (before,), (line,), (last,) = by_sentence.translate_nbest(lines, n_best=1)
    ((_, ((alone,),)),) = sampler.translate_windows([Window(2, [sentence])])
    assert line.pieces[: len(alone.pieces)] == alone.pieces
    assert line.pieces[len(alone.pieces) :] != alone.pieces
    # The same again, whatever comes with it; and a line of one sentence as if it were not cut.
    again = changed_to(by_sentence, batch_tokens=100_000)
    assert list(again.translate(lines)) == [before.text, line.text, last.text]
    assert [before.text, last.text] == list(sampler.translate(lines))[::2]


def test_how_many_samples_are_shown_does_not_change_which_is_chosen(exact):
    lines = numbers(8)
    chooser = changed_to(exact, mbr_samples=3, temperature=0.5)
    few = list(chooser.translate_nbest(lines, n_best=1))
    for many in (3, 20):
        nbests = chooser.translate_nbest(lines, n_best=many)
        for nbest, (chosen,) in zip(nbests, few, strict=True):
            assert (nbest[0].text, nbest[0].score) == (chosen.text, chosen.score)
            assert len(nbest) <= 3


def test_the_samples_of_sentences_are_compared_sentence_by_sentence(exact):
    first, second = "One two three.", "Nine eight!"
    chooser = changed_to(exact, mbr_samples=6)
    by_sentence = changed_to(chooser, split_sentences=True)
    ((both,),) = by_sentence.translate_nbest([f"{first} {second}"], n_best=1)
    ((alone,),) = chooser.translate_nbest([first], n_best=1)
    assert both.text.startswith(alone.text)
    # A likeness is in points of 100, and so is the mean of two.
    assert alone.score / 2 <= both.score <= (alone.score + 100) / 2


def test_a_long_sentence_is_cut_with_a_warning_that_names_its_line(translator, caplog):
    by_sentence = changed_to(translator, split_sentences=True)
    assert len(list(by_sentence.translate(["one", "One two. " + "nine " * 200]))) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("line 2: cut from")


def test_the_translations_of_a_line_of_several_sentences_have_falling_scores(translator):
    def sentence(text: str, log_prob: float, tokens: int) -> Translation:
        score, log_probs = log_prob / ((5 + tokens) / 6) ** 0.6, (log_prob / tokens,) * tokens
        return Translation(text, score, log_prob, log_probs=log_probs)

    reader = changed_to(translator, split_sentences=True).reader
    (sentences,) = reader.read(Window(1, ["One. Two."]))
    of_first = [sentence("a", -1.0, 1), sentence("b", -3.0, 20)]
    of_second = [sentence("c", -4.0, 2), sentence("d", -8.0, 12)]
    best, second = reader.join(sentences, [of_first, of_second])
    assert (best.text, second.text) == ("a c", "b d")
    assert best.score == pytest.approx((of_first[0].score + of_second[0].score) / 2)
    assert best.score > second.score


@pytest.mark.parametrize("prefix", ["acht", "acht. neun", "acht. neun. null", "acht neun."])
def test_the_translation_of_several_sentences_begins_as_it_is_forced_to(prefix, translator):
    by_sentence = changed_to(translator, split_sentences=True)
    lines = ["One two. Three four. Five six.", "Nine."]
    first, second = by_sentence.translate(lines, prefixes=[prefix, ""])
    assert first.startswith(prefix)
    # The sentences behind those of the beginning, and other lines, are translated as always.
    last, plain = translator.translate(["Five six.", "Nine."])
    assert first.endswith(last)
    assert second == plain


# Their translations are not empty.
SENTENCES = ("Nine eight!", "Seven one four!")


def test_each_part_of_a_translation_is_that_of_its_sentence(translator):
    by_sentence = changed_to(translator, split_sentences=True)
    line = f"  {SENTENCES[0]}  {SENTENCES[1]} "
    ((best,),) = by_sentence.translate_nbest([line], n_best=1)
    parts = [(line[slice(*src)], best.text[slice(*tgt)]) for src, tgt in best.parts]
    assert parts == list(zip(SENTENCES, translator.translate(SENTENCES), strict=True))


def test_each_sentence_of_a_line_is_aligned_on_its_own(translator):
    line, texts = " ".join(SENTENCES), ("acht neun.", "vier eins zwei.")
    whole = Translation(" ".join(texts), 0, 0, parts=(((0, 11), (0, 10)), ((12, 27), (11, 26))))
    aligner = translator.aligner()
    both, alone = align_by_sentence(
        aligner, [line, SENTENCES[0]], [whole, Translation(texts[0], 0, 0)], numbers=[1, 2]
    )
    first, second = aligner.align(SENTENCES, texts)
    assert second.links
    assert both.links == first.links | {(i + 2, j + 2) for i, j in second.links}
    assert alone.weights == pytest.approx(first.weights, abs=1e-6)
    # The words are those of the whole line.
    assert [line[slice(*word)] for word in both.src_words] == line.split()
    assert [whole.text[slice(*word)] for word in both.tgt_words] == whole.text.split()


def test_sentences_without_a_space_between_them_share_a_word(translator):
    line = " ".join(SENTENCES)
    whole = Translation("acht neunvier", 0, 0, parts=(((0, 11), (0, 9)), ((12, 27), (9, 13))))
    (alignment,) = align_by_sentence(translator.aligner(), [line], [whole], numbers=[1])
    assert len(alignment.tgt_words) == 2
    # All words of the second sentence are aligned with the shared word.
    assert {j for i, j in alignment.links if i >= 2} == {1}


def with_lines(run: Run, lines: LineFacts | None, **decode: Any) -> Run:
    """The run with another record of its training lines, and other settings of `decode`."""
    data = run.manifest.data.model_copy(update={"lines": lines})
    manifest = run.manifest.model_copy(update={"data": data})
    return Run(run.path, changed(run.config, "decode", **decode), manifest)


@pytest.mark.parametrize(
    ("lines", "setting", "splits"),
    [
        (None, "auto", True),
        (LineFacts(), "auto", True),
        (LineFacts(sampled=100, several=9), "auto", True),
        (LineFacts(sampled=100, several=10), "auto", False),
        (LineFacts(sampled=100, several=10), True, True),
        (LineFacts(sampled=100, several=0), False, False),
    ],
)
def test_lines_are_split_if_training_lines_were_single_sentences(lines, setting, splits, untrained):
    run = with_lines(untrained, lines, split_sentences=setting)
    (line,) = Translator.load(run, device="cpu").translate([" ".join(SENTENCES)])
    whole = Translator.load(with_lines(untrained, lines, split_sentences=False), device="cpu")
    expected = SENTENCES if splits else [" ".join(SENTENCES)]
    assert line == " ".join(whole.translate(expected))


def test_a_run_from_before_lines_were_recorded_splits_lines(tmp_path, untrained):
    # Such a run has `split_sentences: false` in its configuration, which was the default then.
    folder = copied_run(untrained, tmp_path / "run")
    config = changed(untrained.config, "decode", split_sentences=False)
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    assert Run.open(folder).config.decode.split_sentences == "auto"


@pytest.mark.parametrize(
    "line",
    ["12", "19.99", "http://example.org/a", "{count}", "a.pdf", "٣", "***", "—", "¿?", "\u266a"],
)
def test_what_has_no_language_is_one_translation_without_a_score(line, translator):
    by_sentence = changed_to(translator, split_sentences=True)
    doubts = IncompleteTranslations(LineFacts())
    window = Window(1, [line, f"One two. {line}", "one 12", "\u200d"])
    ((_, nbests),) = by_sentence.translate_windows([window], n_best=3, doubts=doubts)
    assert nbests[0] == [Translation(line)]
    assert nbests[1][0].text == f"{next(translator.translate(['One two.']))} {line}".strip()
    assert all(translation.pieces for translation in nbests[2])
    # A line without visible characters is empty.
    assert doubts.copied == 2
    # A beginning that is given, or the setting, has it translated.
    ((forced,),) = translator.translate_nbest([line], n_best=1, prefixes=["e"])
    ((asked,),) = changed_to(translator, copy_numbers=False).translate_nbest([line], n_best=1)
    assert forced.pieces
    assert asked.pieces
