"""Translates lines of text, in order and in bounded memory.

One input line gives exactly one output line, and a translation does not depend on the lines around
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtkit.base.arguments import ArgumentError, checks_arguments
from mtkit.base.memory import memory_explained
from mtkit.base.sentences import LineFacts
from mtkit.config import BeamSize, Count, DecodeConfig
from mtkit.run_folder import Run
from mtkit.translate.choosing import choose
from mtkit.translate.decoding import Backend
from mtkit.translate.doubts import IncompleteTranslations
from mtkit.translate.loading import LoadedRuns, check_combination, choose_direction, load_runs
from mtkit.translate.native_decoder import Native
from mtkit.translate.reading import Window, pair_windows
from mtkit.translate.requests import PendingWindow, Translation
from mtkit.translate.sentence_reader import SentenceReader

if TYPE_CHECKING:
    import torch

    from mtkit.align import Aligner, Alignment, AlignmentHead, Method
    from mtkit.model import Transformer
    from mtkit.translate.glossary.terms import Glossary


class Translator(AbstractContextManager["Translator"]):
    """Translates lines of text with a trained model, or with an ensemble.

    It can be used as a context manager, which closes it. `reader` and `decoder` are for a caller
    that makes the batches itself.

    Args:
        runs: what it needs of its runs, besides their weights.
        backend: decodes with their weights.

    Attributes:
        checkpoint: which checkpoint of each run it has.
        engine: the engine, its precision and its search, in words.
        precision: of results, prefixed with the engine if that changes them.

    Raises:
        MtkitError: if a glossary is combined with sampling or with a parser; by its methods for an
            argument of another type, as a string that is not in a list.
    """

    def __init__(
        self, runs: LoadedRuns, backend: Backend, *, glossary: Glossary | None = None
    ) -> None:
        check_combination(runs.config, runs.task, glossary)
        self.runs, self.config, self.task = runs, runs.config, runs.task
        self.vocabularies = runs.vocabularies
        self.src_tokenizer, self.tokenizer = runs.vocabularies
        self.src_lang, self.tgt_lang = runs.src_lang, runs.tgt_lang
        self.src_prefix = list(runs.src_prefix)
        self.decoder = backend
        self.checkpoint, self.engine = backend.checkpoint, backend.summary
        self.precision = backend.precision
        self.glossary = glossary
        # When they are known; variants share the list.
        self._heads: list[list[AlignmentHead]] = []

    @classmethod
    @checks_arguments
    @memory_explained("loading the model; translate on a machine with more memory")
    def load(
        cls,
        run: Run | Path | str | Sequence[Run | Path | str],
        *,
        checkpoint: str | None = None,
        config: DecodeConfig | None = None,
        device: str = "auto",
        prepared: bool = True,
        workers: Count | None = None,
        glossary: Glossary | Path | str | None = None,
        tokenized: bool = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        linearised: bool = False,
        exact: bool = True,
    ) -> Translator:
        """The translator of a run folder, or of several with the same vocabulary.

        The native engine decodes if it can (`decode.engine`), and otherwise PyTorch.

        Args:
            run: several make an ensemble, which uses the mean of their probabilities.
            checkpoint: `last`, `best`, a step or `average:N`; by default the average set in the
                run's configuration.
            config: by default that of the first run.
            device: `auto`, `cpu` or `cuda`.
            prepared: pack the weights for fast decoding; False leaves the model as trained.
            workers: threads of the native engine, by default one per core; results are equal.
                PyTorch translates in this process, and warns if it was given more than 1.
            glossary: terms that translations must contain, or their file.
            tokenized: of a parser: whether lines are words already, separated by spaces.
            src_lang, tgt_lang: the languages, of a multilingual model. It needs the target language
                if it has several.
            linearised: of a parser: read words with spaces, return trees that are not repaired.
            exact: `decode.precision` auto is fp32, so that results do not depend on the CPU, and
                `decode.stop` auto is exact. If False, bf16 where it is faster, and likely.

        Raises:
            MtkitError: if the run, the checkpoint or the device does not exist, if the runs cannot
                form an ensemble or do not have the languages, or if the file is not a glossary.
        """
        given = [run] if isinstance(run, Run | Path | str) else run
        runs = [item if isinstance(item, Run) else Run.open(Path(item)) for item in given]
        loaded = load_runs(
            runs,
            config,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            tokenized=tokenized,
            linearised=linearised,
            exact=exact,
        )
        if isinstance(glossary, Path | str):
            from mtkit.translate.glossary.terms import Glossary

            glossary = Glossary.read(Path(glossary), (loaded.src_lang, loaded.tgt_lang))
        choice = choose(
            loaded.config,
            device=device,
            exact=exact,
            has_terms=bool(glossary),
            n_runs=len(runs),
            prepared=prepared,
        )
        backend: Backend
        if choice.search == "native":
            backend = Native.load(loaded, checkpoint, choice, threads=workers)
        else:
            from mtkit.translate.pytorch.models import load_torch

            backend = load_torch(loaded, checkpoint, choice, device=device, workers=workers)
        return cls(loaded, backend, glossary=glossary)

    @property
    def line_facts(self) -> LineFacts:
        """Facts about the training lines of the first run, if they are known."""
        return next((run.manifest.data.lines for run in self.runs.folders), None) or LineFacts()

    @property
    def models(self) -> Sequence[Transformer]:
        """The models; if the native engine decodes, PyTorch loads them when they are asked for."""
        return self.decoder.models

    @property
    def model(self) -> Transformer:
        """The first model."""
        return self.models[0]

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        return self.decoder.device

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads of the native engine; the next translation starts new ones."""
        self.decoder.close()

    def translate(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None
    ) -> Iterator[str]:
        """The best translation of each line, in order.

        Reads `lines` in windows and yields the translations of a window when all of it is
        translated; memory is bounded by the window, and with threads by some windows.

        Args:
            lines: of the source language.
            prefixes: the text that each translation must begin with, one per line; empty for none.

        Raises:
            MtkitError: if there are more or fewer prefixes than lines, when this is detected.
        """
        return (best.text for best, *_ in self.translate_nbest(lines, n_best=1, prefixes=prefixes))

    @checks_arguments
    def translate_nbest(
        self, lines: Iterable[str], *, n_best: BeamSize, prefixes: Iterable[str] | None = None
    ) -> Iterator[list[Translation]]:
        """The `n_best` best translations of each line, best first; there may be fewer.

        With sampling (`decode.sample`), translations are in sampling order, and equal ones are
        repeated. Samples depend on `decode.seed` and on the number of the line, from 1.
        """
        given = itertools.repeat("") if prefixes is None else prefixes
        cut = itertools.starmap(Window, pair_windows(lines, given))
        return (
            translations
            for _, of_window in self.translate_windows(cut, n_best=n_best)
            for translations in of_window
        )

    def translate_windows(
        self,
        text_windows: Iterable[Window],
        *,
        n_best: int = 1,
        progress: Callable[[float], object] | None = None,
        doubts: IncompleteTranslations | None = None,
    ) -> Iterator[tuple[Window, list[list[Translation]]]]:
        """Each window with the `n_best` best translations of each of its lines, in order.

        With threads it reads windows in advance. An empty window means that there may be no more
        input for a while: everything is translated and yielded before the next window is read. It
        is yielded as an empty window. An error of `text_windows` is raised after those before it.

        Args:
            progress: called with the number of newly translated lines of the current window; this
                can be a fraction if the sentences of a line are translated one by one.
            doubts: collects the lines whose translations are probably incomplete.
        """
        planned = (self._planned(window, n_best, doubts) for window in text_windows)
        with closing(self.decoder.pipelined(planned)) as pipelined:
            for pending in pipelined:
                yield pending.window, self._finish(pending, progress, doubts)

    def _planned(
        self, window: Window, n_best: int, doubts: IncompleteTranslations | None = None
    ) -> PendingWindow:
        """Encode the sentences of a window, and sort them into batches; nothing is decoded yet."""
        if window.prefixes is not None and len(window.prefixes) != len(window.lines):
            raise ValueError(f"{len(window.lines)} lines, but {len(window.prefixes)} prefixes")
        lines = self.reader.read(window, doubts)
        sentences = [sentence for line in lines for sentence in line if sentence.ids]
        return PendingWindow(window, lines, self.decoder.plan(sentences, n_best))

    @checks_arguments
    def variant(
        self,
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        glossary: Glossary | None = None,
        config: DecodeConfig | None = None,
    ) -> Translator:
        """A translator with the same weights for another direction, or with a glossary.

        `config` may have other settings of how lines are read; those of the search stay.
        With a glossary PyTorch decodes, and the first such variant loads the model for it.

        Raises:
            MtkitError: if the run does not have the languages, or cannot be combined with a
                glossary.
        """
        runs = self.runs if config is None else replace(self.runs, config=config)
        if src_lang is not None or tgt_lang is not None:
            runs = runs.between(
                *choose_direction(runs.folders[0], runs.vocabularies, src_lang, tgt_lang)
            )
        backend = self.decoder
        if glossary is None:
            glossary = self.glossary
        else:
            backend = backend.with_terms
        other = Translator(runs, backend, glossary=glossary)
        other._heads = self._heads
        return other

    @property
    def reader(self) -> SentenceReader:
        """Makes the sentences that `decoder` decodes of lines, and lines of their translations."""
        return SentenceReader(self.runs, self.glossary)

    def _finish(
        self,
        pending: PendingWindow,
        progress: Callable[[float], object] | None,
        doubts: IncompleteTranslations | None,
    ) -> list[list[Translation]]:
        """Decode the batches of a window, or wait for threads; join the sentences of each line."""
        by_number: dict[int, list[Translation]] = {}
        count = sum(map(len, pending.lines))
        for batch in pending.batches:
            translated = self.decoder.finish(batch)
            for sentence, translations in zip(batch.sentences, translated, strict=True):
                by_number[sentence.number] = translations
            if progress is not None:
                progress(len(batch.sentences) * len(pending.window.lines) / count)
        reader = self.reader
        return [
            reader.translated_line(line, [by_number.get(s.number) for s in line], doubts)
            for line in pending.lines
        ]

    @checks_arguments
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
            reverse: with a model of the other direction, for better alignments.
            method: joins the links to the best source words and those to the best target words.

        Raises:
            MtkitError: for an unknown method, a reverse model of other languages, or, when this is
                detected, if one side has more lines than the other.
        """
        own = self.src_lang, self.tgt_lang
        if reverse is not None and (reverse.tgt_lang, reverse.src_lang) != own:
            raise ArgumentError(
                f"reverse: translates {reverse.src_lang} to {reverse.tgt_lang}, "
                f"not {self.tgt_lang} to {self.src_lang}"
            )
        aligner, other = self.aligner(), None if reverse is None else reverse.aligner()
        return (
            alignment
            for first, *pair in pair_windows(sources, translations)
            for alignment in aligner.align(
                *pair, reverse=other, method=method, numbers=range(first, first + len(pair[0]))
            )
        )

    def aligner(self, heads: Sequence[AlignmentHead] | None = None) -> Aligner:
        """The aligner of these models, by given heads, or those of the run, which are read once."""
        from mtkit.align import Aligner, heads_of

        if heads is None and not self._heads:
            runs: list[Run | None] = [*self.runs.folders] or [None] * len(self.models)
            self._heads += map(heads_of, runs, self.decoder.model_configs)
        of_models = self._heads if heads is None else [heads] * len(self.decoder.model_configs)
        attention = self.decoder.attention(of_models)
        return Aligner(
            attention,
            self.vocabularies,
            self.config.batch_tokens_on(attention.device_type),
            limit=self.runs.source_limit,
            src_prefix=self.src_prefix,
            tgt_prefix=self.runs.tgt_prefix,
        )

    @checks_arguments
    def score_given(
        self, sources: Iterable[str], translations: Iterable[str]
    ) -> Iterator[Translation]:
        """Given translations with their log-probabilities, line by line, in order.

        A translation of the model itself has the score that `translate_nbest` reported, if it is
        segmented into the same subwords and ended with EOS. If both lines are blank, the score is
        0, as there.

        Raises:
            MtkitError: if one has more lines than the other, when this is detected.
        """
        from mtkit.translate.pytorch.scoring import score_pairs

        return score_pairs(self.models, self.reader, sources, translations)
