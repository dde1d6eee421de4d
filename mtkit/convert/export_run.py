"""Exports a trained model for other software, or as a run folder of one checkpoint.

Before the output appears, the exported files are loaded by the target software, which must give the
same greedy translations and log-probabilities as the run. A setting that a format cannot express is
refused by name.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from safetensors import SafetensorError

import mtkit
from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import json_text
from mtkit.base.invisible import visible
from mtkit.base.memory import memory_explained
from mtkit.base.packages import require_packages
from mtkit.base.text import read_lines
from mtkit.convert.argos import ARGOS
from mtkit.convert.ctranslate2 import CTRANSLATE2
from mtkit.convert.export_record import (
    RECORD,
    ExportRecord,
    Format,
    Quantization,
    longest_sequence,
    plain_greedy,
)
from mtkit.convert.huggingface import HUGGINGFACE
from mtkit.convert.huggingface_m2m100 import M2M100, why_not
from mtkit.convert.model_card import NO_LICENCE, write_card
from mtkit.convert.onnx import ONNX
from mtkit.convert.run_copy import RUN_COPY, trimmed_copy
from mtkit.convert.target import Export, Target
from mtkit.convert.trimming import trim
from mtkit.convert.verification import BOUNDS, Agreement, CheckText, accept, load_untagged
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.translate import Translator

log = logging.getLogger(__name__)

# Lines of the check.
CHECKED_LINES = 500

TARGETS: dict[Format, Target] = {
    target.name: target for target in (CTRANSLATE2, HUGGINGFACE, ONNX, ARGOS, RUN_COPY)
}


@memory_explained("exporting; export on a machine with more memory")
@checks_arguments
def export(
    run: Run,
    out: Path,
    *,
    format: Format,
    checkpoint: str | None = None,
    quantization: Quantization | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    check: Path | None = None,
    keep_text: Sequence[Path] = (),
    keep_languages: Sequence[str] = (),
    force: bool = False,
) -> str:
    """Export the model of a run to a folder or a file, and check the exported files.

    Args:
        format: the other software, or `safetensors` for a run folder.
        checkpoint: as in `Run.select`.
        quantization: the type of the matrices, by default that of the format.
        src_lang, tgt_lang: the direction, for an application and a run with several.
        check: source text for the check; by default the validation text of the run's data, or the
            samples of the run folder if the data are gone.
        keep_text: text whose subwords are kept, and others left out (`trim`); for `safetensors`.
        keep_languages: of a run that is trimmed, the languages whose tags are kept; by default all.
        force: replace an earlier export.

    Returns:
        A few lines of code that use the export.

    Raises:
        MtkitError: if the format cannot express the model, its library is missing, the export
            cannot be written, or it does not agree with the run.
    """
    target = TARGETS[format]
    if keep_languages and not keep_text:
        raise MtkitError("--keep-language: requires --keep-text FILE")
    if keep_text and target is not RUN_COPY:
        raise MtkitError("--keep-text: requires --format safetensors; export its output again")
    vocabularies = run.tokenizers()
    if vocabularies.has_tags_on_both_sides and target is not RUN_COPY:
        if reason := why_not(vocabularies):
            what = f"tags on both sides: {reason}; use --format safetensors"
            raise MtkitError(f"--format {format} cannot express {what}")
        M2M100.check_expressible(run.config.model)
        if target is not HUGGINGFACE:
            raise MtkitError(
                f"--format {format} cannot express tags on both sides; --format huggingface can, "
                "and ct2-transformers-converter converts its output"
            )
        target = M2M100
    packages = filter(None, (target.library, *target.more_libraries))
    require_packages(f"--format {format}", packages, extra=target.extra)
    quantization = quantization or target.quantizations[0]
    if quantization not in target.quantizations:
        raise MtkitError(f"--format {format} does not support --quantization {quantization}")
    target.check_expressible(run.config.model)
    trimming = trim(run, keep_text, keep_languages, check) if keep_text else None
    if trimming is not None:
        run, target = trimming.of_run(run), trimmed_copy(trimming)
    # Before the model is loaded: what cannot be written is refused at once.
    with target.output(out, force=force) as folder:
        # Linearised, because other software has what the model of a parser writes, and not the
        # trees.
        decode = plain_greedy(run.config.decode)
        translator = target.open(
            run,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            checkpoint=checkpoint,
            config=decode,
            prepared=False,
            linearised=True,
        )
        text = _check_text(run, translator, check or next(iter(keep_text), None))
        record = _new_record(run, target, quantization, checkpoint)
        exported = Export(translator, run, folder, record)
        target.write(exported)
        log.info("converted; now loading and checking the exported files")
        try:
            theirs = target.load(folder, decode)
        except (MtkitError, SafetensorError, RuntimeError, ValueError, OSError) as error:
            reason = f"the export cannot be loaded: {reason_of(error, most=300)}"
            raise MtkitError(f"{out}: not written, because {reason}") from error
        agreement = target.compare(exported, theirs, text)
        refusal = f"{out}: not written, because the export does not agree with {run.path}"
        accept(agreement, BOUNDS[quantization], refusal=refusal)
        _write_record(exported, agreement)
        if trimming is not None:
            translator = load_untagged(Run.open(folder))
        write_card(exported._replace(translator=translator), target)
    return target.usage(out, run.config, translator)


def _new_record(
    run: Run, target: Target, quantization: Quantization, checkpoint: str | None
) -> ExportRecord:
    steps = [chosen.step for chosen in run.chosen(checkpoint)]
    training_lines = run.manifest.data.lines
    versions = {"mtkit": mtkit.__version__}
    if target.library:
        versions[target.library] = importlib.metadata.version(target.library)
    return ExportRecord(
        format=target.name,
        quantization=quantization,
        run=run.name,
        checkpoint=checkpoint or f"average:{len(steps)}",
        steps=steps,
        data=run.manifest.data.model_dump(include={"name", "src_lang", "tgt_lang"}),
        versions=versions,
        decode=run.config.decode.model_dump(),
        lines=None if training_lines is None else training_lines.model_dump(),
    )


def _write_record(exported: Export, agreement: Agreement) -> None:
    # The local path of the text is left out.
    checked = {k: v for k, v in asdict(agreement).items() if k != "text"}
    content = asdict(exported.record) | {"check": checked}
    if (imported := exported.run.manifest.imported) is not None:
        content["imported"] = imported.model_dump(include={"source", "licence", "citations"})
        log.info("licence of the model (%s): %s", imported.source, imported.licence or NO_LICENCE)
    started = exported.run.manifest.started_from
    if started is not None and started.licence:
        content["started_from"] = {"run": started.run_name, "licence": started.licence}
        log.info("licence of the model (%s): %s", started.run_name, started.licence)
    (exported.folder / RECORD).write_text(json_text(content, indent=2) + "\n", encoding="utf-8")


def _check_text(run: Run, translator: Translator, check: Path | None) -> CheckText:
    """The text for the check, with references if the data of the run have any."""
    references: list[str] = []
    if check is not None:
        name, lines = str(check), list(read_lines(check))
    else:
        try:
            if run.manifest.imported is not None:
                raise MtkitError("the run was imported, without data")
            data = PreparedData.open(run.data_path)
            name = f"the validation text of {data.path}"
            directions = data.texts("valid")
            languages = (translator.src_lang, translator.tgt_lang)
            own = [x for x in directions if x[:2] == languages or not translator.src_prefix]
            # The references of other directions are in other languages.
            references = [line for direction in own for line in direction.tgt]
            lines = [line for direction in own or directions for line in direction.src]
        except MtkitError as error:
            rows = run.samples()
            if not rows:
                reason = f"there is no text to check the export with ({error})"
                raise MtkitError(f"{reason}; give source text as --check FILE") from error
            name = f"the samples of {run.path} (its data is gone; --check FILE gives other text)"
            lines = [sample["src"] for sample in rows[-1]["samples"]]
    decode = run.config.decode
    longest = longest_sequence(run.config) - decode.max_extra_length
    room = min(decode.max_source_tokens, longest) - 1  # one is EOS
    src = translator.vocabularies.src
    # Without blank lines, because other software translates them.
    fitting = (i for i, x in enumerate(lines) if x.strip() and 0 < len(src.encode(x)) <= room)
    chosen = list(islice(fitting, CHECKED_LINES))
    if not chosen:
        raise MtkitError(
            f"{name}: has no line that can be checked; give other text as --check FILE"
        )
    return CheckText(
        name, [visible(lines[i]) for i in chosen], [references[i] for i in chosen if references]
    )
