"""Translation: text to text, with the model of a run. PyTorch is loaded only if it decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.translate.aligning import align_by_sentence
    from mtkit.translate.choosing import default_workers, describe_engine
    from mtkit.translate.doubts import Doubts
    from mtkit.translate.markup import (
        MarkupLines,
        MarkupPairs,
        markup_steps,
        markup_text,
        markup_windows,
        translate_markup,
    )
    from mtkit.translate.native_decoder import NativeDecoder, decoder_of_weights
    from mtkit.translate.reading import Window, ready_lines, windows
    from mtkit.translate.requests import Sentence, Translation
    from mtkit.translate.resumable import ResumableOutput
    from mtkit.translate.terms import Glossary
    from mtkit.translate.translator import Translator

__all__ = [
    "Doubts",
    "Glossary",
    "MarkupLines",
    "MarkupPairs",
    "NativeDecoder",
    "ResumableOutput",
    "Sentence",
    "Translation",
    "Translator",
    "Window",
    "align_by_sentence",
    "decoder_of_weights",
    "default_workers",
    "describe_engine",
    "markup_steps",
    "markup_text",
    "markup_windows",
    "ready_lines",
    "translate_markup",
    "windows",
]

__getattr__ = lazy_names(
    __name__,
    __all__,
    *(
        "reading",
        "resumable",
        "requests",
        "doubts",
        "choosing",
        "native_decoder",
        "translator",
        "terms",
        "aligning",
        "markup",
    ),
)
