"""The corpus file: a YAML document that describes the data of `prepare`.

It is for what is too much for a command line: training sources with weights, tags and alignments,
several directions, further validation sets, treebanks. Paths are relative to its folder.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError
from mtkit.base.yaml import NotYamlError, cut, parse_yaml, shown
from mtkit.config import Section
from mtkit.prepare.corpus import TREES, Corpus, DirectionSources
from mtkit.prepare.hub import HUB_PREFIX
from mtkit.prepare.link_files import LinkFile
from mtkit.prepare.readers import parallel_files, parse_source
from mtkit.prepare.source import Source
from mtkit.prepare.treebank import Treebank
from mtkit.prepare_config import prepare_config
from mtkit.tokenizer import TagScheme


class _Part(BaseModel):
    """A mapping in the file, whose unknown keys are refused with a suggestion."""

    model_config = ConfigDict(**Section.model_config)  # type: ignore[typeddict-item]

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"expected {', '.join(cls.model_fields)}, not {shown(value)}")
        for key in value:
            if key not in cls.model_fields:
                near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                hint = f"did you mean {near[0]}?" if near else ", ".join(cls.model_fields)
                raise ValueError(f"unknown key {cut(str(key))}; {hint}")
        return value


def _place(value: Any) -> Any:
    """One place with both sides as a list too."""
    places = [value] if isinstance(value, str) else value
    if not isinstance(places, list) or len(places) not in (1, 2):
        raise ValueError(f"expected a source, or a list of two files, not {shown(value)}")
    return places


_Place = Annotated[list[str], BeforeValidator(_place)]


class _Training(_Part):
    source: _Place
    weight: float = Field(1.0, gt=0)
    tag: str | None = None
    alignments: str | None = None


class _Trees(_Part):
    source: str
    weight: float = Field(1.0, gt=0)


def _entry(value: Any) -> Any:
    """A source without more is only its place."""
    return {"source": value} if isinstance(value, str | list) else value


class _Direction(_Part):
    src_lang: str
    tgt_lang: str
    train: list[Annotated[_Training, BeforeValidator(_entry)]]
    valid: _Place
    valid_also: dict[str, _Place] = Field(default_factory=dict)
    test: _Place | None = None


class _OneDirection(_Direction):
    settings: dict[str, Any] = Field(default_factory=dict)


class _SeveralDirections(_Part):
    directions: list[_Direction] = Field(min_length=1)
    temperature: float = 1.0
    tags: TagScheme | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class _Treebank(_Part):
    task: Literal["parsing"]
    src_lang: str = "en"
    train: list[Annotated[_Trees, BeforeValidator(_entry)]]
    valid: str
    test: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


@checks_arguments
def load_corpus(path: Path, *, name: str) -> tuple[Corpus, dict[str, Any]]:
    """The data and the settings of a corpus file; an error names it and the key to fix."""
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MtkitError(f"{path}: cannot be read as a corpus file: {error}") from error
    except NotYamlError as error:
        raise MtkitError(f"{path}: not YAML: {cut(str(error), 400)}") from None
    if tree is None:
        raise MtkitError(f"{path}: has no text; it must name src_lang, tgt_lang, train and valid")
    kind: type[_OneDirection | _SeveralDirections | _Treebank] = _OneDirection
    if isinstance(tree, dict) and "directions" in tree:
        kind = _SeveralDirections
    elif isinstance(tree, dict) and "task" in tree:
        kind = _Treebank
    try:
        content = kind.model_validate(tree)
    except ValidationError as error:
        raise MtkitError(f"{path}: {_explain(error)}") from None
    try:
        # Whether they fit together is checked when all options are known.
        prepare_config(content.settings, ["shared_vocab=false"])
        corpus = _corpus(name, content, path.parent)
        corpus.check()
    except MtkitError as error:
        raise MtkitError(f"{path}: {error}") from error
    return corpus, content.settings


def _corpus(
    name: str, content: _OneDirection | _SeveralDirections | _Treebank, folder: Path
) -> Corpus:
    if isinstance(content, _Treebank):
        trees = DirectionSources(
            content.src_lang,
            TREES,
            [Treebank(folder / item.source).weighted(item.weight) for item in content.train],
            Treebank(folder / content.valid),
            Treebank(folder / content.test) if content.test else None,
        )
        return Corpus(name, [trees], task="parsing")
    if isinstance(content, _OneDirection):
        return Corpus(name, [_direction(content, folder)])
    return Corpus(
        name,
        [_direction(direction, folder) for direction in content.directions],
        is_multilingual=True,
        tags=content.tags,
        temperature=content.temperature,
    )


def _direction(content: _Direction, folder: Path) -> DirectionSources:
    def source(place: list[str], **more: Any) -> Source:
        paths = [str(folder / part) for part in place]
        if len(place) == 2:
            return parallel_files(*paths, **more)
        text = place[0] if place[0].startswith(HUB_PREFIX) else paths[0]
        return parse_source(text, src_lang=content.src_lang, tgt_lang=content.tgt_lang, **more)

    return DirectionSources(
        content.src_lang,
        content.tgt_lang,
        [source(item.source, weight=item.weight, tag=item.tag) for item in content.train],
        source(content.valid),
        source(content.test) if content.test else None,
        {name: source(place) for name, place in content.valid_also.items()},
        [
            LinkFile(folder / item.alignments)
            for item in content.train
            if item.alignments is not None
        ],
    )


def _explain(error: ValidationError) -> str:
    """The first mistake, with the keys that lead to it."""
    first = error.errors()[0]
    keys = [f"entry {key + 1}" if isinstance(key, int) else cut(key) for key in first["loc"]]
    where = f"{', '.join(keys)}: " if keys else ""
    if first["type"] == "missing":
        return f"{where}is missing"
    if first["type"] == "value_error":
        return f"{where}{first['ctx']['error']}"
    expected = first["msg"].removeprefix("Input should be ")
    return f"{where}expected {expected}, not {shown(first['input'])}"
