"""Export to a package of Argos Translate, the engine of LibreTranslate.

A package is a zip file with one folder: a model for CTranslate2, one SentencePiece model for both
sides, metadata, and a model that finds the ends of sentences.

Argos searches with a beam size and a length penalty of its own, forbids an empty translation, and
writes a space for an underscore. A source gets the language tag of a multilingual model from
CTranslate2.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.files import json_text, replacing
from mtkit.base.folders import check_writable, new_folder
from mtkit.base.language_id import language_name, libretranslate_code, standard_tag
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.ctranslate2 import MAX_LENGTH, open_ctranslate2, write_ctranslate2
from mtkit.convert.export_record import RECORD, longest_sequence
from mtkit.convert.sentence_model import sentence_model
from mtkit.convert.target import Export, Limits, Target, common_limits, quoted
from mtkit.convert.verification import (
    BOUNDS,
    Agreement,
    Bounds,
    CheckText,
    RunModel,
    comparable,
    compare,
)
from mtkit.run_folder import Run
from mtkit.score import score
from mtkit.tokenizer import EOS_ID
from mtkit.translate import LoadedRuns, Torch, Translator

# What Argos calls CTranslate2 with.
_LENGTH_PENALTY, _BATCH_TOKENS = 0.2, 32
# The subwords that CTranslate2 reads at most by default.
_MAX_SOURCE_LENGTH = 1024
# How much worse than the run a package may score, with matrices of a smaller type.
_MAX_BLEU_LOST = 0.3
_METADATA = "metadata.json"


def _pack(folder: Path, file: Path) -> None:
    """Write the folder into a zip file, with the same bytes for the same files."""
    metadata = json.loads((folder / _METADATA).read_text(encoding="utf-8"))
    # Not the name of Argos' own packages, whose files would stay beside these.
    root = f"mtkit-{metadata['from_code']}_{metadata['to_code']}"
    with replacing(file) as partial, zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(f"{root}/{path.relative_to(folder).as_posix()}")
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            entry.file_size = path.stat().st_size
            with path.open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target, 1 << 20)


class _ArgosModel:
    """A package as Argos uses it, with greedy search; a line is one sentence."""

    def __init__(self, folder: Path) -> None:
        self._engine = open_ctranslate2(folder / "model")
        model_file = str(folder / "sentencepiece.model")
        self._pieces = sentencepiece.SentencePieceProcessor(model_file=model_file)

    def translate(self, lines: Sequence[str]) -> list[str]:
        texts = map(self._pieces.decode_pieces, self.search(lines))
        return [_spaced(text.replace("▁", " ")).removeprefix(" ") for text in texts]

    def search(self, lines: Sequence[str]) -> list[list[str]]:
        """The subwords of the translation of each line."""
        results = self._engine.translate_batch(
            self._encode(lines),
            replace_unknowns=True,
            max_batch_size=_BATCH_TOKENS,
            batch_type="tokens",
            beam_size=1,
            length_penalty=_LENGTH_PENALTY,
        )
        return [result.hypotheses[0] for result in results]

    def is_tie(self, line: str, ours: list[str]) -> bool:
        """Whether the first subwords that differ are equally probable, or our line is empty."""
        both = [ours, *self.search([line])]
        steps = enumerate(zip(*both, strict=False))
        first = next((i for i, (a, b) in steps if a != b), min(map(len, both)))
        scored = self._engine.score_batch(self._encode([line, line]), both)
        log_probs = [result.log_probs[first] for result in scored]
        # Argos forbids an empty translation.
        return not ours or abs(log_probs[0] - log_probs[1]) <= BOUNDS["float32"].difference

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        results = self._engine.score_batch(self._encode(sources), self._encode(targets))
        return [torch.tensor(result.log_probs) for result in results]

    def _encode(self, lines: Sequence[str]) -> list[list[str]]:
        return [self._pieces.encode(line, out_type=str) for line in lines]


@dataclass(frozen=True)
class _ArgosAgreement(Agreement):
    """The comparison of a package with its run."""

    # Of the different lines, those of which `_ArgosModel.is_tie` holds; None if it is not float32.
    ties: int | None
    # How much less BLEU against the references the package has than the run, in lines that the run
    # does not cut off; None if there are none.
    bleu_lost: float | None

    def holds(self, bounds: Bounds) -> bool:
        """Whether it is within bounds, and worse than the run by little; NaN is not."""
        different = self.lines - self.identical
        if self.ties is not None:
            return different == self.ties and self.difference <= bounds.difference
        is_as_good = different <= 1 or (self.bleu_lost or 0) <= _MAX_BLEU_LOST
        return super().holds(bounds) and is_as_good

    def required(self, bounds: Bounds) -> str:
        if self.ties is not None:
            return f"all lines but ties and at most {bounds.difference:g}"
        return f"{bounds} and a BLEU that is at most {_MAX_BLEU_LOST} less than that of the run"

    def __str__(self) -> str:
        text = super().__str__()
        if self.ties:
            text += f"; ties: {self.ties}"
        if self.bleu_lost is not None:
            text += f"; BLEU against the references {self.bleu_lost:.2f} less than that of the run"
        return text


def _spaced(text: str) -> str:
    """A translation as Argos writes it, with a space for an underscore."""
    return text.replace("_", " ")


def _refuse_impossible(translator: Translator, run: Run) -> None:
    """Refuse what a package cannot express and is not a setting of the model."""
    reason = ""
    if run.manifest.data.task != "translation":
        reason = f"a model for {run.manifest.data.task}, because Argos Translate only translates"
    elif not translator.vocabularies.is_joint:
        reason = "a vocabulary for each side, because a package has one SentencePiece model"
    if reason:
        raise MtkitError(f"--format argos cannot express {reason}; use --format safetensors")
    for side, language in (("src", translator.src_lang), ("tgt", translator.tgt_lang)):
        if not re.fullmatch("[a-z]{2,3}", libretranslate_code(language)):
            known = f"has {language!r}" if language else "does not say it"
            raise MtkitError(
                f"--format argos needs a code such as en for each language, and {run.path} "
                f"{known}; give --{side}-lang"
            )


def _is_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(f"/{RECORD}") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        # Not a zip file, a damaged one, or one with features or names that Python cannot read.
        return False


class _Argos(Target):
    """A package is a file, of one direction of a model."""

    name = "argos"
    library = "ctranslate2"
    more_libraries = ("onnx", "language_data")
    model = "Argos Translate's model"
    needs = (
        "Needs `pip install argostranslate`; LibreTranslate uses it too. Beside the file that "
        "this folder comes from:"
    )
    note = (
        "Argos Translate searches with a beam size and a length penalty of its own. It writes a "
        "space for an underscore."
    )
    quantizations = ("int8", "float32", "float16")
    takes_settings = False
    suffix = ".argosmodel"

    def open(
        self, run: Run, *, src_lang: str | None, tgt_lang: str | None, **more: Any
    ) -> Translator:
        given = {"src_lang": src_lang, "tgt_lang": tgt_lang, **more}
        translator = Translator.load(run, device="cpu", **given)
        _refuse_impossible(translator, run)
        return translator

    def languages(self, export: Export) -> list[tuple[str, str]]:
        return [(export.translator.src_lang, export.translator.tgt_lang)]

    @contextmanager
    def output(self, out: Path, *, force: bool) -> Iterator[Path]:
        if out.suffix != self.suffix or out.is_dir():
            raise MtkitError(
                f"{out}: --format argos writes a file, whose name must end in {self.suffix}"
            )
        check_writable(out, force=force, kind="an export", place="OUT", is_kind=_is_archive)
        with new_folder(out, keep=False) as folder:
            yield folder
            _pack(folder, out)

    def load(self, folder: Path, decode: DecodeConfig) -> _ArgosModel:
        return _ArgosModel(folder)

    def limits(self, config: ModelConfig) -> Limits:
        is_short = config.positions == "learned" and config.max_positions < _MAX_SOURCE_LENGTH
        return common_limits(config) | {
            "max_positions": (is_short, f"reads sources of up to {_MAX_SOURCE_LENGTH:,} subwords")
        }

    def write(self, export: Export) -> None:
        translator, run, folder, record = export
        src_tag = translator.src_prefix[0] if translator.src_prefix else None
        write_ctranslate2(
            translator.model,
            translator.vocabularies,
            folder / "model",
            longest=max(longest_sequence(run.config), _MAX_SOURCE_LENGTH),
            quantization=record.quantization,
            src_tag=src_tag,
        )
        translator.vocabularies.src.save(folder / "sentencepiece.model")
        record.data.update(src_lang=translator.src_lang, tgt_lang=translator.tgt_lang)
        metadata = {"package_version": "1.0", "argos_version": "1.11"}
        for side, language in (("from", translator.src_lang), ("to", translator.tgt_lang)):
            name = language_name(standard_tag(language))
            metadata |= {f"{side}_code": libretranslate_code(language), f"{side}_name": name}
        (folder / _METADATA).write_text(json_text(metadata, indent=2) + "\n", encoding="utf-8")
        splits = run.config.decode.split_sentences
        if splits == "auto":
            splits = run.manifest.data.has_single_sentences
        (folder / "minisbd").mkdir()
        model = sentence_model(translator.src_lang, splits=splits)
        (folder / "minisbd" / "sentences.onnx").write_bytes(model)

    def compare(self, export: Export, theirs: Any, text: CheckText) -> _ArgosAgreement:
        translator, run, _, record = export
        longest = {"max_extra_length": MAX_LENGTH, "max_length": MAX_LENGTH}
        decode = translator.config.model_copy(update=longest)
        runs = LoadedRuns(translator.vocabularies, decode, src_prefix=translator.src_prefix)
        greedy = Translator(runs, Torch(translator.models, runs))
        spaced = list(map(_spaced, greedy.translate(text.lines)))
        translations = [spaced, theirs.translate(text.lines)]
        rows = list(zip(text.lines, *translations, strict=True))
        ties = None
        if record.quantization == "float32":
            different = [x for x, mine, other in rows if comparable(mine) != comparable(other)]
            end = translator.vocabularies.tgt.piece(EOS_ID)
            results = greedy.translate_nbest(different, n_best=1)
            pieces = [[piece for piece in best.pieces if piece != end] for (best,) in results]
            ties = sum(map(theirs.is_tie, different, pieces))
        # Endless repetition would count for more than all other lines; the run cuts it off.
        tokenizer, extra = translator.vocabularies.src, run.config.decode.max_extra_length
        within = [
            (mine, other, reference)
            for (line, mine, other), reference in zip(rows, text.references, strict=False)
            if max(len(tokenizer.encode(x)) for x in (mine, other))
            <= len(tokenizer.encode(line)) + extra
        ]
        bleu_lost = None
        if within:
            mine, other, references = zip(*within, strict=True)
            lost = score(mine, [references]).value - score(other, [references]).value
            bleu_lost = round(lost, 4)
        agreed = compare(RunModel(greedy), theirs, text, translations)
        return _ArgosAgreement(**vars(agreed), ties=ties, bleu_lost=bleu_lost)

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        src, tgt = map(libretranslate_code, (translator.src_lang, translator.tgt_lang))
        file = out if out.name else Path(f"{src}_{tgt}{self.suffix}")
        return f"""\
from argostranslate import package, translate
package.install_from_path({quoted(file)})
print(translate.translate("Text to translate.", "{src}", "{tgt}"))
"""


ARGOS = _Argos()
