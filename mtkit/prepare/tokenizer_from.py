"""Vocabularies that exist already: those of a run folder or of a prepared folder.

A model that is trained further needs data in the subwords that it was trained with. Here they are
read, compared with what is asked for, and refused where they do not suit the text.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from mtkit.base.errors import MtkitError, encodable
from mtkit.base.files import MANIFEST, Record, json_text, read_record, sha256_of, shareable_name
from mtkit.base.sentencepiece_model import Piece, pieces_in
from mtkit.base.text import base_language, check_language
from mtkit.data import DataManifest, FileFacts, TaskName
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.source import listed
from mtkit.prepare.vocabularies import DirectionWords, piece_counts
from mtkit.prepare_config import PrepareConfig, prepare_config
from mtkit.run_manifest import RunManifest
from mtkit.tokenizer import VOCABULARY_FILES, Vocabularies, language_tag

log = logging.getLogger(__name__)

_ADVICE = "give another --tokenizer-from"
# A text has more of its subwords spelled in bytes, or unknown, only if it has another script: in a
# script of the vocabulary these are rare characters, in another one nearly all subwords.
_MAX_UNSEEN = 0.2
# Characters that are rarer are not added: learning leaves out as rare ones.
_MIN_SHARE = 1e-6


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
    tokenizer_from: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str | FileFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class ExistingVocabularies:
    """The vocabularies of a folder, for other text.

    Attributes:
        facts: their entry in the manifest of the data. Of each language that was added,
            `added_languages` has the one whose tag its own begins as.
    """

    path: Path
    task: TaskName
    vocabularies: Vocabularies
    facts: dict[str, Any]

    @classmethod
    def open(
        cls,
        path: Path,
        corpus: Corpus,
        *,
        added_languages: Sequence[str] = (),
        adds_characters: bool = False,
    ) -> ExistingVocabularies:
        """Those of a run folder or a prepared folder, for the text of a corpus.

        Separate vocabularies change sides if the languages of the folder are the same in reverse.

        Args:
            added_languages: as NEW=LIKE, languages that get a tag, which begins as that of LIKE.
            adds_characters: whether `with_characters` follows.

        Raises:
            MtkitError: if there is no such folder, if a file of it was changed, if its
                vocabularies are for other languages or another task, or lack a tag, or if a
                language cannot be added.
        """
        if not (path / MANIFEST).is_file():
            raise MtkitError(f"{path}: is not a run folder or a prepared folder; {_ADVICE}")
        manifest = read_record(path / MANIFEST, _Origin, advice=_ADVICE)
        origin = manifest.data or manifest
        if origin.task != corpus.task:
            raise _unsuited(path, f"is for {origin.task}, not for {corpus.task}")
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
            raise _unsuited(
                path,
                "has no language tags, which a multilingual model needs",
                f"{_ADVICE}, or one direction instead of directions",
            )
        if tags and not corpus.is_multilingual:
            raise _unsuited(
                path,
                f"is for a multilingual model, with tags for {', '.join(sorted(tags))}",
                "describe the text in a corpus file, under directions",
            )
        if tags and corpus.tags not in (None, vocabularies.src.scheme):
            has = f"has tags: {vocabularies.src.scheme}, not {corpus.tags}"
            raise _unsuited(path, has, f"leave tags out, or {_ADVICE}")
        added = _added_languages(path, added_languages, corpus, tags)
        if added:
            vocabularies = _with_tags(vocabularies, added)
            tags = vocabularies.src.language_tags
        reverse = False
        if tags:
            trained = [code for d in origin.directions for code in (d.src_lang, d.tgt_lang)]
            trained += added if trained else []
            languages = {*tags} if vocabularies.has_tags_on_both_sides else {*trained}
            _check_tags(path, languages, corpus.language_pairs, tags)
        else:
            reverse = _is_reverse(path, origin, corpus.language_pairs[0], is_joint=is_joint)
        if reverse:
            vocabularies = Vocabularies(vocabularies.tgt, vocabularies.src)
        for tag in corpus.corpus_tags:
            if tag not in (known := vocabularies.src.corpus_tags):
                has = f"has no tag {tag} (its tags: {', '.join(sorted(known)) or 'none'})"
                raise _unsuited(path, has, f"remove the tag, or {_ADVICE}")
        log.info("using the subwords of %s%s", path, ", sides exchanged" if reverse else "")
        entry: dict[str, Any] = {
            "kind": "prepared folder" if manifest.data is None else "run folder",
            "path": encodable(shareable_name(path)),
            "files": checksums,
            # Data for a run may be prepared from other data for it.
            "added_languages": manifest.tokenizer_from.get("added_languages", {}) | added,
            "adds_characters": adds_characters,
            "reversed": reverse,
        }
        given = {key: value for key, value in entry.items() if value}
        return cls(path, corpus.task, vocabularies, given)

    @property
    def adds_characters(self) -> bool:
        """Whether those of the training text are added, by `with_characters`."""
        return "adds_characters" in self.facts

    def with_characters(self, text: Sequence[DirectionWords]) -> Self:
        """With the characters of a text that its sides lack."""
        lacking = []
        for side, tokenizer in enumerate(self.vocabularies):
            counts: Counter[str] = Counter()
            for direction in text:
                counts.update(direction[side])
            least = _MIN_SHARE * sum(len(word) * count for word, count in counts.items())
            missing = tokenizer.lacking(counts).items()
            lacking.append({character for character, count in missing if count >= least})
        if _are_one_list(self.vocabularies):
            lacking = [lacking[0] | lacking[1]] * 2
        added = sorted(lacking[0] | lacking[1])
        log.info("characters added to the vocabulary: %d (%s)", len(added), listed(added))
        larger = [
            tokenizer.with_more(Piece(x, tokenizer.least_score) for x in sorted(characters))
            for tokenizer, characters in zip(self.vocabularies.distinct, lacking, strict=False)
        ]
        return replace(self, vocabularies=Vocabularies(larger[0], larger[-1]))

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
        is_joint = self.vocabularies.is_joint
        shared = f"shared_vocab={str(settings.get('shared_vocab', is_joint)).lower()}"
        config = prepare_config(settings, [*base, shared, *overrides])
        stored = settings_of(self.vocabularies)
        for key in [key for key in stored if key in given]:
            wanted, has = getattr(config, key), stored[key]
            if key == "vocab_size" and wanted == has and self.task == "translation":
                # For both sides, unless the target has a size of its own.
                has = has if "tgt_vocab_size" in given else len(self.vocabularies.tgt)
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
                advice = _ADVICE
                if self.task == "translation" and not self.adds_characters:
                    advice = f"add its characters (--add-characters), or {_ADVICE}"
                share = f"{unseen / total:.0%} of the {what}"
                why = f"does not suit the {side} side of {where}: {share}"
                raise _unsuited(self.path, why, advice)


def settings_of(vocabularies: Vocabularies) -> dict[str, Any]:
    """The settings of a preparation that learns such vocabularies."""
    (src, tgt), is_joint = vocabularies, vocabularies.is_joint
    return {
        "shared_vocab": is_joint,
        "vocab_size": len(src),
        "src_vocab_size": None if is_joint else len(src),
        "tgt_vocab_size": None if is_joint else len(tgt),
        "model_type": src.model_type,
        "user_defined_symbols": src.symbols,
    }


def _added_languages(
    path: Path, given: Sequence[str], corpus: Corpus, tags: Mapping[str, int]
) -> dict[str, str]:
    """For each new language the one whose tag its own begins as, from NEW=LIKE."""
    added: dict[str, str] = {}
    if given and not tags:
        raise MtkitError(
            f"--add-language: the tokenizer of {path} has no language tags, so it is not that of a "
            "multilingual model; leave it out"
        )
    if given:
        from mtkit.base.language_id import find_code, is_same_tag, listed_languages
    for pair in given:
        new, _, wanted = pair.partition("=")
        check_language("--add-language NEW=LIKE", new)
        if not wanted:
            raise MtkitError(f"--add-language {pair}: write {new}=LIKE, with a related language")
        known = [*tags, *added]
        if same := [code for code in known if is_same_tag(new.lower(), code.lower())]:
            raise MtkitError(f"--add-language {pair}: {path} has {same[0]} already; leave it out")
        if (like := wanted if wanted in known else find_code(wanted, known)) is None:
            raise MtkitError(
                f"--add-language {pair}: {path} has no {wanted}; it has "
                f"{listed_languages(known, wanted)}"
            )
        languages = [code for direction in corpus.language_pairs for code in direction]
        if new not in languages:
            raise MtkitError(
                f"--add-language {pair}: no direction of the corpus has {new}; its languages are "
                f"{listed(sorted({*languages}))}"
            )
        added[new] = like
    return added


def _with_tags(vocabularies: Vocabularies, codes: Iterable[str]) -> Vocabularies:
    """With tags of languages on the sides that have such tags."""
    src, tgt = vocabularies
    tags = [Piece(language_tag(code, src.scheme), kind="control") for code in codes]
    larger = src.with_more(tags)
    if vocabularies.is_joint:
        return Vocabularies.joint(larger)
    has_tags = _are_one_list(vocabularies) or tgt.language_tags
    return Vocabularies(larger, tgt.with_more(tags) if has_tags else tgt)


def _are_one_list(vocabularies: Vocabularies) -> bool:
    """Whether a subword has the same id on both sides, whose embeddings may be one matrix."""
    src, tgt = ([piece.text for piece in pieces_in(side.model)] for side in vocabularies)
    return src == tgt


def _check_tags(
    path: Path, known: Set[str], directions: Sequence[tuple[str, str]], tags: Mapping[str, int]
) -> None:
    """Refuse target languages without a tag, and languages that the folder does not have."""
    for src_lang, tgt_lang in directions:
        # An imported model may not say which languages it reads.
        if tgt_lang not in tags or (known and src_lang not in known):
            from mtkit.base.language_id import find_code

            for code in (src_lang, tgt_lang):
                if code not in known and (same := find_code(code, known | tags.keys())):
                    raise MtkitError(f"{path}: has {same}; write {same} and not {code}")
            raise _unsuited(
                path,
                f"was learned for {listed(sorted(known | tags.keys()))}, with tags for "
                f"{listed(sorted(tags))}, not for {src_lang} to {tgt_lang}",
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
    raise _unsuited(
        path, f"was learned for {has[0]} {between} {has[1]}, not for {wanted[0]} to {wanted[1]}"
    )


def _unsuited(path: Path, why: str, advice: str = _ADVICE) -> MtkitError:
    return MtkitError(f"{path}: its tokenizer {why}; {advice}")
