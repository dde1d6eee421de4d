"""What `score`, `score-trees` and `compare` share: the texts of runs, and scores of lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from mtkit.base.errors import MtkitError
from mtkit.cli.options import DecodeOptions, data_of, lines_of, name_of

if TYPE_CHECKING:
    from mtkit.data import PreparedData
    from mtkit.run_folder import Run
    from mtkit.score import ScoredText, SegmentMetric
    from mtkit.translate import Translation, Translator

log = logging.getLogger(__name__)

# Options about a run that translates, but for --device, which does no harm.
TRANSLATING = (
    *("run_paths", "data_path", "split", "checkpoint", "beam_size", "length_penalty"),
    *("stop", "split_sentences", "engine", "precision", "workers", "batch_tokens"),
)


class TextChoice(NamedTuple):
    """A public test set, or else a text of the data of runs; `advice` is for runs without data."""

    data_path: Path | None
    split: Literal["valid", "test"]
    test_set: str | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None
    advice: str = "or HYP and --reference"

    @classmethod
    def taken_from(cls, values: dict[str, Any], **more: Any) -> TextChoice:
        """The choice of these options, which are removed from the values of all options."""
        return cls(**{name: values.pop(name) for name in cls._fields if name in values}, **more)


def texts_of(runs: Sequence[Run], choice: TextChoice) -> dict[str, ScoredText]:
    """The text of each chosen direction, by its name, which is empty if there is only one.

    Raises:
        MtkitError: if the runs have other test sets, or data for another task.
    """
    if choice.test_set is not None:
        return {"": _public_text(runs, choice.test_set, choice)}
    by_run: list[dict[str, ScoredText]] = []
    for run in runs:
        data = _data_of(run, choice)
        if data.task != run.manifest.data.task:
            raise MtkitError(
                f"{data.path}: is data for {data.task}, and {run.path} is for "
                f"{run.manifest.data.task}; give another --data"
            )
        by_run.append(_texts_of_data(data, choice, has_notes=not by_run))
        first, last = ([text[2:5] for text in by_run[i].values()] for i in (0, -1))
        if first != last:
            raise MtkitError(
                f"{run.path} was trained on data with another {choice.split} text than "
                f"{runs[0].path}, so their scores cannot be compared; give --data to translate the "
                "same text with all"
            )
    return by_run[0]


def _public_text(runs: Sequence[Run], wanted: str, choice: TextChoice) -> ScoredText:
    """A test set of sacreBLEU; if it names no direction, in that of the options or of a run."""
    from mtkit.base.language_id import is_same_language
    from mtkit.score import find_test_set

    src_lang, tgt_lang = choice.src_lang, choice.tgt_lang
    if runs:
        own = runs[0].manifest.data
        src_lang, tgt_lang = src_lang or own.src_lang, tgt_lang or own.tgt_lang
    public = find_test_set(wanted, src_lang=src_lang, tgt_lang=tgt_lang)
    is_known = runs and src_lang and tgt_lang and not is_multilingual(runs[0])
    if is_known and not all(map(is_same_language, (src_lang or "", tgt_lang or ""), public[:2])):
        log.warning(
            "%s translates from %s to %s, and the test set is %s",
            *(runs[0].path, src_lang, tgt_lang, public.test_set),
        )
    return public


def _texts_of_data(
    data: PreparedData, choice: TextChoice, *, has_notes: bool
) -> dict[str, ScoredText]:
    from mtkit.score import ScoredText
    from mtkit.translate import known_code

    texts = [
        ScoredText(text.src_lang, text.tgt_lang, text.src, [text.tgt], near=text.near)
        for text in data.texts(choice.split)
    ]
    if not data.directions:
        (text,) = texts
        return {
            "": text._replace(
                src_lang=choice.src_lang or text.src_lang, tgt_lang=choice.tgt_lang or text.tgt_lang
            )
        }
    by_name = {f"{text.src_lang}-{text.tgt_lang}": text for text in texts}
    src_lang, tgt_lang = (
        code and known_code(code, [getattr(direction, side) for direction in data.directions])
        for side, code in (("src_lang", choice.src_lang), ("tgt_lang", choice.tgt_lang))
    )
    names = [
        direction.name
        for direction in data.directions
        if src_lang in (None, direction.src_lang) and tgt_lang in (None, direction.tgt_lang)
    ]
    missing = [name for name in names if name not in by_name]
    if len(missing) == len(names):
        raise MtkitError(
            f"{data.path}: no {choice.split} set for this direction; "
            f"available: {', '.join(by_name)}"
        )
    if missing and has_notes:
        log.info("%s: no %s set for %s, so not scored", data.path, choice.split, ", ".join(missing))
    return {name: by_name[name] for name in names if name in by_name}


def _data_of(run: Run, choice: TextChoice) -> PreparedData:
    """The chosen data, or else the data that a run was trained on, unchanged since then."""
    from mtkit.data import PreparedData

    if choice.data_path is not None:
        return PreparedData.open(choice.data_path)
    if run.manifest.imported is not None:
        raise MtkitError(
            f"{run.path}: was imported, so it has no test set; give --data, {choice.advice}"
        )
    return data_of(run, advice=f"give --data, {choice.advice}")


def is_multilingual(run: Run) -> bool:
    """Whether the sources of a run begin with the tag of a language."""
    return bool(run.tokenizers().src.language_tags)


def translated(
    run: Run,
    text: ScoredText,
    decode: DecodeOptions,
    *,
    has_directions: bool,
    on_loaded: Callable[[Translator], None] = lambda _: None,
) -> list[Translation]:
    """The best translation of each line of a text by a run, with a progress bar.

    A line is translated as a whole unless splitting is asked for, so that scores can be compared
    with published ones. The lines for a parser are words already. `on_loaded` is called with the
    translator before it translates.
    """
    from mtkit.base.sentences import LineFacts
    from mtkit.cli.progress import shown_progress
    from mtkit.translate import IncompleteTranslations, Window, windows

    # A bilingual model is not asked for languages, because they may be codes of regions.
    languages: dict[str, Any] = {}
    if has_directions or is_multilingual(run):
        languages = {"src_lang": text.src_lang or None, "tgt_lang": text.tgt_lang or None}
    splits = decode.setting(run, "split_sentences") is True
    whole = replace(decode, changes={**decode.changes, "split_sentences": splits})
    is_parser = run.manifest.data.task == "parsing"
    # Of lengths nothing is known: only lines without a translation are named.
    doubts = IncompleteTranslations(LineFacts(shortest=0))
    translations: list[Translation] = []
    with (
        whole.load([run], tokenized=is_parser, **languages) as translator,
        shown_progress(len(text.src)) as progress,
    ):
        on_loaded(translator)
        given = (Window(first, lines) for first, lines in windows(text.src, size=len))
        for _, of_window in translator.translate_windows(
            given, progress=progress.advance, doubts=doubts
        ):
            translations += [best for best, *_ in of_window]
            progress.finish(len(translations))
    doubts.report()
    return translations


def segment_metrics(
    segment_scores: Sequence[tuple[str, Path]],
    systems: Sequence[tuple[str, int]],
    *,
    lower_is_better: Sequence[str],
) -> list[SegmentMetric]:
    """The metrics of `--segment-scores`, for systems given by name and number of lines."""
    from mtkit.score import SegmentMetric, parse_scores

    files: dict[str, list[Path]] = {}
    for name, path in segment_scores:
        files.setdefault(name, []).append(path)
    for name in lower_is_better:
        if name not in files:
            raise click.UsageError(
                f"--lower-is-better {name}: requires --segment-scores {name}=FILE"
            )
    for name, paths in files.items():
        if len(paths) != len(systems):
            raise click.UsageError(
                f"--segment-scores {name}: give one FILE for each system, in their order "
                f"(systems: {len(systems)}, files: {len(paths)})"
            )
    return [
        SegmentMetric(
            name,
            [
                parse_scores(lines_of(path), file=name_of(path), name=name, text=text, count=count)
                for path, (text, count) in zip(paths, systems, strict=True)
            ],
            lower_is_better=name in lower_is_better,
        )
        for name, paths in files.items()
    ]
