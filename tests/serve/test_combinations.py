"""Every combination of what a request may ask for, with runs of all kinds of settings."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import UNTRAINED, changed, copied_run, number_pairs, random_run, reseal, slow
from support.prepared import prepare_several
from support.served import Served

from mtkit.check import fit_pairs
from mtkit.data import PreparedData
from mtkit.native import available
from mtkit.run_folder import Run

SETTINGS: dict[str, dict[str, Any]] = {
    "beam": {},
    "greedy": {"beam_size": 1, "precision": "fp32" if available() else "int8"},
    "samples": {"sample": True, "top_k": 5},
    "risk": {"mbr_samples": 4, "beam_size": 1},
    "short": {"max_length": 1, "min_length": 1, "max_extra_length": 0},
    "ngrams": {"no_repeat_ngram": 1, "min_length": 6, "max_extra_length": 2},
    "whole lines": {"split_sentences": False, "max_source_tokens": 3},
    "sentences": {"split_sentences": True, "batch_tokens": 1},
    "torch": {"engine": "torch"},
    "torch samples": {"engine": "torch", "sample": True},
}
TEXTS: list[str | list[str]] = [
    "one two three. Four five!",
    ["one two", "", " \n ", "<b>two</b> &amp; 12", "four " * 20, "\0", "猫 \u2028 two\r\nthree"],
]
# Of each field, its values.
FIELDS: dict[str, list[Any]] = {
    "format": ["text", "html"],
    "alternatives": [0, 3],
    # No text has the second term.
    "glossary": [None, {"two": "zwo", "nine": "\x01"}],
    "alignments": [False, True],
    "check": [False, True],
}


@pytest.fixture(scope="session")
def many_data(tiny_text, tmp_path_factory) -> PreparedData:
    """The tiny corpus in both directions, with tags."""
    of_split = {"valid": tiny_text.valid, "train": [tiny_text.train]}
    back = {"valid": tiny_text.valid[::-1], "train": [tiny_text.train[::-1]]}
    directions = [
        {"src_lang": "en", "tgt_lang": "de", **of_split},
        {"src_lang": "de", "tgt_lang": "en", **back},
    ]
    place = tmp_path_factory.mktemp("both") / "both"
    prepare_several("both", place, directions=directions, vocab_size=330, workers=1)
    return PreparedData.open(place)


def requests() -> Iterator[dict[str, Any]]:
    for values in itertools.product(*FIELDS.values()):
        fields = dict(zip(FIELDS, values, strict=True))
        yield {name: value for name, value in fields.items() if value}


def failures(run: Run, *pairs: tuple[str, str]) -> list[Any]:
    """The requests that are not answered with 200, or 400 and a reason."""
    # Otherwise a request with checks is refused before it is translated.
    src_lang, tgt_lang = pairs[0]
    fit_pairs(run, number_pairs(500, 11), src_lang=src_lang, tgt_lang=tgt_lang, device="cpu")
    failed = []
    with Served([run]) as served:
        for (source, target), fields, q in itertools.product(pairs, list(requests()), TEXTS):
            content = {"q": q, "source": source, "target": target, **fields}
            reply = served.post("/translate", content)
            is_refused = reply.status == 400 and reply.json["error"].startswith("Invalid request: ")
            if reply.status != 200 and not is_refused:
                failed.append((content, reply.status, reply.body))
            elif reply.status == 200 and isinstance(q, list):
                assert len(reply.json["translatedText"]) == len(q)
    return failed


@pytest.mark.parametrize("name", [name if name == "samples" else slow(name) for name in SETTINGS])
def test_no_combination_is_an_error_of_the_server(name, tiny_data, tmp_path):
    config = changed(UNTRAINED, "decode", **SETTINGS[name])
    assert failures(random_run(tmp_path / "run", tiny_data, 5, config=config), ("en", "de")) == []


@pytest.mark.slow
def test_no_combination_is_an_error_with_a_vocabulary_for_each_side(uneven, tmp_path):
    assert failures(Run.open(copied_run(uneven, tmp_path / "run")), ("en", "el")) == []


@pytest.mark.slow
def test_no_combination_is_an_error_with_several_directions(many_data, tmp_path):
    run = random_run(tmp_path / "run", many_data, 5)
    pairs = [("en", "de"), ("de", "en")]
    directions = [{"src_lang": src, "tgt_lang": tgt} for src, tgt in pairs]
    reseal(
        run.path / "manifest.json", lambda manifest: manifest["data"].update(directions=directions)
    )
    assert failures(Run.open(run.path), *pairs) == []


def test_sampling_and_a_glossary_are_refused_with_the_reason(tiny_data, tmp_path):
    config = changed(UNTRAINED, "decode", sample=True)
    message = (
        "Invalid request: glossary parameter is not possible, because this server samples its "
        "translations"
    )
    with Served([random_run(tmp_path / "run", tiny_data, 5, config=config)]) as served:
        reply = served.translate("one", glossary={"one": "x"})
        assert (reply.status, reply.json) == (400, {"error": message})
        fields = {"text": ["one"], "target_lang": "DE", "glossary": {"one": "x"}}
        reply = served.post("/v2/translate", fields)
        assert (reply.status, reply.json) == (400, {"message": message})
