"""Test sets by name: fetched by sacreBLEU's own code from a server on this machine."""

import gzip
import hashlib
import http.server
import io
import logging
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.score import find_test_set

# sacreBLEU unpacks archives as Python 3.12 advises against.
pytestmark = pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")

SOURCE = ["one two three", "four five", "six seven eight"]
REFERENCES = [["drei zwei eins", "fünf vier", "acht sieben sechs"], ["a", "b", "c"]]


def sgml(lines: list[str]) -> bytes:
    """Lines as WMT published its test sets."""
    segments = "".join(f'<seg id="{i}"> {line}  </seg>\n' for i, line in enumerate(lines, 1))
    return f'<doc docid="d" genre="news" origlang="en">\n{segments}</doc>\n'.encode()


def archive(**files: list[str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, lines in files.items():
            content = sgml(lines)
            info = tarfile.TarInfo(f"{name}.sgm")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


ARCHIVE = archive(src=SOURCE, ref=REFERENCES[0], other=REFERENCES[1])


class Mirror:
    """A server with one file, which sacreBLEU takes for that of the test set mine/full."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from sacrebleu.dataset import DATASETS, FakeSGMLDataset, base

        self.content = ARCHIVE
        self.requests = 0
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                mirror.requests += 1
                self.send_response(200)
                # All of it is promised, also if less is sent.
                self.send_header("Content-Length", str(len(ARCHIVE)))
                self.end_headers()
                self.wfile.write(mirror.content)

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/set.tgz"
        # Folders of test sets are chosen when sacreBLEU is loaded.
        monkeypatch.setattr(base, "SACREBLEU_DIR", str(folder))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        pairs = {"en-de": ["src.sgm", "ref.sgm"], "en-fr": ["src.sgm", "ref.sgm", "other.sgm"]}
        checksum = hashlib.md5(ARCHIVE).hexdigest()
        files = {"data": [self.url], "md5": [checksum], "langpairs": pairs}
        dataset = FakeSGMLDataset("mine/full", **files, description="")
        monkeypatch.setitem(DATASETS, "mine/full", dataset)
        self.archive = folder / "mine" / "full" / "raw" / "mine_full.set.tgz"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    made = Mirror(tmp_path / "sacrebleu", monkeypatch)
    yield made
    made.close()


def test_a_test_set_is_downloaded_once_and_has_all_of_its_references(mirror, caplog):
    caplog.set_level(logging.INFO, "mtkit")
    french = find_test_set("mine/full:en-fr")
    assert (french.test_set, french.src_lang, french.tgt_lang) == ("mine/full:en-fr", "en", "fr")
    assert (french.src, french.references) == (SOURCE, REFERENCES)
    (message,) = caplog.messages
    assert message.startswith(f"Downloading {mirror.url} to ")
    assert find_test_set("mine/full", src_lang="en", tgt_lang="de").references == REFERENCES[:1]
    assert mirror.requests == 1


@pytest.mark.parametrize(
    ("wanted", "languages", "error"),
    [
        ("mine/ful", ("en", "de"), "there is no test set mine/ful; did you mean mine/full?"),
        ("zzzz:en-de", ("en", "de"), "there is no test set zzzz; `sacrebleu --list` prints"),
        ("mine/full:de-en", (None, None), "has no direction de-en; write mine/full:SRC-TGT with"),
        ("mine/full", ("en", "it"), "has no direction en-it; write mine/full:SRC-TGT with one of"),
        ("mine/full", ("", "de"), "needs a direction; write mine/full:SRC-TGT with one of en-de,"),
    ],
)
def test_a_name_or_a_direction_that_does_not_exist_is_refused(wanted, languages, error, mirror):
    with pytest.raises(MtkitError, match=error.replace("?", r"\?")):
        find_test_set(wanted, src_lang=languages[0], tgt_lang=languages[1])
    assert mirror.requests == 0


@pytest.mark.parametrize(
    ("content", "why"),
    [(ARCHIVE[::-1], "MD5 sum of downloaded file was incorrect"), (ARCHIVE[:100], "")],
)
def test_a_file_with_another_checksum_or_a_part_of_it_is_not_kept(content, why, mirror, capfd):
    mirror.content = content
    with pytest.raises(MtkitError, match=f"mine/full: cannot be downloaded from .*{why}"):
        find_test_set("mine/full:en-de")
    # sacreBLEU prints nothing besides.
    assert capfd.readouterr() == ("", "")
    mirror.content = ARCHIVE
    assert find_test_set("mine/full:en-de").src == SOURCE


def test_what_a_killed_process_has_left_of_a_download_is_replaced(mirror):
    mirror.archive.parent.mkdir(parents=True)
    mirror.archive.write_bytes(ARCHIVE[:100])
    assert find_test_set("mine/full:en-de").src == SOURCE


def test_without_a_connection_one_line_says_what_to_do(mirror, place):
    # First, so that nothing is accepted while it closes.
    mirror.server.shutdown()
    mirror.server.server_close()
    place.write("hyp.txt", "a\n")
    error = place.refused("score", "hyp.txt", "--test-set", "mine/full:en-de")
    assert f"test set mine/full: cannot be downloaded from {mirror.url}: " in error
    assert "refused" in error
    assert "copy " in error
    assert not mirror.archive.exists()


def test_translations_are_scored_on_a_test_set(mirror, place):
    place.write("hyp.txt", "".join(f"{line}\n" for line in REFERENCES[0]))
    outcome = place.mtkit("score", "hyp.txt", "--test-set", "mine/full:en-de", "--metric", "chrf")
    name, value, signature, *_ = outcome.out.split()
    assert (name, value) == ("chrF2", "100.00")
    assert "nrefs:1|test:mine/full|lang:en-de|" in signature
    # The language of the test set is that of the paper's tokeniser.
    paper = place.mtkit("score", "hyp.txt", "--test-set", "mine/full:en-de", "--protocol", "paper")
    assert "tok:moses-de-" in paper.out
    both = ["--test-set", "mine/full:en-fr", "--metric", "chrf"]
    assert "nrefs:2|test:mine/full|lang:en-fr" in place.mtkit("score", "hyp.txt", *both).out
    place.write("short.txt", "a\nb\n")
    error = place.refused("score", "short.txt", "--test-set", "mine/full:en-de")
    assert "short.txt has 2 lines and mine/full:en-de has 3" in error
    error = place.refused("score", "hyp.txt", "--reference", "hyp.txt", *both)
    assert "--reference cannot be combined with --test-set" in error


def test_a_run_translates_a_test_set_of_its_languages(mirror, trained):
    text = "".join(f"{line}\n" for line in SOURCE).encode()
    trained.write("hyp.txt", trained.mtkit("translate", stdin=text).out)
    named = ["--test-set", "mine/full:en-de", "--metric", "chrf"]
    by_hand = trained.mtkit("score", "hyp.txt", *named).out
    assert trained.mtkit("score", "--test-set", "mine/full", "--metric", "chrf").out == by_hand
    # The data of the run is not needed.
    assert PreparedData.open(trained.folder / "data" / "tiny").text("test")[0] != SOURCE
    other = trained.mtkit("score", "--test-set", "mine/full:en-fr", "--metric", "chrf")
    assert "translates from en to de, and the test set is mine/full:en-fr" in other.err
    assert "lang:en-fr" in other.out
    for option in ("--split=valid", "--data=data/tiny"):
        error = trained.refused("score", "--test-set", "mine/full", option)
        assert f"{option.partition('=')[0]} cannot be combined with --test-set" in error


def test_runs_and_files_are_compared_on_a_test_set(mirror, trained):
    trained.write("hyp.de", "".join(f"{line}\n" for line in REFERENCES[0]))
    common = ["--test-set", "mine/full", "--metric", "chrf", "--output", "page.html"]
    outcome = trained.mtkit("-q", "compare", "runs/tiny", "hyp.de", *common)
    assert (outcome.status, outcome.err) == (0, "")
    page = (trained.folder / "page.html").read_text(encoding="utf-8")
    assert "mine/full:en-de" in page
    assert "test:mine/full" in page or "mine/full" in page
    for line in (*SOURCE, *REFERENCES[0]):
        assert line in page
    # Without a run the direction must be named.
    assert "needs a direction" in trained.refused("compare", "hyp.de", *common)
    languages = ["--src-lang", "en", "--tgt-lang", "fr"]
    assert trained.mtkit("-q", "compare", "hyp.de", *common, *languages).status == 0
    assert "nrefs:2" in (trained.folder / "page.html").read_text(encoding="utf-8")
    error = trained.refused("compare", "runs/tiny", *common, "--split", "valid")
    assert "--split cannot be combined with --test-set" in error
