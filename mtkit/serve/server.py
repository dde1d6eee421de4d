"""The HTTP server: routes, errors as JSON, CORS, connections, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mtkit.base.errors import MtkitError
from mtkit.serve import counters as metrics
from mtkit.serve import deepl, libretranslate
from mtkit.serve.bodies import Parameters, read_parameters
from mtkit.serve.http_errors import RequestError
from mtkit.serve.service import Caller, Service
from mtkit.serve.web_page import page_routes

log = logging.getLogger(__name__)

Handler = Callable[[Service, Parameters, Caller], Coroutine[Any, Any, Any]]
KeyOf = Callable[[Parameters, str], str]

_GET, _BOTH, _POST = ["GET"], ["GET", "POST"], ["POST"]
# The paths of LibreTranslate and of DeepL.
_LIBRETRANSLATE: dict[str, tuple[list[str], Handler]] = {
    "/translate": (_BOTH, libretranslate.translate),
    "/detect": (_POST, libretranslate.detect),
    "/languages": (_GET, libretranslate.list_languages),
    "/frontend/settings": (_GET, libretranslate.settings),
    "/health": (_GET, libretranslate.health),
    "/translate_file": (_POST, libretranslate.translate_file),
    "/download_file/{name}": (_GET, libretranslate.download_file),
    "/suggest": (_POST, libretranslate.no_suggestions),
}
_DEEPL: dict[str, tuple[list[str], Handler]] = {
    "/v2/translate": (_BOTH, deepl.translate),
    "/v2/languages": (_BOTH, deepl.list_languages),
    "/v2/usage": (_BOTH, deepl.usage),
    "/v2/document": (_BOTH, deepl.no_documents),
    "/v2/document/{rest:path}": (_BOTH, deepl.no_documents),
}
_API = frozenset((*_LIBRETRANSLATE, *_DEEPL))
# As LibreTranslate sends them with every answer.
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Expose-Headers": "Authorization",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Max-Age": str(60 * 60 * 24 * 20),
}
# Connections at a time; more are closed at once.
_MAX_CONNECTIONS = 900
# Seconds that an idle connection stays open.
_IDLE = 15
# The client has gone and does not see it; the code is that of nginx's logs.
_GONE = 499


def make_app(service: Service) -> ASGIApp:
    """The application, for any ASGI server."""
    routes = [
        Route(path, _endpoint(service, path, handler, key_of, field), methods=methods)
        for paths, key_of, field in (
            (_LIBRETRANSLATE, libretranslate.key_of, "error"),
            (_DEEPL, deepl.key_of, "message"),
        )
        for path, (methods, handler) in paths.items()
    ]
    routes += [Route("/metrics", partial(_metrics, service), methods=_GET), *page_routes()]
    handlers: dict[Any, Any] = {HTTPException: _no_such_endpoint}
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A redirect would name whatever host the client names.
    app.router.redirect_slashes = False
    return _with_headers(app)


def _endpoint(
    service: Service, path: str, handler: Handler, key_of: KeyOf, field: str
) -> Callable[[Request], Awaitable[Response]]:
    """What answers the requests of a path; `field` has the message of an error."""
    limits = service.limits
    is_upload = path == "/translate_file"

    async def answer(request: Request) -> Response:
        try:
            address = request.client.host if request.client else ""
            turn = service.document_turns.turn(address) if is_upload else nullcontext()
            async with turn, asyncio.timeout(limits.seconds if is_upload else None):
                given = await read_parameters(
                    request,
                    most=limits.file_bytes if is_upload else limits.body_bytes,
                    seconds=limits.seconds if is_upload else limits.body_seconds,
                    has_file=is_upload or path.startswith("/v2/document"),
                )
                given.update(request.path_params)
                key = key_of(given, request.headers.get("authorization", ""))
                caller = Caller(key, address, str(request.base_url))
                content = await _while_connected(request, handler(service, given, caller))
            return content if isinstance(content, Response) else JSONResponse(content)
        except RequestError as error:
            headers = {}
            if error.retry_after is not None:
                headers["Retry-After"] = str(error.retry_after)
            if error.closes_connection:
                headers["Connection"] = "close"
            return JSONResponse({field: str(error)}, error.status, headers)
        except TimeoutError:
            message = f"the document took longer than {limits.seconds:g} s"
            return JSONResponse({field: message}, 503, {"Connection": "close"})
        except ClientDisconnect:
            return Response(status_code=_GONE)
        except Exception as error:
            _log_failure("a request failed", error)
            return JSONResponse({field: "Internal Server Error"}, 500)

    async def measured(request: Request) -> Response:
        started, status = time.perf_counter(), _GONE
        service.metrics.in_flight += 1
        try:
            response = await answer(request)
            status = response.status_code
            return response
        finally:
            service.metrics.in_flight -= 1
            service.metrics.finish(path, status, time.perf_counter() - started)

    return measured


async def _while_connected(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of some work, which ends when the client disconnects."""
    running = asyncio.ensure_future(work)
    # The request was read, so this message can only be that the client has gone.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
            # It may have been refused at the same time. Its exception is retrieved, because asyncio
            # logs exceptions that are never retrieved.
            with suppress(asyncio.CancelledError, RequestError):
                running.result()
            raise ClientDisconnect
        return running.result()
    finally:
        running.cancel()
        gone.cancel()


def _log_failure(what: str, error: BaseException | None) -> None:
    """Log where an unexpected error came from, without its message: that may have a user's text."""
    places = "".join(traceback.format_tb(error.__traceback__)) if error else ""
    log.error("%s: %s\n%s", what, type(error).__name__, places)


async def _metrics(service: Service, _request: Request) -> Response:
    return Response(service.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})


async def _no_such_endpoint(request: Request, error: HTTPException) -> Response:
    field = "message" if request.url.path.startswith("/v2/") else "error"
    return JSONResponse({field: error.detail}, error.status_code, error.headers)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Lets pages of all origins use the APIs, and keeps answers out of caches."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and (
            scope["path"] in _API or scope["path"].startswith("/download_file/")
        )

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # The files of the page may be kept, and checked again.
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("X-Content-Type-Options", "nosniff")
                if is_api:
                    headers.update(_CORS)
            await send(message)

        is_preflight = is_api and scope["method"] == "OPTIONS"
        asked = Response(headers={"Allow": "GET, HEAD, OPTIONS, POST"}) if is_preflight else app
        await asked(scope, receive, send_with_headers)

    return answer


class Server:
    """A server at the address that a socket listens on, which it closes at the end.

    It believes `X-Forwarded-For` of this machine and of `proxies`, addresses and networks.
    """

    def __init__(
        self, service: Service, listening: socket.socket, *, proxies: Sequence[str] = ()
    ) -> None:
        self._service, limits = service, service.limits
        self._socket = listening
        name, port = self._socket.getsockname()[:2]
        self.address = f"http://{f'[{name}]' if ':' in name else name}:{port}"
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                make_app(service),
                http=_protocol(limits.body_seconds),
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                forwarded_allow_ips=["127.0.0.1", "::1", *proxies],
                timeout_keep_alive=min(_IDLE, limits.body_seconds),  # type: ignore[arg-type]
                timeout_graceful_shutdown=int(limits.body_seconds + limits.seconds) + 5,
            )
        )
        self._interrupted = False

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until `stop`, or SIGTERM or Ctrl-C: then finish what was accepted, and return.

        `on_ready` is called when requests are answered. Only in the main thread are signals
        handled. KeyboardInterrupt at the end, after Ctrl-C; a second one ends it sooner.
        """
        self._uvicorn.on_ready = on_ready
        with _quiet(self._service):
            try:
                asyncio.run(self._serve())
            finally:
                self._service.scheduler.close()
        if self._interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        """End `run`; any thread may call it."""
        self._uvicorn.should_exit = True

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        # What asyncio itself writes has the arguments of callbacks, such as sentences.
        what = "the event loop has caught an error"
        loop.set_exception_handler(lambda _, given: _log_failure(what, given.get("exception")))
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGTERM, self.stop)
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        await self._uvicorn.serve(sockets=[self._socket])

    def _interrupt(self) -> None:
        if self._interrupted:
            self._uvicorn.force_exit = True
            for connection in self._uvicorn.server_state.connections:
                connection.transport.abort()
        self._interrupted = True
        self.stop()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to `Server`, and says when it is ready."""

    on_ready: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _protocol(seconds: float) -> type[H11Protocol]:
    """The HTTP protocol, with limits that uvicorn does not have."""
    # The head of a request must come, and an answer must be read, within `seconds`.

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            # What is done later, by its name: the head, an answer that is not read.
            self._timers: dict[str, asyncio.TimerHandle] = {}
            if len(self.connections) > _MAX_CONNECTIONS:
                transport.abort()
                return
            # `pause_writing` is called as soon as the system takes no more of an answer.
            transport.set_write_buffer_limits(high=0)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop("head")
            elif "head" not in self._timers and not self.transport.is_closing():
                self._wait_for_head()

        def pause_writing(self) -> None:
            super().pause_writing()
            # To close it is not enough: that waits until the rest of the answer is read.
            self._start("unread", seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop("unread")

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop(*self._timers)
            super().connection_lost(exc)

        def _wait_for_head(self) -> None:
            self._start("head", seconds, self.timeout_keep_alive_handler)

        def _start(self, name: str, delay: float, action: Callable[[], None]) -> None:
            self._stop(name)
            self._timers[name] = self.loop.call_later(delay, action)

        def _stop(self, *names: str) -> None:
            for name in names:
                if timer := self._timers.pop(name, None):
                    timer.cancel()

    return Protocol


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; clients wait until a `Server` runs on it.

    Port 0 is any that is free. MtkitError if the address cannot be used.
    """
    try:
        if not host:
            # For the system, that would be every address of the machine.
            raise ValueError("the address is empty")
        is_six = ":" in host and ipaddress.ip_address(host).version == 6
        family = socket.AF_INET6 if is_six else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else 0
        other = "--port" if number in (errno.EADDRINUSE, errno.EACCES) else "--host"
        # `create_server` makes an OSError of a gaierror; its numbers are negative.
        known = os.strerror(number) if number and number > 0 else "there is no such address"
        reason = known if number else str(error)
        raise MtkitError(f"--host {host} --port {port}: {reason}; give another {other}") from error


@contextmanager
def _quiet(service: Service) -> Iterator[None]:
    """Keep the texts of users out of the log: warnings that may name words of them are counted."""

    def count(_record: logging.LogRecord) -> bool:
        service.metrics.warnings += 1
        return False

    counting = logging.Handler(logging.WARNING)
    counting.addFilter(count)
    with ExitStack() as after:
        for name in ("uvicorn", "python_multipart"):
            logger = logging.getLogger(name)
            after.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        for room in ("translate", "align"):
            logger = logging.getLogger(f"mtkit.{room}")
            after.callback(logger.removeHandler, counting)
            after.callback(setattr, logger, "propagate", True)
            logger.addHandler(counting)
            logger.propagate = False
        yield
