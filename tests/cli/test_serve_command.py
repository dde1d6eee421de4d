"""What `mtkit serve` refuses, and what it says when it is ready."""

import re
import socket
import sys
from unittest.mock import Mock

import pytest
from conftest import relabelled


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends when it is ready."""

    def run(server, on_ready):
        on_ready()
        server._socket.close()

    monkeypatch.setattr("mtkit.serve.Server.run", run)


@pytest.mark.usefixtures("ends")
def test_it_says_address_directions_and_engine(trained):
    outcome = trained.done("serve", "--port", "0", "--device", "cpu")
    (line,) = (line for line in outcome.err.splitlines() if "serving" in line)
    assert line.startswith("mtkit: serving en to de at http://127.0.0.1:")
    assert " native, " in line or " PyTorch, " in line


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["runs/one", "my run"], "mtkit serve --run runs/one --run 'my run'"),
        (["--run", "runs/one", "two"], "mtkit serve --run runs/one --run two"),
    ],
)
def test_a_run_without_its_option_gets_the_command_that_has_it(arguments, shown, place):
    outcome = place.mtkit("serve", *arguments)
    assert outcome.status == 2
    assert outcome.error == (
        f"mtkit: error: a run is given with --run: {shown} (see mtkit serve --help)"
    )


def test_a_parser_is_refused_in_one_line(place, parser):
    error = place.refused("serve", "--run", parser.path, "--port", "0", "--device", "cpu")
    assert error == f"mtkit: error: {parser.path}: is a parser; serve is for translations"


@pytest.mark.usefixtures("ends")
def test_several_runs_must_have_different_directions(place, untrained, also_untrained):
    serve = ["serve", "--port", "0", "--device", "cpu", "--run", untrained.path, "--run"]
    assert place.refused(*serve, also_untrained.path) == (
        f"mtkit: error: --run: {untrained.path} and {also_untrained.path} both translate en to "
        "de; give one of them"
    )
    relabelled(also_untrained, place.folder / "back", src_lang="de", tgt_lang="zh")
    assert "serving en to de, de to zh-Hans at" in place.done(*serve, "back").err


def test_an_address_that_cannot_be_used_is_one_line_before_models_are_loaded(trained, monkeypatch):
    monkeypatch.setattr("mtkit.serve.directions.Directions.__init__", None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        error = trained.refused("serve", "--port", port, "--device", "cpu")
    assert error.startswith(f"mtkit: error: --host 127.0.0.1 --port {port}: ")
    assert error.endswith("Address already in use; give another --port")


@pytest.mark.parametrize("kind", [socket.gaierror, OSError])
@pytest.mark.parametrize("host", ["no.such.invalid", ""])
def test_a_host_that_does_not_exist_is_one_line(kind, host, trained, monkeypatch):
    # A network that answers for every name would know them. Python makes an OSError of it.
    unknown = kind(socket.EAI_NONAME, "Name or service not known (while ...)")
    monkeypatch.setattr("socket.create_server", Mock(side_effect=unknown))
    error = trained.refused("serve", "--host", host, "--port", "0", "--device", "cpu")
    assert error.startswith(f"mtkit: error: --host {host} --port 0: ")
    assert error.endswith("; give another --host")
    assert (host or "the address is empty") in error
    assert not re.search("while|Unknown error", error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("secret\n", "keys, line 1: expected a SHA-256 hash (64 hexadecimal digits)"),
        (f"# all\n{'0' * 64} a\n\n{'g' * 64}\n", "keys, line 4: expected a SHA-256 hash"),
        ("# none\n", "keys: has no key"),
    ],
)
def test_a_file_of_keys_has_hashes_only(trained, text, message):
    trained.write("keys", text)
    error = trained.refused("serve", "--keys", "keys", "--port", "0")
    assert error.startswith(f"mtkit: error: {message}")


@pytest.mark.parametrize("text", ["10.0.0.1/8", "proxy.example"])
def test_trusted_proxies_are_addresses_or_networks(trained, text, monkeypatch):
    assert "--trusted-proxies: " in trained.refused("serve", "--trusted-proxies", text)
    monkeypatch.setenv("MTKIT_TRUSTED_PROXIES", f"127.0.0.1, {text}")
    assert "--trusted-proxies: " in trained.refused("serve")


@pytest.mark.parametrize("library", ["starlette", "language_data"])
def test_without_its_libraries_it_says_how_to_install_them(library, trained, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("mtkit.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    assert trained.refused("serve", "--port", "0") == (
        f"mtkit: error: mtkit serve needs the package {library}; install it with: "
        "pip install 'mtkit[serve]'"
    )
