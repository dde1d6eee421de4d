"""Translating: one line in, one line out, in order, whatever the neighbours."""

from __future__ import annotations

import random
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ENGLISH, random_run
from sacrebleu.metrics import CHRF
from support.forked import PIPE, Forked, run_mtkit

from mtkit.base.errors import MtkitError
from mtkit.base.sentences import LineFacts
from mtkit.config import Config, DecodeConfig, ModelConfig, TrainConfig, dump_config
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.parsing import Task
from mtkit.run_folder import Run
from mtkit.run_manifest import RunManifest
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer, Vocabularies
from mtkit.train import assembly as train
from mtkit.translate.aligning import align_by_sentence
from mtkit.translate.engine import Engine
from mtkit.translate.reading import WINDOW_CHARACTERS, WINDOW_LINES, Window, ready_lines
from mtkit.translate.requests import Translation
from mtkit.translate.search import Hypothesis, beam_search
from mtkit.translate.sentences import SentenceReader
from mtkit.translate.translator import Translator

HOSTILE = [
    "one two three",
    "",
    " \t ",
    "a\u2028b\u2029c",
    "a\x85b\x0bc\x0cd\x1ce",
    "nul\x00in\x00it",
    "\ufeffmarked",
    "carriage\rreturn",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea e\u0301",
    "nine " * 40,
    "x" * 5000,
    "\u202eright to left\u202c",
    "</s> <s> <pad> <unk> <0x0A>",
    "\u3000",
    "last",
]


@pytest.fixture(scope="module")
def translator(untrained: Run) -> Translator:
    translator = Translator.load(untrained, device="cpu")
    translator.model.eval()
    return translator


@pytest.fixture(scope="module")
def exact(untrained: Run) -> Translator:
    """In float64: where a draw falls must not depend on how a CPU rounds in float32."""
    translator = Translator.load(untrained, device="cpu", prepared=False)
    translator.model.double()
    return translator


def with_batches_of(translator: Translator, batch_tokens: int) -> Translator:
    config = translator.config.model_copy(update={"batch_tokens": batch_tokens})
    return Translator(translator.model, translator.tokenizer, config, device=translator.device)


def numbers(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zebra"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(count)]


# ---------------------------------------------------------------------------------------------
# One line in, one line out


def test_the_random_model_of_these_tests_tells_lines_apart(translator: Translator):
    lines = numbers(30)
    assert len(set(translator.translate(lines))) > len(set(lines)) / 2


def test_every_input_line_gives_one_output_line(translator: Translator):
    found = list(translator.translate(HOSTILE))
    assert len(found) == len(HOSTILE)
    for text in found:
        assert "\n" not in text
        assert "\r" not in text


def test_hostile_lines_leave_their_neighbours_alone(translator: Translator):
    together = list(translator.translate(HOSTILE))
    alone = [next(translator.translate([line])) for line in HOSTILE]
    assert together == alone


@pytest.mark.parametrize("line", ["", " ", " \t ", "\r", "\u3000\u00a0", "\u2028"])
def test_a_blank_line_stays_blank(line: str, translator: Translator):
    first, blank, last = translator.translate_nbest(["one", line, "two"], n_best=2)
    assert [(found.text, found.score) for found in blank] == [("", 0.0)]
    assert first[0].text == next(translator.translate(["one"]))
    assert last[0].text == next(translator.translate(["two"]))


def test_several_threads_may_share_a_translator(translator: Translator):
    lines = [f"{first} {second}" for first in ENGLISH for second in ENGLISH]
    expected = list(translator.translate(lines))
    links = [str(one) for one in translator.align(lines[:20], expected[:20])]
    with ThreadPoolExecutor(4) as threads:
        translations = [
            threads.submit(lambda part: list(translator.translate(part)), lines[number::3])
            for number in range(3)
        ]
        alignments = threads.submit(
            lambda: [str(one) for one in translator.align(lines[:20], expected[:20])]
        )
        for number, found in enumerate(translations):
            assert found.result() == expected[number::3]
        assert alignments.result() == links


def test_nothing_in_is_nothing_out(translator: Translator):
    assert list(translator.translate([])) == []
    assert list(translator.translate([""])) == [""]
    assert list(translator.translate_windows([Window(1, [])])) == [(Window(1, []), [])]


def test_a_line_too_long_is_cut_with_a_warning_that_names_it(
    translator: Translator, caplog: pytest.LogCaptureFixture
):
    ids = translator.tokenizer.encode("nine " * 200)
    cut = translator.tokenizer.decode(ids[:59])
    found = list(translator.translate(["one", "", "nine " * 200, "two"]))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "line 3:" in record.getMessage()
    assert f"from {len(ids) + 1} to 60 tokens" in record.getMessage()
    caplog.clear()
    assert found[2] == next(translator.translate([cut]))
    assert not caplog.records


def test_the_number_in_a_warning_counts_from_the_first_line_of_all(
    translator: Translator, caplog: pytest.LogCaptureFixture
):
    lines = [""] * (WINDOW_LINES + 4) + ["nine " * 200]
    assert len(list(translator.translate(lines))) == len(lines)
    assert f"line {WINDOW_LINES + 5}:" in caplog.text


# ---------------------------------------------------------------------------------------------
# A translation never depends on its neighbours


@pytest.fixture(scope="module")
def alone(translator: Translator) -> dict[str, tuple[str, float]]:
    """Text and score of each line, translated by itself."""
    lines = numbers(40)
    found = [next(translator.translate_nbest([line], n_best=1))[0] for line in lines]
    return {line: (one.text, one.score) for line, one in zip(lines, found, strict=True)}


def assert_as_alone(
    translator: Translator, lines: list[str], alone: dict[str, tuple[str, float]]
) -> None:
    found = list(translator.translate_nbest(lines, n_best=1))
    assert len(found) == len(lines)
    for line, (best,) in zip(lines, found, strict=True):
        text, score = alone[line]
        assert best.text == text
        assert best.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 7, 40, 300, 100_000])
def test_text_and_score_do_not_depend_on_the_size_of_the_batch(
    batch_tokens: int, translator: Translator, alone: dict[str, tuple[str, float]]
):
    assert_as_alone(with_batches_of(translator, batch_tokens), list(alone), alone)


@pytest.mark.parametrize("seed", [1, 2])
def test_text_and_score_do_not_depend_on_the_order(
    seed: int, translator: Translator, alone: dict[str, tuple[str, float]]
):
    lines = list(alone)
    random.Random(seed).shuffle(lines)
    assert_as_alone(translator, lines, alone)
    assert_as_alone(translator, lines[:9] + lines[:9], alone)


def test_text_and_score_do_not_depend_on_a_much_longer_neighbour(
    translator: Translator, alone: dict[str, tuple[str, float]]
):
    lines = list(alone)[:10]
    long = "nine " * 50
    found = list(translator.translate_nbest([long, *lines, long], n_best=1))
    for line, (best,) in zip(lines, found[1:-1], strict=True):
        assert best.text == alone[line][0]
        assert best.score == pytest.approx(alone[line][1], abs=1e-5)


def test_translating_leaves_the_model_as_it_was(translator: Translator):
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    translator.model.train()
    list(translator.translate(["one two"]))
    assert translator.model.training
    translator.model.eval()
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, before[name])


# ---------------------------------------------------------------------------------------------
# Several translations


@pytest.mark.parametrize("text", ["one two", b"one two"])
def test_a_string_instead_of_a_list_of_lines_is_refused_at_once(
    text: str | bytes, translator: Translator
):
    lines: Any = text
    for call in (
        lambda: translator.translate(lines),
        lambda: translator.translate(["one"], prefixes=lines),
        lambda: translator.translate_nbest(lines, n_best=2),
        lambda: translator.score_given(lines, ["eins"]),
        lambda: translator.score_given(["one"], lines),
    ):
        with pytest.raises(TypeError, match=f"pass a list of lines.*not {type(text).__name__}"):
            call()


@pytest.mark.parametrize("split", [False, True])
def test_progress_counts_every_line_of_a_window(split: bool, untrained: Run):
    lines = [*numbers(20), "", "One two. Three four!"]
    config = untrained.config.decode.model_copy(
        update={"split_sentences": split, "batch_tokens": 20}
    )
    translator = Translator.load(untrained, device="cpu", config=config)
    progress: list[float] = []
    window = Window(1, lines)
    ((given, found),) = translator.translate_windows([window], progress=progress.append)
    assert given is window
    assert len(found) == len(lines)
    assert len(progress) > 3
    # All but the blank one, which is not counted.
    assert len(lines) - 2 < sum(progress) <= len(lines)


def test_the_n_best_are_different_and_in_order(translator: Translator):
    for found in translator.translate_nbest(numbers(8), n_best=5):
        scores = [one.score for one in found]
        assert len(found) == 5
        assert scores == sorted(scores, reverse=True)
        assert all(one.log_prob <= one.score <= 0 for one in found)


def test_a_score_is_the_log_probability_of_the_tokens_over_the_penalty(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
):
    model, tokenizer = translator.model, translator.tokenizer
    decode, said = tokenizer.decode, []

    def listen(ids: tuple[int, ...]) -> str:
        said.append(list(ids))
        return decode(ids)

    monkeypatch.setattr(tokenizer, "decode", listen)
    line = "one two three"
    found = next(translator.translate_nbest([line], n_best=4))
    src = torch.tensor([[*tokenizer.encode(line), tokenizer.eos_id]])
    limit = src.shape[1] + 4
    for tokens, one in zip(said, found, strict=True):
        # What reached the limit was cut off; all others ended.
        full = tokens if len(tokens) == limit else [*tokens, tokenizer.eos_id]
        # By the full forward pass, without cache, beam or batch.
        with torch.no_grad():
            logits = model(src, torch.tensor([[tokenizer.bos_id, *full[:-1]]]))[0]
        log_prob = logits.log_softmax(-1)[range(len(full)), full].sum().item()
        assert one.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert one.score == pytest.approx(log_prob / ((5 + len(full)) / 6) ** 0.6, abs=1e-4)


# ---------------------------------------------------------------------------------------------
# Draws


def changed_to(translator: Translator, **settings: Any) -> Translator:
    """The same models under other settings of `decode`."""
    model, *others = translator._models
    changed = Translator(
        model,
        translator.tokenizer,
        translator.config.model_copy(update=settings),
        device=translator.device,
        others=others,
    )
    changed.src_lang, changed.tgt_lang = translator.src_lang, translator.tgt_lang
    return changed


def texts_of(found: Iterable[list[Translation]]) -> list[list[str]]:
    return [[one.text for one in of_line] for of_line in found]


def test_what_is_drawn_depends_on_the_seed_and_the_number_of_the_line_alone(
    exact: Translator,
):
    lines = [*numbers(20), "", "nine " * 30, "one two", "one two"]
    drawn = {
        batch_tokens: texts_of(
            changed_to(exact, sample=True, batch_tokens=batch_tokens).translate_nbest(
                lines, n_best=3
            )
        )
        for batch_tokens in (1, 100, 100_000)
    }
    assert drawn[1] == drawn[100] == drawn[100_000]
    # Other lines before and after it, and it is the seventh all the same.
    sampler = changed_to(exact, sample=True)
    ((_, found),) = sampler.translate_windows([Window(7, [lines[6]])], n_best=3)
    assert texts_of(found) == [drawn[1][6]]
    assert texts_of(sampler.translate_nbest(["x"] * 6 + lines[6:8], n_best=3))[6:] == drawn[1][6:8]
    # As another line, or with another seed, it is drawn otherwise.
    assert drawn[1][-1] != drawn[1][-2]
    other = texts_of(changed_to(exact, sample=True, seed=2).translate_nbest(lines, n_best=3))
    assert sum(a == b for a, b in zip(other, drawn[1], strict=True)) <= 2
    assert other[20] == drawn[1][20] == [""]


def test_several_samples_come_in_the_order_in_which_they_are_drawn(exact: Translator):
    sampler = changed_to(exact, sample=True, temperature=0.3)
    lines = numbers(10)
    few, many = (list(sampler.translate_nbest(lines, n_best=n)) for n in (2, 12))
    assert all(len(of_line) == 12 for of_line in many)
    assert texts_of(few) == [of_line[:2] for of_line in texts_of(many)]
    assert list(sampler.translate(lines)) == [of_line[0] for of_line in texts_of(many)]
    # By score they would fall, and equal ones would come once.
    falling = [sorted((x.score for x in xs), reverse=True) == [x.score for x in xs] for xs in many]
    assert not any(falling)
    assert any(len(set(of_line)) < 12 for of_line in texts_of(many))


def test_draws_from_one_subword_are_greedy_search(exact: Translator):
    lines = numbers(20)
    greedy = changed_to(exact, beam_size=1)
    for settings in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        sampler = changed_to(exact, sample=True, **settings)
        found = list(sampler.translate_nbest(lines, n_best=1))
        for (ours,), (best,) in zip(found, greedy.translate_nbest(lines, n_best=1), strict=True):
            assert ours.pieces == best.pieces
            # Of the model, whatever was drawn from.
            assert ours.log_probs == pytest.approx(best.log_probs, abs=1e-5)


def test_minimum_bayes_risk_takes_the_sample_that_is_most_like_the_others(exact: Translator):
    lines = [*numbers(10), ""]
    settings = {"temperature": 0.1, "seed": 3}
    drawn = changed_to(exact, sample=True, **settings).translate_nbest(lines, n_best=12)
    chosen = changed_to(exact, mbr_samples=12, **settings)
    ranked = list(chosen.translate_nbest(lines, n_best=12))
    assert list(chosen.translate(lines)) == [of_line[0] for of_line in texts_of(ranked)]
    chrf = CHRF()
    repeated = 0
    for samples, found in list(zip(drawn, ranked, strict=True))[:-1]:
        texts = [sample.text for sample in samples]
        of_text = {
            text: sum(
                chrf.sentence_score(text, [other]).score for j, other in enumerate(texts) if j != i
            )
            / 11
            for i, text in enumerate(texts)
        }
        # Each text once; its own likeness to its repetitions counts.
        assert sorted(one.text for one in found) == sorted(of_text)
        assert [one.score for one in found] == pytest.approx(
            sorted(of_text.values(), reverse=True), abs=1e-6
        )
        assert [of_text[one.text] for one in found] == pytest.approx(
            [one.score for one in found], abs=1e-6
        )
        # Everything else is of the first sample with this text.
        firsts = {sample.text: sample for sample in reversed(samples)}
        for one in found:
            assert one.pieces == firsts[one.text].pieces
        repeated += len(of_text) < 12
    assert repeated
    assert [(one.text, one.score) for one in ranked[-1]] == [("", 0.0)]


# ---------------------------------------------------------------------------------------------
# Several models


def ids_of(translator: Translator, pieces: Iterable[str]) -> list[int]:
    return [translator.tokenizer._pieces.piece_to_id(piece) for piece in pieces]


def by_both_forwards(runs: list[Run], source: str, ids: list[int]) -> list[float]:
    """Logarithms of the mean probability of each token, by the full forward passes."""
    probabilities = torch.zeros(len(ids), dtype=torch.float64)
    for run in runs:
        one = Translator.load(run, device="cpu", prepared=False)
        src = torch.tensor([[*one.tokenizer.encode(source), EOS_ID]])
        with torch.no_grad():
            logits = one.model(src, torch.tensor([[BOS_ID, *ids[:-1]]]))[0].double()
        probabilities += logits.softmax(-1)[range(len(ids)), ids] / len(runs)
    return probabilities.log().tolist()


@pytest.fixture(scope="module")
def ensemble(untrained: Run, also_untrained: Run) -> Translator:
    return Translator.load([untrained, also_untrained], device="cpu")


def test_a_run_twice_is_the_run(untrained: Run, translator: Translator):
    twice = Translator.load([untrained, untrained.path], device="cpu")
    lines = numbers(10)
    expected = list(translator.translate_nbest(lines, n_best=3))
    found = list(twice.translate_nbest(lines, n_best=3))
    assert texts_of(found) == texts_of(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_two_runs_find_tokens_by_the_mean_of_their_probabilities(
    ensemble: Translator, translator: Translator, untrained: Run, also_untrained: Run
):
    lines = ["one two three", "nine"]
    for line, found in zip(lines, ensemble.translate_nbest(lines, n_best=2), strict=True):
        for one in found:
            ids = ids_of(ensemble, one.pieces)
            expected = by_both_forwards([untrained, also_untrained], line, ids)
            assert one.log_probs == pytest.approx(expected, abs=1e-4)
            assert one.log_prob == pytest.approx(sum(expected), abs=1e-4)
    # And that is another search than with one of them.
    lines = numbers(10)
    assert list(ensemble.translate(lines)) != list(translator.translate(lines))


def test_several_models_think_of_a_translation_what_they_thought_when_they_found_it(
    ensemble: Translator,
):
    # At a high temperature even these models come to an end.
    sampler = changed_to(ensemble, sample=True, temperature=50.0, max_length=3)
    lines = numbers(30)
    # A text does not say which of its segmentations was drawn.
    comparable = [
        (line, one)
        for line, found in zip(lines, sampler.translate_nbest(lines, n_best=150), strict=True)
        for one in found
        if one.finished
        and ids_of(ensemble, one.pieces) == [*ensemble.tokenizer.encode(one.text), EOS_ID]
    ]
    assert len(comparable) >= 10
    assert any(len(one.pieces) > 1 for _, one in comparable)
    scored = ensemble.score_given(
        [line for line, _ in comparable], [one.text for _, one in comparable]
    )
    for ours, (_, one) in zip(scored, comparable, strict=True):
        assert ours.log_probs == pytest.approx(one.log_probs, abs=1e-4)
        assert ours.score == pytest.approx(one.score, abs=1e-4)


def test_runs_of_different_subwords_are_refused_in_a_line(untrained: Run, tmp_path: Path):
    other = Tokenizer.learn(["one two three four five"] * 20, 280)
    model = Transformer(untrained.config.model, len(other), PAD_ID)
    run = Run.create(
        tmp_path / "other", untrained.config, Vocabularies.joint(other), manifest=RunManifest()
    )
    run.save(1, weights=dict(model.state_dict()), optimizer={}, state={})
    with pytest.raises(MtkitError) as refused:
        Translator.load([untrained, run], device="cpu")
    assert str(refused.value) == f"{run.path}: has another vocabulary than {untrained.path}"


# ---------------------------------------------------------------------------------------------
# A vocabulary for each side


def test_sources_and_translations_have_their_own_subwords(uneven: Run):
    translator = Translator.load(uneven, device="cpu")
    src, tgt = uneven.tokenizers()
    assert len(src) < len(tgt)
    assert [translator.src_tokenizer.model, translator.tokenizer.model] == [src.model, tgt.model]
    model = Translator.load(uneven, device="cpu", prepared=False).model
    lines, beginning = numbers(10), "έξι"
    found = translator.translate_nbest(lines, n_best=2, prefixes=[beginning] * len(lines))
    for line, translations in zip(lines, found, strict=True):
        for one in translations:
            assert one.text.startswith(beginning)
            ids = ids_of(translator, one.pieces)
            assert one.text == tgt.decode(ids)
            source = torch.tensor([[*src.encode(line), EOS_ID]])
            with torch.no_grad():
                logits = model(source, torch.tensor([[BOS_ID, *ids[:-1]]]))[0]
            expected = logits.log_softmax(-1)[range(len(ids)), ids]
            assert one.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_given_translations_are_scored_in_their_own_subwords(uneven: Run):
    translator = Translator.load(uneven, device="cpu")
    src, tgt = uneven.tokenizers()
    model = Translator.load(uneven, device="cpu", prepared=False).model
    (scored,) = translator.score_given(["one two"], ["δύο ένα"])
    ids = [*tgt.encode("δύο ένα"), EOS_ID]
    assert scored.pieces == tuple(tgt.piece(i) for i in ids)
    with torch.no_grad():
        source = torch.tensor([[*src.encode("one two"), EOS_ID]])
        logits = model(source, torch.tensor([[BOS_ID, *ids[:-1]]]))[0]
    expected = logits.log_softmax(-1)[range(len(ids)), ids]
    assert scored.log_probs == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_source_too_long_is_measured_in_its_own_subwords(
    uneven: Run, caplog: pytest.LogCaptureFixture
):
    translator = Translator.load(uneven, device="cpu")
    line = "seven " * 200
    lengths = [len(one.encode(line)) + 1 for one in uneven.tokenizers()]
    assert lengths[0] != lengths[1]
    list(translator.translate([line]))
    assert f"cut from {lengths[0]} to 60 tokens" in caplog.text


def test_models_work_together_if_both_of_their_subwords_are_the_same(
    uneven: Run, greek_data: PreparedData, tiny_data: PreparedData, tmp_path: Path
):
    src, tgt = uneven.tokenizers()
    same = random_run(tmp_path / "same", greek_data, 6, tokenizers=(src, tgt))
    both = Translator.load([uneven, same], device="cpu")
    (found,) = both.translate_nbest(["one two three"], n_best=1)
    ids = ids_of(both, found[0].pieces)
    probabilities = torch.zeros(len(ids), dtype=torch.float64)
    for run in (uneven, same):
        model = Translator.load(run, device="cpu", prepared=False).model
        source = torch.tensor([[*src.encode("one two three"), EOS_ID]])
        with torch.no_grad():
            logits = model(source, torch.tensor([[BOS_ID, *ids[:-1]]]))[0].double()
        probabilities += logits.softmax(-1)[range(len(ids)), ids] / 2
    assert found[0].log_probs == pytest.approx(probabilities.log().tolist(), abs=1e-4)

    other, _ = tiny_data.tokenizers()
    for number, tokenizers in enumerate([(other, tgt), (src, other), (tgt, tgt)]):
        run = random_run(tmp_path / str(number), greek_data, 6, tokenizers=tokenizers)
        with pytest.raises(
            MtkitError, match=f"{run.path}: has another vocabulary than {uneven.path}"
        ):
            Translator.load([uneven, run], device="cpu")


def test_workers_translate_from_the_vocabulary_of_the_source(uneven: Run):
    lines = numbers(12)
    expected = list(Translator.load(uneven, device="cpu").translate(lines))
    with Translator.load(uneven, device="cpu", workers=2) as translator:
        assert list(translator.translate(lines)) == expected


# ---------------------------------------------------------------------------------------------
# Sentences of a line


def test_the_translator_knows_the_languages_of_its_run(tiny_run: Run):
    translator = Translator.load(tiny_run, device="cpu")
    assert (translator.src_lang, translator.tgt_lang) == ("en", "de")


def test_a_line_of_two_sentences_becomes_their_two_translations(translator: Translator):
    first, second = "One two three.", "Nine eight!"
    lines = ["", f"{first} {second}", first, " ", f"{second} {first} {second}"]
    by_sentence = changed_to(translator, split_sentences=True)
    one, two = (found for (found,) in translator.translate_nbest([first, second], n_best=1))
    expected = [[], [one, two], [one], [], [two, one, two]]
    found = list(by_sentence.translate_nbest(lines, n_best=1))
    assert len(found) == len(lines)
    for (line,), parts in zip(found, expected, strict=True):
        assert line.text == " ".join(part.text for part in parts if part.text)
        assert line.pieces == tuple(piece for part in parts for piece in part.pieces)
        assert line.log_prob == pytest.approx(sum(part.log_prob for part in parts), abs=1e-5)
        assert sum(line.log_probs) == pytest.approx(line.log_prob, abs=1e-5)
        # The paper's length penalty at its alpha of 0.6.
        scores = [part.log_prob / ((5 + len(part.pieces)) / 6) ** 0.6 for part in parts]
        assert line.score == pytest.approx(sum(scores) / max(1, len(scores)), abs=1e-5)
    by_sentence.tgt_lang = "ja"
    assert next(by_sentence.translate([lines[1]])) == one.text + two.text


def test_sentences_of_a_line_are_drawn_each_by_itself(exact: Translator):
    sentence = "One two three."
    lines = ["x", f"{sentence} {sentence}", sentence]
    sampler = changed_to(exact, sample=True)
    by_sentence = changed_to(sampler, split_sentences=True, batch_tokens=1)
    (one,), (line,), (last,) = by_sentence.translate_nbest(lines, n_best=1)
    ((_, ((alone,),)),) = sampler.translate_windows([Window(2, [sentence])])
    assert line.pieces[: len(alone.pieces)] == alone.pieces
    assert line.pieces[len(alone.pieces) :] != alone.pieces
    # The same again, whatever comes with it; and a line of one sentence as if it were not cut.
    again = changed_to(by_sentence, batch_tokens=100_000)
    assert list(again.translate(lines)) == [one.text, line.text, last.text]
    assert [one.text, last.text] == list(sampler.translate(lines))[::2]


def test_how_many_samples_are_shown_does_not_change_which_is_chosen(exact: Translator):
    lines = numbers(8)
    chooser = changed_to(exact, mbr_samples=3, temperature=0.5)
    few = list(chooser.translate_nbest(lines, n_best=1))
    for many in (3, 20):
        found = list(chooser.translate_nbest(lines, n_best=many))
        assert [of_line[:1] for of_line in texts_of(found)] == texts_of(few)
        assert [of_line[0].score for of_line in found] == [of_line[0].score for of_line in few]
        assert all(len(of_line) <= 3 for of_line in found)


def test_the_samples_of_sentences_are_compared_sentence_by_sentence(exact: Translator):
    first, second = "One two three.", "Nine eight!"
    chooser = changed_to(exact, mbr_samples=6)
    by_sentence = changed_to(chooser, split_sentences=True)
    ((both,),) = by_sentence.translate_nbest([f"{first} {second}"], n_best=1)
    ((one,),) = chooser.translate_nbest([first], n_best=1)
    assert both.text.startswith(one.text)
    # A likeness is in points of 100, and so is the mean of two.
    assert one.score / 2 <= both.score <= (one.score + 100) / 2


def test_a_long_sentence_is_cut_with_a_warning_that_names_its_line(
    translator: Translator, caplog: pytest.LogCaptureFixture
):
    by_sentence = changed_to(translator, split_sentences=True)
    assert len(list(by_sentence.translate(["one", "One two. " + "nine " * 200]))) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("line 2: cut from")


def test_the_translations_of_a_line_of_several_sentences_have_falling_scores(
    translator: Translator,
):
    def sentence(text: str, log_prob: float, tokens: int) -> Translation:
        return Translation(
            text,
            log_prob / ((5 + tokens) / 6) ** 0.6,
            log_prob,
            log_probs=(log_prob / tokens,) * tokens,
        )

    reader = SentenceReader(translator.vocabularies, Task(), 100, "en", "de", splits=True)
    (sentences,) = reader.read(Window(1, ["One. Two."]))
    one = [sentence("a", -1.0, 1), sentence("b", -3.0, 20)]
    two = [sentence("c", -4.0, 2), sentence("d", -8.0, 12)]
    best, second = reader.join(sentences, [one, two])
    assert (best.text, second.text) == ("a c", "b d")
    assert best.score == pytest.approx((one[0].score + two[0].score) / 2)
    assert best.score > second.score


def test_the_kth_translation_of_a_line_has_the_kth_of_each_sentence(translator: Translator):
    sentences = ["One two three.", "Nine eight!"]
    by_sentence = changed_to(translator, split_sentences=True)
    one, two = translator.translate_nbest(sentences, n_best=3)
    (line,) = by_sentence.translate_nbest([" ".join(sentences)], n_best=3)
    assert [best.text for best in line] == [
        " ".join(part.text for part in pair if part.text) for pair in zip(one, two, strict=True)
    ]


@pytest.mark.parametrize("prefix", ["acht", "acht. neun", "acht. neun. null", "acht neun."])
def test_the_translation_of_several_sentences_begins_as_it_is_forced_to(
    prefix: str, translator: Translator
):
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


def test_each_part_of_a_translation_is_that_of_its_sentence(translator: Translator):
    by_sentence = changed_to(translator, split_sentences=True)
    line = f"  {SENTENCES[0]}  {SENTENCES[1]} "
    ((best,),) = by_sentence.translate_nbest([line], n_best=1)
    found = [(line[slice(*src)], best.text[slice(*tgt)]) for src, tgt in best.parts]
    assert found == list(zip(SENTENCES, translator.translate(SENTENCES), strict=True))


def test_each_sentence_of_a_line_is_aligned_on_its_own(translator: Translator):
    line, texts = " ".join(SENTENCES), ("acht neun.", "vier eins zwei.")
    whole = Translation(" ".join(texts), 0, 0, parts=(((0, 11), (0, 10)), ((12, 27), (11, 26))))
    aligner = translator.aligner()
    found, alone = align_by_sentence(
        aligner, [line, SENTENCES[0]], [whole, Translation(texts[0], 0, 0)], numbers=[1, 2]
    )
    one, two = aligner.align(SENTENCES, texts)
    assert two.links
    assert found.links == one.links | {(i + 2, j + 2) for i, j in two.links}
    assert alone.weights == pytest.approx(one.weights, abs=1e-6)
    # The words are those of the whole line.
    assert [line[slice(*word)] for word in found.src_words] == line.split()
    assert [whole.text[slice(*word)] for word in found.tgt_words] == whole.text.split()


def test_sentences_without_a_space_between_them_share_a_word(translator: Translator):
    line = " ".join(SENTENCES)
    whole = Translation("acht neunvier", 0, 0, parts=(((0, 11), (0, 9)), ((12, 27), (9, 13))))
    (found,) = align_by_sentence(translator.aligner(), [line], [whole], numbers=[1])
    assert len(found.tgt_words) == 2
    # All words of the second sentence are aligned with the shared word.
    assert {j for i, j in found.links if i >= 2} == {1}


def with_lines(run: Run, lines: LineFacts | None, **decode: Any) -> Run:
    """The run with another record of its training lines, and other settings of `decode`."""
    data = run.manifest.data.model_copy(update={"lines": lines})
    manifest = run.manifest.model_copy(update={"data": data})
    config = run.config.model_copy(update={"decode": run.config.decode.model_copy(update=decode)})
    return Run(run.path, config, manifest)


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
def test_lines_are_split_if_the_training_lines_were_single_sentences(
    lines: LineFacts | None, setting: bool | str, splits: bool, untrained: Run
):
    run = with_lines(untrained, lines, split_sentences=setting)
    held = Translator.load(run, device="cpu")
    (line,) = held.translate([" ".join(SENTENCES)])
    whole = Translator.load(with_lines(untrained, lines, split_sentences=False), device="cpu")
    expected = SENTENCES if splits else [" ".join(SENTENCES)]
    assert line == " ".join(whole.translate(expected))


def test_a_run_from_before_lines_were_recorded_splits_lines(tmp_path: Path, untrained: Run):
    # Such a run has `split_sentences: false` in its configuration, which was the default then.
    folder = tmp_path / "run"
    shutil.copytree(untrained.path, folder)
    decode = untrained.config.decode.model_copy(update={"split_sentences": False})
    config = untrained.config.model_copy(update={"decode": decode})
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    assert Run.open(folder).config.decode.split_sentences == "auto"


@pytest.mark.parametrize("line", ["***", "...", "—", "¿?", "\u266a", " ** "])
def test_a_line_without_letters_and_digits_is_copied(line: str, translator: Translator):
    first, text, last = translator.translate(["one two", line, "nine"])
    assert text == line.strip()
    assert [first, last] == list(translator.translate(["one two", "nine"]))


def test_a_line_of_digits_is_translated(translator: Translator):
    ((best,),) = translator.translate_nbest(["12"], n_best=1)
    assert best.pieces


# ---------------------------------------------------------------------------------------------
# Bounded memory


class Counted:
    """Lines without end, and how many of them were taken."""

    def __init__(self, line: str = "") -> None:
        self.line = line
        self.taken = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            self.taken += 1
            yield self.line


def test_no_more_lines_are_read_than_a_window_holds(translator: Translator):
    lines = Counted()
    found = translator.translate(lines)
    assert lines.taken == 0
    next(found)
    assert lines.taken <= WINDOW_LINES
    for _ in range(WINDOW_LINES):
        next(found)
    assert lines.taken <= 2 * WINDOW_LINES


def test_a_window_of_long_lines_is_shorter(translator: Translator):
    lines = Counted(" " * 100_000)
    next(translator.translate(lines))
    assert lines.taken <= WINDOW_CHARACTERS // 100_000 + 1


def test_lines_that_are_ready_are_read_ahead_by_two_windows_at_most():
    lines = Counted("x")
    windows = filter(None, ready_lines(lines))
    for _ in range(3):
        assert len(next(windows)) <= WINDOW_LINES
    threading.Event().wait(0.2)  # time enough to read ahead
    assert lines.taken <= 5 * WINDOW_LINES


def test_an_empty_window_means_that_no_line_is_available_yet():
    more = threading.Event()

    def lines() -> Iterator[str]:
        yield "one"
        more.wait(30)
        yield "two"

    windows = ready_lines(lines())
    while next(windows) != ["one"]:
        pass
    assert next(windows) == []
    more.set()
    assert next(windows) == ["two"]


def test_a_window_ends_before_an_error_which_comes_after_it():
    def lines() -> Iterator[str]:
        yield "one"
        yield "two"
        raise MtkitError("no third")

    seen: list[str] = []

    def read() -> None:
        for window in ready_lines(lines()):
            seen.extend(window)

    with pytest.raises(MtkitError, match="no third"):
        read()
    assert seen == ["one", "two"]


# ---------------------------------------------------------------------------------------------
# The command


def command(run: Run, *arguments: str | Path) -> list[str]:
    return ["translate", "--run", str(run.path), "--device", "cpu", *map(str, arguments)]


def started(run: Run, *arguments: str) -> Forked:
    return Forked(run_mtkit, command(run, *arguments), stdin=PIPE, stdout=PIPE, stderr=PIPE)


def test_the_bytes_of_hostile_lines_are_answered_line_by_line(
    untrained: Run, translator: Translator
):
    lines = [*HOSTILE[:7], "with carriage return", *HOSTILE[8:]]
    raw = [line.encode() for line in lines]
    raw[7] += b"\r"
    # A byte-order mark before everything, and no newline after the last line.
    with started(untrained) as process:
        out, err = process.communicate(b"\xef\xbb\xbf" + b"\n".join(raw))
    assert process.returncode == 0, err
    assert out.endswith(b"\n")
    found = out.decode().removesuffix("\n").split("\n")
    assert found == list(translator.translate(lines))


@pytest.mark.timeout(90)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_line_is_answered_before_the_next_is_written(
    workers: str, untrained: Run, translator: Translator
):
    lines = ["one two three", "", "nine"]
    expected = list(translator.translate(lines))
    with started(untrained, "--workers", workers) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line, answer in zip(lines, expected, strict=True):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            # Would wait for ever, were the answer held back.
            assert process.stdout.readline().decode() == f"{answer}\n"
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def test_text_that_is_not_utf8_is_an_error_after_the_lines_before_it(
    untrained: Run, translator: Translator
):
    with started(untrained) as process:
        out, err = process.communicate(b"one\ntwo\nf\xfcnf\nnine\n")
    assert process.returncode == 1
    assert out.decode() == "".join(f"{text}\n" for text in translator.translate(["one", "two"]))
    errors = [line for line in err.decode().splitlines() if "error" in line]
    assert len(errors) == 1
    assert errors[0].startswith("mtkit: error: standard input, line 3: not UTF-8")
    assert b"Traceback" not in err


@pytest.mark.timeout(90)
def test_a_reader_that_leaves_ends_it_quietly(untrained: Run):
    with started(untrained) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        # Until it notices; then it is the writer who finds the pipe closed.
        try:
            process.stdin.write(b"two\n" * 5)
            process.stdin.close()
        except BrokenPipeError:
            pass
        err = process.stderr.read().decode()
        process.wait(timeout=30)
    assert "Traceback" not in err
    assert "Exception" not in err
    assert "Error" not in err


def run_in_process(
    run: Run, monkeypatch: pytest.MonkeyPatch, *arguments: str | Path
) -> int | str | None:
    from mtkit.cli import main

    monkeypatch.setattr(sys, "argv", ["mtkit", *command(run, *arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


def test_an_output_file_is_whole(
    untrained: Run, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\n\ntwo three\n")
    target.write_text("old\n")
    status = run_in_process(untrained, monkeypatch, "--input", source, "--output", target)
    assert status == 0
    expected = translator.translate(["one", "", "two three"])
    assert target.read_text() == "".join(f"{text}\n" for text in expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


@pytest.mark.parametrize("existing", [None, "old\n"])
def test_an_error_in_the_middle_leaves_no_output_file_or_the_old_one(
    existing: str | None,
    untrained: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"one\n" * 9 + b"\xff\n" + b"two\n")
    if existing:
        target.write_text(existing)
    status = run_in_process(untrained, monkeypatch, "--input", source, "--output", target)
    assert status == 1
    assert re.search(r"in\.txt, line 10: not UTF-8", capfd.readouterr().err)
    names = ["in.txt", "out.txt"] if existing else ["in.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    if existing:
        assert target.read_text() == existing


def test_n_best_rows_are_numbered_and_the_best_comes_first(
    untrained: Run, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, target = tmp_path / "in.txt", tmp_path / "out.tsv"
    source.write_text("one\n\ntwo three\n")
    arguments = ["--nbest", "3", "--input", source, "--output", target]
    assert run_in_process(untrained, monkeypatch, *arguments) == 0
    rows = [line.split("\t", 2) for line in target.read_text().removesuffix("\n").split("\n")]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    expected = [
        one
        for found in translator.translate_nbest(["one", "", "two three"], n_best=3)
        for one in found
    ]
    for (_, score, text), one in zip(rows, expected, strict=True):
        assert text == one.text
        assert float(score) == pytest.approx(one.score, abs=1e-5)


@pytest.mark.parametrize("code", [0x09, 0x0A, 0x0D])
def test_a_translation_holds_no_tab_and_no_line_end(code: int, translator: Translator):
    # Byte pieces come after the four special ones, in order: an untrained model may say any.
    assert chr(code) not in translator.tokenizer.decode([4 + code])


# ---------------------------------------------------------------------------------------------
# What the model thinks of a given translation


def step_by_step(translator: Translator, source: str, translation: str) -> list[float]:
    """Log-probability of each token, by the cached steps that the search takes."""
    src = torch.tensor([[*translator.tokenizer.encode(source), EOS_ID]])
    found, token = [], BOS_ID
    with torch.no_grad():
        engine = Engine(translator.model)
        cache = engine.start(src, 1)
        for wanted in (*translator.tokenizer.encode(translation), EOS_ID):
            log_probs = engine.step(torch.tensor([token]), torch.tensor([0]), cache)
            found.append(float(log_probs[0, wanted]))
            token = wanted
    return found


def test_given_translations_score_what_the_steps_of_the_search_give_them(
    translator: Translator,
) -> None:
    sources = [line for line in numbers(20) if line]
    targets = [line for line in numbers(20, seed=7) if line]
    for batch_tokens in (1, 4096):
        found = list(with_batches_of(translator, batch_tokens).score_given(sources, targets))
        for scored, source, target in zip(found, sources, targets, strict=True):
            wanted = step_by_step(translator, source, target)
            assert scored.log_probs == pytest.approx(wanted, abs=1e-5)
            assert scored.log_prob == pytest.approx(sum(wanted), abs=1e-5)
            # The paper's length penalty at its alpha of 0.6.
            penalty = ((5 + len(wanted)) / 6) ** 0.6
            assert scored.score == pytest.approx(sum(wanted) / penalty, abs=1e-5)
            assert len(scored.pieces) == len(wanted)
            assert scored.pieces[-1] == "</s>"


def test_what_the_search_found_scores_what_it_reported(
    tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a random model says never ends, so one that has seen a little.
    schedule = TrainConfig(
        max_steps=100,
        batch_tokens=400,
        warmup_steps=20,
        valid_every=100,
        checkpoint_every=100,
        precision="fp32",
    )
    config = Config(
        model=ModelConfig(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, n_heads=2),
        train=schedule,
        decode=DecodeConfig(average_checkpoints=1),
    )
    train.run(config, tiny_data, tmp_path / "run", device="cpu", command=["mtkit", "train"])
    translator = Translator.load(tmp_path / "run", device="cpu")
    found: list[Hypothesis] = []

    def listen(*arguments: Any, **options: Any) -> list[list[Hypothesis]]:
        (of_line,) = results = beam_search(*arguments, **options)
        found.extend(of_line)
        return results

    monkeypatch.setattr("mtkit.translate.decoder.beam_search", listen)
    sources, _ = tiny_data.text("test")
    reported = [
        (line, translation)
        for line in sources
        for translation in next(translator.translate_nbest([line], n_best=4))
    ]
    # A text says neither that it was cut off nor which of its segmentations the model chose.
    comparable = [
        (line, translation)
        for (line, translation), hypothesis in zip(reported, found, strict=True)
        if hypothesis.finished
        and translator.tokenizer.encode(translation.text) == list(hypothesis.tokens)
    ]
    assert len(comparable) >= 40
    lines, translations = zip(*comparable, strict=True)
    scored = translator.score_given(lines, [translation.text for translation in translations])
    for ours, translation in zip(scored, translations, strict=True):
        assert ours.score == pytest.approx(translation.score, abs=1e-5)
        assert ours.log_prob == pytest.approx(translation.log_prob, abs=1e-5)


def test_any_line_can_be_scored_in_order_and_blank_ones_as_they_are_translated(
    translator: Translator,
) -> None:
    backwards = HOSTILE[::-1]
    found = list(translator.score_given(HOSTILE, backwards))
    assert len(found) == len(HOSTILE)
    alone = [
        next(translator.score_given([a], [b])) for a, b in zip(HOSTILE, backwards, strict=True)
    ]
    assert [x.log_prob for x in found] == pytest.approx([x.log_prob for x in alone], abs=1e-4)
    (blank,) = translator.score_given([" "], [""])
    assert (blank.pieces, blank.log_prob, blank.score) == ((), 0.0, 0.0)
    # Nothing as the translation of something is the end at once.
    (ended,) = translator.score_given(["one two"], [""])
    assert ended.log_probs == pytest.approx(step_by_step(translator, "one two", ""), abs=1e-5)
