"""YAML of plain values, read without surprises and without executing code.

This module owns which words are numbers and truth values, and how a value is shown in a message.
`config` decides what the values mean.
"""

from __future__ import annotations

import io
import re
import reprlib
from typing import TYPE_CHECKING, Any, ClassVar

from mtkit.base.errors import reason_of

if TYPE_CHECKING:
    from ruamel.yaml.nodes import ScalarNode

# Brackets within brackets, and digits of an integer, beyond what any setting has.
_MAX_DEPTH = 20
_MAX_DIGITS = 100
# The plain words that are not strings, as in the core schema of YAML 1.2: 1:30 and `no` are text,
# and 2e-4 is a number.
_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": rf"[-+]?[0-9]{{1,{_MAX_DIGITS}}}|0o[0-7]{{1,{_MAX_DIGITS}}}"
    rf"|0x[0-9a-fA-F]{{1,{_MAX_DIGITS}}}",
    "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


class NotYamlError(Exception):
    """A text that is not YAML of plain values; the message is one line, and names no file."""


def parse_yaml(text: str, *, words: bool = False) -> Any:
    """The value of a text: dictionaries, lists, strings, numbers, truth values and None.

    Args:
        text: one document.
        words: whether every word is a string, for files whose keys may be `no` or `12`.

    Raises:
        NotYamlError: if the text has anything else, such as tags and aliases, or a key twice.
    """
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = _yaml(words=words)
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise NotYamlError(f"{problem}{place}") from None
    except (YAMLError, ValueError, AssertionError) as error:
        # Such as a version of YAML, or a character, that does not exist.
        raise NotYamlError(reason_of(error)) from None


def dump_yaml(tree: dict[str, Any]) -> str:
    """YAML that `parse_yaml` reads back to an equal tree."""
    text = io.StringIO()
    _yaml(words=False).dump(tree, text)
    return text.getvalue()


def _yaml(*, words: bool) -> Any:
    """A reader and writer; the library is loaded when one is needed."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.representer import SafeRepresenter
    from ruamel.yaml.resolver import VersionedResolver

    class _Resolver(VersionedResolver):
        """Which words are not strings; the writer uses it too, to see which strings need quotes."""

        processing_version = (1, 2)
        versioned_resolver: ClassVar[dict[str | None, Any]] = {
            None: [
                (f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"))
                for kind, pattern in ({} if words else _SCALARS).items()
            ]
        }

    class _Composer(Composer):
        """Refuses what no file needs: tags, which name types, aliases, which multiply values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.parser.peek_event()
            if event.anchor is not None:
                problem = "anchors and aliases (& and *) are not supported"
            elif getattr(event, "ctag", None) is not None:
                problem = "tags (!) are not supported"
            else:
                return super().compose_node(parent, index)
            raise ComposerError(None, None, problem, event.start_mark)

    class _Representer(SafeRepresenter):
        def represent_float(self, data: float) -> ScalarNode:
            """A number that readers of YAML 1.1 take for a number too: 1.0e-09."""
            node = super().represent_float(data)
            if "." not in node.value:
                node.value = node.value.replace("e", ".0e")
            return node

    _Representer.add_representer(float, _Representer.represent_float)

    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver, yaml.Composer, yaml.Representer = _Resolver, _Composer, _Representer
    yaml.max_depth = _MAX_DEPTH
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    return yaml


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
