"""The command `mtkit serve`."""

from __future__ import annotations

import gc
import ipaddress
import logging
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.packages import require_packages
from mtkit.cli import options as shared
from mtkit.cli.line_checks import below_option

if TYPE_CHECKING:
    from mtkit.run_folder import Run
    from mtkit.translate import Translator

log = logging.getLogger(__name__)

# Directions that are named when the server starts.
_MAX_SHOWN = 20

address_option = shared.option_group("Address")
access_option = shared.option_group("Access")
limit_option = shared.option_group("Limits")
_PACKAGES = ("starlette", "uvicorn", "python_multipart", "prometheus_client", "language_data")
# What `serve.Limits` calls the values of these options.
_LIMITS = {
    "max_chars": "characters",
    "max_texts": "texts",
    "max_alternatives": "alternatives",
    "max_body": "body_bytes",
    "max_file": "file_bytes",
    "max_queue": "queue_tokens",
    "timeout": "seconds",
    "below": "below",
}


@shared.command(
    "Serve translations over HTTP.",
    "mtkit serve",
    "mtkit serve --run runs/mine --port 5001 --precision int8",
    "mtkit serve --host 0.0.0.0 --keys keys.txt --texts-per-minute 60",
    context_settings={"allow_extra_args": True},
)
@address_option(
    "--host ADDRESS",
    default="127.0.0.1",
    help="Address to listen on. Default: 127.0.0.1, which only this machine can reach. 0.0.0.0:"
    " other machines can reach the server too.",
)
@address_option(
    "--port N",
    type=click.IntRange(0, 65535),
    default=5000,
    help="Port to listen on. Default: 5000. 0: a free port, which the server prints.",
)
@shared.runs_option("one server translates the directions of several runs")
@shared.checkpoint_option
@shared.model_option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate the sentences of a line one by one, or each line as a whole. Default: as"
    " mtkit translate does.",
)
@shared.beam_options
@access_option(
    "--keys FILE",
    "keys_path",
    help="File with the SHA-256 hash of an API key on each line. Then a request needs one of these"
    " keys. Default: no key is needed.",
)
@access_option(
    "--texts-per-minute N",
    "per_minute",
    type=click.IntRange(0),
    default=0,
    help="Maximum number of texts per minute for each key or, without keys, for each address."
    " Default: 0, no maximum.",
)
@access_option(
    "--trusted-proxies NETWORKS",
    "proxies",
    envvar="MTKIT_TRUSTED_PROXIES",
    help="Addresses or networks of web servers before this one, separated by commas. They and this"
    " machine are trusted: the address of a client is the last one in X-Forwarded-For that is not"
    " trusted. Default: the environment variable MTKIT_TRUSTED_PROXIES.",
)
@limit_option(
    "--max-chars N", default=50_000, help="Maximum characters of a text. Default: 50,000."
)
@limit_option("--max-texts N", default=100, help="Maximum texts of a request. Default: 100.")
@limit_option(
    "--max-alternatives N",
    type=click.IntRange(0),
    default=3,
    help="Maximum translations of a text besides the best one. Default: 3.",
)
@limit_option("--max-body N", default=2**20, help="Maximum bytes of a request. Default: 1,048,576.")
@limit_option(
    "--max-file N", default=10 * 2**20, help="Maximum bytes of a document. Default: 10,485,760."
)
@limit_option(
    "--max-queue N",
    default=100_000,
    help="Maximum subwords that wait to be translated. More requests are refused until there is"
    " room. Default: 100,000.",
)
@limit_option(
    "--timeout N",
    type=click.IntRange(1, 24 * 3600),
    default=60,
    help="Maximum seconds for the translation of a request, and for the upload of a document."
    " Default: 60.",
)
@below_option
@shared.hardware_options
def serve(
    run_paths: tuple[Path, ...],
    host: str,
    port: int,
    keys_path: Path | None,
    per_minute: int,
    proxies: str | None,
    **values: Any,
) -> None:
    """Start a server that translates over HTTP.

    Programs that can use LibreTranslate or DeepL can use this server. People can use it in a
    browser, at the address that it prints.

    Requests that come at the same time are translated together. A text gets the same translation
    as from mtkit translate.

    On Ctrl-C or SIGTERM the server answers the requests that it has accepted, and ends.
    """
    if arguments := click.get_current_context().args:
        given = [word for path in (*map(str, run_paths), *arguments) for word in ("--run", path)]
        raise click.UsageError(f"a run is given with --run: mtkit serve {shlex.join(given)}")
    trusted = (proxies or "").replace(",", " ").split()
    for network in trusted:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise click.UsageError(
                f"--trusted-proxies: {error}; an example is 172.16.0.0/12"
            ) from None
    require_packages("mtkit serve", _PACKAGES, extra="serve")
    shared.keep_few_shapes()
    from mtkit.serve import Access, Directions, Limits, Server, Service, listen, read_keys

    limits = Limits(**{field: values.pop(option) for option, field in _LIMITS.items()})
    keys = frozenset[str]() if keys_path is None else read_keys(keys_path)
    runs = [shared.open_run(path) for path in dict.fromkeys(run_paths or (None,))]
    options = shared.DecodeOptions.parse(**values)
    if batch_tokens := options.changes.get("batch_tokens"):
        limits = replace(limits, batch_tokens=batch_tokens)

    def load(run: Run, src_lang: str | None, tgt_lang: str | None) -> Translator:
        return options.load([run], src_lang=src_lang, tgt_lang=tgt_lang, exact=False)

    # Before the models are loaded, because that takes long, and the address may be in use.
    with listen(host, port) as listening:
        directions = Directions(runs, load)
        service = Service(directions, limits, Access(keys, per_minute=per_minute))
        server = Server(service, listening, proxies=trusted)
        # The models stay to the end: garbage collection during requests must not go through them.
        gc.freeze()
        # Seconds that the event loop waits while another thread computes in Python; usually 0.005.
        sys.setswitchinterval(0.001)
        shown = [f"{source} to {target}" for source, target in directions]
        more = len(shown) - _MAX_SHOWN
        pairs = ", ".join(shown[:_MAX_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
        engines = "; ".join(directions.engines)
        server.run(lambda: log.info("serving %s at %s; %s", pairs, server.address, engines))
