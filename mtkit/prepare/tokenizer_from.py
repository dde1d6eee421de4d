"""Vocabularies that exist already: those of a run folder or of a prepared folder.

A model that is trained further needs data in the subwords that it was trained with. Here they are
read, compared with what is asked for, and refused where they do not suit the text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from mtkit.base.errors import MtkitError, encodable
from mtkit.base.files import Record, read_record, sha256_of, shareable_name
from mtkit.base.text import base_language
from mtkit.data import FileFacts, TaskName
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.vocabularies import piece_counts
from mtkit.prepare_config import PrepareConfig, prepare_config
from mtkit.tokenizer import VOCABULARY_FILES, Vocabularies

log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_ADVICE = "give another --tokenizer-from"
# A text has more of its subwords spelled in bytes, or unknown, only if it has another script: in a
# script of the vocabulary these are rare characters, in another one nearly all subwords.
_MOST_UNSEEN = 0.2


class _Languages(Record):
    """The languages of a direction."""

    model_config = ConfigDict(extra="ignore")

    src_lang: str = ""
    tgt_lang: str = ""


class _Origin(_Languages):
    """What a manifest says about the text that a vocabulary is for."""

    directions: list[_Languages] = Field(default_factory=list)
    task: TaskName = "translation"


class _Manifest(_Origin):
    """The fields of both kinds of manifest: a run has its languages in `data`."""

    data: _Origin | None = None
    files: dict[str, str | FileFacts] = Field(default_factory=dict)


@dataclass(frozen=True)
class ExistingVocabularies:
    """The vocabularies of a folder, for other text; `facts` is their entry in its manifest."""

    path: Path
    task: TaskName
    vocabularies: Vocabularies
    facts: dict[str, Any]

    @classmethod
    def open(cls, path: Path, corpus: Corpus) -> ExistingVocabularies:
        """Those of a run folder or a prepared folder, for the text of a corpus.

        Separate vocabularies change sides if the languages of the folder are the same in reverse.

        Raises:
            MtkitError: if there is no such folder, if a file of it was changed, or if its
                vocabularies are for other languages or another task, or lack a tag.
        """
        if not (path / _MANIFEST).is_file():
            raise MtkitError(
                f"{path}: is not a run folder or a prepared folder, so it has no tokenizer; "
                f"{_ADVICE}"
            )
        manifest = read_record(path / _MANIFEST, _Manifest, advice=_ADVICE)
        origin = manifest.data or manifest
        if origin.task != corpus.task:
            has, wanted = (
                {"parsing": "a parser", "translation": "translations"}[one]
                for one in (origin.task, corpus.task)
            )
            raise MtkitError(f"{path}: its tokenizer is for {has}, not for {wanted}; {_ADVICE}")
        names = [name for name in VOCABULARY_FILES if name in manifest.files]
        checksums = {}
        for name in names:
            facts = manifest.files[name]
            checksums[name] = facts if isinstance(facts, str) else facts.sha256
            if sha256_of(path / name) != checksums[name]:
                raise MtkitError(
                    f"{path / name}: changed since it was written (its checksum is wrong); "
                    f"{_ADVICE}"
                )
        is_joint = VOCABULARY_FILES.joint in names
        if names != list(VOCABULARY_FILES.used(is_joint=is_joint)):
            raise MtkitError(f"{path / _MANIFEST}: does not list the tokenizer files; {_ADVICE}")
        found = Vocabularies.load(path, is_joint=is_joint)
        tags = found.src.language_tags
        reverse = False
        if corpus.is_multilingual:
            _check_tags(path, origin, corpus.language_pairs, tags)
        elif tags:
            raise MtkitError(
                f"{path}: its tokenizer is for a multilingual model, with tags for "
                f"{', '.join(sorted(tags))}; describe the text in a corpus file, under directions"
            )
        else:
            reverse = _is_reverse(path, origin, corpus.language_pairs[0], is_joint=is_joint)
        if reverse:
            found = Vocabularies(found.tgt, found.src)
        for tag in corpus.corpus_tags:
            if tag not in (known := found.src.corpus_tags):
                has = f"no tag {tag}, but {', '.join(sorted(known))}" if known else "no tags"
                raise MtkitError(
                    f"{path}: its tokenizer has {has}; remove the tag {tag}, or {_ADVICE}"
                )
        kind = "prepared folder" if manifest.data is None else "run folder"
        entry = {"kind": kind, "path": encodable(shareable_name(path)), "files": checksums}
        log.info("using the subwords of %s%s", path, ", sides exchanged" if reverse else "")
        return cls(path, corpus.task, found, entry | ({"reversed": True} if reverse else {}))

    def config(
        self,
        settings: Mapping[str, Any],
        overrides: Sequence[str],
        *,
        base: Sequence[str],
    ) -> PrepareConfig:
        """The settings of a preparation with these vocabularies.

        Args:
            settings: by name.
            overrides: `key=value`.
            base: overrides before these, which the user has not given.

        Raises:
            MtkitError: naming a setting that was given and contradicts the vocabularies, or that
                would have no effect.
        """
        given = {*settings, *(override.partition("=")[0].strip() for override in overrides)}
        src, tgt = self.vocabularies
        is_joint = self.vocabularies.is_joint
        shared = f"shared_vocab={str(settings.get('shared_vocab', is_joint)).lower()}"
        config = prepare_config(settings, [*base, shared, *overrides])
        found: dict[str, Any] = {
            "shared_vocab": is_joint,
            "vocab_size": len(src),
            "src_vocab_size": None if is_joint else len(src),
            "tgt_vocab_size": None if is_joint else len(tgt),
            "model_type": src.model_type,
            "user_defined_symbols": src.symbols,
        }
        for key in [key for key in found if key in given]:
            wanted, has = getattr(config, key), found[key]
            if key == "vocab_size" and wanted == has and self.task == "translation":
                # For both sides, unless the target has a size of its own.
                has = has if "tgt_vocab_size" in given else len(tgt)
            if wanted != has:
                raise MtkitError(
                    f"{_option(key)} asks for {_shown(wanted)}, and the tokenizer of {self.path} "
                    f"has {_shown(has)}; leave it out"
                )
        if "learn_from_pairs" in given:
            raise MtkitError(
                "--set learn_from_pairs has no effect: with --tokenizer-from no subwords are "
                "learned; leave it out"
            )
        return config.model_copy(update=found)

    def refuse_unseen(self, src: Mapping[str, int], tgt: Mapping[str, int], *, where: str) -> None:
        """Refuse a text in a script that the vocabulary has hardly any subwords of.

        Raises:
            MtkitError: with the share of subwords that are bytes or unknown; of trees, the share of
                brackets that are not one subword.
        """
        sides: list[tuple[Literal["source", "target"], Mapping[str, int]]]
        sides = [("source", src), ("target", tgt)]
        for (side, words), tokenizer in zip(sides, self.vocabularies, strict=True):
            if side == "target" and self.task == "parsing":
                total = sum(words.values())
                ids = tokenizer.encode_batch(list(words))
                counted = zip(ids, words.values(), strict=True)
                unseen = sum(count for of_word, count in counted if len(of_word) > 1)
                what = "brackets and tags are not in its vocabulary"
            else:
                counts = piece_counts(tokenizer, words)
                total, unseen = int(counts.sum()), int(counts[tokenizer.is_fallback].sum())
                what = "subwords are single bytes or unknown, so it was not learned for this script"
            if unseen > _MOST_UNSEEN * total:
                raise MtkitError(
                    f"{self.path}: its tokenizer does not suit the {side} side of {where}: "
                    f"{unseen / total:.0%} of the {what}; {_ADVICE}"
                )


def _check_tags(
    path: Path,
    origin: _Origin,
    directions: Sequence[tuple[str, str]],
    tags: Mapping[str, int],
) -> None:
    """Refuse target languages without a tag, and languages that the folder does not have."""
    if not tags:
        raise MtkitError(
            f"{path}: its tokenizer has no language tags, which a multilingual model needs; "
            f"{_ADVICE}, or one direction instead of directions"
        )
    known = {code for one in origin.directions for code in (one.src_lang, one.tgt_lang)}
    for src_lang, tgt_lang in directions:
        if tgt_lang not in tags:
            raise MtkitError(
                f"{path}: its tokenizer has no tag for {tgt_lang}, but for "
                f"{', '.join(sorted(tags))}; {_ADVICE}"
            )
        # An imported model may not say which languages it reads.
        if known and src_lang not in known:
            raise MtkitError(
                f"{path}: its tokenizer was learned for {', '.join(sorted(known))}, not for "
                f"{src_lang}; {_ADVICE}"
            )


def _is_reverse(path: Path, origin: _Origin, wanted: tuple[str, str], *, is_joint: bool) -> bool:
    """Whether the sides are exchanged; refuses other languages than those of the folder."""
    has = origin.src_lang, origin.tgt_lang
    if not any(has):
        log.warning("%s: does not say for which languages its tokenizer was learned", path)
        return False
    ours, theirs = (tuple(map(base_language, pair)) for pair in (wanted, has))
    if is_joint and set(ours) <= set(theirs):
        return False
    if not is_joint and ours in (theirs, theirs[::-1]):
        return ours != theirs
    between = "and" if is_joint else "to"
    raise MtkitError(
        f"{path}: its tokenizer was learned for {has[0]} {between} {has[1]}, not for "
        f"{wanted[0]} to {wanted[1]}; {_ADVICE}"
    )


def _option(key: str) -> str:
    return "--vocab-size" if key == "vocab_size" else f"--set {key}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "one joint vocabulary" if value else "one vocabulary for each side"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(repr, value)) or "no symbols"
    return "none" if value is None else str(value)
