"""Imports a model as a run folder, which can translate, be scored, exported and trained on.

It is a model of Marian, or M2M-100 or NLLB-200 of transformers.

Before the run folder appears, its translations and log-probabilities are compared with those of the
same model in transformers, if that library is installed and has the model's format.
"""

from __future__ import annotations

import importlib.util
import logging
import random
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

import mtkit
from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import MANIFEST, kind_of
from mtkit.base.folders import check_writable, new_folder
from mtkit.base.hub_client import quiet_client, the_hub, transport_errors
from mtkit.base.invisible import visible
from mtkit.base.language_id import check_languages
from mtkit.base.memory import memory_explained
from mtkit.base.packages import install_advice
from mtkit.base.text import read_lines
from mtkit.checkpoint import load_into
from mtkit.config import KEPT_FROZEN, Config, DecodeConfig, TrainConfig
from mtkit.convert.huggingface import MarianModel, silence_transformers
from mtkit.convert.m2m100 import has_tokenizer
from mtkit.convert.marian import MarianSource, new_vocabulary, new_weights
from mtkit.convert.marian_npz import npz_of, read_npz
from mtkit.convert.model_card import NO_LICENCE, Card, is_hub_name, read_card
from mtkit.convert.transformers_folder import (
    CONFIG,
    OTHER_FILES,
    SHARD,
    WEIGHTS,
    is_transformers_folder,
    link_known_files,
    read_transformers_folder,
)
from mtkit.convert.verification import (
    BOUNDS,
    CheckText,
    RunModel,
    accept,
    compare,
    example_languages,
)
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.run_manifest import DataOrigin, ImportRecord, RunManifest
from mtkit.tokenizer import PAD_ID, UNK_ID, Tokenizer, Vocabularies, language_tag
from mtkit.translate import LoadedRuns, Torch, Translator

log = logging.getLogger(__name__)

# Lines of the check, and lines of random subwords for it, and their length.
CHECKED_LINES = 500
SYNTHETIC_LINES, SYNTHETIC_LENGTH = 20, 12
# Further lines for each restriction of outputs.
RESTRICTED_LINES = 5
# Subwords of a line of the check, and by how many its translation may be longer. A model that was
# not trained writes on and on, and transformers has no positions after the last one.
MAX_CHECKED_LENGTH, EXTRA_CHECKED = 100, 10
_CHECKED = {"max_extra_length": EXTRA_CHECKED, "precision": "fp32"}
_SHOWN_TAGS = 20
# In the name of a model: opus-mt-en-de.
_LANGUAGES = re.compile(r".*-([a-z]{2,3}|[a-z]{2,3}_[a-z]+)-([a-z]{2,3}|[a-z]{2,3}_[a-z]+)")


class Imported(NamedTuple):
    """A new run, notes for the user of one line each, and a command that translates a sentence."""

    run: Run
    notes: list[str]
    command: str


@memory_explained("importing; import on a machine with more memory")
@checks_arguments
def import_model(
    source: str,
    out: Path,
    *,
    revision: str | None = None,
    vocabularies: tuple[Path, Path] | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    check: Path | None = None,
    force: bool = False,
) -> Imported:
    """Import a model into a new run folder, and check it.

    Args:
        source: a folder of `MarianMTModel` or `M2M100ForConditionalGeneration`, an `.npz` file of
            Marian or its folder, or the name of a model on the Hugging Face hub.
        revision: of a model on the hub: a branch, tag, commit or `refs/pr/N`.
        vocabularies: of an `.npz` file, for source and target.
        src_lang, tgt_lang: codes of the languages, by default those that the model gives.
        check: source text for the check; by default lines of random subwords.
        force: replace an earlier import.

    Raises:
        MtkitError: if the model cannot be read or expressed, the folder cannot be written, or the
            import does not agree with transformers.
    """
    check_writable(out, force=force, kind="an import", place="OUT", is_kind=_is_import)
    check_languages(src_lang, tgt_lang)
    given = list(islice(read_lines(check), CHECKED_LINES)) if check is not None else None
    theirs = _read(source, revision, vocabularies)
    model = theirs.model
    if model.lacking:
        lacking = ", ".join(model.lacking)
        log.warning("%s: mtkit translates without these of its settings: %s", source, lacking)
    vocabulary = new_vocabulary(model)
    # As given, or as the model or its name says.
    named = _LANGUAGES.fullmatch(theirs.name)
    by_name = named.groups() if named else ("", "")
    src_lang = src_lang or model.src_lang or by_name[0]
    tgt_lang = tgt_lang or model.tgt_lang or by_name[1]
    has_transformers = importlib.util.find_spec("transformers") is not None
    peer = model.folder if has_transformers else None
    if peer is not None and model.positions is not None and not has_tokenizer(peer):
        log.warning("%s: has no tokenizer.json, which transformers needs", source)
        peer = None
    manifest = RunManifest(
        data=DataOrigin(name=theirs.name, src_lang=src_lang, tgt_lang=tgt_lang, lines=model.lines),
        versions={"mtkit": mtkit.__version__},
        imported=ImportRecord(
            source=theirs.name,
            commit=theirs.commit,
            licence=theirs.card.licence,
            citations=theirs.card.citations,
            # Where transformers has nothing to restore, the new order is as good as the old one.
            subwords=vocabulary.ids if model.folder is not None else None,
        ),
    )
    shared = model.has_one_matrix and not vocabulary.vocabularies.is_joint
    longest = min(model.decode.max_source_tokens, max(2, model.longest))
    config = Config(
        model=model.config.model_copy(update={"shared_embedding": shared}),
        decode=model.decode.model_copy(update={"max_source_tokens": longest}),
        # Those of M2M-100 are given, and stay so that it can be exported.
        train=TrainConfig(freeze=KEPT_FROZEN if model.positions is not None else ()),
    )
    # One is EOS, and one a tag.
    most = min(longest - EXTRA_CHECKED, MAX_CHECKED_LENGTH) - 2
    if most < SYNTHETIC_LENGTH:
        raise MtkitError(
            f"{source}: has only {model.longest} positions (max_position_embeddings); the check of "
            f"an import needs {SYNTHETIC_LENGTH + EXTRA_CHECKED + 2}"
        )
    with new_folder(out) as folder:
        run = Run.create(folder, config, vocabulary.vocabularies, manifest=manifest)
        run.save(0, weights=new_weights(model, vocabulary), optimizer=None, state={})
        translator = _translator(run)
        lines = _check_lines(translator.src_tokenizer, given, config.decode, most=most)
        if not lines and (given is not None or peer is not None):
            name = check or "random subwords"
            raise MtkitError(f"no line to check with in {name}; give other text as --check FILE")
        if peer is None:
            advice = f"; {install_advice('the comparison', 'transformers', extra='export')}"
            is_useful = model.folder is not None and not has_transformers
            log.warning("not compared with other software%s", advice if is_useful else "")
        else:
            log.info("converted; now comparing it with transformers")
            text = "random subwords" if given is None else "the given text"
            checked = CheckText(text, lines, positions=model.longest)
            _compare(model, peer, translator, checked, out=out)
        example = None
        if given is not None:
            example = lines[0], next(iter(translator.translate(lines[:1])))
    run = Run.open(out)
    return Imported(run, list(_notes(theirs.card, run, example)), _command(run))


def _is_import(folder: Path) -> bool:
    with suppress(MtkitError):
        return Run.is_run(folder) and Run.open(folder).manifest.imported is not None
    return False


class _Found(NamedTuple):
    """A model that was read: its name on the hub, or of its folder or file; its commit there."""

    name: str
    commit: str
    model: MarianSource
    card: Card


def _read(source: str, revision: str | None, vocabularies: tuple[Path, Path] | None) -> _Found:
    path, commit = Path(source), ""
    name = path.resolve().name if path.exists() else source
    if not path.exists():
        if not is_hub_name(source):
            raise MtkitError(
                f"{source}: there is no such folder or file, and it is not a name on the hub"
            )
        path, commit = _download(source, revision)
    elif revision is not None:
        raise MtkitError(f"--revision is for a model on the hub, and {source} is on this machine")
    if kind := kind_of(path / MANIFEST):
        raise MtkitError(f"{source}: is a {kind} of mtkit, and needs no import")
    if is_transformers_folder(path):
        if vocabularies is not None:
            raise MtkitError(f"--vocabs is for a model of Marian, and {source} has its own files")
        return _Found(name, commit, read_transformers_folder(path), read_card(path))
    file = npz_of(path)
    if file is None and path.is_file() and is_transformers_folder(path.parent):
        raise MtkitError(f"{source}: is a file; give the folder, {path.parent}, as SOURCE")
    if file is None:
        raise MtkitError(
            f"{source}: has neither config.json (transformers) nor an .npz file (Marian)"
        )
    return _Found(name, commit, read_npz(file, vocabularies), read_card(file.parent))


def _download(name: str, revision: str | None) -> tuple[Path, str]:
    """Download what an import needs; gives the folder in the hub's cache, and the commit."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RevisionNotFoundError

    try:
        with quiet_client():
            info = HfApi().model_info(name, revision=revision)
            files = {file.rfilename for file in info.siblings or []}
            weights = next((file for file in WEIGHTS if file in files), None)
            if CONFIG not in files or weights is None:
                missing = CONFIG if CONFIG not in files else " or ".join(WEIGHTS)
                raise MtkitError(f"{name}: has no {missing} on the hub")
            log.info("downloading %s (%s)", name, weights)
            patterns = [weights, *OTHER_FILES]
            if weights.endswith(".json"):
                ending = weights.removesuffix(".index.json").rpartition(".")[2]
                patterns += [f for f in files if SHARD.fullmatch(f) and f.endswith(ending)]
            folder = snapshot_download(name, revision=info.sha, allow_patterns=patterns)
            return Path(folder), info.sha or ""
    except RevisionNotFoundError as error:
        message = f"--revision {revision}: {name} has no such revision on {the_hub()}"
        raise MtkitError(message) from error
    except (OSError, *transport_errors(), RuntimeError, ValueError) as error:
        raise MtkitError(
            f"{name}: is not a folder on this machine, and cannot be downloaded from {the_hub()} "
            f"({reason_of(error, most=200)}): check the name, try again, set HF_TOKEN if it is "
            "private or gated, or download its files and give their folder as SOURCE"
        ) from error


class _TaggedTokenizer(Tokenizer):
    """The tokenizer of a source whose lines begin with a language tag, as in transformers."""

    def encode(self, text: str) -> list[int]:
        tag, rest = _split_tag(text)
        return [self._pieces.piece_to_id(tag), *super().encode(rest)]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        return [self.encode(line) for line in lines]


def _split_tag(text: str) -> tuple[str, str]:
    """The tag at the beginning of a text, or nothing, and the rest."""
    end = text.find("<<") + 2
    return (text[:end], text[end:]) if text.startswith(">>") and end > 1 else ("", text)


def _translator(run: Run) -> Translator:
    vocabularies = run.tokenizers()
    src, tgt = vocabularies
    with torch.device("meta"):
        model = Transformer(run.config.model, len(tgt), PAD_ID, vocabularies.own_src_size)
    load_into(model, run.select(None)[0], of=run.path)
    codes = [*src.language_tags]
    config = run.config.decode.greedy().model_copy(update=_CHECKED)
    runs = LoadedRuns(vocabularies, config, max_positions=run.config.model.max_tokens)
    if vocabularies.has_tags_on_both_sides:
        runs = runs.between(*example_languages(vocabularies))
    elif codes:
        runs = replace(runs, vocabularies=Vocabularies(_TaggedTokenizer(src.model), tgt))
    return Translator(runs, Torch([model.eval()], runs))


def _compare(
    model: MarianSource, folder: Path, translator: Translator, checked: CheckText, *, out: Path
) -> None:
    silence_transformers()
    try:
        with tempfile.TemporaryDirectory() as known:
            link_known_files(model, folder, Path(known))
            theirs = MarianModel(Path(known), translator.config, bans_padding=True)
            if translator.runs.tgt_prefix:
                tags = translator.tokenizer.language_tags
                theirs = theirs.between(translator.src_lang, translator.tgt_lang, codes=[*tags])
                for code in tags:
                    old = model.tgt.pieces.index(language_tag(code, "both"))
                    if theirs.id_of(code) != old:
                        raise MtkitError(
                            f"{out}: not written, because the tag of {code} has another id in "
                            "transformers"
                        )
            agreement = compare(RunModel(translator), theirs, checked)
    except (MtkitError, MemoryError):
        raise
    except Exception as error:
        # Settings that make no sense can raise any exception in it.
        reason = reason_of(error, most=300)
        message = f"{out}: not written, because transformers cannot use the model: {reason}"
        raise MtkitError(message) from error
    refusal = f"{out}: not written, because it does not agree with transformers"
    accept(agreement, BOUNDS["float32"], refusal=refusal)


def _check_lines(
    src: Tokenizer, given: list[str] | None, decode: DecodeConfig, *, most: int
) -> list[str]:
    """The given lines or random subwords, with tags if the model has any."""
    # transformers takes special tokens in a text, and a tag at its beginning, for what they name,
    # and keeps invisible characters.
    special = [src.piece(i) for i in range(UNK_ID + 1)]
    tags = [src.piece(i) for i in src.language_tags.values() if src.scheme == "source"]
    chosen: list[str] = []
    given = _synthetic_lines(src, decode, most) if given is None else given
    for line in map(visible, given):
        tag, rest = _split_tag(line)
        if tag not in ("", *tags) or any(piece in line for piece in special):
            continue
        if not tag and tags:
            line = f"{tags[len(chosen) % len(tags)]} {line}"
        if rest.strip() and 0 < len(src.encode(line)) <= most:
            chosen.append(line)
    return chosen


def _synthetic_lines(src: Tokenizer, decode: DecodeConfig, most: int) -> list[str]:
    """Random subwords, also in lines that meet restrictions: long, short and repetitive ones."""
    pieces = [src.piece(i) for i in range(UNK_ID + 1, len(src))]
    begins = [piece for piece in pieces if piece.startswith("▁") and piece.isprintable()]
    draw = random.Random(1)
    lengths = [SYNTHETIC_LENGTH] * SYNTHETIC_LINES
    lengths += [min(most, decode.max_length or 0), min(1, decode.min_length)] * RESTRICTED_LINES
    made = [draw.choices(begins or pieces, k=length) for length in lengths if length]
    if decode.no_repeat_ngram:
        made += [line[:1] * SYNTHETIC_LENGTH for line in made[:RESTRICTED_LINES]]
    return ["".join(line).replace("▁", " ").strip() for line in made]


def _notes(card: Card, run: Run, example: tuple[str, str] | None) -> Iterator[str]:
    vocabularies = run.tokenizers()
    has_both = vocabularies.has_tags_on_both_sides
    languages = {"--src-lang": run.manifest.data.src_lang, "--tgt-lang": run.manifest.data.tgt_lang}
    note = f"languages: {' to '.join(code or 'unknown' for code in languages.values())}"
    if missing := ", ".join(option for option, code in languages.items() if not code):
        note += f"; to set them, import again with {missing} and --force"
    if not has_both:
        yield note
    decode = run.config.decode
    if taken := decode.changed("min_length", "max_length", "no_repeat_ngram", "sample"):
        yield f"translates with {', '.join(f'{key} {getattr(decode, key)}' for key in taken)}"
    yield f"licence of the model: {card.licence or NO_LICENCE}"
    if keys := re.findall(r"@\w+\{\s*([^\s,]+)", "\n".join(card.citations)):
        yield f"to be cited (in {run.path / 'manifest.json'}): {', '.join(keys)}"
    if not vocabularies.tgt.has_bytes:
        yield "characters that the vocabulary does not have are left out of translations"
    if codes := list(vocabularies.src.language_tags):
        shown = ", ".join(codes[:_SHOWN_TAGS]) + (", ..." if len(codes) > _SHOWN_TAGS else "")
        options = (
            "languages (--src-lang, --tgt-lang)" if has_both else "target languages (--tgt-lang)"
        )
        yield f"{options}: {shown}"
    if example is not None:
        yield f"a translation: {example[0]} -> {example[1]}"
    yield "to translate a sentence, and see whether the translation is good:"


def _command(run: Run) -> str:
    named = zip(("src", "tgt"), example_languages(run.tokenizers()), strict=True)
    option = "".join(f" --{side}-lang {shlex.quote(code)}" for side, code in named if code)
    start = 'echo "A sentence in the source language." | mtkit translate --run'
    return f"{start} {run.in_command}{option}"
