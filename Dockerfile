# `mtkit serve` with the CPU build of PyTorch: docs/serve.md#in-a-container
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++
# uv knows where PyTorch keeps its CPU build.
RUN pip install --no-cache-dir uv
ENV VIRTUAL_ENV=/opt/mtkit UV_NO_CACHE=1
RUN python -m venv --without-pip /opt/mtkit
RUN uv pip install --torch-backend=cpu torch==2.13.0
WORKDIR /build
COPY constraints.txt pyproject.toml setup.py README.md LICENSE ./
COPY mtkit mtkit
RUN uv pip install --torch-backend=cpu --constraint constraints.txt '.[serve]'
# What a server does not use: headers, programs that test PyTorch, tests of libraries.
RUN cd /opt/mtkit/lib/python3.11/site-packages \
    && rm -rf torch/include torch/test pyarrow/include \
    && find torch/bin -type f ! -name torch_shm_manager -delete \
    && find . -type d -name tests -prune -exec rm -rf {} +
# The bytecode of what a server loads; its user cannot write it. `library()` fails without the
# native engine, which an installation goes on without. `-I` takes the installed mtkit, not ours.
RUN /opt/mtkit/bin/python -I -c 'import mtkit.cli, mtkit.serve, mtkit.translate.translator, torch; \
    from mtkit.native.library import library; library()'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/mtkit /opt/mtkit
RUN useradd --uid 10001 --no-create-home mtkit
USER mtkit
ENV PATH=/opt/mtkit/bin:$PATH
# Without --run, the newest run of the folder runs/ here is served.
WORKDIR /
VOLUME /runs
EXPOSE 5000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import http.client as http; \
    server = http.HTTPConnection('127.0.0.1', 5000, timeout=5); server.request('GET', '/health'); \
    raise SystemExit(server.getresponse().status != 200)"]
ENTRYPOINT ["mtkit"]
CMD ["serve", "--host", "0.0.0.0", "--port", "5000"]
