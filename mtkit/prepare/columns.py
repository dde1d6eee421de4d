"""Finds the columns of source and target by the names in the first line of a table."""

from __future__ import annotations

import re
from importlib import resources

from mtkit.base.language_id import is_language_tag, is_same_language, language_code, parts_of

# Names of columns in English, German, French, Spanish, Italian, Dutch, Portuguese, Polish, Swedish,
# Czech, Russian, Ukrainian, Chinese and Japanese: of the source, of the target, and of either.
_ROWS = (resources.files("mtkit") / "prepare" / "column_names.tsv").read_text(encoding="utf-8")
_SOURCE_NAMES, _TARGET_NAMES, _EITHER_NAMES = (
    row.partition("\t")[2].replace(" ", "|") for row in _ROWS.splitlines()
)
# Characters of a name.
_MAX_NAME = 60
_EITHER = re.compile(rf"(?:{_EITHER_NAMES})+")
_OF_SIDES = [
    re.compile(rf"(?:{_EITHER_NAMES})*(?:{names})(?:{_EITHER_NAMES})*")
    for names in (_SOURCE_NAMES, _TARGET_NAMES)
]
_NAME = re.compile(
    rf"(?<![^\W_])(?:{_SOURCE_NAMES}|{_TARGET_NAMES}|{_EITHER_NAMES})(?![^\W_])", re.IGNORECASE
)


def named_columns(header: list[str], languages: tuple[str, str]) -> list[int] | None:
    """The columns of source and target if the cells of a first line name them; else None.

    Names are those of columns, such as `source` and `sentence1`, and of languages, by code or in
    any language: `de-AT`, `German`, `Deutsch`. A pair such as `German` and `Deutsch` is no header,
    because both name the same column.
    """
    if max(map(len, header)) > _MAX_NAME:
        return None
    # Without the numbers, letters, spaces and underscores of `src_text`, `Sentence 1` and `Text B`.
    names = [re.sub(r"[\W_][ab]$|[\W\d_]+", "", cell.casefold()) for cell in header]
    codes = [language_code(_NAME.sub(" ", cell).strip(" _-:.,()[]{}<>#*\"'")) for cell in header]
    # Beside a column of texts, another one may name their languages.
    if any(name and "lang" not in name for name in names):
        names = ["" if name.endswith("lang") or "language" in name else name for name in names]
    either = [number for number, name in enumerate(names) if _EITHER.fullmatch(name)]
    src, tgt = (
        [number for number, code in enumerate(codes) if code and is_same_language(code, language)]
        or [number for number, name in enumerate(names) if pattern.fullmatch(name)]
        for language, pattern in zip(languages, _OF_SIDES, strict=True)
    )
    if src or tgt:
        src, tgt = src or either, tgt or either
        if len(src) == len(tgt) == 1 and src != tgt:
            return src + tgt
    elif len(either) == 2 and names[either[0]] == names[either[1]]:
        return either if len({header[number].casefold() for number in either}) == 2 else None
    # The names of two languages, of which at least one is not of this corpus, are no pair either.
    # Rare languages do not count: Canoe and Kanu are two of them.
    is_known = all(len(parts_of(code).language) == 2 for code in codes)
    if len(codes) == 2 and is_known and not any(map(is_language_tag, header)):
        order = [1, 0] if src == [1] or tgt == [0] else [0, 1]
        return None if is_same_language(*codes) else order
    return None
