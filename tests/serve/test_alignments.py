"""`alignments`, an extension of `/translate`: which words of a text and its translation belong."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from support.served import Served

from mtkit.serve import Limits, texts
from mtkit.translate import Translator

TEXTS = ["onetwothree fourfivesix", "four"]


def by_align(plain: Translator, text: str, translation: str, start: int, begin: int) -> Any:
    """The links that `mtkit align` finds, with the characters of the words."""
    (alignment,) = plain.align([text], [translation])
    return [
        [
            [place + start for place in alignment.src_words[i]],
            [place + begin for place in alignment.tgt_words[j]],
        ]
        for i, j in alignment.weights
    ]


def test_links_are_those_of_align(served, plain):
    text = "onetwothree fourfivesix"
    answer = served.translate(text, alignments=True).json
    expected = by_align(plain, text, answer["translatedText"], 0, 0)
    assert len(expected) > 1
    assert answer["alignments"] == expected


def test_links_of_later_lines_have_their_places_in_the_whole_text(served, plain):
    # An emoji is one character here, and two in JavaScript.
    lines = ["one \U0001f600 two", "", "  onetwothree fourfivesix "]
    answer = served.translate("\n".join(lines), alignments=True).json
    first, blank, second = answer["translatedText"].split("\n")
    assert blank == ""
    assert answer["alignments"] == [
        *by_align(plain, lines[0], first, 0, 0),
        *by_align(plain, lines[2].strip(), second.strip(), len(lines[0]) + 4, len(first) + 4),
    ]


def test_each_alternative_has_its_links(served, plain):
    answer = served.translate(TEXTS, alternatives=2, alignments=True).json
    for text, others, links in zip(
        TEXTS, answer["alternatives"], answer["alternativeAlignments"], strict=True
    ):
        assert links == [by_align(plain, text, other, 0, 0) for other in others]
    assert len(answer["alignments"]) == 2


def test_many_lines_are_aligned_in_parts(untrained, plain):
    sizes = []

    def watched(translator: Translator) -> None:
        align = translator.aligner().align
        aligner = SimpleNamespace(
            align=lambda sources, *rest, **named: (
                sizes.append(len(sources)) or align(sources, *rest, **named)
            )
        )
        translator.aligner = lambda: aligner  # type: ignore

    lines = [TEXTS[i % 2] for i in range(70)]
    with Served([untrained], changed=watched) as server:
        answer = server.translate(lines, alignments=True).json
        assert sizes == [32, 32, 6]
        server.translate("\n".join(f"<b>one</b> {line}" for line in lines), format="html")
        assert sizes[3:] == [32, 32, 6]
    assert answer["alignments"] == [
        by_align(plain, line, translation, 0, 0)
        for line, translation in zip(lines, answer["translatedText"], strict=True)
    ]


def test_other_requests_are_answered_while_words_are_aligned(untrained, monkeypatch):
    # With one thread, the native engine would share that of PyTorch.
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    begun, goes_on, threads = threading.Event(), threading.Event(), []
    links = texts._links

    def slow(translator: Translator) -> None:
        align = translator.aligner().align

        def wait(*given: Any, **named: Any) -> Any:
            begun.set()
            assert goes_on.wait(600)
            return align(*given, **named)

        translator.aligner = lambda: SimpleNamespace(align=wait)  # type: ignore

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return links(*given)

    monkeypatch.setattr(texts, "_links", noted)
    with Served([untrained], changed=slow) as server, ThreadPoolExecutor(1) as client:
        waiting = client.submit(server.translate, "one\n" * 1000, alignments=True)
        assert begun.wait(600)
        assert server.get("/health").json == {"status": "ok"}
        assert server.translate("four").status == 200
        assert not waiting.done()
        goes_on.set()
        assert waiting.result().status == 200
        assert threads
        assert server._thread.name not in threads


def test_nothing_is_aligned_unless_it_is_wanted(untrained):
    asked = []

    def watched(translator: Translator) -> None:
        aligner = translator.aligner
        translator.aligner = lambda: asked.append(1) or aligner()  # type: ignore

    with Served([untrained], limits=Limits(), changed=watched) as server:
        for fields in ({}, {"alignments": False}, {"alignments": None}):
            assert "alignments" not in server.translate("one", **fields).json
        for q, fields in (("one", {"format": "html"}), (" \n", {}), ("one", {"target": "en"})):
            assert server.translate(q, alignments=True, **fields).json["alignments"] == []
        assert not asked
        assert "alignments" in server.translate("one", alignments=True).json
        assert asked
