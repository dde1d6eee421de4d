"""Translation: text to text, with the model of a run."""

from __future__ import annotations

from mtkit.translate.aligning import align_by_sentence
from mtkit.translate.doubts import Doubts
from mtkit.translate.markup import MarkupLines, markup_windows, translate_markup
from mtkit.translate.reading import Window, ready_lines, windows
from mtkit.translate.requests import Translation
from mtkit.translate.resumable import ResumableOutput
from mtkit.translate.terms import Glossary
from mtkit.translate.translator import Translator

__all__ = [
    "Doubts",
    "Glossary",
    "MarkupLines",
    "ResumableOutput",
    "Translation",
    "Translator",
    "Window",
    "align_by_sentence",
    "markup_windows",
    "ready_lines",
    "translate_markup",
    "windows",
]
