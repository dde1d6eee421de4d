"""Write docs/settings.md: every setting of the configurations, its type, default and limits.

Run ``python docs/make_settings.py`` after a change of settings. A test compares the file
with what this program writes.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mtkit.config import Config, Section, setting_fields
from mtkit.prepare_config import NO_CLEANING, PrepareConfig
from mtkit.run_manifest import MAY_CHANGE

PAGE = Path(__file__).with_name("settings.md")

INTRODUCTION = """\
# Settings

This page is generated from [mtkit/config.py](../mtkit/config.py) and \
[mtkit/prepare_config.py](../mtkit/prepare_config.py) by \
[docs/make_settings.py](make_settings.py). Do not edit it.

- [How settings are given](#how-settings-are-given)
{links}

## How settings are given

A configuration is a YAML file with up to four sections: `data`, `model`, `train` and `decode`. \
`--config` takes such a file or the name of a preset. The defaults are the base model of \
*Attention Is All You Need*, so a file lists only what differs:

```yaml
model:
  encoder_layers: 3
  decoder_layers: 3
train:
  max_steps: 20000
```

Values are taken in this order, and the last one wins: the defaults below, the file or preset, \
`--set section.key=value` (repeatable). `mtkit train --config NAME --dry-run` prints the result, \
and the run folder keeps it in `config.yaml`. Section and table numbers in the descriptions are \
those of the paper.

YAML is read as version 1.2: `2e-4` is a number, `1:30` and `1_000` are text, `012` is 12. `true` \
and `false` are truth values; `yes`, `no`, `on` and `off` are text, so `tgt_lang: no` is \
Norwegian. `null` means that no value is set. Tags (`!`), anchors (`&`) and aliases (`*`) are \
refused. The same holds for `--set`.

The column *resume* says whether a setting may change when a run is resumed. With any other change \
`mtkit train` refuses to resume the run and names the setting. `max_steps` may not change any more \
once the learning rate has begun to decay (`decay_steps`). Settings of `decode` can also be edited \
in the `config.yaml` of a run folder.
"""

PREPARE = """\
## Settings of `mtkit prepare`

`mtkit prepare` has settings of its own. They are given with `--set key=value`, as in \
`--set max_ratio=3` and `--set noise.case=0.05`, and are stored with the data. `--vocab-size` sets \
`vocab_size`. `--no-cleaning` sets {no_cleaning}. Prepared data does not change: with other \
settings, prepare again.
"""


def page() -> str:
    """The whole page."""
    headings = [f"The section `{name}`" for name in Config.model_fields]
    headings.append("Settings of `mtkit prepare`")
    links = "\n".join(f"- [{heading}](#{_anchor(heading)})" for heading in headings)
    parts = [INTRODUCTION.format(links=links)]
    for name, field in Config.model_fields.items():
        section = field.annotation
        assert isinstance(section, type)
        assert issubclass(section, Section)
        parts.append(f"## The section `{name}`\n\n{section.__doc__}\n")
        parts.append(_table(section, name))
    no_cleaning = ", ".join(f"`{override}`" for override in NO_CLEANING)
    parts.append(PREPARE.format(no_cleaning=no_cleaning))
    parts.append(_table(PrepareConfig, None))
    return "\n".join(parts)


def _anchor(heading: str) -> str:
    return heading.lower().replace("`", "").replace(" ", "-")


def _table(section: type[Section], name: str | None) -> str:
    """The settings of a section; `name` is None where there is no resuming."""
    heading = ["setting", "type", "default", "limits", "resume", "description"]
    rows = []
    for key, field in setting_fields(section).items():
        kind, limits = _type(field)
        row = [f"`{key}`", kind, f"`{_value(field.default)}`", limits]
        row.append("yes" if name and _may_change(f"{name}.{key}") else "no")
        rows.append([*row, field.description or ""])
    if name is None:
        for row in (heading, *rows):
            del row[4]
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    # `<2de>` would be a tag, and ** would be bold.
    return text.replace("|", "\\|").replace("<2de>", "`<2de>`").replace(" ** ", " ^ ")


def _may_change(dotted: str) -> bool:
    return any(dotted.startswith(one) if one.endswith(".") else dotted == one for one in MAY_CHANGE)


def _value(default: Any) -> str:
    """A default as YAML has it."""
    if isinstance(default, tuple):
        default = list(default)
    return json.dumps(default).strip('"')


def _type(field: FieldInfo) -> tuple[str, str]:
    """The type of a setting in words, and its limits."""
    kinds, limits = [], list(_limits(field.metadata))
    for kind in _alternatives(field.annotation):
        if get_origin(kind) is Annotated:
            kind, *metadata = get_args(kind)
            for item in metadata:
                limits += _limits(item.metadata if isinstance(item, FieldInfo) else [item])
        if get_origin(kind) is Literal:
            kinds += dict.fromkeys(_NAMES[type(choice)] for choice in get_args(kind))
            limits.append(" or ".join(f"`{_value(choice)}`" for choice in get_args(kind)))
        elif get_origin(kind) is tuple:
            kinds.append("list of texts")
        else:
            kinds.append(_NAMES[kind])
    return " or ".join(kinds), ", ".join(limits)


_NAMES = {
    bool: "truth value",
    int: "whole number",
    float: "number",
    str: "text",
    type(None): "`null`",
}


def _alternatives(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        yield from get_args(annotation)
    else:
        yield annotation


def _limits(metadata: list[Any]) -> Iterator[str]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    for item in metadata:
        for name, sign in signs.items():
            if (bound := getattr(item, name, None)) is not None:
                yield f"{sign} {_number(bound)}"


def _number(bound: float) -> str:
    for base in (10, 2):
        exponent = 0
        while bound >= 10**6 and base ** (exponent + 1) <= bound:
            exponent += 1
        if exponent and base**exponent == bound:
            return f"{base}^{exponent}"
    return f"{bound:g}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
