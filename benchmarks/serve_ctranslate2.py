"""A server with CTranslate2 in it, which answers `/translate` as `mtkit serve` does.

    python benchmarks/serve_ctranslate2.py MODEL --precision int8 --threads 2

For benchmarks/serve.py, as its opponent: Starlette and uvicorn here too, and the model that
`mtkit export RUN MODEL --format ctranslate2` wrote. What is done with a request is what Argos
Translate and LibreTranslate do: the sentences of its lines are one call of `translate_batch`, in a
pool of threads. As there, one call at a time is computed, with all threads (`inter_threads` 1).
With `--parallel` as many calls as threads are computed at a time, each by one thread.

Sentences of different requests never come into one batch. `max_batch_size` and `asynchronous` of
`translate_batch` are about the sentences of one call, and so the Python interface of CTranslate2
has nothing that would join calls.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import sentencepiece
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mtkit.base.sentences import separator, split

# Threads that requests wait in: those that LibreTranslate has by default.
WAITING = 4


def translator(arguments: argparse.Namespace) -> Callable[[str, str, str], str]:
    """Translates the lines of a text from one language to another, in one call."""
    # CTranslate2 imports it if it can, for conversions.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import ctranslate2

    threads = arguments.threads
    engine = ctranslate2.Translator(
        str(arguments.model),
        device="cpu",
        compute_type="int8" if arguments.precision == "int8" else "float32",
        inter_threads=threads if arguments.parallel else 1,
        intra_threads=1 if arguments.parallel else threads,
    )
    # A run may have a vocabulary for each side.
    files = [arguments.model / name for name in ("source.spm", "target.spm")]
    if not files[0].is_file():
        files = [arguments.model / "sentencepiece.model"] * 2
    src, tgt = (sentencepiece.SentencePieceProcessor(model_file=str(path)) for path in files)

    def translate(text: str, source: str, target: str) -> str:
        lines = [split(line, source) if line.strip() else [] for line in text.split("\n")]
        sentences = [src.encode(sentence, out_type=str) for line in lines for sentence in line]
        results = engine.translate_batch(
            sentences,
            beam_size=arguments.beam_size,
            length_penalty=arguments.length_penalty,
            max_decoding_length=max(map(len, sentences), default=0) + 1 + arguments.extra_length,
        )
        texts = iter([tgt.decode(result.hypotheses[0]) for result in results])
        return "\n".join(separator(target).join(next(texts) for _ in line) for line in lines)

    return translate


def main() -> None:
    """Serve until SIGTERM."""
    # uvicorn ends, and then sends itself the signal again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--precision", choices=["fp32", "int8"], default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", action="store_true", help="one thread for each call")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--length-penalty", type=float, default=1.0)
    parser.add_argument("--extra-length", type=int, default=50, help="subwords beyond the longest")
    arguments = parser.parse_args()
    translate = translator(arguments)
    pool = ThreadPoolExecutor(max(WAITING, arguments.threads))

    async def answer(request: Request) -> JSONResponse:
        given = await request.json()
        loop, fields = asyncio.get_running_loop(), (given[name] for name in ("source", "target"))
        text = await loop.run_in_executor(pool, translate, given["q"], *fields)
        return JSONResponse({"translatedText": text})

    app = Starlette(routes=[Route("/translate", answer, methods=["POST"])])
    config = uvicorn.Config(app, http="h11", loop="asyncio", ws="none", lifespan="off",
                            log_config=None, access_log=False)  # fmt: skip
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        port = listening.getsockname()[1]
        print(f"CTranslate2 {version('ctranslate2')} at http://127.0.0.1:{port};", file=sys.stderr)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
