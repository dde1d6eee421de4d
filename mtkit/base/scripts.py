"""Which characters are letters, and which script a language is written in."""

from __future__ import annotations

import functools
import re
import unicodedata

import numpy as np
import numpy.typing as npt

from mtkit.base.invisible import IGNORABLE

LETTER, CONTROL, INVISIBLE, DIGIT, IGNORED = 1, 2, 4, 8, 16

# Unicode has no letters from here on; higher code points count as the last one, which is unused.
END = 0x40000


@functools.cache
def kinds_of_characters() -> npt.NDArray[np.uint8]:
    """The properties of each code point below `END`, as bits."""
    # Marks are parts of letters in many scripts. Private-use characters and those of future
    # Unicode versions count as visible.
    of_category = {"L": LETTER, "M": LETTER, "N": DIGIT, "Z": INVISIBLE, "Cf": INVISIBLE}
    of_category |= dict.fromkeys(("Cc", "Zl", "Zp"), CONTROL | INVISIBLE)
    kinds = np.zeros(END, np.uint8)
    for code, category in enumerate(map(unicodedata.category, _everything())):
        kinds[code] = of_category.get(category) or of_category.get(category[0], 0)
    # A tab is white space; the newline is the line end added above.
    kinds[[ord("\t"), ord("\n")]] = INVISIBLE
    # A byte-order mark within text, and the replacement character for invalid bytes.
    kinds[[0xFEFF, 0xFFFD]] |= CONTROL
    # May be dropped by `visible`, as some from `END` on; between U+1E000 and `END` there is none.
    ignored = re.finditer(f"[{IGNORABLE}]", "".join(map(chr, range(0x1E000))))
    kinds[[match.start() for match in ignored] + [END - 1]] |= IGNORED
    return kinds


# Scripts of ISO 15924 that are several scripts in Unicode.
_SCRIPTS = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}


@functools.cache
def script_table(language: str) -> npt.NDArray[np.bool_] | None:
    """Which code points are letters in the scripts of a language; None if it is unknown.

    Without a script or region in its code, these are the scripts of all its regions in the CLDR:
    `sr` is Cyrillic or Latin, and `sr-Latn` Latin.
    """
    # Here, because most programs that import this need no table, and these take a while to load.
    import langcodes
    import langcodes.tag_parser
    import regex
    from langcodes.data_dicts import LIKELY_SUBTAGS

    try:
        tag = langcodes.get(language)
    except langcodes.tag_parser.LanguageTagError:
        return None
    # For a language that it does not know, langcodes returns the most common script.
    is_known = any(
        broader in LIKELY_SUBTAGS
        for broader in tag.broader_tags()
        if broader.partition("-")[0] != "und"
    )
    script = tag.maximize().script if is_known else tag.script
    if script is None or not langcodes.Language.get(tag.language or "und").is_valid():
        return None
    scripts = {script}
    if tag.script is None and tag.territory is None:
        scripts |= {
            langcodes.get(likely).script or script
            for code, likely in LIKELY_SUBTAGS.items()
            if re.fullmatch(rf"{tag.language}-(?:[A-Z]{{2}}|\d{{3}})", code)
        }
    unicode_names = {name for each in scripts for name in _SCRIPTS.get(each, (each,))}
    names = "".join(rf"\p{{Script={name}}}" for name in sorted(unicode_names))
    try:
        # Marks and letters shared by several scripts count for each of them.
        pattern = regex.compile(rf"[{names}\p{{Script=Zinh}}\p{{Script=Zyyy}}]+")
    except regex.error:
        return None
    table = np.zeros(END, bool)
    for block in pattern.finditer(_everything()):
        table[block.start() : block.end()] = True
    return table


def _everything() -> str:
    """All code points below `END`, in their order."""
    # Python knows this name of an encoding, in the order of bytes of the CPU, without its files.
    return np.arange(END, dtype=np.uint32).tobytes().decode("utf-32", "surrogatepass")


def script_share(text: str, language: str) -> tuple[int, float] | None:
    """The letters of a text, and the share in a script of its language; None if it is unknown."""
    table = script_table(language)
    if table is None:
        return None
    codes = np.frombuffer(text.encode("utf-32", "surrogatepass"), np.uint32)[1:]
    codes = np.minimum(codes, END - 1)
    is_letter = (kinds_of_characters()[codes] & LETTER) != 0
    letters = int(is_letter.sum())
    return letters, float((is_letter & table[codes]).sum()) / max(1, letters)
