"""`tidegate submit` uses files of the folders it was given, whatever a server names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app

STOLEN = b"a,b\n1,a secret\n"
LEADING_OUT = [
    "../elsewhere",
    "sales/../../elsewhere",
    "..",
    ".",
    "",
    ".hidden",
    "sales/sub",
    "sales\x00",
    "sales\n",
    "a\\b",
    "x" * 101,
]


@dataclass
class Hostile:
    """A server that names what it likes, takes all that is sent and gives what was not asked."""

    sources: Sequence[str] = ()
    sinks: Sequence[str] = ()
    results: Sequence[str] | None = None
    """By default those of the sinks."""
    state: str = "ended"
    checkpoints: Sequence[Mapping[str, object]] = ()
    url: str = ""
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def answer(self, path: str) -> bytes:
        run = {"id": 1, "pipeline": "shop", "name": "march", "incarnation": 1, "state": self.state}
        end = path.partition("?")[0].rpartition("/")[2]
        sinks = {sink: ["a"] for sink in self.sinks}
        served = {"pipeline": "shop", "sources": [*self.sources], "sinks": sinks}
        chunks = {"source": "s", "delivered": 0, "declared": 0, "is_ended": False, "chunks": []}
        rows = self.sinks if self.results is None else self.results
        answers: dict[str, object] = {
            "pipelines": {"pipelines": [{**served, "most_chunk_bytes": 1 << 20}]},
            "state": {"run": run, "has_this_plan": True},
            "results": {"results": dict.fromkeys(rows, 1)},
            "checkpoints": {"checkpoints": [*self.checkpoints]},
            "1": {"is_new": True},
            "end": {},
        }
        if "/results/" in path:
            return b"overwritten"
        return json.dumps(answers.get(end, chunks)).encode()


@contextmanager
def listening(hostile: Hostile) -> Iterator[Hostile]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            hostile.asked.append(self.path)
            hostile.headers.append({name.lower(): it for name, it in self.headers.items()})
            hostile.bodies.append(self.rfile.read(length))
            body = hostile.answer(self.path)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815  as the standard library wants it

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hostile.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hostile
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder with data, and beside it one that no server may reach."""
    for name in ("data/sales", "out", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("sub", ".hidden", "a\\b"):
        (tmp_path / "data" / "sales" / name).mkdir()
    (tmp_path / "elsewhere" / "1.csv").write_bytes(STOLEN)
    (tmp_path / "elsewhere.csv").write_bytes(STOLEN)
    return tmp_path


def submit(at: Hostile, folders: Path, pipeline: str = "shop", token: str = "") -> Result:
    given = ["--data", str(folders / "data"), "--out", str(folders / "out"), "--wait", "--json"]
    given += ["--server", at.url, "--patience", "1", "--timeout", "10"]
    arguments = ["submit", pipeline, "--run", "march", *given]
    return CliRunner().invoke(app, arguments, env={"TIDEGATE_TOKEN": token})


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def refusal(done: Result) -> tuple[str, str, str]:
    error = json.loads(done.stdout)["error"]
    return error["condition"], error["kind"], error["name"]


@pytest.mark.parametrize("name", LEADING_OUT)
def test_no_file_is_read_for_a_source_that_a_server_names_outside_of_the_data(
    name: str, folders: Path
) -> None:
    with listening(Hostile(sources=[name], state="open")) as hostile:
        done = submit(hostile, folders)
    assert refusal(done) == ("UntrustedName", "source", name)
    assert hostile.asked == ["/pipelines"]


def test_no_file_is_read_for_a_source_that_is_an_absolute_path(folders: Path) -> None:
    with listening(Hostile(sources=[str(folders / "elsewhere")], state="open")) as hostile:
        submit(hostile, folders)
    assert STOLEN not in hostile.bodies


@pytest.mark.parametrize("name", LEADING_OUT)
def test_no_file_is_written_for_a_sink_that_a_server_names_outside_of_the_results(
    name: str, folders: Path
) -> None:
    before = contents(folders)
    with listening(Hostile(sinks=[name])) as hostile:
        done = submit(hostile, folders)
    assert refusal(done) == ("UntrustedName", "sink", name)
    assert contents(folders) == before


def test_no_file_is_written_for_a_sink_that_is_an_absolute_path(folders: Path) -> None:
    before = contents(folders)
    with listening(Hostile(sinks=[str(folders / "elsewhere")])) as hostile:
        submit(hostile, folders)
    assert contents(folders) == before


@pytest.mark.parametrize("name", ["../elsewhere", "another"])
def test_no_file_is_written_for_a_result_of_a_sink_that_is_not_served(
    name: str, folders: Path
) -> None:
    before = contents(folders)
    with listening(Hostile(sinks=["best"], results=["best", name])) as hostile:
        done = submit(hostile, folders)
    assert refusal(done) == ("UntrustedName", "sink", name)
    assert contents(folders) == before


def test_a_result_replaces_a_link_in_the_folder_of_results_and_does_not_follow_it(
    folders: Path,
) -> None:
    (folders / "out" / "best.csv").symlink_to(folders / "elsewhere.csv")
    with listening(Hostile(sinks=["best"])) as hostile:
        done = submit(hostile, folders)
    assert done.exit_code == 0, done.output
    assert contents(folders / "out") == {"best.csv": b"overwritten"}
    assert (folders / "elsewhere.csv").read_bytes() == STOLEN


@pytest.mark.parametrize(
    ("sources", "sinks", "kind"),
    [(["sales", "items", "secrets"], ["best"], "source"), (["sales"], ["best", "worst"], "sink")],
)
def test_of_a_pipeline_that_is_declared_here_only_its_own_files_are_used(
    sources: list[str], sinks: list[str], kind: str, folders: Path
) -> None:
    declared = "tests.integration.http.declared:pipeline"
    with listening(Hostile(sources=sources, sinks=sinks)) as hostile:
        done = submit(hostile, folders, declared)
    assert refusal(done) == ("UntrustedName", kind, (sources if kind == "source" else sinks)[-1])
    assert hostile.asked == ["/pipelines"]


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"pipelines": []}', b'{"pipelines": 1}'])
def test_an_undecodable_response_is_an_error(
    body: bytes, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hostile, "answer", lambda *_: body)
    with listening(Hostile()) as hostile:
        done = submit(hostile, folders)
    assert json.loads(done.stdout)["error"]["refusal"] == "UnreadableAnswer"


def test_fetched_results_are_reported(folders: Path) -> None:
    given = ["--data", str(folders / "data"), "--out", str(folders / "out"), "--wait"]
    with listening(Hostile(sinks=["best"])) as server:
        command = ["submit", "shop", "--run", "march", *given, "--server", server.url]
        done = CliRunner().invoke(app, command, env={"TIDEGATE_TOKEN": ""})
    assert "best: 1 row written" in done.stderr


# ── tokens ──


def token_to(url: str, *more: str) -> Result:
    given = ["submit", "shop", "--run", "march", "--data", ".", "--server", url, "--patience", "0"]
    return CliRunner().invoke(app, [*given, *more, "--json"], env={"TIDEGATE_TOKEN": "secret"})


def test_a_token_is_not_sent_to_another_host_without_encryption() -> None:
    done = token_to("http://server.invalid:8420")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert (error["condition"], error["host"]) == ("PlainHttpToken", "server.invalid")
    assert "--allow-plain-http" in error["message"]


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("http://127.0.0.1:9", []),
        ("http://localhost:9", []),
        ("http://[::1]:9", []),
        ("https://127.0.0.1:9", []),
        ("http://server.invalid:9", ["--allow-plain-http"]),
    ],
)
def test_a_token_is_sent_within_this_machine_with_tls_and_where_that_is_allowed(
    url: str, more: list[str]
) -> None:
    error = json.loads(token_to(url, *more).stdout)["error"]
    assert error["condition"] == "ServerUnreachable"


TAKEN: Mapping[str, object] = {
    "number": 3,
    "id": "00000000-0000-0000-0000-000000000003",
    "epoch": 1,
    "state": "committed",
    "triggered_at": "2025-03-01T06:00:00Z",
    "seconds": 0.25,
    "waited": 0.1,
    "bytes": 10,
    "slowest": None,
    "reason": None,
    "offender": None,
}


def test_the_report_lists_the_checkpoints_that_were_taken(folders: Path) -> None:
    taken = [TAKEN, {**TAKEN, "number": 4, "is_published": False}]
    with listening(Hostile(sinks=["best"], checkpoints=taken)) as hostile:
        done = submit(hostile, folders)
    assert json.loads(done.stdout)["checkpoints"] == [
        {"number": 3, "state": "committed", "seconds": 0.25, "is_published": True},
        {"number": 4, "state": "committed", "seconds": 0.25, "is_published": False},
    ]
