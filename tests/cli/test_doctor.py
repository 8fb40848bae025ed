"""``straggler doctor`` against real directories, pages and servers."""

from __future__ import annotations

import json
import os
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ring_files import RingFile
from servers import monitoring
from sidecars import served, straggler
from straggler.sidecar.doctor.directory import examine_directory, filesystem_of
from straggler.sidecar.doctor.finding import Finding, Health
from straggler.sidecar.doctor.machine import examine_machine, judge_clock
from straggler.sidecar.doctor.monitoring import examine_monitoring
from straggler.simulate.dcgm_text import Generation, gpu_labels, render
from straggler.simulate.local_http import LocalHandler, LocalServer
from straggler.sources.dcgm.fetch import Access

RULES = Path(__file__).resolve().parents[2] / "rules"
TMPFS = Path("/dev/shm")
UUID = "GPU-0b6e4c1a-0000-4000-8000-000000000000"


@pytest.fixture
def rings() -> Iterator[Path]:
    """An empty directory in memory, for the jobs of all users."""
    path = TMPFS / f"straggler-doctor-{os.getpid()}"
    path.mkdir()
    path.chmod(0o3733)
    yield path
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


@pytest.fixture
def diagnose(rings: Path) -> Callable[..., tuple[int, dict[str, Finding]]]:
    """Run the command; gives its exit code and the worst finding of each check."""

    def run(*flags: str, listen: str = "127.0.0.1:0") -> tuple[int, dict[str, Finding]]:
        common = ("--ring-dir", str(rings), "--listen", listen, "--nvml-use", "never", "--json")
        done = straggler("doctor", *common, *flags)
        assert done.returncode in (0, 1), done.stderr
        document = json.loads(done.stdout)
        assert document["ok"] is (done.returncode == 0)
        worst: dict[str, Finding] = {}
        for each in document["findings"]:
            finding = Finding(each["check"], Health(each["health"]), each["text"], each["fix"])
            if finding.check not in worst or finding.health is Health.BROKEN:
                worst[finding.check] = finding
        return done.returncode, worst

    return run


class Page(LocalHandler):
    """dcgm-exporter with the fields of its own default file: no profiling."""

    fields: Mapping[str, float] = {"DCGM_FI_DEV_GPU_UTIL": 98, "DCGM_FI_DEV_SM_CLOCK": 1980}

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer ``/metrics``."""
        row = (gpu_labels(0, UUID, "node-1", Generation.TEMPLATE), dict(self.fields))
        self.answer(200, render([row], Generation.TEMPLATE))


class FullPage(Page):
    """With profiling."""

    fields: Mapping[str, float] = {
        **Page.fields,
        "DCGM_FI_PROF_SM_ACTIVE": 0.5,
        "DCGM_FI_PROF_SM_OCCUPANCY": 0.4,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.3,
    }


@pytest.fixture
def serve() -> Iterator[Callable[[type[LocalHandler]], str]]:
    """Serve a page until the end of the test; gives the address."""
    running: list[LocalServer] = []

    def start(handler: type[LocalHandler]) -> str:
        running.append(LocalServer(handler))
        return running[-1].url

    yield start
    for server in running:
        server.close()


Serve = Callable[[type[LocalHandler]], str]
Diagnose = Callable[..., tuple[int, dict[str, Finding]]]


def test_node_without_anything_is_well(diagnose: Diagnose) -> None:
    """What is not there is absent, and no fault: a script on a node without GPUs goes on."""
    code, found = diagnose()

    assert code == 0
    assert found["ring_directory"].health is Health.OK
    assert "all users" in found["ring_directory"].text
    assert found["dcgm"].health is Health.ABSENT
    assert "--dcgm-url" in found["dcgm"].fix


def test_missing_profiling_gives_the_csv_lines(diagnose: Diagnose, serve: Serve) -> None:
    """dcgm-exporter without profiling is broken for us; the fix is what to put into its csv file."""
    code, found = diagnose("--dcgm-url", serve(Page))

    assert code == 1
    assert found["dcgm"].text.startswith("sm_active_absent")
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge, " in found["dcgm"].fix


def test_page_with_profiling_is_well(diagnose: Diagnose, serve: Serve) -> None:
    """With the fields of the verdicts nothing is to be done."""
    code, found = diagnose("--dcgm-url", serve(FullPage))

    assert code == 0
    assert found["dcgm"] == Finding("dcgm", Health.OK, "1 GPUs")


def test_page_that_was_asked_for_and_does_not_answer(diagnose: Diagnose) -> None:
    """An address that somebody gave must answer."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, found = diagnose("--dcgm-url", f"http://127.0.0.1:{port}/metrics")

    assert code == 1
    assert found["dcgm"].health is Health.BROKEN


def test_rings_and_their_age(diagnose: Diagnose, rings: Path) -> None:
    """A ring is counted with its last step; one that is refused is broken, with its reason; nothing is removed."""
    ring = RingFile(rings / "a.ring", lock=True)
    ring.step(40)
    code, found = diagnose()
    assert code == 0
    assert "1 of 1 ranks live, the newest step" in found["rings"].text

    (rings / "b.ring").symlink_to("/etc/passwd")
    code, found = diagnose()
    assert code == 1
    assert found["rings"].text.startswith("symlink")
    assert len(list(rings.iterdir())) == 2
    ring.close()


def test_running_sidecar(diagnose: Diagnose, rings: Path) -> None:
    """Who serves on the port is known by its name."""
    with served("--ring-dir", str(rings), "--dcgm-url", "none") as sidecar:
        _, found = diagnose(listen=f"127.0.0.1:{sidecar.port}")

    assert found["port"].health is Health.OK


def test_port_of_another(diagnose: Diagnose, serve: Serve) -> None:
    """A port that another program has is broken, and one can see whose it is."""
    code, found = diagnose(listen=serve(Page).removeprefix("http://"))

    assert code == 1
    assert "another program" in found["port"].text
    assert "ss -ltnp" in found["port"].fix


def test_tokens_in_the_clear(diagnose: Diagnose, tmp_path: Path) -> None:
    """Push without TLS is told."""
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef0123\n", encoding="utf-8")
    code, found = diagnose("--push-tokens-file", str(tokens))

    assert code == 1
    assert "--web-config-file" in found["web"].fix


def test_wrong_use() -> None:
    """Settings that cannot be used are no finding."""
    done = straggler("doctor", "--listen", "nowhere:x")
    assert (done.returncode, "listen" in done.stderr) == (2, True)
    assert straggler("doctor", "--prometheus", "localhost:9090").returncode == 2


@pytest.mark.parametrize(
    ("mode", "text", "fix"),
    [(0o777, "any user can delete", "chmod 3733"), (0o3733, "", ""), (0o1777, "", "")],
)
def test_modes(rings: Path, mode: int, text: str, fix: str) -> None:
    """Without the sticky bit any user could remove another's ring."""
    rings.chmod(mode)
    (finding,) = examine_directory(rings)

    assert (finding.health is Health.BROKEN) is bool(fix)
    assert text in finding.text
    assert fix in finding.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give the directory away")
def test_directory_that_jobs_cannot_write(rings: Path) -> None:
    """A directory of the sidecar alone would stay empty for ever."""
    os.chown(rings, 12345, -1)
    rings.chmod(0o755)
    (finding,) = examine_directory(rings)
    assert finding.fix == f"chmod 3733 {rings}"

    (rings / "namespace").mkdir()
    (finding,) = examine_directory(rings)
    (rings / "namespace").rmdir()
    assert finding.health is Health.OK  # under Kubernetes pods have directories below it


def test_directory_on_a_disk(rings: Path, tmp_path: Path) -> None:
    """A directory that is not in memory is broken: the hook would refuse it."""
    table = tmp_path / "mountinfo"
    device = rings.stat().st_dev
    table.write_text(f"25 24 {os.major(device)}:{os.minor(device)} / / rw - nfs4 server:/home rw\n", encoding="utf-8")

    assert filesystem_of(device, table) == "nfs4"
    (finding,) = examine_directory(rings, table)
    assert finding.health is Health.BROKEN
    assert "mount -t tmpfs" in finding.fix


def test_no_directory(tmp_path: Path) -> None:
    """No directory is absent, with the command that makes it."""
    (finding,) = examine_directory(tmp_path / "none")

    assert finding.health is Health.ABSENT
    assert finding.fix == f"install -d -m 3733 {tmp_path / 'none'}"


def test_container_and_memory_limit(tmp_path: Path) -> None:
    """A PID namespace of its own and a limit that the sidecar would hit are told."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532000]")
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/x\n", encoding="utf-8")
    (tmp_path / "sys/fs/cgroup/pod/x").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("memory\n", encoding="utf-8")
    (tmp_path / "sys/fs/cgroup/pod/x/memory.max").write_text(f"{64 << 20}\n", encoding="utf-8")
    found = {finding.check: finding for finding in examine_machine(tmp_path)}

    assert found["pid_namespace"].fix == "hostPID: true"
    assert "64 MB" in found["cgroup"].text
    assert found["cgroup"].health is Health.BROKEN


@pytest.mark.parametrize(
    ("answer", "health"), [(0, Health.OK), (5, Health.ABSENT), (-1, Health.ABSENT), (None, Health.ABSENT)]
)
def test_clock(answer: int | None, health: Health) -> None:
    """The kernel knows whether anything keeps its clock right; TIME_ERROR is 5."""
    assert judge_clock(answer).health is health


class NotPrometheus(LocalHandler):
    """Some other server."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Greet."""
        self.answer(200, "hello")


class OddPrometheus(LocalHandler):
    """JSON of another shape."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer any question alike."""
        self.answer(200, '{"status": "success", "data": {"result": [7]}}')


@pytest.mark.parametrize(("handler", "text"), [(NotPrometheus, "does not answer as"), (OddPrometheus, "form of its")])
def test_no_prometheus_there(serve: Serve, handler: type[LocalHandler], text: str) -> None:
    """Whatever answers there instead is a finding, never a crash."""
    findings = list(examine_monitoring(serve(handler), 10110, Access()))

    assert findings[0].health is Health.BROKEN
    assert text in findings[0].text


class GuardedPrometheus(LocalHandler):
    """One that wants a password, and then has seen no sidecar."""

    def do_GET(self) -> None:  # noqa: N802 - http.server calls it so
        """Answer who is known."""
        if self.headers.get("Authorization") == "Basic " + b64encode(b"me:secret word").decode():
            self.answer(200, '{"status": "success", "data": {"resultType": "vector", "result": []}}')
        else:
            self.answer(401, "Unauthorized")


def test_prometheus_that_wants_a_password(diagnose: Diagnose, serve: Serve, tmp_path: Path) -> None:
    """With the flags it is asked as anybody would be; without them they are named."""
    password = tmp_path / "password"
    password.write_text("secret word\n", encoding="utf-8")
    url = serve(GuardedPrometheus)
    _, bare = diagnose("--prometheus", url)
    _, asked = diagnose("--prometheus", url, "--prometheus-username", "me", "--prometheus-password-file", str(password))

    assert "--prometheus-password-file" in bare["prometheus"].text
    assert asked["prometheus"].text == "it scrapes no sidecar at all"


@pytest.mark.servers
@pytest.mark.slow
def test_prometheus(rings: Path, tmp_path: Path) -> None:
    """A real Prometheus with our rules that scrapes us is well; one that scrapes another gets the line to add."""
    rules = sorted(RULES.glob("recording/*.yaml")) + sorted(RULES.glob("alerts/*.yaml"))
    with (
        served("--ring-dir", str(rings), "--dcgm-url", "none") as sidecar,
        monitoring(tmp_path, {"straggler": f"127.0.0.1:{sidecar.port}"}, rules) as servers,
    ):
        url = servers.prometheus.url
        deadline = time.monotonic() + 200
        while True:
            found = {finding.check: finding for finding in examine_monitoring(url, sidecar.port, Access())}
            if found["prometheus"].health is Health.OK or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        other = {finding.check: finding for finding in examine_monitoring(url, sidecar.port + 1, Access())}

    assert {finding.health for finding in found.values()} == {Health.OK}, found
    assert found.keys() == {"prometheus", "samples", "clock", "rules"}
    assert other["prometheus"].health is Health.ABSENT
    assert f"NODE:{sidecar.port + 1}" in other["prometheus"].fix


def test_logs_of_nccl(diagnose: Callable[..., tuple[int, dict[str, Finding]]], tmp_path: Path) -> None:
    """Not asked for, asked for and silent, and read: three states, the first two with what to set in the job."""
    (tmp_path / "silent.log").write_text("step 1\n", encoding="utf-8")
    (tmp_path / "nccl.log").write_text("n:1:2 [0] NCCL INFO Using network IB\n", encoding="utf-8")
    found = [
        diagnose(*flags)[1]["nccl"]
        for flags in ((), ("--nccl-logs", f"{tmp_path}/silent.log"), ("--nccl-logs", f"{tmp_path}/*.log"))
    ]

    assert [finding.health for finding in found] == [Health.ABSENT, Health.ABSENT, Health.OK]
    assert ["NCCL_DEBUG=INFO" in finding.fix for finding in found] == [True, True, False]
    assert found[2].text == "1 log, of 1 rank"
