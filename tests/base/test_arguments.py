"""Arguments of the functions that users call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from mtkit import DecodeConfig
from mtkit.base.arguments import ArgumentError, checks_arguments
from mtkit.base.errors import MtkitError
from mtkit.config import Count, load_config
from mtkit.prepare import Corpus, PrepareOptions, parallel_files, prepare, prepare_files
from mtkit.score import score
from mtkit.translate import Glossary, Translator

if TYPE_CHECKING:
    from mtkit.tokenizer import Tokenizer


@checks_arguments
def example(
    lines: Iterable[str],
    out: Path | None = None,
    *_more: int,
    count: Count = 1,
    share: float = 0.5,
    kind: Literal["a", "b"] = "a",
    pairs: Sequence[tuple[Path, Path]] = (),
    files: Mapping[str, Path] | None = None,
    place: Path | str | Sequence[Path | str] = "",
    terms: Mapping[str, str] | None = None,
    later: Tokenizer | None = None,
    **_others: Any,
) -> Any:
    return lines, out, count, share, pairs, files, place


@checks_arguments
@dataclass(frozen=True)
class Example:
    names: Sequence[str] = ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lines": "text"}, "lines: pass a list of lines, such as [text], not str"),
        ({"lines": b"text"}, "lines: pass a list of lines, such as [text], not bytes"),
        ({"lines": ["a", None]}, "lines: expected a list of text, not ['a', None]"),
        ({"lines": {"a": "b"}}, "lines: expected a list of text, not {'a': 'b'}"),
        ({"lines": None}, "lines: expected a list of text, not None"),
        ({"count": 0}, "count: expected a whole number of at least 1, not 0"),
        ({"count": True}, "count: expected a whole number of at least 1, not True"),
        ({"count": np.float64(2)}, "count: expected a whole number of at least 1, not"),
        ({"share": "0.5"}, "share: expected a number, not '0.5'"),
        ({"kind": "c"}, "kind: expected one of a, b, not 'c'"),
        ({"out": b"x"}, "out: expected None, or a path, not b'x'"),
        ({"pairs": [("a",)]}, "pairs: expected a list of (a path, a path), not"),
        ({"terms": {"a": 3}}, "terms: expected None, or a dictionary of text and text, not"),
        ({"later": {"a": 3}}, "later: expected None, or Tokenizer, not"),
        ({"place": 3}, "place: expected a path, or a list of these, not 3"),
    ],
)
def test_an_argument_of_another_type_is_one_line_that_names_it(wrong: Any, message: str):
    with pytest.raises(ArgumentError) as refused:
        example(**{"lines": ["a"]} | wrong)
    assert str(refused.value).startswith(message)


def test_what_is_right_is_passed_on_and_text_becomes_a_path():
    lines = iter(["a", "b"])
    pairs = [("a", Path("b"))]
    given = {"share": 1, "kind": "b", "pairs": pairs, "files": {"a": "b"}, "place": "c", "other": 3}
    terms, count = {"a": "b"}, np.int64(3)
    taken = example(lines, "x", 5, 6, count=count, terms=terms, later=Example(), **given)
    paths = [(Path("a"), Path("b"))], {"a": Path("b")}, "c"
    assert taken == (lines, Path("x"), 3, 1, *paths)
    # NumPy's numbers cannot be written as JSON.
    assert type(taken[2]) is int
    assert example(["a"])[1] is None
    assert Example(["a"]).names == ["a"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Example(names="ab"),
        lambda: example(),
        lambda: DecodeConfig(beam_size=0),
        lambda: DecodeConfig.model_validate("x"),
        lambda: load_config(None),
        lambda: load_config("demo", [3]),
        lambda: load_config("base", {"decode.beam_size": 2}),
        lambda: Translator.load([]),
        lambda: Translator.load(None),
        lambda: Translator.load("x", workers=0),
        lambda: Translator.load("x", config={"beam_size": 4}),
        lambda: Glossary({"a": None}),
        lambda: score("a", [["a"]]),
        lambda: score(["a"], []),
        lambda: score(["a"], [["a"]], metric="paper"),
        lambda: parallel_files(3, "x"),
        lambda: prepare(None, Path("x")),
        lambda: prepare(Corpus("x", []), Path("x")),
        lambda: prepare_files("x", Path("x"), src_lang=3, tgt_lang="de", train=[], valid=None),
        lambda: PrepareOptions(workers=-1),
    ],
)
def test_a_mistake_in_a_call_is_an_error_of_mtkit(call: Any):
    with pytest.raises(MtkitError) as refused:
        call()
    assert "\n" not in str(refused.value)
