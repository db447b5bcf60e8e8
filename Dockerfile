# syntax=docker/dockerfile:1
# `kermit serve` with the bundled model, on the light install (no torch).
#
#   docker build --tag kermit .
#   docker run --rm --publish 127.0.0.1:8000:8000 --env KERMIT_TOKEN=secret kermit
#   docker run --rm --publish 127.0.0.1:8000:8000 --volume "$PWD/my-model:/model:ro" kermit \
#     serve --host 0.0.0.0 --model /model
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/*.whl)[serve]" \
    && useradd --uid 10001 --create-home --shell /usr/sbin/nologin kermit
USER 10001
WORKDIR /home/kermit
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["kermit"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
