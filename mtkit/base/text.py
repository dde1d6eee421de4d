"""Text files, plain or compressed, and the codes of their languages."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import functools
import gzip
import io
import logging
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from mtkit.base.errors import MtkitError, one_line

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

log = logging.getLogger(__name__)

# Bytes of a line; a longer one is refused while it is read, as of a compressed file of 2 GB.
MAX_LINE_BYTES = 1 << 26

# By the endings of the names of compressed files: the program, and what writes and reads them.
COMPRESSIONS: dict[str, tuple[str, Callable[..., Any], Callable[[], Any]]] = {
    ".gz": ("gzip", gzip.open, zlib.decompressobj),
    ".bz2": ("bzip2", bz2.open, bz2.BZ2Decompressor),
    ".xz": ("xz", lzma.open, lzma.LZMADecompressor),
    ".zst": ("zstd", zstd.open, zstd.ZstdDecompressor),
}
# Bytes that are read of a compressed file at a time.
_CHUNK = 1 << 16
_FOLLOWED = "something follows the end of its compressed data"
# The exceptions of reading a file; the last three are from damaged compression.
_DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, zstd.ZstdError)


class _Streams(io.RawIOBase):
    """The content of compressed streams one after another, and perhaps zeros, in a file.

    Python's own readers of .bz2 and .xz end without an error where a stream is damaged.
    """

    def __init__(self, file: IO[bytes], begin: Callable[[], Any], *, closes: bool) -> None:
        self._file, self._begin, self._closes = file, begin, closes
        self._stream = begin()

    def readable(self) -> bool:
        """As of every file that is read."""
        return True

    def close(self) -> None:
        """Close the file too, if it was opened for this."""
        if self._closes:
            self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Raises one of `_DAMAGE` for a file that was cut, or has something else behind its end."""
        content, stream = b"", self._stream
        while not content:
            is_next = stream.eof
            given = stream.unused_data.lstrip(b"\0") if is_next else b""
            while not given and (is_next or stream.needs_input):
                if not (chunk := self._file.read(_CHUNK)):
                    if is_next:
                        return 0
                    raise EOFError("Compressed file ended before the end-of-stream marker")
                given = chunk.lstrip(b"\0") if is_next else chunk
            if is_next:
                self._stream = stream = self._begin()
            try:
                content = stream.decompress(given, len(buffer))
            except _DAMAGE as error:
                raise EOFError(_FOLLOWED) if is_next else error from None
        buffer[: len(content)] = content
        return len(content)


def open_binary(path: Path, *, raw: IO[bytes] | None = None) -> IO[bytes]:
    """A plain or compressed (.gz, .bz2, .xz, .zst) file, open for reading; else `MtkitError`.

    A caller that needs the position in the file gives it open, as `raw`, and closes it.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".gz":
            return cast("IO[bytes]", gzip.open(path if raw is None else raw))
        file = path.open("rb") if raw is None else raw
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # the name is not possible
        raise MtkitError(f"{path}: {error}") from error
    if kind in COMPRESSIONS:
        streams = _Streams(file, COMPRESSIONS[kind][2], closes=raw is None)
        return io.BufferedReader(streams, _CHUNK)
    return file


def uncompressed_name(path: Path) -> Path:
    """The path without the ending of a compression, if it has one."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path


def compressed(path: Path, raw: IO[bytes]) -> contextlib.AbstractContextManager[IO[bytes]]:
    """A stream to write plain bytes to, which go to `raw` with the compression of a path.

    Equal bytes give an equal file: no time and no file name is stored. The caller closes `raw`,
    after the stream.
    """
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=raw, mtime=0)  # type: ignore[return-value]
    if suffix not in COMPRESSIONS:
        return contextlib.nullcontext(raw)
    stream: IO[bytes] = COMPRESSIONS[suffix][1](raw, "wb")
    return stream


@contextlib.contextmanager
def damage_reported(name: Path | str) -> Iterator[None]:
    """Report errors while a file is read, such as damaged compression, in one line."""
    try:
        yield
    except _DAMAGE as error:
        reason = getattr(error, "strerror", None) or _other_content(Path(name)) or str(error)
        # Python says "Not a gzipped file" of what follows the end of one, too.
        if reason.startswith(("Not a gzipped file", _FOLLOWED)):
            program, *_ = COMPRESSIONS[Path(name).suffix.lower()]
            reason = f"{_FOLLOWED}; {program} -dc prints what is before it"
        raise MtkitError(f"{name}: cannot be read: {reason}") from error


def _other_content(path: Path) -> str:
    """What a file is that is not compressed as its name says; empty if it is, or needs not be."""
    ending = path.suffix.lower()
    if ending not in COMPRESSIONS or not path.is_file():
        return ""
    with path.open("rb") as file:
        kind = _other_file(file.read(_MAX_SIGN))
    return "" if kind.endswith(f"name it {ending}") else f"it is {kind or f'no {ending} file'}"


def decode_lines(stream: Iterable[bytes], *, name: str, keeps_mark: bool = False) -> Iterator[str]:
    r"""The lines of a byte stream, which end only at \n.

    A byte-order mark at the start and the \r of a \r\n are not part of a line. A stream without
    any \n that has several \r is one line; this gives a warning.

    Args:
        stream: chunks that end after each \n, as binary files yield them.
        keeps_mark: leave a byte-order mark in the first line, with a warning, as sacreBLEU does.

    Raises:
        MtkitError: for the first line that is not UTF-8, with its number, or if reading fails.
    """
    # A binary file reads a line only up to a limit; the lines of others are in memory already.
    limited = getattr(stream, "readline", None)
    lines = stream if limited is None else iter(lambda: limited(MAX_LINE_BYTES + 1), b"")
    with damage_reported(name):
        for number, raw in enumerate(lines, start=1):
            refuse_long_line(f"{name}, line {number}", len(raw))
            if number == 1:
                refuse_other_files(name, raw)
            if number == 1 and has_old_line_ends(raw):
                log.warning("%s: %s; it is read as one line", one_line(name), OLD_LINE_ENDS)
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1 and raw.startswith(codecs.BOM_UTF8):
                if keeps_mark:
                    log.warning(
                        "%s: begins with a byte-order mark, which sacreBLEU takes for a part of "
                        "the first word; remove it",
                        one_line(name),
                    )
                else:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError:
                raise MtkitError(f"{name}, line {number}: {encoding_fault(raw)}") from None


# The message about such text; the command can be pasted into a shell.
OLD_LINE_ENDS = r"lines end at \n, and it has only \r; convert it with tr '\r' '\n' for example"


def refuse_long_line(place: str, size: int) -> None:
    """Refuse a line of `size` bytes, or more, if it is too long, before it fills the memory."""
    if size > MAX_LINE_BYTES:
        raise MtkitError(
            f"{place}: is longer than {MAX_LINE_BYTES >> 20} MiB; break it into lines of a "
            "sentence or paragraph each"
        )


def has_old_line_ends(text: bytes) -> bool:
    r"""Whether all line ends of a text are \r, as on old Macs."""
    return text.count(b"\r") > 1 and b"\n" not in text


# What a text in another encoding begins with: its mark, or ASCII with a NUL for each character.
_ENCODINGS = {
    "UTF-32": rb"\xff\xfe\0\0|\0\0\xfe\xff",
    "UTF-16": rb"\xff\xfe|\xfe\xff",
    "UTF-16LE": rb"(?:[^\0]\0){4}",
    "UTF-16BE": rb"(?:\0[^\0]){4}",
}
_CONVERT = "{0}, and must be UTF-8; convert it, with iconv -f {0} -t UTF-8 for example"
# The first bytes of files that are no text in UTF-8, at most so many.
_MAX_SIGN = 10
_OTHER_FILES = {
    "compressed by gzip; name it .gz": rb"\x1f\x8b",
    "compressed by bzip2; name it .bz2": rb"BZh[1-9](?:1AY&SY|\x17rE8P)",
    "compressed by xz; name it .xz": rb"\xfd7zXZ\0",
    "compressed by Zstandard; name it .zst": rb"\x28\xb5\x2f\xfd",
    "a zip file, perhaps a document; translate reads it as .docx, for example": rb"PK\x03\x04",
    "a PDF, and must be text": rb"%PDF-\d\.\d\s",
    **{_CONVERT.format(encoding): pattern for encoding, pattern in _ENCODINGS.items()},
}


def _other_file(beginning: bytes) -> str:
    kinds = (kind for kind, pattern in _OTHER_FILES.items() if re.match(pattern, beginning))
    return next(kinds, "")


def refuse_other_files(name: str, beginning: bytes, *, is_xml: bool = False) -> None:
    """Refuse, by its first bytes, a file that is no text, or no XML and in UTF-16 or UTF-32."""
    if (kind := _other_file(beginning)) and not (is_xml and kind.startswith("UTF-")):
        raise MtkitError(f"{name}: is {kind}")


def encoding_fault(text: bytes, *, is_escaped: bool = False) -> str:
    r"""Why bytes are not UTF-8, and what to do; empty if they are.

    With `is_escaped`, the file is text, and half of a character is from an escape such as \ud800.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        wrong = text[error.start : error.start + 3]
        if is_escaped and re.match(rb"\xed[\xa0-\xbf][\x80-\xbf]", wrong):
            surrogate = ord(wrong.decode(errors="surrogatepass"))
            return f"has \\u{surrogate:04x} alone, which is half of a character; remove it"
        return (
            f"not UTF-8 (byte 0x{wrong[0]:02x} at position {error.start + 1}); convert the file, "
            "with iconv for example"
        )
    return ""


def read_lines(path: Path, *, keeps_mark: bool = False) -> Generator[str, None, None]:
    """The lines of a plain or compressed text file, one at a time; as from `decode_lines`."""
    with open_binary(path) as stream:
        yield from decode_lines(stream, name=str(path), keeps_mark=keeps_mark)


# Of each format a sign of a line, how many lines must have one, and what to do.
_FORMATS = {
    "HTML": (
        r"(?i)\s*<(?:!doctype html|html)\b|.*</(?:p|div|span|li|ul|td|tr|h[1-6]|b|i|a)>",
        1,
        "with --format html, tags keep their places",
    ),
    "XML": (r"\s*<(?:\?xml|tmx|xliff)\b", 1, "if it is XLIFF, give --format xlf"),
    "WebVTT": (r"WEBVTT(?:\s|$)", 1, "with --format vtt, its times stay"),
    "SRT": (r"\s*\d+:\d\d:\d\d[,.]\d{3}\s+-->\s", 1, "with --format srt, its times stay"),
    "PO": (r'(?:msgid|msgstr(?:\[\d\])?)\s+"', 1, "with --format po, its strings are filled"),
    "JSON": (r'\s*"(?:[^"\\]|\\.)*+"\s*:\s*["{\[]', 2, ""),
    "LaTeX": (r"\\(?:documentclass|usepackage|begin|section)\b", 1, ""),
    "Markdown": (
        r"#{1,6} \S|.*\*\*\S(?:.*\S)?\*\*|.*\]\((?:https?://|[\w./#-]+\))|```|~~~"
        r"|\|?(?:[ :]*-{3,}[ :]*\|)+",
        2,
        "with --format md, its marks stay",
    ),
    "columns with tabs between them": (
        r"[^\t\w]*\w[^\t]*\t.*[^\W\d_]",
        10,
        "give only the column to translate, by cut -f1 for example",
    ),
}
# The lines that are looked at, and of each as many characters.
_MAX_LINES, _MAX_CHARACTERS = 50, 1000


# Control characters that `Tokenizer` removes, as the inside of a character class; others become
# spaces.
REMOVED = r"\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f"
_REMOVED = re.compile(f"[{REMOVED}]")


def with_format_noted(lines: Iterable[str]) -> Iterator[str]:
    """The same lines of text.

    Warns if the first ones look like another format, and of the first line with a control character
    that the tokenizer removes.
    """
    left = {name: count for name, (_, count, _) in _FORMATS.items()}
    control: re.Match[str] | None = None
    for number, line in enumerate(lines):
        for name in [*left] if number < _MAX_LINES else ():
            left[name] -= re.match(_FORMATS[name][0], line[:_MAX_CHARACTERS]) is not None
            if not left[name]:
                advice = _FORMATS[name][2] or "its marks may be lost; give only its text"
                log.warning("the input looks like %s, and is read as text: %s", name, advice)
                left = {}
                break
        if not control and (control := _REMOVED.search(line)):
            message = "line %s has the control character U+%04X; translations are without such"
            log.warning(message, f"{number + 1:,}", ord(control[0]))
        yield line


def check_language(option: str, language: str) -> None:
    """Refuse text that has not the form of a language code; the error names the option."""
    is_word = isinstance(language, str) and re.fullmatch(r"\S{1,100}", language)
    if not is_word or one_line(language) != language:
        raise MtkitError(f"{option}: {language!r} is not a language code, such as en or pt-BR")


# Characters of scripts without spaces, as the inside of a character class: Thai, Lao, Myanmar,
# Khmer, Japanese and Chinese.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Languages whose words are not separated by spaces.
UNSPACED_LANGUAGES = {"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"}
# Marks that belong to the letter before them, as the inside of a character class; and what a word
# has: `\w` alone would cut it at the marks.
LETTER_MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u0610-\u061a\u064b-\u065f"
    r"\u0670\u06d6-\u06dc\u0711\u0730-\u074a\u0900-\u0963\u0966-\u0df3\u1ab0-\u1aff"
    r"\u1b00-\u1b44\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
WORD = rf"\w{LETTER_MARKS}"
# Marks that a sentence ends with, in several scripts.
END_MARKS = ".!?…。．｡！？।॥؟۔።"


@functools.lru_cache(1024)
def base_language(code: str) -> str:
    """The language of a code, without script and region: `pt` for `pt-BR` and `por_Latn`.

    A code of three letters becomes that of two, if the language or its macrolanguage has one.
    """
    language = code.replace("_", "-").partition("-")[0].lower()
    if len(language) == 3:
        # Here, because most programs that import this need no table of languages.
        import langcodes

        if langcodes.tag_is_valid(language):
            return langcodes.standardize_tag(language, macro=True).partition("-")[0]
    return language
