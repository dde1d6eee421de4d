"""What the other libraries make of a model, in a process of its own: exported.py WHAT ARGUMENTS.

CTranslate2 changes how its process computes, and PyTorch's results with it, in the last digits.
"""

import copy
import importlib.util
import json
import sys
import types
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mtkit.base.errors import MtkitError
from mtkit.convert import argos, export_run
from mtkit.convert.ctranslate2 import write_ctranslate2
from mtkit.convert.target import Export
from mtkit.run_folder import Run
from mtkit.translate import Translator

argos_engine = argos.open_ctranslate2
LIBRARIES = {"ctranslate2": "ctranslate2", "huggingface": "transformers", "argos": "ctranslate2"}
NUMBERS = ["one two three", "nine", "four four five one two six", "seven eight"]


# What tokenizers could read in another way.
TEXTS = [
    "A dog runs.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Ÿ ĳ ſ ﬁ ½ ① ㎏ ™ … Å",
    unicodedata.normalize("NFD", "Tiếng Việt, Ǖ, é; हिन्दी क़; 안녕하세요"),
    "½́ ﬁ́ ẹ́ ‍👨‍👩‍👧‍👦 👍🏽 🇩🇪 😀",
    "Привет, мир! 你好,世界。こんにちは ｶﾞ ﾎﾟ مرحبا שָׁלוֹם ไทย 𝔘𝔫𝔦 𓀀",
    "  spaces   at\tboth\u00a0ends \u3000 ",
    "a\u200bb\u00adc\u2028d\x07e\ufefff",
    "▁a ▁▁ b▁",
    "</s> and <s>, <pad>, <unk>, <0x41> are text",
    "tags <b>bold</b> &amp; 100 % 3,141.59 ... ?! \\n",
    "it 's , is n't it ?",
    "x" * 300,
]


def needs(format: str) -> Any:
    """A parameter for slow tests of a format, skipped where a library of it is missing."""
    return pytest.param(format, marks=[skipped_without(format), pytest.mark.slow])


def skipped_without(format: str) -> pytest.MarkDecorator:
    """A mark that skips a test where a library of a format is missing."""
    target = export_run.TARGETS[format]  # type: ignore[index]
    names = (target.library, *target.more_libraries)
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def damage(file: Path, how: str) -> None:
    """Change a written file as a disk or a bug might."""
    content = bytearray(file.read_bytes())
    if how == "cut off":
        del content[len(content) // 2 :]
    elif how == "zeros":
        content[-4096:] = bytes(4096)
    else:
        # The same numbers, in another order.
        content[-4096:] = content[-4096:-2048][::-1] + content[-2048:]
    file.write_bytes(content)


def refusals(run: str, out: str, format: str) -> list[str]:
    """What `export` says when the weights are damaged as soon as they are written."""
    target = export_run.TARGETS[format]  # type: ignore[index]
    original = target.write
    messages = []
    for how in ("cut off", "zeros", "another order"):

        def write(export: Export, how: str = how) -> None:
            original(export)
            (weights,) = export.folder.rglob("model.[bs]*")
            damage(weights, how)

        with mock.patch.object(target, "write", write), pytest.raises(MtkitError) as caught:
            export_run.export(
                Run.open(Path(run)),
                Path(out + getattr(target, "suffix", "")),
                format=target.name,
                quantization="float32",
            )
        messages.append(str(caught.value))
    return messages


class OneOtherTranslation:
    """An engine of CTranslate2 that translates the first line with a subword less."""

    def __init__(self, folder: Path) -> None:
        self.engine = argos_engine(folder)
        self.score_batch = self.engine.score_batch

    def translate_batch(self, sources: list[list[str]], **options: Any) -> Any:
        self.first = getattr(self, "first", sources[0])
        results = self.engine.translate_batch(sources, **options)
        for source, result in zip(sources, results, strict=True):
            if source == self.first:
                hypotheses = [result.hypotheses[0][:-1]]
                results[sources.index(source)] = types.SimpleNamespace(hypotheses=hypotheses)
        return results


def wrong_packages(run: str, out: str) -> list[str]:
    """What `export` says of packages for Argos that are wrong in one thing, in both types."""

    def other_weight(change: float) -> Callable[..., None]:
        def write(model: Any, *arguments: Any, **options: Any) -> None:
            wrong = copy.deepcopy(model)
            wrong.decoder[-1].residuals[-1].norm.bias.data[0] += change
            write_ctranslate2(wrong, *arguments, **options)

        return write

    messages = []
    for quantization, name, wrong in (
        ("float32", "write_ctranslate2", other_weight(0.1)),
        ("int8", "write_ctranslate2", other_weight(100.0)),
        ("float32", "open_ctranslate2", OneOtherTranslation),
    ):
        with mock.patch.object(argos, name, wrong), pytest.raises(MtkitError) as caught:
            export_run.export(
                Run.open(Path(run)),
                Path(f"{out}.argosmodel"),
                format="argos",
                quantization=quantization,  # type: ignore[arg-type]
            )
        messages.append(str(caught.value))
    return messages


def round_trips(folder: str, texts: str) -> list[dict[str, Any]]:
    """Ids of texts as source and as target, and the text that the latter decode to."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = json.loads(Path(texts).read_text(encoding="utf-8"))
    sources = tokenizer(lines)["input_ids"]
    targets = tokenizer(text_target=lines)["input_ids"]
    decoded = tokenizer.batch_decode([[1, *ids, 0] for ids in targets], skip_special_tokens=True)
    return [
        {"src": src, "tgt": tgt, "text": text}
        for src, tgt, text in zip(sources, targets, decoded, strict=True)
    ]


def quantized(run: str, folder: str) -> dict[str, Any]:
    """Bytes of the weights for CTranslate2 by type, and whether the model is what it was."""
    translator = Translator.load(run, device="cpu", prepared=False)
    model = translator.model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    size = {}
    for kind in ("float32", "float16", "int8"):
        place = Path(folder) / kind
        write_ctranslate2(model, translator.vocabularies, place, longest=100, quantization=kind)
        size[kind] = (place / "model.bin").stat().st_size
    after = model.state_dict()
    return {"bytes": size, "unchanged": all(v.equal(after[k]) for k, v in before.items())}


if __name__ == "__main__":
    jobs = {job.__name__: job for job in (refusals, wrong_packages, round_trips, quantized)}
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])))
