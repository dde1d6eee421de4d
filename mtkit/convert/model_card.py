"""The card of a model, `README.md`: read for an import, and written for an export.

The template is `templates/card.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from mtkit.base.errors import MtkitError, one_line
from mtkit.base.html import render_card
from mtkit.base.text import base_language
from mtkit.config import DecodeConfig
from mtkit.convert.export_record import power_penalty
from mtkit.convert.target import Export, Target
from mtkit.convert.untrusted import open_file, yaml_mapping
from mtkit.run_folder import Run
from mtkit.score import Metric, score

NO_LICENCE = "unknown; its card has none"
_CARD = "README.md"
_FRONT_MATTER = re.compile(r"---\n(.*?)^---$", re.DOTALL | re.MULTILINE)
_LICENCE = re.compile(r"^license:.*(?:\n(?:[ -].*)?$)*", re.MULTILINE)
_CODE_BLOCK = re.compile(r"^```.*\n((?:.*\n)*?)```.*$", re.MULTILINE)
_BIBTEX = re.compile(r"\s*@\w+\{")
# Longer cards are cut, and so is what is kept of one.
_MAX_CARD_BYTES, _MAX_CITATION_LENGTH, _MAX_CITATIONS = 1_000_000, 4_000, 10
_MAX_LICENCE_LENGTH = 200
# The licences and languages that the hub knows, and models on it, have such names.
_LICENCE_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
_CODE = re.compile("[a-z]{2,3}")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_METRICS: tuple[tuple[str, str, Metric | None], ...] = (
    ("bleu", "BLEU", "bleu"),
    ("chrf", "chrF", "chrf"),
    ("f1", "F1 of brackets", None),
)
_UNKNOWN = "not known to mtkit"


def is_hub_name(text: str) -> bool:
    """Whether it can be the name of a model on the hub, as in owner/model."""
    return _HUB_NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class Card:
    """The licence that a card gives, such as `cc-by-4.0`, and citations of BibTeX entries."""

    licence: str = ""
    citations: list[str] = field(default_factory=list)


def read_card(folder: Path) -> Card:
    """The card in a folder; empty if there is none, or none that can be read."""
    try:
        with open_file(folder / _CARD) as file:
            text: str = file.read(_MAX_CARD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return Card()
    text = "\n".join(map(str.rstrip, text.split("\n")))
    front_matter = _FRONT_MATTER.match(text)
    licence = _licence(front_matter[1]) if front_matter else ""
    blocks = filter(_BIBTEX.match, _CODE_BLOCK.findall(text))
    citations = islice(blocks, _MAX_CITATIONS)
    return Card(licence, [block[:_MAX_CITATION_LENGTH].strip() for block in citations])


def _licence(front_matter: str) -> str:
    """The value of `license`, which may continue on lines that are indented or list items."""
    # The other facts, some of which are long tables of scores, are not read.
    if not (lines := _LICENCE.search(front_matter)):
        return ""
    try:
        value = yaml_mapping(lines[0], _CARD)["license"]
    except MtkitError:
        return ""
    names = value if isinstance(value, list) else [value]
    words = ", ".join(name for name in names if isinstance(name, str)).split()
    return " ".join(words)[:_MAX_LICENCE_LENGTH]


def write_card(export: Export, target: Target) -> None:
    """Write the card of an exported run into its folder."""
    translator, run, folder, record = export
    origin, imported = run.manifest.data, run.manifest.imported
    steps = record.steps
    pairs = target.languages(export)
    codes = [base_language(code) for code in dict.fromkeys(code for pair in pairs for code in pair)]
    licence = imported.licence if imported is not None else ""
    step, scores = _scores(run, steps)
    averaged = "mean of the checkpoints of steps" if len(steps) > 1 else "step"
    averaged += f" {', '.join(f'{step:,}' for step in steps)}"
    parameters = sum(parameter.numel() for parameter in translator.model.parameters())
    is_hub = imported is not None and imported.commit and is_hub_name(imported.source)
    text = render_card(
        languages=[code for code in dict.fromkeys(codes) if _CODE.fullmatch(code)],
        licence_id=licence if _LICENCE_ID.fullmatch(licence) else "",
        library=target.hub_library or target.library,
        is_translation=origin.task == "translation",
        base_model=imported.source if imported is not None and is_hub else "",
        title=one_line(run.name),
        facts={
            **_facts(run, pairs),
            "Weights": f"{averaged}, {record.quantization}, {parameters:,} parameters",
            "Decoding": _decoding(run.config.decode, target),
        },
        step=step,
        scores=scores,
        needs=target.needs,
        takes_sentences=target.takes_settings and origin.has_single_sentences,
        code_language=target.code_language,
        code=target.usage(Path(), run.config, translator),
        note=target.note,
        citations=[] if imported is None else imported.citations,
    )
    (folder / _CARD).write_text(text, encoding="utf-8")


def _facts(run: Run, pairs: list[tuple[str, str]]) -> dict[str, str]:
    origin, model = run.manifest.data, run.config.model
    started, imported = run.manifest.started_from, run.manifest.imported
    listed = ", ".join(f"{src or 'unknown'} to {tgt or 'unknown'}" for src, tgt in pairs)
    if run.tokenizers().has_tags_on_both_sides and not origin.directions:
        listed = f"between {len(pairs)} languages"
    what = {"translation": "translates", "parsing": "parses"}[origin.task]
    by_sentence = origin.task == "parsing" or origin.has_single_sentences
    unit = "sentence by sentence" if by_sentence else "line by line"
    layers = f"encoder layers: {model.encoder_layers}, decoder layers: {model.decoder_layers}"
    facts = {
        "What it does": f"{what} {listed or 'unknown languages'}, {unit}",
        "Model": f"Transformer of width {model.d_model}, {layers}",
    }
    if imported is not None:
        commit = f", commit {imported.commit}" if imported.commit else ""
        facts["Converted from"] = f"{imported.source}{commit}"
        facts["Licence of that model"] = imported.licence or NO_LICENCE
    else:
        count = "" if origin.pairs is None else f", {origin.pairs:,} sentence pairs"
        facts["Training data"] = f"{origin.name or 'unknown'}{count}"
        facts["Licence of the data"] = origin.licence or _UNKNOWN
    if started is not None:
        facts["Fine-tuned from"] = f"{started.description}, trained on {started.data or 'unknown'}"
        facts["Licence of that model"] = started.licence or _UNKNOWN
    versions = run.manifest.versions
    facts["Made with"] = ", ".join(f"{what} {version}" for what, version in versions.items())
    return {label: one_line(text) for label, text in facts.items() if text}


def _decoding(decode: DecodeConfig, target: Target) -> str:
    form = "((5 + n) / 6)" if decode.length_penalty_form == "gnmt" else "n"
    text = (
        f"beam size {decode.beam_size}; score divided by {form} ** {decode.length_penalty:g} for "
        f"n subwords; at most {decode.max_extra_length} subwords more than the source has"
    )
    if target.takes_settings and decode.length_penalty_form == "gnmt":
        text += (
            f". This software divides by n ** length_penalty; {power_penalty(decode):g} is nearest"
        )
    return text


def _scores(run: Run, steps: list[int]) -> tuple[int, dict[str, list[tuple[str, float, str]]]]:
    """The last validation of these weights: its step, and for each set name, value, signature."""
    rows = [row for row in run.metrics() if "valid_loss" in row and row["step"] <= max(steps)]
    if not rows:
        return 0, {}
    last = rows[-1]
    main = {key.removeprefix("valid_"): value for key, value in last.items()}
    name = run.manifest.data.name
    sets = {f"validation set of {name}" if name else "validation set": main}
    sets |= last.get("valid_also", {})
    version = run.manifest.versions.get("sacrebleu")
    scores = {
        one_line(name): [
            (label, values[key], _signature(metric, version) if metric else "")
            for key, label, metric in _METRICS
            if values.get(key) is not None
        ]
        for name, values in sets.items()
    }
    return last["step"], {name: of_set for name, of_set in scores.items() if of_set}


def _signature(metric: Metric, version: str | None) -> str:
    """The signature of scores that were computed with a version of sacreBLEU, if it is known."""
    now, _, _ = score(["."], [["."]], metric=metric).signature.rpartition("|version:")
    return f"{now}|version:{version}" if version else now
