"""Translation: text to text, with the model of a run."""

from __future__ import annotations

from mtkit.translate.decoder import Translation
from mtkit.translate.markup import translate_markup
from mtkit.translate.markup_reading import MarkupLines, markup_windows
from mtkit.translate.parsing import TreeText, counted_words
from mtkit.translate.reading import Window, ready_lines, windows
from mtkit.translate.resumable import ResumableOutput
from mtkit.translate.sentences import align_by_sentence
from mtkit.translate.terms import Glossary
from mtkit.translate.translator import Scored, Translator

__all__ = [
    "Glossary",
    "MarkupLines",
    "ResumableOutput",
    "Scored",
    "Translation",
    "Translator",
    "TreeText",
    "Window",
    "align_by_sentence",
    "counted_words",
    "markup_windows",
    "ready_lines",
    "translate_markup",
    "windows",
]
