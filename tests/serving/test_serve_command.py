"""`kermit serve` as a user runs it: a real process that stops without losing accepted requests, and its errors."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from services import PATIENCE, running
from typer.testing import CliRunner

from kermit import Kermit
from kermit.cli import app, main
from kermit.errors import KermitError, ServingError
from kermit.serving import server
from kermit.serving.app import create_app
from kermit.serving.settings import ServiceSettings

pytestmark = pytest.mark.slow

TOKEN = {"Authorization": "Bearer secret"}


@pytest.fixture
def process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kermit", "serve", "--model", str(folder), "--port", "0", "--threads", "1"]
    command += ["--deadline", str(PATIENCE)]
    environment = os.environ | {"KERMIT_TOKEN": "secret", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    found = re.search(r"by-heart at (http://127\.0\.0\.1:\d+)$", process.stderr.readline().strip())
    assert found, "the first line says where it listens"
    return found[1]


def queue_depth(client: httpx.Client) -> float:
    found = re.search(r"^kermit_queue_depth (\S+)$", client.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def test_on_sigterm_it_answers_accepted_requests_and_rejects_new_ones(process: subprocess.Popen[str]) -> None:
    url = address(process)
    endless = {"strategy": "serial", "termination_penalty": 90.0}
    with (
        httpx.Client(base_url=url, headers=TOKEN, timeout=PATIENCE) as client,
        ThreadPoolExecutor(6) as pool,
    ):
        assert client.get("/v1/models", headers={"Authorization": ""}).status_code == 401
        # different from each other, so that they are computed one after the other
        accepted = [
            pool.submit(client.post, "/v1/sample", json=endless | {"max_tokens": 70 - number}) for number in range(6)
        ]
        end = time.monotonic() + PATIENCE
        while queue_depth(client) < 3:
            assert time.monotonic() < end
        process.send_signal(signal.SIGTERM)
        refused = client.post("/v1/sample", json={"max_tokens": 1})
        while refused.status_code == 200 and time.monotonic() < end:
            refused = client.post("/v1/sample", json={"max_tokens": 1})
        assert refused.status_code == 503
        assert "stopping" in refused.json()["detail"]
        assert client.get("/healthz").json() == {"status": "stopping"}
        answers = [answer.result(PATIENCE) for answer in accepted]
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 503}  # a request that was still in transit is rejected, not lost
    assert statuses.count(200) >= 4
    assert all(
        answer.json()["results"][0]["tokens"] == 70 - number
        for number, answer in enumerate(answers)
        if answer.status_code == 200
    )
    assert process.wait(PATIENCE) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


def test_a_second_interrupt_ends_it_at_once_and_silently(process: subprocess.Popen[str]) -> None:
    url = address(process)
    endless = {"x": ["A dog sleeps. " * 15] * 32, "orders": 64}
    with httpx.Client(base_url=url, headers=TOKEN, timeout=PATIENCE) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.post, "/v1/score", json=endless)
        end = time.monotonic() + PATIENCE
        while queue_depth(client) > 0 or "kermit_batch_size_count 1.0" not in client.get("/metrics").text:
            assert time.monotonic() < end
        process.send_signal(signal.SIGINT)
        while client.get("/healthz").status_code == 200:
            assert time.monotonic() < end
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert isinstance(asked.exception(PATIENCE), httpx.TransportError)
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_health_reports_that_the_service_is_stopping(kermit: Kermit) -> None:
    with running(kermit) as live:
        live.service.stop_accepting()
        response = live.client.get("/healthz")
        assert (response.status_code, response.json()) == (503, {"status": "stopping"})
        assert live.post("/v1/sample").status_code == 503


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServingError, match=f"cannot listen on 127.0.0.1, port {port}: .*--port"):
            server.listen("127.0.0.1", port)
    with pytest.raises(ServingError, match="cannot listen on no such host"):
        server.listen("no such host", 0)


@pytest.mark.parametrize(
    ("host", "token", "warned"),
    [("0.0.0.0", None, True), ("0.0.0.0", "secret", False), ("127.0.0.1", None, False), ("localhost", None, False)],
)
def test_serving_the_network_without_a_token_gives_a_warning(
    kermit: Kermit,
    host: str,
    token: str | None,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(server.Server, "run", lambda self, sockets: None)
    with caplog.at_level("INFO", logger="kermit"):
        server.serve(create_app(kermit, ServiceSettings(token=token)), host, 0)
    assert ("without a token" in caplog.text) is warned
    assert re.search(rf"by-heart at http://{host}:\d+", caplog.text)


def test_every_option_reaches_the_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, threads = [], []
    monkeypatch.setattr(server, "serve", lambda app, host, port: served.append((app, host, port)))
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    options = {
        "--host": "0.0.0.0",
        "--port": 9,
        "--token": "secret",
        "--queue": 7,
        "--max-wait-ms": 2.5,
        "--max-batch": 3,
        "--deadline": 1.5,
        "--max-tokens": 11,
        "--threads": 2,
    }
    words = [str(word) for option in options.items() for word in option]
    assert CliRunner().invoke(app, ["serve", "--model", str(folder), *words]).exit_code == 0
    [(service, host, port)] = served
    assert (host, port, threads) == ("0.0.0.0", 9, [2])
    assert service.state.service.settings == ServiceSettings("secret", 7, 3, 2.5, 1.5, 11)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/nowhere"], "/nowhere"),
        (["--queue", "0"], "queue must be at least 1"),
        (["--deadline", "0"], "deadline must be above 0"),
    ],
)
def test_wrong_options_are_errors_that_name_them(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert isinstance(result.exception, KermitError)
    assert message in str(result.exception)


def test_missing_packages_are_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "kermit.serving.app")
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setattr(sys, "argv", ["kermit", "serve"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "pip install 'kermit-insertion[serve]'" in capsys.readouterr().err
