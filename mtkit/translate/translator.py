"""Translates lines of text, in order and in bounded memory.

One input line gives exactly one output line, and a translation does not depend on the lines around
it.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import nn

from mtkit.align import Aligner, Alignment, AlignmentHead, Method, heads_of
from mtkit.base.devices import (
    choose_device,
    choose_precision,
    devices,
    disable_malloc_trim,
    memory_explained,
    select_matmul_backend,
)
from mtkit.base.errors import MtkitError
from mtkit.base.sentences import LineFacts
from mtkit.base.text import has_words
from mtkit.batches import plan_batches
from mtkit.config import DecodeConfig
from mtkit.model import Transformer
from mtkit.parsing import model_source
from mtkit.run_folder import Run
from mtkit.tokenizer import EOS_ID, Tokenizer, Vocabularies
from mtkit.translate.decoder import (
    DecodeBatch,
    Decoder,
    DecoderProtocol,
    PendingBatch,
    Translation,
    hypotheses_of,
)
from mtkit.translate.doubts import Doubts
from mtkit.translate.engine import given_log_probs
from mtkit.translate.linear import pack_weights
from mtkit.translate.loading import choose_direction, load_models, task_of
from mtkit.translate.parsing import TreeText, restored
from mtkit.translate.pool import Pool
from mtkit.translate.reading import Window, windows
from mtkit.translate.search import length_penalty
from mtkit.translate.sentences import CutWindow, SentenceCutter
from mtkit.translate.terms import Demand, Glossary

log = logging.getLogger(__name__)

# Batches with fewer tokens than this are not divided among workers.
SMALLEST_PART = 512
# `decode.batch_tokens` is for this many hypotheses per sentence; with more, a batch has fewer
# sentences, because its memory grows with both.
USUAL_HYPOTHESES = 4
# The distance between the numbers of the sentences of a line; no input has as many lines.
NEXT_SENTENCE = 2**40


@dataclass(frozen=True)
class Scored:
    """The log-probability of a given translation.

    Attributes:
        pieces: subwords of the translation, with EOS at the end; none if both lines are blank.
        log_probs: natural log-probability of each subword.
        log_prob: their sum.
        score: `log_prob` over the length penalty, as in `Translation.score`.
    """

    pieces: tuple[str, ...]
    log_probs: tuple[float, ...]
    log_prob: float
    score: float


class Translator:
    """Translates lines of text with a trained model, or with an ensemble.

    It can be used as a context manager, which closes it.

    Args:
        model: on its device, in evaluation mode; its weights are not copied.
        tokenizer: of the model; of its target, if the source has another.
        config: settings of search or sampling, and limits.
        device: the device of the model.
        others: further models of an ensemble, likewise.
        decoder: the decoder; by default one in this process.
        src_tokenizer: of the source; by default the same.
        glossary: terms that translations must contain.
        trees: of a parser, its text on both sides.
        src_prefix: ids that every source begins with: the language tag of a multilingual model.

    Raises:
        MtkitError: if a glossary is combined with sampling or with a parser.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        device: torch.device,
        others: Sequence[Transformer] = (),
        decoder: DecoderProtocol | None = None,
        src_tokenizer: Tokenizer | None = None,
        glossary: Glossary | None = None,
        trees: TreeText | None = None,
        src_prefix: Sequence[int] = (),
    ) -> None:
        if trees is not None and config.split_sentences is True:
            raise MtkitError("decode.split_sentences: a parser reads one sentence from each line")
        if glossary is not None and trees is not None:
            raise MtkitError("a glossary is for translations, and this model is a parser")
        if glossary is not None and (config.sample or config.mbr_samples):
            name = "sample" if config.sample else "mbr_samples"
            raise MtkitError(f"decode.{name}: cannot be combined with a glossary")
        self.model = model
        self.trees = trees
        self.src_prefix = list(src_prefix)
        self._models = [model, *others]
        self.vocabularies = Vocabularies(src_tokenizer or tokenizer, tokenizer)
        self.src_tokenizer, self.tokenizer = self.vocabularies
        self.config = config
        self.device = device
        self.glossary = glossary
        self._decoder = decoder or Decoder(self._models, tokenizer, config, device=device)
        # Set by `load`: the folders, a description of the weights, and the languages.
        self._runs: list[Run | None] = [None] * len(self._models)
        self.checkpoint = ""
        self.src_lang = self.tgt_lang = ""
        # The lines whose translations are probably incomplete, so far.
        self.doubts = Doubts(LineFacts())

    @classmethod
    @memory_explained("loading the model; translate on a machine with more memory")
    def load(
        cls,
        run: Run | Path | str | Sequence[Run | Path | str],
        *,
        checkpoint: str | None = None,
        config: DecodeConfig | None = None,
        device: str = "auto",
        prepared: bool = True,
        workers: int = 1,
        glossary: Glossary | Path | str | None = None,
        tokenized: bool = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        linearised: bool = False,
    ) -> Translator:
        """The translator of a run folder, or of several with the same vocabulary.

        With several workers, lines are translated by processes that start with the first line and
        end with `close`; texts are the same, and scores agree to 1e-5. Each process imports the
        main script again, so the script must do its work under `if __name__ == "__main__":`.

        Args:
            run: an open run, or its folder; several make an ensemble, which uses the mean of their
                probabilities.
            checkpoint: `last`, `best`, a step or `average:N`; by default the average set in the
                run's configuration.
            config: settings of search or sampling; by default those of the first run.
            device: `auto`, `cpu` or `cuda`.
            prepared: pack the weights for fast decoding in `decode.precision`; False leaves the
                model as trained, for access to its weights.
            workers: number of processes; with 1 it is this one. On a CPU they share its threads
                and the memory of the weights. With several GPUs each worker has its own, and
                `score_given`, which runs in this process, computes on the CPU.
            glossary: terms that translations must contain, or their file.
            tokenized: of a parser: whether lines are words already, separated by spaces.
            src_lang, tgt_lang: the languages, of a multilingual model. It needs the target language
                if it has several.
            linearised: of a parser: read and return the text of the model itself, which is words
                separated by spaces, and linearised trees that are not repaired.

        Raises:
            MtkitError: if the run, the checkpoint or the device does not exist, if the runs cannot
                form an ensemble or do not have the languages, or if the file is not a glossary.
        """
        given = [run] if isinstance(run, Run | Path | str) else run
        runs = [one if isinstance(one, Run) else Run.open(Path(one)) for one in given]
        if not runs:
            raise ValueError("no run to translate with")
        if workers > 1 and not prepared:
            raise ValueError("weights as they were trained are for one worker")
        if isinstance(glossary, Path | str):
            glossary = Glossary.read(Path(glossary))
        first = runs[0]
        vocabularies = first.tokenizers()
        tags = vocabularies.src.language_tags
        src_lang, tgt_lang = choose_direction(first, tags, src_lang, tgt_lang)
        place = choose_device(device)
        models, checkpoints = load_models(runs, vocabularies, checkpoint)
        src_tokenizer, tokenizer = vocabularies
        config = config or first.config.decode
        origin = first.manifest.data
        if config.split_sentences == "auto":
            config = config.model_copy(update={"split_sentences": origin.has_single_sentences})
        trees = None
        if task_of(first) == "parsing" and not linearised:
            trees = TreeText.of(tokenizer, tokenized=tokenized)
        decoder: DecoderProtocol | None = None
        if workers > 1:
            precision = choose_precision(config.precision, place, exact=True)
            places = devices(place, workers)
            decoder = Pool(models, tokenizer, config, precision=precision, devices=places)
            place = torch.device("cpu")
        else:
            together = nn.ModuleList(models).to(place)
            if prepared:
                pack_weights(together, choose_precision(config.precision, place, exact=True), place)
            disable_malloc_trim()
        select_matmul_backend(place)
        model, *others = models
        translator = cls(
            model,
            tokenizer,
            config,
            device=place,
            others=others,
            decoder=decoder,
            src_tokenizer=src_tokenizer,
            glossary=glossary,
            trees=trees,
            src_prefix=[tags[tgt_lang]] if tags else (),
        )
        translator._runs = list(runs)
        translator.checkpoint = ", ".join(checkpoints)
        translator.src_lang, translator.tgt_lang = src_lang, tgt_lang
        translator.doubts = Doubts(origin.lines or LineFacts())
        return translator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, if there are any; the next translation starts new ones."""
        self._decoder.close()

    def translate(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None
    ) -> Iterator[str]:
        """The best translation of each line, in order.

        Reads `lines` in windows and yields the translations of a window when all of it is
        translated; memory is bounded by the window, and with workers by some windows.

        Args:
            lines: of the source language.
            prefixes: the text that each translation must begin with, one per line; empty for none.

        Raises:
            TypeError: if `lines` is a string and not a list of lines.
            ValueError: if there are more or fewer prefixes than lines, when this is detected.
        """
        found = self.translate_nbest(lines, n_best=1, prefixes=prefixes)
        return (hypotheses[0].text for hypotheses in found)

    def translate_nbest(
        self, lines: Iterable[str], *, n_best: int, prefixes: Iterable[str] | None = None
    ) -> Iterator[list[Translation]]:
        """The `n_best` best translations of each line, best first; there may be fewer.

        With sampling (`decode.sample`), translations are in sampling order, and equal ones are
        repeated. Samples depend on `decode.seed` and on the number of the line, from 1.

        Raises:
            TypeError: if `lines` is a string and not a list of lines.
        """
        _refuse_one_text(lines, prefixes)
        if prefixes is None:
            prefixes = itertools.repeat("")
            pairs = zip(lines, prefixes, strict=False)
        else:
            pairs = zip(lines, prefixes, strict=True)
        cut = windows(pairs, size=lambda pair: len(pair[0]) + len(pair[1]))
        unzipped = (
            Window(first, [line for line, _ in window], [prefix for _, prefix in window])
            for first, window in cut
        )
        return (
            translations
            for _, found in self.translate_windows(unzipped, n_best=n_best)
            for translations in found
        )

    def translate_window(
        self,
        lines: list[str],
        *,
        first_line: int = 1,
        n_best: int = 1,
        prefixes: list[str] | None = None,
    ) -> list[list[Translation]]:
        """Translate lines all at once; `first_line` is the number of the first.

        It is used in messages, and samples depend on it.
        """
        window = Window(first_line, lines, prefixes)
        ((_, found),) = self.translate_windows([window], n_best=n_best)
        return found

    def translate_windows(
        self,
        windows: Iterable[Window],
        *,
        n_best: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> Iterator[tuple[Window, list[list[Translation]]]]:
        """Each window with the `n_best` best translations of each of its lines, in order.

        With workers it reads windows in advance: at least one, and at most until each worker has
        two batches, so that no worker waits at the end of a window; never more windows than such
        batches. An empty window means that there may be no more input for a while: everything is
        translated and yielded before the next window is read. It is yielded as an empty window.

        An error of `windows` is raised after the windows before it.

        Args:
            windows: of lines.
            n_best: number of translations of a line.
            progress: called with the number of newly translated lines of the current window; this
                can be a fraction if the sentences of a line are translated one by one.
        """
        begun: deque[_Begun] = deque()
        source = iter(windows)
        failure: Exception | None = None
        try:
            while True:
                try:
                    window = next(source, None)
                except Exception as error:
                    failure, window = error, None
                if window is not None:
                    begun.append(self._begin(window, n_best=n_best))
                while begun and (
                    window is None
                    or not window.lines
                    or len(begun) > self._decoder.capacity
                    or self._has_enough_besides(begun[0])
                ):
                    # It is in `begun` until it is complete, so that an error cancels its batches.
                    found = self._finish(begun[0], progress)
                    yield begun.popleft().window, found
                if failure is not None:
                    raise failure
                if window is None:
                    return
        finally:
            for left in begun:
                self._decoder.forget(left.pending)

    def _has_enough_besides(self, first: _Begun) -> bool:
        """Whether the workers stay busy while this waits for a window."""
        return all(item.is_done for item in first.pending) or self._decoder.is_busy_without(
            first.pending
        )

    def _begin(self, window: Window, *, n_best: int) -> _Begun:
        if self.trees is not None and any(window.prefixes or []):
            raise MtkitError("a parser has no forced beginnings")
        if window.prefixes is not None and len(window.prefixes) != len(window.lines):
            raise ValueError(f"{len(window.lines)} lines, but {len(window.prefixes)} prefixes")
        cut = self._cutter.cut(window)
        texts, prefixes = cut.window.lines, cut.window.prefixes
        numbers = list(map(cut.window.number_of, range(len(texts))))
        # Sentences of a line are sampled independently, the first as a whole line would be.
        groups = itertools.groupby(numbers)
        draws = [n + place * NEXT_SENTENCE for n, same in groups for place, _ in enumerate(same)]
        words = [] if self.trees is None else list(map(self.trees.words, texts))
        sources = texts if self.trees is None else list(map(model_source, words))
        encoded = self._encode_sources(sources, numbers)
        forced: list[list[int]] = [[]] * len(encoded)
        if prefixes is not None:
            forced = self.tokenizer.encode_batch(prefixes)
        terms = self._demanded(texts, encoded)
        results = [[Translation("", 0.0, 0.0)] for _ in encoded]
        if self.trees is None:
            for i, text in enumerate(texts):
                if not (has_words(text) or forced[i] or terms[i]):
                    # It is copied; a model would invent words for it.
                    encoded[i], results[i] = [], [Translation(text.strip(), 0.0, 0.0)]
        rows = self._planned(encoded, n_best=n_best)
        batches = [
            DecodeBatch(
                [encoded[i] for i in batch],
                [forced[i] for i in batch],
                [draws[i] for i in batch],
                n_best=n_best,
                terms=[terms[i] for i in batch] if any(terms[i] for i in batch) else None,
                words=[len(words[i]) for i in batch] if words else [],
            )
            for batch in rows
        ]
        return _Begun(window, cut, results, rows, self._decoder.begin(batches), terms, words)

    @property
    def _cutter(self) -> SentenceCutter:
        splits = self.trees is None and self.config.split_sentences is not False
        return SentenceCutter(self.src_lang, self.tgt_lang, splits=splits)

    def _demanded(self, texts: Sequence[str], encoded: Sequence[list[int]]) -> list[list[Demand]]:
        """The target terms that the translation of each text must contain."""
        if self.glossary is None:
            return [[]] * len(texts)
        limit = self.config.max_source_tokens - 1
        # Of a text that was cut, only what is left is translated.
        return [
            self.glossary.demands(
                text if len(ids) < limit else self.src_tokenizer.decode(ids),
                self.src_tokenizer,
                prefix=self.src_prefix,
            )
            for text, ids in zip(texts, encoded, strict=True)
        ]

    def _planned(self, encoded: Sequence[list[int]], *, n_best: int) -> list[list[int]]:
        """Which sentences make a batch, by their index; those without text are in none."""
        slots = hypotheses_of(self.config, n_best)
        group = [i for i, ids in enumerate(encoded) if ids]
        if not group:
            return []
        lengths = np.array([len(encoded[i]) + 1 for i in group])
        budget = self.config.batch_tokens * USUAL_HYPOTHESES // max(USUAL_HYPOTHESES, slots)
        if self._decoder.capacity > 1:
            # A small amount of work is also divided among the workers.
            budget = min(budget, max(SMALLEST_PART, int(lengths.sum()) // self._decoder.capacity))
        budget = max(budget, int(lengths.max()))
        # The longest first, so that no worker is left with a long batch at the end.
        batches = plan_batches(lengths, lengths, budget=budget)[::-1]
        return [[group[i] for i in batch] for batch in batches]

    def _finish(
        self, begun: _Begun, progress: Callable[[float], None] | None
    ) -> list[list[Translation]]:
        sentences = begun.cut.window
        for rows, pending in zip(begun.rows, begun.pending, strict=True):
            for index, translations in zip(rows, self._decoder.finish(pending), strict=True):
                # Constraints can leave a line without any translation.
                nothing = Translation(
                    "", 0.0, 0.0, finished=False, missing=tuple(d.term for d in begun.terms[index])
                )
                begun.results[index] = translations or [nothing]
            if progress is not None:
                progress(len(rows) * len(begun.window.lines) / len(begun.results))
        results = begun.results
        if self.trees is not None:
            return list(map(restored, begun.words, results))
        for index, (best, *_) in enumerate(results):
            number = sentences.number_of(index)
            self.doubts.check(number, sentences.lines[index], best.text)
            if best.missing:
                log.warning(
                    "line %d: the translation is without %s, which the glossary demands",
                    number,
                    ", ".join(map(repr, best.missing)),
                )
        return self._cutter.joined(begun.cut, results)

    def align(
        self,
        sources: Iterable[str],
        translations: Iterable[str],
        *,
        reverse: Translator | None = None,
        method: Method = "grow-diag-final-and",
    ) -> Iterator[Alignment]:
        """The word alignment of each pair of lines, in order; it is computed in this process.

        Words are the parts of a line between white space, so indices and positions are those of
        the given text. A pair with a blank line has no links.

        Args:
            sources, translations: lines.
            reverse: with a model of the other direction, for better alignments.
            method: joins the links to the best source words and those to the best target words.

        Raises:
            TypeError: if one of them is a string and not a list of lines.
            ValueError: for an unknown method, a reverse model of other languages, or, when this is
                detected, if one side has more lines than the other.
        """
        _refuse_one_text(sources, translations)
        if reverse is not None and (reverse.tgt_lang, reverse.src_lang) != (
            self.src_lang,
            self.tgt_lang,
        ):
            raise ValueError(
                f"reverse: translates {reverse.src_lang} to {reverse.tgt_lang}, "
                f"not {self.tgt_lang} to {self.src_lang}"
            )
        aligner, other = self.aligner(), None if reverse is None else reverse.aligner()
        pairs = zip(sources, translations, strict=True)
        return (
            alignment
            for first, window in windows(pairs, size=lambda pair: len(pair[0]) + len(pair[1]))
            for alignment in aligner.align(
                *map(list, zip(*window, strict=True)),
                reverse=other,
                method=method,
                numbers=range(first, first + len(window)),
            )
        )

    @property
    def is_ensemble(self) -> bool:
        """Whether there are several models."""
        return len(self._models) > 1

    def aligner(self, heads: Sequence[AlignmentHead] | None = None) -> Aligner:
        """The aligner of these models.

        Args:
            heads: of each model; by default those that its run was tuned to, or `default_heads`.
        """
        of_models = [heads] * len(self._models) if heads is not None else None
        if of_models is None:
            of_models = list(map(heads_of, self._runs, self._models))
        return Aligner(
            self._models,
            of_models,
            self.vocabularies,
            device=self.device,
            batch_tokens=self.config.batch_tokens,
            max_tokens=self.config.max_source_tokens,
            src_prefix=self.src_prefix,
        )

    def score_given(self, sources: Iterable[str], translations: Iterable[str]) -> Iterator[Scored]:
        """The log-probabilities of given translations, line by line, in order.

        A translation of the model itself has the score that `translate_nbest` reported, if it is
        segmented into the same subwords and ended with EOS. If both lines are blank, the score is
        0, as there.

        Raises:
            TypeError: if one of them is a string and not a list of lines.
            ValueError: if one has more lines than the other, when this is detected.
        """
        _refuse_one_text(sources, translations)
        return self._score_pairs(zip(sources, translations, strict=True))

    def _score_pairs(self, pairs: Iterator[tuple[str, str]]) -> Iterator[Scored]:
        for first, window in windows(pairs, size=lambda pair: len(pair[0]) + len(pair[1])):
            yield from self._score_window(*map(list, zip(*window, strict=True)), first_line=first)

    def _score_window(
        self, sources: list[str], translations: list[str], *, first_line: int
    ) -> list[Scored]:
        if self.trees is not None:
            sources = list(map(self.trees.source, sources))
            translations = list(map(self.trees.target, translations, itertools.count(first_line)))
        src = self._encode_sources(sources, range(first_line, first_line + len(sources)))
        tgt = self.tokenizer.encode_batch(translations)
        results = [Scored((), (), 0.0, 0.0)] * len(src)
        wanted = np.array([i for i in range(len(src)) if src[i] or tgt[i]], dtype=np.int64)
        if not len(wanted):
            return results
        lengths = [np.array([len(side[i]) + 1 for i in wanted]) for side in (src, tgt)]
        longest = max(int(side.max()) for side in lengths)
        for rows in plan_batches(*lengths, budget=max(self.config.batch_tokens, longest)):
            batch = [int(i) for i in wanted[rows]]
            found = self._score_batch([src[i] for i in batch], [tgt[i] for i in batch])
            for index, scored in zip(batch, found, strict=True):
                results[index] = scored
        return results

    def _encode_sources(self, lines: list[str], numbers: Iterable[int]) -> list[list[int]]:
        """Ids of each line without EOS, with the language tag of the target if there is one.

        Longer lines are cut to the limit, with a warning. A blank line has no ids.
        """
        encoded = self.src_tokenizer.encode_batch(lines)
        for line, ids in zip(lines, encoded, strict=True):
            if not line.strip():
                # Some spaces, such as U+0085, are subwords to the tokenizer.
                ids.clear()
            elif ids:
                ids[:0] = self.src_prefix
        limit = self.config.max_source_tokens - 1
        for number, ids in zip(numbers, encoded, strict=True):
            if len(ids) > limit:
                log.warning(
                    "line %d: cut from %d to %d tokens (decode.max_source_tokens)",
                    number,
                    len(ids) + 1,
                    limit + 1,
                )
                del ids[limit:]
        return encoded

    def _score_batch(self, sources: list[list[int]], targets: list[list[int]]) -> list[Scored]:
        # Sums of many tokens are computed in float64.
        found = given_log_probs(self._models, sources, targets, device=self.device)
        results = []
        for ids, log_probs in zip(targets, found, strict=True):
            log_prob = sum(log_probs)
            pieces = tuple(self.tokenizer.piece(i) for i in [*ids, EOS_ID])
            penalty = length_penalty(
                len(log_probs), self.config.length_penalty, self.config.length_penalty_form
            )
            score = log_prob / penalty
            results.append(Scored(pieces, tuple(log_probs), log_prob, score))
        return results


def _refuse_one_text(*given: Iterable[str] | None) -> None:
    """Refuse a string, because each of its characters would be translated as a line."""
    for lines in given:
        if isinstance(lines, str | bytes):
            raise TypeError(f"pass a list of lines, such as [text], not {type(lines).__name__}")


@dataclass(frozen=True)
class _Begun:
    """A window that is being translated.

    Attributes:
        window: its lines.
        cut: their sentences.
        results: the results of each sentence; those of a finished batch are filled in.
        rows: for each batch, the indices of its sentences.
        pending: the batches.
        terms: the target terms that each result must contain.
        words: of each sentence, for a parser.
    """

    window: Window
    cut: CutWindow
    results: list[list[Translation]]
    rows: list[list[int]]
    pending: list[PendingBatch]
    terms: list[list[Demand]]
    words: list[list[str]]
