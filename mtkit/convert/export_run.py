"""Exports a trained model: for CTranslate2, for Hugging Face, or as a run folder of one checkpoint.

Before the output folder appears, the exported files are loaded by the target software, which must
give the same greedy translations and log-probabilities as the run. A setting that a format cannot
express is refused by name.

Every format supports one vocabulary for both sides or one for each.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from safetensors import SafetensorError

import mtkit
from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import json_text
from mtkit.base.folders import check_writable, new_folder
from mtkit.base.memory import memory_explained
from mtkit.base.text import read_lines
from mtkit.convert.check import BOUNDS, RunModel, compare, load_untagged
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
from mtkit.convert.model_card import NO_LICENCE, write_card
from mtkit.convert.run_copy import RUN_COPY
from mtkit.convert.target import Target
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.translate import Translator

log = logging.getLogger(__name__)

# Lines of the check.
CHECKED_LINES = 500

TARGETS: dict[Format, Target] = {one.name: one for one in (CTRANSLATE2, HUGGINGFACE, RUN_COPY)}


@memory_explained("exporting; export on a machine with more memory")
def export(
    run: Run,
    out: Path,
    *,
    format: Format,
    checkpoint: str | None = None,
    quantization: Quantization = "float32",
    check: Path | None = None,
    force: bool = False,
) -> str:
    """Export the model of a run to a folder, and check the exported files.

    Args:
        format: the other software, or `safetensors` for a run folder.
        checkpoint: as in `Run.select`.
        quantization: the type of the matrices for CTranslate2.
        check: source text for the check; by default the validation text of the run's data, or the
            samples of the run folder if the data are gone.
        force: replace an earlier export.

    Returns:
        A few lines of code that use the folder.

    Raises:
        MtkitError: if the format cannot express the model, its library is missing, the folder
            cannot be written, or the export does not agree with the run.
    """
    target = TARGETS[format]
    library = target.library
    if library and importlib.util.find_spec(library) is None:
        raise MtkitError(f"--format {format} needs {library}: pip install 'mtkit[export]'")
    target.check_expressible(run.config.model)
    check_writable(
        out,
        force=force,
        kind="an export",
        place="OUT",
        is_kind=lambda folder: (folder / RECORD).is_file(),
    )
    steps = [chosen.step for chosen in run.chosen(checkpoint)]
    greedy = plain_greedy(run.config.decode)
    # Linearised, because other software has what the model of a parser writes, and not the trees.
    translator = load_untagged(
        run, checkpoint=checkpoint, config=greedy, prepared=False, linearised=True
    )
    text, lines = _check_text(run, translator, check)
    training_lines = run.manifest.data.lines
    record = ExportRecord(
        format=format,
        quantization=quantization,
        run=run.name,
        checkpoint=checkpoint or f"average:{len(steps)}",
        steps=steps,
        data=run.manifest.data.model_dump(include={"name", "src_lang", "tgt_lang"}),
        versions={"mtkit": mtkit.__version__},
        decode=run.config.decode.model_dump(),
        lines=None if training_lines is None else training_lines.model_dump(),
    )
    if library:
        record.versions[library] = importlib.metadata.version(library)
    with new_folder(out) as folder:
        target.write(translator, run, folder, record)
        log.info("converted; now loading and checking the exported files")
        try:
            theirs = target.load(folder, run.config.decode)
        except (MtkitError, SafetensorError, RuntimeError, ValueError, OSError) as error:
            raise MtkitError(
                f"{out}: not written, because the export cannot be loaded: "
                f"{reason_of(error, most=300)}"
            ) from error
        agreement = compare(RunModel(translator), theirs, lines, text=text)
        bounds = BOUNDS[quantization]
        if not agreement.holds(bounds):
            raise MtkitError(
                f"{out}: not written, because the export does not agree with {run.path}: "
                f"{agreement}; {bounds} are required"
            )
        log.info("checked: %s", agreement)
        # The local path of the text is left out.
        checked = {k: v for k, v in asdict(agreement).items() if k != "text"}
        content = asdict(record) | {"check": checked}
        if (imported := run.manifest.imported) is not None:
            content["imported"] = imported.model_dump(include={"source", "licence", "citations"})
            log.info(
                "licence of the model (%s): %s", imported.source, imported.licence or NO_LICENCE
            )
        (folder / RECORD).write_text(json_text(content, indent=2) + "\n", encoding="utf-8")
        write_card(run, folder, record, translator, target)
    return target.usage(out, run.config, translator.vocabularies)


def _check_text(run: Run, translator: Translator, check: Path | None) -> tuple[str, list[str]]:
    """The name and the lines of the text for the check.

    Blank lines are left out, because other software translates them, and lines that would be cut.
    """
    if check is not None:
        name, lines = str(check), list(read_lines(check))
    else:
        try:
            if run.manifest.imported is not None:
                raise MtkitError("the run was imported, without data")
            data = PreparedData.open(run.data_path)
            name, lines = f"the validation text of {data.path}", data.text("valid")[0]
        except MtkitError as error:
            rows = run.samples()
            if not rows:
                raise MtkitError(
                    f"there is no text to check with ({error}); give source text as --check FILE"
                ) from error
            name = f"the samples of {run.path} (its data are gone; --check FILE gives other text)"
            lines = [sample["src"] for sample in rows[-1]["samples"]]
    decode = run.config.decode
    longest = longest_sequence(run.config) - decode.max_extra_length
    room = min(decode.max_source_tokens, longest) - 1  # one is EOS
    src = translator.vocabularies.src
    fitting = (line for line in lines if line.strip() and 0 < len(src.encode(line)) <= room)
    chosen = list(islice(fitting, CHECKED_LINES))
    if not chosen:
        raise MtkitError(f"no line to check with in {name}; give source text as --check FILE")
    return name, chosen
