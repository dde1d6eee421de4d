"""Dockerfile, .dockerignore and compose.yaml name files, options, ports and folders that exist."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.served import Served

from mtkit.cli.serve import serve

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="mtkit is installed alone")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", "")
    split = (line.partition(" ") for line in text.splitlines() if line)
    return [(name, arguments) for name, _, arguments in split]


def arguments(name: str) -> list[str]:
    """Those of each instruction with this name."""
    return [given for instruction, given in instructions() if instruction == name]


def health_check() -> list[str]:
    (check,) = arguments("HEALTHCHECK")
    return json.loads(check.partition("CMD ")[2])


def service() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    (only,) = content["services"].values()
    return dict(only)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_what_is_copied_exists_and_is_not_ignored():
    copies = [given.split() for given in arguments("COPY") if not given.startswith("--from")]
    names = {name for *copied, _ in copies for name in copied}
    assert all((ROOT / name).exists() for name in names)
    assert names >= {"setup.py", "pyproject.toml", project()["readme"], *project()["license-files"]}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    lines = [line for line in ignored if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == names


def test_the_versions_are_those_that_are_tested():
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (tested,) = re.findall(r"^torch==(\S+)$", constraints, re.M)
    commands = "\n".join(arguments("RUN"))
    assert re.findall(r"torch==(\S+)", commands) == [tested]
    (extra,) = re.findall(r"'\.\[(\w+)\]'", commands)
    assert extra in project()["optional-dependencies"]
    (image,) = {given.split()[0] for given in arguments("FROM")}
    version = image.removeprefix("python:").partition("-")[0]
    assert f"Programming Language :: Python :: {version}" in project()["classifiers"]
    assert set(re.findall(r"lib/python([\d.]+)", commands)) == {version}


def test_the_commands_serve_the_runs_that_are_mounted_at_the_port_that_is_published():
    (port,), (folder,) = arguments("EXPOSE"), arguments("VOLUME")
    (program,), default = (json.loads(*arguments(name)) for name in ("ENTRYPOINT", "CMD"))
    assert program in project()["scripts"]
    composed = [re.sub(r"\$\{MTKIT_RUN:\?[^}]*\}", "A NAME", word) for word in service()["command"]]
    for command, runs in ((default, ()), (composed, ("A NAME",))):
        name, *options = command
        assert name == "serve"
        given = serve.make_context(name, options).params
        assert (given["host"], str(given["port"])) == ("0.0.0.0", port)
        assert given["run_paths"] == tuple(Path(folder, run) for run in runs)
    (published,), (mounted,) = service()["ports"], service()["volumes"]
    assert published == f"127.0.0.1:{port}:{port}"
    assert mounted == f".{folder}:{folder}:ro"
    # Without --run, runs/ in the working directory is served.
    assert Path(*arguments("WORKDIR")[-1:], "runs") == Path(folder)
    assert f"'127.0.0.1', {port}," in health_check()[-1]


def test_the_server_is_run_by_an_ordinary_user():
    (user,) = arguments("USER")
    (added,) = (command for command in arguments("RUN") if command.startswith("useradd"))
    assert added.split()[-1] == user
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_the_health_check_fails_without_a_server(tiny_run):
    program, *rest = health_check()
    assert program == "python"
    with Served([tiny_run]) as served:
        (port,) = arguments("EXPOSE")
        checks = [sys.executable, *(word.replace(port, str(served.port)) for word in rest)]
        assert subprocess.run(checks, capture_output=True).returncode == 0
    assert subprocess.run(checks, capture_output=True).returncode == 1
