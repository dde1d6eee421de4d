"""The command line: one module for each command. They parse, call the other rooms and print.

Standard output carries data only, in UTF-8 whatever the locale; notes, progress and errors go to
standard error. What a command needs is imported inside it, so that help answers at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import click

from mtkit import __version__
from mtkit.base.errors import FAULT, MtkitError
from mtkit.cli.console import (
    configure_logging,
    is_later_worker,
    is_worker,
    print_text,
    say,
    say_error,
    standard_streams,
)

# Variables that set how threads wait for each other, and the values that mtkit sets if the user
# sets none of them: spin for a moment, then sleep, so that other programs get the core. With the
# default, threads spin so long that training takes 45 % longer while other programs run.
# GOMP_SPINCOUNT, in turns of the spin loop, is for the OpenMP library that PyTorch uses on Linux;
# other libraries read OMP_WAIT_POLICY.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
WAIT_BRIEFLY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}


def main() -> None:
    """The program `mtkit`: runs a command, and reports an error as one line and an exit status."""
    if not any(name in os.environ for name in WAITING):
        os.environ.update(WAIT_BRIEFLY)  # before PyTorch is loaded
    if os.uname().machine == "x86_64" and "OMP_NUM_THREADS" not in os.environ:
        # Otherwise NumPy's matrix library starts a thread for each core at each start, and mtkit
        # has only small matrices for it. On Arm, PyTorch may use the same library.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Otherwise pydantic looks for plugins among all installed packages at each start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with standard_streams():
        _run()


def _run() -> None:
    try:
        # By default Click exits with status 1 on Ctrl-C; standalone_mode=False leaves that to us.
        arguments = sys.argv[1:] or ["--help"]
        try:
            status = commands.main(arguments, prog_name="mtkit", standalone_mode=False)
        except click.Abort as error:
            if isinstance(error.__cause__, EOFError):
                raise error.__cause__ from None  # Click takes it for Ctrl-C
            raise
        sys.stdout.flush()
        _leave(status if isinstance(status, int) else 0)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        if os.environ.get("LOCAL_RANK", "0") == "0" or not is_worker():
            # All workers of a machine have the same command line; one of them reports the error.
            say_error(f"{_usage_error(error)}{hint}")
        sys.exit(error.exit_code)
    except MtkitError as error:
        if not error.reported:
            say_error(str(error))
        _leave(error.status)
    except (KeyboardInterrupt, click.Abort) as error:
        if not is_later_worker():
            # Click has turned Ctrl-C into an Abort.
            cause = error.__cause__ if isinstance(error, click.Abort) else error
            reason = str(cause) if isinstance(cause, KeyboardInterrupt) else ""
            say(f"mtkit: interrupted{f': {reason}' if reason else ''}")
        _leave(130)
    except BrokenPipeError:
        # The reader closed the pipe.
        _leave(1)
    except Exception as error:
        if reason := _file_error(error):
            say_error(reason)
            if not is_worker():
                _leave(1)
            from mtkit.train import TRANSIENT

            # It is restarted, if --max-restarts allows it.
            _leave(TRANSIENT)
        if not is_worker():
            raise  # our bug: `__main__` prints the traceback
        traceback.print_exc()
        _leave(FAULT)


def _usage_error(error: click.ClickException) -> str:
    """The message of an error of Click, which names the option and what to give."""
    parameter = getattr(error, "param", None)
    if isinstance(error, click.NoSuchOption):
        near = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"{error.option_name} is not an option{near}"
    if isinstance(error, click.BadParameter) and parameter is not None:
        is_option = isinstance(parameter, click.Option)
        name = parameter.opts[0] if is_option else parameter.human_readable_name
        expected = _expected(parameter.type)
        if isinstance(error, click.MissingParameter):
            return f"give {name.rstrip('.')}{expected and f': {expected}'}"
        value, _, fault = error.message.partition(" is not ")
        if expected and fault:
            return f"{name}: expected {expected}, not {value}"
        return f"{name}: {error.message}"
    message = error.format_message()
    if isinstance(error, click.BadOptionUsage):
        return message.replace(f"Option '{error.option_name}'", error.option_name)
    return message


def _expected(kind: click.ParamType[Any]) -> str:
    """What a value of this type must be; empty if it may be any text."""
    if isinstance(kind, click.Choice):
        return " or ".join(filter(None, (", ".join(kind.choices[:-1]), kind.choices[-1])))
    if not isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return ""
    limits = []
    if (least := getattr(kind, "min", None)) is not None:
        is_open = getattr(kind, "min_open", False)
        limits.append(f"above {least}" if is_open else f"of at least {least}")
    if (most := getattr(kind, "max", None)) is not None:
        limits.append(f"at most {most}")
    noun = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    return f"{noun} {' and '.join(limits)}".strip()


def _file_error(error: Exception) -> str:
    """A message for an error of the operating system about a file; empty for any other error."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = error.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {error.strerror}"
    encoding = sys.getfilesystemencoding()
    if isinstance(error, UnicodeEncodeError) and encoding.lower() not in ("utf-8", "utf8"):
        return (
            f"{error.object}: cannot be the name of a file in this locale, whose encoding is "
            f"{encoding}; set PYTHONUTF8=1"
        )
    return ""


def _leave(status: int) -> None:
    """End the program; a worker at once.

    Its connections to other workers may not close, and PyTorch aborts the process if one of its
    threads releases a tensor while the interpreter ends.
    """
    if is_worker():
        with suppress(OSError, MtkitError):
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        print_text(f"mtkit {__version__}\n")
        if context.params["verbose"]:
            from mtkit.translate import describe_engine

            print_text(f"engine: {describe_engine()}\n")
        context.exit()


class _Commands(Mapping[str, click.Command]):
    """The commands by their names. Each is imported when it is asked for, because it takes time."""

    names = (
        *("prepare", "train", "translate", "align", "check", "serve", "inspect", "score"),
        *("score-trees", "score-alignments", "force-decode", "compare", "export", "import"),
    )

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.names:
            raise KeyError(name)
        module = attribute = name.replace("-", "_")
        if name == "import":  # a word of Python
            module, attribute = "import_model", "import_"
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@click.group(
    commands=_Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
    \b
    Exit status: 0 done, 1 an error that you can fix, 2 wrong usage,
    70 a fault of mtkit (please report it), 130 interrupted.

    \b
    Shell completion (put the line into the start-up file of your shell):
      bash: eval "$(_MTKIT_COMPLETE=bash_source mtkit)"
      zsh:  eval "$(_MTKIT_COMPLETE=zsh_source mtkit)"
      fish: _MTKIT_COMPLETE=fish_source mtkit | source
    """,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    help="With --version: also the engine of translate on this CPU, and its precision.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print warnings and errors only.")
def commands(quiet: bool, verbose: bool) -> None:
    """Train and run machine translation with the Transformer of "Attention Is All You Need".

    \b
    From nothing to a scored translation:
      mtkit prepare demo-en-de
      mtkit train --config demo
      mtkit translate < input.txt
      mtkit score

    mtkit COMMAND --help prints the options of a command.
    """
    if verbose:
        raise click.UsageError("-v requires --version")
    configure_logging(quiet=quiet)
    if click.get_current_context().invoked_subcommand != "translate":
        gc.enable()
