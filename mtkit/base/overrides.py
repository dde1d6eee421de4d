"""Settings as users write them: the value of `--set`, and what is wrong with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtkit.base.errors import MtkitError
from mtkit.base.models import Around, Check
from mtkit.base.yaml import NotYamlError, cut, parse_yaml, shown

if TYPE_CHECKING:
    from pydantic import ValidationError


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


def explain(error: ValidationError) -> str:
    """The first mistake of some settings in one line, with its dotted key."""
    first = error.errors()[0]
    path = [cut(str(part)) for part in first["loc"]]
    key = ".".join(path)
    value = first.get("input")
    kind = first["type"]
    if kind == "extra_forbidden":
        return f"unknown key {key}"
    if kind == "value_error":
        # Our own checks name the key inside their section themselves.
        return ".".join([*path, str(first["ctx"]["error"])])
    if kind == "model_type":
        return f"{key}: expected settings by their names, not {shown(value)}"
    if kind == "string_pattern_mismatch":
        return f"{key}: {shown(value)} cannot be the name of a folder"
    if kind in ("tuple_type", "string_too_short"):
        return f"{key}: expected a name, or a list of names, not {shown(value)}"
    expected = first["msg"].removeprefix("Input should be ")
    return f"{key}: expected {expected}, not {shown(value)}"
