"""What a translator needs of its run, or of the runs of an ensemble, besides their weights."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtkit.base.errors import MtkitError
from mtkit.base.folders import is_unfinished
from mtkit.config import DecodeConfig
from mtkit.parsing import Task
from mtkit.run_folder import Run
from mtkit.tokenizer import Vocabularies

if TYPE_CHECKING:
    from mtkit.translate.glossary.terms import Glossary

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedRuns:
    """What a translator needs of its runs, if there are any, besides their weights.

    `split_sentences` is decided by the training data. The prefixes are ids that every source and
    every translation begins with, language tags. Where positions are learned, no source and no
    translation has more than `max_positions` tokens with EOS.
    """

    vocabularies: Vocabularies
    config: DecodeConfig
    task: Task = field(default_factory=Task)
    src_lang: str = ""
    tgt_lang: str = ""
    src_prefix: Sequence[int] = ()
    tgt_prefix: Sequence[int] = ()
    folders: Sequence[Run] = ()
    max_positions: int | None = None

    @property
    def source_limit(self) -> tuple[int, str]:
        """The most tokens of a source, with EOS, and the setting that limits them."""
        limits = [(self.config.max_source_tokens, "decode.max_source_tokens")]
        if self.max_positions is not None:
            limits.append((self.max_positions, "model.max_positions"))
        return min(limits)

    def between(self, src_lang: str | None, tgt_lang: str | None) -> LoadedRuns:
        """The same for these languages, which the runs have, with their tags."""
        prefixes = self.vocabularies.prefixes(src_lang, tgt_lang)
        return replace(
            self,
            src_lang=src_lang or "",
            tgt_lang=tgt_lang or "",
            src_prefix=prefixes.src,
            tgt_prefix=prefixes.tgt,
        )


def load_runs(
    runs: Sequence[Run],
    config: DecodeConfig | None,
    *,
    src_lang: str | None,
    tgt_lang: str | None,
    tokenized: bool,
    linearised: bool,
    exact: bool,
) -> LoadedRuns:
    """Load one run, or those of an ensemble; arguments and errors are as in `Translator.load`."""
    if not runs:
        raise MtkitError("run: give a run folder")
    first = runs[0]
    vocabularies, origin = first.tokenizers(), first.manifest.data
    src_lang, tgt_lang = choose_direction(first, vocabularies, src_lang, tgt_lang)
    config = config or first.config.decode
    if config.split_sentences == "auto":
        config = config.model_copy(update={"split_sentences": origin.has_single_sentences})
    if config.stop == "auto":
        config = config.model_copy(update={"stop": "exact" if exact else "likely"})
    _check_ensemble(runs, vocabularies)
    task = Task()
    if origin.task == "parsing" and not linearised:
        from mtkit.parsing import make_task

        task = make_task(origin.task, vocabularies.tgt, tokenized=tokenized)
    longest = min(filter(None, (run.config.model.max_tokens for run in runs)), default=None)
    loaded = LoadedRuns(vocabularies, config, task, folders=runs, max_positions=longest)
    return loaded.between(src_lang, tgt_lang)


def _check_ensemble(runs: Sequence[Run], vocabularies: Vocabularies) -> None:
    """Refuse runs that do not translate as the first one, which has these vocabularies."""
    first = runs[0]
    for run in runs[1:]:
        if run is not first and not run.tokenizers().is_same(vocabularies):
            raise MtkitError(f"{run.path}: has another vocabulary than {first.path}")
        of_data, of_first = run.manifest.data, first.manifest.data
        same = map(known_code, _languages(run), ([code] for code in _languages(first)))
        if (*same,) != _languages(first) or of_data.task != of_first.task:
            pair, other = (" to ".join(_languages(each)) for each in (run, first))
            raise MtkitError(f"{run.path}: translates {pair}, and {first.path} {other}")


def check_combination(config: DecodeConfig, task: Task, glossary: Glossary | None) -> None:
    """Refuse settings that cannot be combined with a parser or with a glossary."""
    is_parser = task.name == "parsing"
    if is_parser and config.split_sentences is True:
        raise MtkitError("decode.split_sentences: a parser reads one sentence from each line")
    if glossary is not None and is_parser:
        raise MtkitError("a glossary is for translations, and this model is a parser")
    if glossary is not None and (config.sample or config.mbr_samples):
        name = "sample" if config.sample else "mbr_samples"
        raise MtkitError(f"decode.{name}: cannot be combined with a glossary")


@functools.lru_cache(maxsize=64)
def note_weights(run: Run, description: str) -> None:
    """Say once which weights of a run are used, unless its folder is being written."""
    if not is_unfinished(run.path):
        log.info("%s: %s", run.path, description)


def _languages(run: Run) -> tuple[str, str]:
    return run.manifest.data.src_lang, run.manifest.data.tgt_lang


def _listed(codes: Iterable[str], wanted: str | None = None) -> str:
    from mtkit.base.language_id import listed_languages

    return listed_languages(codes, wanted)


def known_code(code: str, codes: Iterable[str]) -> str:
    """The code among these that is meant, such as `deu_Latn` by `de`; else the given one."""
    if code in (codes := [*codes]):
        return code
    from mtkit.base.language_id import find_code

    return find_code(code, codes) or code


def choose_direction(
    run: Run, vocabularies: Vocabularies, src_lang: str | None, tgt_lang: str | None
) -> tuple[str, str]:
    """The languages to translate from and to; the vocabularies are those of the run.

    That of the source is empty if the run has several and none was given, unless sources begin with
    its tag.

    Raises:
        MtkitError: if the run has several languages and none was given, or if it does not have a
            language. Also if a code is empty.
    """
    for option, code in (("--src-lang", src_lang), ("--tgt-lang", tgt_lang)):
        if code == "":
            raise MtkitError(f"{option}: is empty; give a language code, or leave the option out")
    origin = run.manifest.data
    trained = [(direction.src_lang, direction.tgt_lang) for direction in origin.directions]
    tags = vocabularies.src.language_tags
    if not tags:
        for side, wanted, has in (
            ("from", src_lang, origin.src_lang),
            ("to", tgt_lang, origin.tgt_lang),
        ):
            if wanted is not None and has and known_code(wanted, [has]) != has:
                from mtkit.base.language_id import hint

                raise MtkitError(
                    f"{run.path}: translates {origin.src_lang} to {origin.tgt_lang}, and not "
                    f"{side} {wanted}{hint(wanted, ())}"
                )
        return origin.src_lang or src_lang or "", origin.tgt_lang or tgt_lang or ""
    has_both = vocabularies.has_tags_on_both_sides
    # Languages may have a tag, and be only sources of the training data.
    targets = dict.fromkeys(tgt for _, tgt in trained) if has_both and trained else tags
    if tgt_lang is None and len(targets) > 1:
        raise MtkitError(
            f"{run.path}: translates to several languages, {_listed(targets)}; choose one with "
            "--tgt-lang"
        )
    tgt_lang = next(iter(targets)) if tgt_lang is None else known_code(tgt_lang, targets)
    if tgt_lang not in targets:
        raise MtkitError(
            f"{run.path}: does not translate to {tgt_lang}; it has {_listed(targets, tgt_lang)}"
        )
    sources = dict.fromkeys(src for src, tgt in trained if tgt == tgt_lang)
    if src_lang is None and len(sources) != 1 and has_both:
        raise MtkitError(
            f"{run.path}: translates from several languages, {_listed(sources or tags)}; choose "
            "one with --src-lang"
        )
    if src_lang is None:
        return next(iter(sources)) if len(sources) == 1 else "", tgt_lang
    known = {*tags} if has_both else {code for pair in trained for code in pair}
    src_lang = known_code(src_lang, known)
    if known and src_lang not in known:
        raise MtkitError(f"{run.path}: does not know {src_lang}; it has {_listed(known, src_lang)}")
    if trained and src_lang not in sources:
        log.warning(
            "%s: was not trained to translate %s to %s; the quality may be low",
            run.path,
            src_lang,
            tgt_lang,
        )
    elif not trained and src_lang == tgt_lang:
        log.warning("%s: translates %s to itself; give two languages", run.path, src_lang)
    return src_lang, tgt_lang
