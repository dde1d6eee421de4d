"""Translation: text to text, with the model of a run."""

from __future__ import annotations

from mtkit.translate.decoder import Translation
from mtkit.translate.resumable import ResumableOutput
from mtkit.translate.translator import Scored, Translator, Window, ready_lines, windows

__all__ = [
    "ResumableOutput",
    "Scored",
    "Translation",
    "Translator",
    "Window",
    "ready_lines",
    "windows",
]
