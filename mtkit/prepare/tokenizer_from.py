"""Vocabularies that exist already: those of a run folder or of a prepared folder.

A model that is trained further needs data in the subwords that it was trained with. Here they are
read, compared with what is asked for, and refused where they do not suit the text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mtkit.base.errors import MtkitError, encodable
from mtkit.base.files import Record, json_text, read_record, sha256_of, shareable_name
from mtkit.base.text import base_language
from mtkit.data import DataManifest, FileFacts, TaskName
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.source import listed
from mtkit.prepare.vocabularies import piece_counts
from mtkit.prepare_config import PrepareConfig, prepare_config
from mtkit.run_manifest import RunManifest
from mtkit.tokenizer import VOCABULARY_FILES, Vocabularies

log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_ADVICE = "give another --tokenizer-from"
# A text has more of its subwords spelled in bytes, or unknown, only if it has another script: in a
# script of the vocabulary these are rare characters, in another one nearly all subwords.
_MAX_UNSEEN = 0.2


class _Languages(Record):
    model_config: ClassVar[dict[str, Any]] = {**Record.model_config, "extra": "ignore"}

    src_lang: str = ""
    tgt_lang: str = ""


class _DataOrigin(_Languages):
    directions: list[_Languages] = field(default_factory=list)
    task: TaskName = "translation"


class _Origin(_DataOrigin):
    """What a manifest says about the text of vocabularies.

    A run has the languages in `data`. `files` are checksums, in prepared folders with sizes.
    """

    newest_formats: ClassVar[Mapping[str, int]] = {
        **DataManifest.newest_formats,
        **RunManifest.newest_formats,
    }

    data: _DataOrigin | None = None
    files: dict[str, str | FileFacts] = field(default_factory=dict)


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
            raise MtkitError(f"{path}: is not a run folder or a prepared folder; {_ADVICE}")
        manifest = read_record(path / _MANIFEST, _Origin, advice=_ADVICE)
        origin = manifest.data or manifest
        if origin.task != corpus.task:
            raise MtkitError(
                f"{path}: its tokenizer is for {origin.task}, not for {corpus.task}; {_ADVICE}"
            )
        is_joint = VOCABULARY_FILES.joint in manifest.files
        names = VOCABULARY_FILES.used(is_joint=is_joint)
        checksums = {name: sha256_of(path / name) for name in names}
        for name, checksum in checksums.items():
            facts = manifest.files.get(name)
            if checksum != (facts.sha256 if isinstance(facts, FileFacts) else facts):
                raise MtkitError(
                    f"{path / name}: changed since it was written (its checksum is wrong); "
                    f"{_ADVICE}"
                )
        vocabularies = Vocabularies.load(path, is_joint=is_joint)
        tags = vocabularies.src.language_tags
        if corpus.is_multilingual and not tags:
            raise MtkitError(
                f"{path}: its tokenizer has no language tags, which a multilingual model needs; "
                f"{_ADVICE}, or one direction instead of directions"
            )
        if tags and not corpus.is_multilingual:
            raise MtkitError(
                f"{path}: its tokenizer is for a multilingual model, with tags for "
                f"{', '.join(sorted(tags))}; describe the text in a corpus file, under directions"
            )
        if tags and corpus.tags not in (None, vocabularies.src.scheme):
            raise MtkitError(
                f"{path}: its tokenizer has tags: {vocabularies.src.scheme}, not {corpus.tags}; "
                f"leave tags out, or {_ADVICE}"
            )
        reverse = False
        if tags:
            trained = [code for d in origin.directions for code in (d.src_lang, d.tgt_lang)]
            languages = {*tags} if vocabularies.has_tags_on_both_sides else {*trained}
            _check_tags(path, languages, corpus.language_pairs, tags)
        else:
            reverse = _is_reverse(path, origin, corpus.language_pairs[0], is_joint=is_joint)
        if reverse:
            vocabularies = Vocabularies(vocabularies.tgt, vocabularies.src)
        for tag in corpus.corpus_tags:
            if tag not in (known := vocabularies.src.corpus_tags):
                has = ", ".join(sorted(known)) or "none"
                raise MtkitError(
                    f"{path}: its tokenizer has no tag {tag} (its tags: {has}); remove the tag, or "
                    f"{_ADVICE}"
                )
        kind = "prepared folder" if manifest.data is None else "run folder"
        entry = {"kind": kind, "path": encodable(shareable_name(path)), "files": checksums}
        log.info("using the subwords of %s%s", path, ", sides exchanged" if reverse else "")
        return cls(path, corpus.task, vocabularies, entry | ({"reversed": True} if reverse else {}))

    def config(
        self, settings: Mapping[str, Any], overrides: Sequence[str], *, base: Sequence[str]
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
        stored: dict[str, Any] = {
            "shared_vocab": is_joint,
            "vocab_size": len(src),
            "src_vocab_size": None if is_joint else len(src),
            "tgt_vocab_size": None if is_joint else len(tgt),
            "model_type": src.model_type,
            "user_defined_symbols": src.symbols,
        }
        for key in [key for key in stored if key in given]:
            wanted, has = getattr(config, key), stored[key]
            if key == "vocab_size" and wanted == has and self.task == "translation":
                # For both sides, unless the target has a size of its own.
                has = has if "tgt_vocab_size" in given else len(tgt)
            if wanted != has:
                option = "--vocab-size" if key == "vocab_size" else f"--set {key}"
                raise MtkitError(
                    f"{option} asks for {json_text(wanted)}, and the tokenizer of {self.path} has "
                    f"{json_text(has)}; leave it out"
                )
        if "learn_from_pairs" in given:
            raise MtkitError(
                "--set learn_from_pairs has no effect: with --tokenizer-from no subwords are "
                "learned; leave it out"
            )
        return config.model_copy(update=stored)

    def refuse_unseen(self, src: Mapping[str, int], tgt: Mapping[str, int], *, where: str) -> None:
        """Refuse a text in a script that the vocabulary has hardly any subwords of.

        Raises:
            MtkitError: with the share of subwords that are bytes or unknown; of trees, the share of
                brackets that are not one subword.
        """
        sides = zip(("source", "target"), (src, tgt), self.vocabularies, strict=True)
        for side, words, tokenizer in sides:
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
            if unseen > _MAX_UNSEEN * total:
                raise MtkitError(
                    f"{self.path}: its tokenizer does not suit the {side} side of {where}: "
                    f"{unseen / total:.0%} of the {what}; {_ADVICE}"
                )


def _check_tags(
    path: Path, known: Set[str], directions: Sequence[tuple[str, str]], tags: Mapping[str, int]
) -> None:
    """Refuse target languages without a tag, and languages that the folder does not have."""
    for src_lang, tgt_lang in directions:
        # An imported model may not say which languages it reads.
        if tgt_lang not in tags or (known and src_lang not in known):
            raise MtkitError(
                f"{path}: its tokenizer was learned for {listed(sorted(known | tags.keys()))}, "
                f"with tags for {listed(sorted(tags))}, not for {src_lang} to {tgt_lang}; "
                f"{_ADVICE}"
            )


def _is_reverse(
    path: Path, origin: _DataOrigin, wanted: tuple[str, str], *, is_joint: bool
) -> bool:
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
