"""`check` in the API: confidence and findings of each text."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import copied_run
from support.served import Served, request_bytes, until

from mtkit.check import Checker, RunChecks
from mtkit.run_folder import CONFIDENCE, LEXICON, Run
from mtkit.serve import Limits
from mtkit.serve import text_quality as checks

LINES = ["one two three", "猫 one two", "nine eight"]


@pytest.fixture(scope="module")
def checked(fitted) -> Iterator[Served]:
    with Served([fitted]) as served:
        yield served


class SlowChecks:
    """Checks of lines wait until `goes_on` is set; `sources` are those that were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.sources: list[str] = []
        check = Checker.check

        def wait(checker, source, *rest):
            self.sources.append(source)
            self.begun.set()
            assert self.goes_on.wait(600)
            return check(checker, source, *rest)

        monkeypatch.setattr(Checker, "check", wait)


@pytest.fixture
def slow(monkeypatch) -> Iterator[SlowChecks]:
    slow = SlowChecks(monkeypatch)
    yield slow
    slow.goes_on.set()


def test_the_answer_is_that_of_translate(checked, fitted, place):
    place.write("in.txt", "".join(f"{line}\n" for line in LINES))
    command = ["translate", "--run", fitted.path, "--input", "in.txt", "--json", "--check"]
    rows = [
        json.loads(line)
        for line in place.mtkit(*command, "--precision", "fp32").out.split("\n")[:-1]
    ]
    answer = checked.translate(LINES, check=True).json
    assert answer["confidence"] == [row["confidence"] for row in rows]
    assert answer["findings"] == [row["findings"] for row in rows]
    assert "unknown" in [finding["kind"] for finding in answer["findings"][1]]


def test_the_text_has_the_lowest_confidence_of_its_lines(checked):
    alone = checked.translate(LINES, check=True).json
    text = "\n".join(["", f"  {LINES[0]}", LINES[1], LINES[2]])
    together = checked.translate(text, check=True).json
    assert together["confidence"] == min(alone["confidence"])
    (finding,) = (finding for finding in together["findings"] if finding["kind"] == "unknown")
    start, end = finding["src"]
    assert text[start:end] == "猫"


def test_all_lines_of_a_request_have_a_verdict(checked):
    for line in LINES:
        # Of one line, the mean is no news.
        said = checked.translate(line, check=True).json["verdict"]
        assert not any("mean" in sentence for sentence in said)
    alone = checked.translate(LINES, check=True).json
    first, *rest = checked.translate("\n".join([*LINES, ""]), check=True).json["verdict"]
    assert alone["verdict"] == [first, *rest]
    mean = sum(alone["confidence"]) / len(LINES)
    assert first.startswith(f"the mean confidence is {mean:.0f} (of the validation set: ")
    low = sum(confidence < 50 for confidence in alone["confidence"])
    assert f"and {low} of {len(LINES)} lines " in first


def test_there_are_no_checks_unless_they_are_asked_for(checked):
    assert not {"confidence", "findings"} & checked.translate("one").json.keys()
    for value in (False, None):
        assert not {"confidence", "findings"} & checked.translate("one", check=value).json.keys()


def test_a_text_that_is_not_translated_has_no_confidence(checked):
    answer = checked.translate("...", check=True).json
    assert answer["translatedText"] == "..."
    assert answer["confidence"] is None


@pytest.mark.parametrize("name", ["check", "alignments"])
def test_what_is_neither_true_nor_false_is_refused_by_name(checked, name):
    message = f"Invalid request: {name} parameter is not true or false"
    for value in ("yes", "true", "", 1, 0, [True], {}):
        reply = checked.translate("one", **{name: value})
        assert (reply.status, reply.json) == (400, {"error": message}), value
    for value in ("yes", "", "True"):
        form = {"q": "one", "source": "en", "target": "de", name: value}
        reply = checked.form("/translate", form)
        assert (reply.status, reply.json) == (400, {"error": message}), value


@pytest.mark.parametrize(
    ("value", "is_checked"), [("true", True), ("1", True), ("false", False), ("0", False)]
)
def test_a_form_says_true_and_false_in_words_or_digits(checked, value, is_checked):
    reply = checked.form("/translate", {"q": "one", "source": "en", "target": "de", "check": value})
    assert reply.status == 200
    assert ("findings" in reply.json) == is_checked


def test_html_is_not_checked(checked):
    reply = checked.translate("<b>one</b>", check=True, format="html")
    assert reply.status == 400
    assert "check parameter requires the text format" in reply.json["error"]


def test_a_run_that_cannot_be_checked_is_a_clear_answer(untrained, caplog):
    with Served([untrained]) as served:
        for _ in range(3):
            reply = served.translate("one two", check=True)
            assert reply.status == 400
            message = "Invalid request: en to de cannot be checked on this server"
            assert reply.json["error"] == message
        assert served.translate("one two").status == 200
    # A client must not be able to fill the log.
    assert "not checked" not in caplog.text


def test_a_run_without_its_lexicon_translates_without_checks(fitted, tmp_path, caplog):
    run = Run.open(copied_run(fitted, tmp_path / "run"))
    (run.path / LEXICON).unlink()
    with Served([run]) as served:
        assert f"translations are not checked: {run.path / LEXICON}: is missing" in caplog.text
        # The page asks for checks of these.
        assert served.get("/frontend/settings").json["checks"] == []
        assert served.translate("one two").status == 200
        assert served.translate("one two", check=True).status == 400


def test_the_settings_are_of_the_start_until_a_check_fails(fitted, tmp_path, caplog):
    run = Run.open(copied_run(fitted, tmp_path / "run"))
    with Served([run]) as served:
        (run.path / LEXICON).unlink()
        (run.path / CONFIDENCE).unlink()
        assert served.get("/frontend/settings").json["checks"] == [["en", "de"]]
        for _ in range(3):
            assert served.translate("one two", check=True).status == 400
        assert served.get("/frontend/settings").json["checks"] == []
    # A client must not be able to fill the log.
    assert caplog.text.count("are not checked") == 1


def test_requests_that_come_together_load_the_checks_once(fitted, monkeypatch):
    threads = []
    load = RunChecks.checker

    def slow(*given):
        threads.append(threading.current_thread().name)
        until(lambda: served.service.metrics.in_flight == 4)
        return load(*given)

    monkeypatch.setattr(RunChecks, "checker", slow)
    with Served([fitted]) as served, ThreadPoolExecutor(4) as clients:
        replies = clients.map(lambda line: served.translate(line, check=True), ["one"] * 4)
        assert [reply.status for reply in replies] == [200] * 4
    assert threads == ["mtkit-check_0"]


def test_lines_that_are_checked_in_parts_have_the_same_checks(checked, monkeypatch):
    texts = ["\n".join(LINES), "", LINES[1], "\n".join(LINES[1:])]
    together = checked.translate(texts, check=True).json
    monkeypatch.setattr(checks, "_CHARACTERS", 1)
    assert checked.translate(texts, check=True).json == together


def test_checks_for_a_client_that_goes_end_with_the_part_that_is_checked(fitted, slow, monkeypatch):
    # Two lines are a part, and one is none, whatever their translations of a few subwords.
    monkeypatch.setattr(checks, "_CHARACTERS", 2 * checks._LINE)
    with Served([fitted]) as served:
        client = served.connect()
        client.sendall(request_bytes("one two\nthree\nfour", check=True))
        assert slow.begun.wait(600)
        # Others are answered meanwhile.
        assert served.translate("six").status == 200
        client.close()
        until(lambda: served.service.metrics.in_flight == 0)
        slow.goes_on.set()
        assert served.translate("seven", check=True).status == 200
    assert slow.sources == ["one two", "three", "seven"]


def test_checks_are_a_part_of_the_time_of_a_request(fitted, slow):
    with Served([fitted], limits=Limits(seconds=0.2)) as served:
        reply = served.translate("one two", check=True)
        message = "the translation took longer than 0.2 s"
        assert (reply.status, reply.json) == (503, {"error": message})
        slow.goes_on.set()
