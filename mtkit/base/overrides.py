"""Settings as users write them: the value of `--set`, and hints for those that are wrong."""

from __future__ import annotations

from typing import Any

from mtkit.base.errors import MtkitError
from mtkit.base.models import Around, Check
from mtkit.base.yaml import NotYamlError, cut, parse_yaml, shown


def parse_value(override: str, text: str) -> Any:
    """The value `text` of an override; `MtkitError` if it is not YAML."""
    try:
        return parse_yaml(text)
    except NotYamlError:
        form = ""
        if not set(text) & {"'", '"'}:
            form = f""", as in --set '{cut(override.partition("=")[0])}="{cut(text)}"'"""
        raise MtkitError(
            f"--set {cut(override)}: {shown(text)} is not a YAML value; quote it{form}"
        ) from None


def list_hint(name: str) -> str:
    """After an error about an unknown name: how to write a list, if the name looks like one."""
    return f"; for a list, write [{cut(name)}]" if "," in name else ""


class Expecting(Around):
    """Describes in its error message all that a setting of several types may be."""

    def __init__(self, what: str) -> None:
        self.what = what

    def checked(self, value: Any, check: Check) -> Any:
        """As `Around.checked`."""
        try:
            return check(value)
        except ValueError:
            from pydantic_core import PydanticCustomError

            raise PydanticCustomError("several_types", self.what) from None
