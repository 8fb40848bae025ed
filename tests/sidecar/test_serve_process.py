"""The sidecar as a process, asked over HTTP, with real rings."""

from __future__ import annotations

import gzip
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ring_files import RingFile, record
from sidecars import ServedSidecar, hung_page, served, straggler, write_config
from straggler.simulate.dcgm_text import Generation, gpu_labels, render
from straggler.simulate.local_http import LocalHandler, LocalServer
from straggler.wire import layout
from straggler.wire.push import PushBatch, encode_push
from straggler.wire.records import Identity, Live

TOKEN = "0123456789abcdef0123"
TEAM_TOKEN = "fedcba9876543210fedc"
UUID = "GPU-0b6e4c1a-0000-4000-8000-00000000000{}"
RUN = "<script>alert('1')</script>"
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


class DcgmPage(LocalHandler):
    """Two GPUs, as dcgm-exporter writes them."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer ``/metrics``."""
        rows = [
            (
                gpu_labels(gpu, UUID.format(gpu), "pod-1", Generation.TEMPLATE),
                {"DCGM_FI_DEV_GPU_UTIL": 98, "DCGM_FI_PROF_SM_ACTIVE": 0.25 + gpu / 2},
            )
            for gpu in range(2)
        ]
        self.answer(200, render(rows, Generation.TEMPLATE))


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two ranks that have stepped 40 times; the second is the slow one of a run with an unfriendly name."""
    directory = tmp_path_factory.mktemp("rings")
    writers = [
        RingFile(
            directory / f"{rank}.ring",
            run=RUN,
            rank=rank,
            lock=True,
            gpu_uuid=UUID.format(rank),
        )
        for rank in range(2)
    ]
    writers[0].step(40, step_ns=50_000_000, wait_ns=20_000_000)
    writers[1].step(40, step_ns=50_000_000, wait_ns=2_000_000)
    yield directory
    for writer in writers:
        writer.close()


@pytest.fixture(scope="module")
def sidecar(rings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSidecar]:
    """One sidecar for all questions of this file."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"{TOKEN}\n{TEAM_TOKEN} team-a\n", encoding="utf-8")
    page = LocalServer(DcgmPage)
    flags = ("--ring-dir", str(rings), "--dcgm-url", page.url, "--push-tokens-file", str(tokens))
    with served(*flags) as sidecar:
        yield sidecar
    page.close()


def _parse_openmetrics(page: str) -> list[Metric]:
    return list(parse_openmetrics(page))  # type: ignore[no-untyped-call]  # prometheus_client does not type it


def _push(run: str, rank: int = 0, steps: int = 3) -> bytes:
    return encode_push(
        PushBatch(
            live=Live(steps, steps, 1, 1, layout.STATUS_RUNNING, None),
            identity=Identity(run=run, rank=rank, node="elsewhere"),
            records=tuple(record(serial) for serial in range(1, steps + 1)),
            created_realtime_ns=1_700_000_000_000_000_000,
        )
    )


def _one(page: str, name: str, **labels: str) -> float | None:
    """The value of the one sample with these labels."""
    values = [
        sample.value
        for family in parse_text(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(values) <= 1
    return values[0] if values else None


def test_page_joins_rings_and_gpus(sidecar: ServedSidecar) -> None:
    """From ring files and a DCGM page to one page: totals, recent steps, and the GPU that the rank is on."""
    page = sidecar.metrics()

    assert _one(page, "training_step_seconds_count", run=RUN, rank="1") == 40
    assert _one(page, "training_step_seconds_sum", run=RUN, rank="1") == pytest.approx(2.0)
    assert _one(page, "training_own_seconds_total", run=RUN, rank="1") == pytest.approx(40 * 0.048)
    assert _one(page, "training_recent_own_seconds", run=RUN, rank="0") == pytest.approx(0.030)
    assert _one(page, "training_gpu_sm_active_ratio", run=RUN, rank="1") == pytest.approx(0.75)
    assert _one(page, "training_gpu_utilization_ratio", run=RUN, rank="1") == pytest.approx(0.98)
    info = {"UUID": UUID.format(1), "evidence": "uuid", "own": "measured"}
    assert _one(page, "training_rank_info", run=RUN, rank="1", **info) == 1
    assert _one(page, "straggler_exporter_source_state", source="dcgm", state="ok") == 1


def test_openmetrics_on_request(sidecar: ServedSidecar) -> None:
    """Who asks for OpenMetrics gets it, valid to its end, with the same samples."""
    answer, body = sidecar.request("/metrics", Accept=OPENMETRICS)

    assert answer.getheader("Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    names = {sample.name for family in _parse_openmetrics(body.decode()) for sample in family.samples}
    assert {"training_step_seconds_sum", "training_own_seconds_total", "training_rank_info"} <= names


def test_text_otherwise(sidecar: ServedSidecar) -> None:
    """Without a preference the answer is the text format, and says so."""
    answer, _ = sidecar.request("/metrics")

    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"


def test_gzip_on_request(sidecar: ServedSidecar) -> None:
    """The compressed page unpacks to a page."""
    answer, body = sidecar.request("/metrics", Accept_Encoding="gzip")

    assert answer.getheader("Content-Encoding") == "gzip"
    assert list(parse_text(gzip.decompress(body).decode()))


def test_head(sidecar: ServedSidecar) -> None:
    """HEAD has the head of the page and no body."""
    answer, body = sidecar.request("/metrics", "HEAD")

    assert answer.status == 200
    assert int(answer.getheader("Content-Length") or 0) > 1000
    assert body == b""


def test_health(sidecar: ServedSidecar) -> None:
    """Alive and ready are two addresses, as Prometheus has them; ready is who has looked at its sources once."""
    assert sidecar.request("/-/healthy")[0].status == 200
    sidecar.metrics()  # a look, should the first one still be under way
    assert sidecar.request("/-/ready")[0].status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/nowhere", 404, "/metrics"),
        ("POST", "/metrics", 405, "takes GET, HEAD"),
        ("GET", "/api/v1/push", 405, "takes POST"),
        ("BREW", "/", 405, "takes GET, HEAD"),
    ],
)
def test_wrong_address(sidecar: ServedSidecar, method: str, path: str, status: int, text: str) -> None:
    """A wrong address or method is answered with a line that says what is right."""
    answer, body = sidecar.request(path, method)

    assert answer.status == status
    assert text in body.decode()


def test_ranks_as_json(sidecar: ServedSidecar) -> None:
    """The list of ranks says who is slow, against whom, and on which GPU."""
    answer, body = sidecar.request("/api/v1/ranks")
    document = json.loads(body)

    assert answer.getheader("Content-Type") == "application/json; charset=utf-8"
    fast, slow = (rank for rank in document["ranks"] if rank["source"] == "rings")
    assert (slow["rank"], slow["state"], slow["slow"]) == (1, "running", "warning")
    assert slow["slowdown_ratio"] == pytest.approx(1.6)
    assert slow["gpu"]["UUID"] == UUID.format(1)
    assert "slow" not in fast
    assert "step" in fast
    assert "pod" not in fast


def test_landing_page_escapes(sidecar: ServedSidecar) -> None:
    """The page for people shows whatever name a run has as text, marks the slow rank, and may not load anything."""
    answer, body = sidecar.request("/")
    page = body.decode()

    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert "default-src 'none'" in (answer.getheader("Content-Security-Policy") or "")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert len(re.findall(r'<tr class="slow">', page)) == 1


def test_push_is_taken(sidecar: ServedSidecar) -> None:
    """A pushed rank is on the page like any other, and a repeated push counts once."""
    read = "straggler_exporter_records_read_total"
    before = _one(sidecar.metrics(), read, source="push") or 0
    for _ in range(2):
        answer, _ = sidecar.request("/api/v1/push", "POST", _push("pushed"), Authorization=f"Bearer {TOKEN}")
        assert answer.status == 204

    assert _one(sidecar.metrics(), "training_step_seconds_count", run="pushed") == 3
    assert _one(sidecar.metrics(), read, source="push") == before + 3


@pytest.mark.parametrize(
    ("token", "body", "status", "reason"),
    [
        ("", b"", 401, "unauthorized"),
        ("wrong-wrong-wrong", _push("x"), 401, "unauthorized"),
        (TOKEN, b"nonsense", 400, "too_short"),
        (TEAM_TOKEN, _push("team-b/job"), 403, "wrong_namespace"),
        (TOKEN, bytes(2_000_000), 413, "too_large"),
    ],
)
def test_push_is_refused(sidecar: ServedSidecar, token: str, body: bytes, status: int, reason: str) -> None:
    """A push that may not be, or cannot be read, is told why, and counted under its reason."""
    before = sum(_refused(sidecar, reason))
    answer, text = sidecar.request("/api/v1/push", "POST", body, Authorization=f"Bearer {token}")

    assert answer.status == status
    assert text
    assert sum(_refused(sidecar, reason)) == before + 1


def _refused(sidecar: ServedSidecar, reason: str) -> list[float]:
    page = sidecar.metrics()
    return [
        _one(page, "straggler_exporter_refused_total", source=source, reason=reason) or 0 for source in ("push", "http")
    ]


def test_refused_push_is_logged_once(tmp_path: Path) -> None:
    """The log says who was refused and why, once and not with each push, and repeats no token."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TEAM_TOKEN} team-a\n", encoding="utf-8")
    with served("--ring-dir", str(tmp_path), "--dcgm-url", "none", "--push-tokens-file", str(tokens)) as sidecar:
        for _ in range(3):
            for token, run in (("wrong-wrong-wrong", "x"), (TEAM_TOKEN, "team-b/job")):
                sidecar.request("/api/v1/push", "POST", _push(run), Authorization=f"Bearer {token}")
        sidecar.metrics()
        sidecar.end()

    told = [line.partition("push: ")[2] for line in sidecar.log.splitlines() if "a push from" in line]
    assert [line.partition(" send")[0] for line in told] == [
        "unauthorized: a push from 127.0.0.1:",
        "wrong_namespace: a push from 127.0.0.1: the token is for runs called team-a/…, this one is 'team-b/job'",
    ]
    assert "wrong-wrong-wrong" not in sidecar.log


def test_push_for_the_tokens_namespace(sidecar: ServedSidecar) -> None:
    """A token that is bound to a namespace writes runs of that namespace."""
    answer, _ = sidecar.request("/api/v1/push", "POST", _push("team-a/job"), Authorization=f"Bearer {TEAM_TOKEN}")

    assert answer.status == 204


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it(tmp_path: Path, signum: signal.Signals) -> None:
    """SIGTERM and Ctrl-C are an ordered end: exit code 0, a last line, no traceback."""
    with served("--ring-dir", str(tmp_path), "--dcgm-url", "none") as sidecar:
        assert sidecar.end(signum) == 0
        assert sidecar.log.rstrip().endswith("ended")
        assert "Traceback" not in sidecar.log


@pytest.mark.slow
def test_hung_dcgm(tmp_path: Path) -> None:
    """With a DCGM page that never answers a scrape is complete in the announced time, but for the GPUs."""
    writer = RingFile(tmp_path / "0.ring", lock=True)
    writer.step(40)
    flags = ("--ring-dir", str(tmp_path), "--dcgm-timeout-seconds", "300")
    with hung_page() as url, served(*flags, "--dcgm-url", url) as sidecar:
        page = sidecar.metrics(X_Prometheus_Scrape_Timeout_Seconds="5")  # that it comes at all is the claim

        assert _one(page, "training_step", rank="0") == 40
        assert _one(page, "straggler_exporter_source_state", source="dcgm", state="failed") == 1
        assert (_one(page, "straggler_exporter_refused_total", source="dcgm", reason="timeout") or 0) >= 1
        assert sidecar.end() == 0
    writer.close()


def test_directory_that_comes_later(tmp_path: Path) -> None:
    """A ring directory that is not there yet is a warning with the remedy; its ranks are seen once it is made."""
    directory = tmp_path / "later"
    with served("--ring-dir", str(directory), "--dcgm-url", "none") as sidecar:
        assert _one(sidecar.metrics(), "straggler_exporter_source_state", source="rings", state="absent") == 1
        directory.mkdir()
        writer = RingFile(directory / "0.ring", lock=True)
        writer.step(5)

        assert _one(sidecar.metrics(), "training_step", rank="0") == 5
        sidecar.end()
        assert f"install -d -m 3733 {directory}" in sidecar.log
    writer.close()


def test_gone_rank_in_the_page(tmp_path: Path) -> None:
    """After the goodbye the gauges are gone and the totals are still there."""
    writer = RingFile(tmp_path / "0.ring", lock=True)
    writer.step(40)
    with served("--ring-dir", str(tmp_path), "--dcgm-url", "none") as sidecar:
        assert _one(sidecar.metrics(), "training_recent_own_seconds") is not None
        writer.goodbye()
        writer.close()
        page = sidecar.metrics()

    assert _one(page, "training_recent_own_seconds") is None
    assert _one(page, "training_step") is None
    assert _one(page, "training_step_seconds_count") == 40
    assert _one(page, "training_rank_state", state="finished") == 1


def test_push_that_is_off(tmp_path: Path) -> None:
    """Without a file of tokens push is off, and the answer says how to switch it on."""
    with served("--ring-dir", str(tmp_path), "--dcgm-url", "none") as sidecar:
        answer, body = sidecar.request("/api/v1/push", "POST", _push("x"))

    assert answer.status == 404
    assert "--push-tokens-file" in body.decode()


def test_port_in_use(sidecar: ServedSidecar) -> None:
    """A second sidecar on the same port ends with code 2 and says who to ask."""
    result = straggler("serve", "--listen", f"127.0.0.1:{sidecar.port}", "--dcgm-url", "none")

    assert result.returncode == 2
    assert f"127.0.0.1:{sidecar.port} is in use" in result.stderr
    assert "ss -ltnp" in result.stderr
    assert "Traceback" not in result.stderr


def test_address_of_another_machine() -> None:
    """An address that is not this machine's is a wrong setting."""
    result = straggler("serve", "--listen", "192.0.2.1:0", "--dcgm-url", "none")

    assert result.returncode == 2
    assert "is no address of this machine" in result.stderr


def test_configuration_errors(tmp_path: Path) -> None:
    """Wrong keys and values in a file are told all at once, with the nearest key, and the exit code is 2."""
    file = write_config(tmp_path, "lisen: :1\ndcgm:\n  timeout_seconds: soon\n")
    result = straggler("serve", "--config", file)

    assert result.returncode == 2
    assert "lisen: unknown key" in result.stderr
    assert "did you mean listen?" in result.stderr
    assert "dcgm.timeout_seconds: 'soon'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--push-tokens-file", "push.tokens_file: cannot read /nowhere"),
        ("--dcgm-ca-file", "dcgm.ca_file: cannot read /nowhere"),
        ("--dcgm-password-file", "dcgm.password_file: cannot read /nowhere"),
    ],
)
def test_check_config_looks_at_files(flag: str, text: str) -> None:
    """``--check-config`` finds what would fail at the start, without starting."""
    result = straggler("serve", "--check-config", flag, "/nowhere")

    assert result.returncode == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--dcgm-ca-file", "FILE"], "dcgm.ca_file: FILE has no CA certificate"),
        (["--ring-dir", "FILE"], "ring_dir: FILE is no directory"),
        (
            ["--alerts-webhook-url", "https://h", "--alerts-ca-file", "FILE"],
            "alerts.ca_file: FILE has no CA certificate",
        ),
        (
            ["--alerts-webhook-url", "https://h", "--alerts-ca-file", "/nowhere"],
            "alerts.ca_file: cannot read /nowhere",
        ),
        (["--dcgm-password-file", "FILE"], "dcgm.password_file: is used by nobody without dcgm.username"),
        (
            ["--dcgm-client-key-file", "FILE"],
            "dcgm.client_key_file: is used by nobody without dcgm.client_certificate_file",
        ),
    ],
)
def test_check_config_looks_into_files(flags: list[str], text: str, tmp_path: Path) -> None:
    """A file that is there and is of no use is found too, not at the first alert that cannot be delivered."""
    file = tmp_path / "file"
    file.write_text("not PEM\n", encoding="utf-8")
    result = straggler("serve", "--check-config", *(str(file) if flag == "FILE" else flag for flag in flags))

    assert result.returncode == 2
    assert text.replace("FILE", str(file)) in result.stderr


def test_print_config(tmp_path: Path) -> None:
    """``--print-config`` prints what results from all places, as a file that can be used."""
    file = write_config(tmp_path, "dcgm: {url: none}\n")
    result = straggler("serve", "--config", file, "--print-config", environment={"STRAGGLER_LISTEN": ":1"})
    again = straggler("serve", "--config", write_config(tmp_path, result.stdout), "--print-config")

    assert result.returncode == 0
    assert "listen: :1\n" in result.stdout
    assert "  url: none\n" in result.stdout
    assert again.stdout == result.stdout


def test_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    """A misspelt variable is told once with the nearest name; a variable of the hook is not."""
    environment = {"STRAGGLER_LISTENN": ":1", "STRAGGLER_DISABLED": "1"}
    with served("--ring-dir", str(tmp_path), "--dcgm-url", "none", environment=environment) as sidecar:
        sidecar.end()

    assert sidecar.log.count("STRAGGLER_LISTENN") == 1
    assert "did you mean STRAGGLER_LISTEN?" in sidecar.log
    assert "STRAGGLER_DISABLED" not in sidecar.log
