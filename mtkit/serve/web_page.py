"""The page at `/`, on which people translate: three files, and the headers they are sent with."""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

# By their addresses. The page names the others by relative ones, so that a proxy can serve it from
# a folder.
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
# The page loads nothing from elsewhere, runs no other script, and is not shown within another page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


def page_routes() -> list[Route]:
    """The routes of the page and of its files, which are read once."""
    folder = files("mtkit") / "templates" / "serve"
    routes = []
    for path, (name, kind) in _FILES.items():
        content = (folder / name).read_bytes()
        headers = {
            "Content-Type": kind,
            "Content-Security-Policy": _POLICY,
            "Referrer-Policy": "no-referrer",
            # The browser asks each time, so that a page never runs the script of another version.
            "Cache-Control": "no-cache",
            "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        }
        routes.append(Route(path, partial(_send, content, headers), methods=["GET"]))
    return routes


async def _send(content: bytes, headers: dict[str, str], request: Request) -> Response:
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)
