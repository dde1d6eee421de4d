"""YAML of plain values, read without surprises and without executing code.

This module owns which words are numbers and truth values, and how a value is shown in a message.
`config` decides what the values mean.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Hashable
from typing import Any

import yaml

from mtkit.errors import reason_of


class NotYamlError(Exception):
    """A text that is not YAML of plain values; the message is one line, without a place."""


def parse_yaml(text: str) -> Any:
    """The value of a text: dictionaries, lists, strings, numbers, truth values and None.

    Raises:
        NotYamlError: if the text has anything else, or a key twice.
    """
    try:
        # A SafeLoader builds plain values only.
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise NotYamlError(reason_of(error)) from None


def parse_words(text: str) -> Any:
    """The value of a text in which every word is a string: dictionaries, lists and strings.

    It is for files of other software, whose keys may be `no` or `12`.

    Raises:
        NotYamlError: if the text has anything else.
    """
    try:
        # It builds strings, lists and dictionaries only; the one in C is twenty times as fast.
        return yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise NotYamlError(reason_of(error)) from None


def dump_yaml(tree: dict[str, Any]) -> str:
    """YAML that `parse_yaml` reads back to an equal tree."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


# The plain words that are not strings: numbers as in the core schema of YAML 1.2, in which 1:30 is
# not 90 and 012 is not 10, and everybody's 2e-4 is a number; but what YAML 1.1 takes for true and
# false, so that `tgt_lang: no` is an error and not the language of the Norwegians, written by
# luck.
_SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"(?i:yes|no|true|false|on|off)"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}
_TAG = "tag:yaml.org,2002:"
# The reader and the writer share them: what the one would not read as a string the other quotes.
_RESOLVERS = {
    None: [(_TAG + name, re.compile(rf"(?:{p.pattern})\Z")) for name, p in _SCALARS.items()]
}
# Brackets within brackets, and digits of an integer, beyond what any setting has.
_DEEPEST = 20
_MOST_DIGITS = 100


class _Loader(yaml.SafeLoader):
    """YAML of plain values, in which a key given twice is an error."""

    yaml_implicit_resolvers = _RESOLVERS

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.composer.ComposerError(
                None, None, f"nested more than {_DEEPEST} levels deep"
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _refusal(key_node, f"{shown(key)} cannot be a key")
            if key in seen:
                raise _refusal(key_node, f"the key {cut(str(key))} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_plain(self, node: yaml.ScalarNode) -> int | float | bool | None:
        """The value of a word that is not a string."""
        kind, text = node.tag.removeprefix(_TAG), str(self.construct_scalar(node))
        if not _SCALARS[kind].fullmatch(text):
            raise _refusal(node, f"{shown(text)} is not of the type {kind}")
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("yes", "true", "on")
        if kind == "float":
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        if len(text) > _MOST_DIGITS:
            raise _refusal(node, f"a number of {len(text):,} digits is too large")
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base)


# Other types, such as dates, bytes and sets, are not supported.
_Loader.yaml_constructors = {
    **{_TAG + name: _Loader.construct_plain for name in _SCALARS},
    **{
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (_TAG + "str", _TAG + "seq", _TAG + "map", None)
    },
}


def _refusal(node: yaml.Node, problem: str) -> yaml.YAMLError:
    error: yaml.YAMLError = yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return error


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads: a string such as "1e3" needs its quotes."""

    yaml_implicit_resolvers = _RESOLVERS


_shortened = reprlib.Repr()
_shortened.maxlevel = 3
_shortened.maxlist = _shortened.maxtuple = _shortened.maxdict = 6
_shortened.maxstring = _shortened.maxlong = _shortened.maxother = 120


def shown(value: Any) -> str:
    """A value for a message, shortened if it is long."""
    return cut(_shortened.repr(value))


def cut(text: str, most: int = 200) -> str:
    """The text, without its middle if that makes it too long for a message."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"
