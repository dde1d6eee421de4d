"""What `mtkit score` is asked for, and the test sets that runs are scored on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mtkit.base.errors import MtkitError
from mtkit.cli.options import DecodeOptions

if TYPE_CHECKING:
    from mtkit.data import DirectionText, PreparedData
    from mtkit.run_folder import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoreOptions:
    """The values of the options, by their names in the program; `decode` has those of a run."""

    hypotheses: tuple[Path, ...]
    references: tuple[Path, ...]
    run_paths: tuple[Path, ...]
    data_path: Path | None
    split: Literal["valid", "test"]
    metrics: tuple[Literal["bleu", "chrf", "ter", "parseval"], ...]
    protocol: str
    src_lang: str | None
    tgt_lang: str | None
    paired: bool
    sentence: bool
    worst_first: bool
    as_json: bool
    decode: DecodeOptions

    @classmethod
    def parse(cls, **values: Any) -> ScoreOptions:
        """From the values of all options."""
        own = {one.name: values.pop(one.name) for one in fields(cls) if one.name != "decode"}
        return cls(**own, decode=DecodeOptions.parse(**values))


def is_multilingual(run: Run) -> bool:
    """Whether the sources of a run begin with the tag of a language."""
    return bool(run.tokenizers().src.language_tags)


def common_texts(runs: Sequence[Run], options: ScoreOptions) -> dict[str, DirectionText]:
    """The sentences and references that all runs are scored on.

    Returns:
        The text of each direction that is asked for, by its name, which is empty if the data has
        only one.

    Raises:
        MtkitError: if the runs have other test sets, or data for another task.
    """
    found: list[dict[str, DirectionText]] = []
    for run in runs:
        data = _data_of(run, options.data_path)
        if data.task != run.manifest.data.task:
            raise MtkitError(
                f"{data.path}: is data for {data.task}, and {run.path} is for "
                f"{run.manifest.data.task}; give another --data"
            )
        texts = data.texts(options.split)
        if data.directions:
            found.append(_wanted(data, texts, options, has_notes=not found))
        else:
            src_lang = options.src_lang or texts[0].src_lang
            tgt_lang = options.tgt_lang or texts[0].tgt_lang
            found.append({"": texts[0]._replace(src_lang=src_lang, tgt_lang=tgt_lang)})
        first, last = ([(one.src, one.tgt) for one in found[i].values()] for i in (0, -1))
        if first != last:
            raise MtkitError(
                f"{run.path} was trained on data with another {options.split} text than "
                f"{runs[0].path}, so their scores cannot be compared; give --data to translate the "
                "same text with all"
            )
    return found[0]


def _wanted(
    data: PreparedData, texts: Sequence[DirectionText], options: ScoreOptions, *, has_notes: bool
) -> dict[str, DirectionText]:
    """The texts of the directions that are asked for, by their names."""
    by_name = {f"{text.src_lang}-{text.tgt_lang}": text for text in texts}
    names = [
        one.name
        for one in data.directions
        if options.src_lang in (None, one.src_lang) and options.tgt_lang in (None, one.tgt_lang)
    ]
    lacking = [name for name in names if name not in by_name]
    if len(lacking) == len(names):
        raise MtkitError(
            f"{data.path}: no {options.split} set for this direction; "
            f"available: {', '.join(by_name)}"
        )
    if lacking and has_notes:
        log.info(
            "%s: no %s set for %s, so not scored", data.path, options.split, ", ".join(lacking)
        )
    return {name: by_name[name] for name in names if name in by_name}


def _data_of(run: Run, path: Path | None) -> PreparedData:
    """The data at a path, or else the data that a run was trained on, unchanged since then."""
    from mtkit.data import PreparedData

    if path is not None:
        return PreparedData.open(path)
    if run.manifest.imported is not None:
        raise MtkitError(
            f"{run.path}: was imported, so it has no test set; give --data, or HYP and --reference"
        )
    try:
        data = PreparedData.open(run.data_path)
    except MtkitError as error:
        raise MtkitError(
            f"the test set of {run.path} is missing ({error}); give --data, or HYP and --reference"
        ) from error
    if data.fingerprint != run.data_fingerprint:
        raise MtkitError(
            f"{data.path}: was prepared anew after {run.path} was trained on it; "
            "give --data to score on it nevertheless"
        )
    return data
