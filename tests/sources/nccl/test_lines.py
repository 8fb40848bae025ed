"""Who speaks, whatever launchers, collectors and other processes put around it."""

from __future__ import annotations

import pytest

from straggler.sources.nccl.lines import Line, LineReader

SAID = "node-7:41:52 [3] NCCL INFO Connected all rings"


def read(*lines: str) -> list[Line]:
    """What one file says."""
    reader = LineReader()
    return [said for line in lines for said in reader.read(line)]


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[1,26]<stdout>:",
        "[1,mpirank:3,algo-1]<stderr>:",
        "[default3]:",
        "[rank3]:",
        "3: ",
        "[80746] ",
        "(RayWorkerWrapper pid=41, ip=192.0.2.9) ",
        "\x1b[36m(WorkerDict pid=41)\x1b[0m ",
        "[36m(WorkerDict pid=41)[0m ",
        "2026-03-01T10:00:03.123Z ",
        "2026-03-01T10:00:03.123456789Z stderr F ",
        "[2026-03-01 10:00:03] ",
        '{"log":"',
        "some-logger - ",
        "trainer-1|",
        "\x1b[38;5;12m\x1b[K",
    ],
)
def test_wrappers_are_looked_through(before: str) -> None:
    """Host, process, thread and device are read behind everything that is put before a line."""
    (said,) = read(before + SAID)

    assert said == Line("INFO", "Connected all rings", "node-7", 41, 52, 3)


@pytest.mark.parametrize(
    "packed",
    [
        '{"log":"%s\\n","stream":"stderr","time":"2026-03-01T10:00:03Z"}',
        '{"time":1,"message":"%s","log":"%s","kubernetes":{"pod_name":"w-0"}}',
        '{"jsonPayload":{"entries":["%s"]},"severity":"INFO"}',
    ],
)
def test_json_of_collectors_is_unpacked(packed: str) -> None:
    """Docker writes the > of a channel as an escape; whatever the key, at any depth, a text counts once."""
    line = "node-7:41:52 [3] NCCL INFO Channel 00/0 : 3[3] -\\u003e 1[1] via P2P/IPC"

    assert read(packed.replace("%s", line)) == [
        Line("INFO", "Channel 00/0 : 3[3] -> 1[1] via P2P/IPC", "node-7", 41, 52, 3)
    ]


def test_json_that_is_cut_is_read_as_it_is() -> None:
    """A collector's line that lacks its end still says who speaks."""
    (said,) = read('{"log":"node-7:41:52 [3] NCCL INFO Using network IB\\n","strea')

    assert (said.host, said.pid, said.text[:16]) == ("node-7", 41, "Using network IB")


def test_a_long_path_is_a_place_too() -> None:
    """Packages are built in directories with names of a hundred characters, and the warning has them."""
    place = f"/{'a_long_directory_name_' * 10}/src/init.cc:140"

    (said,) = read(f"node-7:41:52 [3] {place} NCCL WARN NUMA auto balancing enabled")

    assert said == Line("WARN", "NUMA auto balancing enabled", "node-7", 41, 52, 3)


def test_a_warning_names_its_place_in_the_source() -> None:
    """The file and line before ``NCCL WARN`` are no part of who speaks."""
    (said,) = read("[2025-09-01 10:00:03] w-0:31:99 [0] transport/net_ib.cc:2245 NCCL WARN NET/IB: Got completion")

    assert said == Line("WARN", "NET/IB: Got completion", "w-0", 31, 99, 0)


@pytest.mark.parametrize("host", ["0a1b2c3d4e5f", "192-0-2-152", "master_node", "job-1-2-3-worker-0", "x" * 255])
def test_hosts_may_look_like_anything(host: str) -> None:
    """Hexadecimal, digits and dashes, underscores, very long."""
    (said,) = read(f"{host}:1:2 [0] NCCL INFO Using network IB")

    assert said.host == host


def test_a_missing_prefix_is_no_speaker() -> None:
    """Where the prefix was cut off, the device may be left, and host and process are unknown."""
    (said,) = read(" [0] NCCL INFO Using network IB")

    assert said == Line("INFO", "Using network IB", device=0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NCCL version 2.18.6+cuda12.1", Line("INFO", "NCCL version 2.18.6+cuda12.1")),
        ("NET/IBP:Got completion from peer 192.0.2.8", Line("WARN", "NET/IBP:Got completion from peer 192.0.2.8")),
        ("INFO NET/IB : GPU Direct RDMA Disabled", Line("INFO", "NET/IB : GPU Direct RDMA Disabled")),
    ],
)
def test_lines_without_any_prefix(line: str, said: Line) -> None:
    """What NCCL and its plugins print without a prefix, and what a collector left of a line."""
    assert read(line) == [said]


def test_lines_that_ran_together_are_taken_apart() -> None:
    """Of two lines in one, each is its own speaker's; what is cut is known to be."""
    first, second = read(
        "node-a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUnode-a:3:4 [1] NCCL INFO Connected all trees"
    )

    assert first == Line("INFO", "Channel 00/0 : 0[0] -> 1[1] via P2P/CU", "node-a", 1, 2, 0, is_overrun=True)
    assert second == Line("INFO", "Connected all trees", "node-a", 3, 4, 1)


def test_a_host_glued_to_other_text_is_found_again() -> None:
    """A host that was seen alone is recognised where something else runs into it."""
    said = read(SAID, "step 120 loss 2.31 tok/s 410233node-7:41:52 [3] NCCL INFO Connected all trees")

    assert [each.host for each in said] == ["node-7", "node-7"]


def test_a_host_that_cannot_be_told_is_none() -> None:
    """Glued to other text and never seen alone: no name is better than a wrong one."""
    first, second = read("a:1:2 [0] NCCL INFO via P2P/CUnode-9:3:4 [1] NCCL INFO Connected all trees")

    assert (first.host, second.host, second.pid) == ("a", "", 3)


@pytest.mark.parametrize(
    "line",
    ["", "step 120 loss 2.31", "NCCL_DEBUG=INFO", "GPU 0: NVIDIA H100", "INFO NCCL is fast", "export NCCL INFOS"],
)
def test_other_lines_say_nothing(line: str) -> None:
    """Training's own output is none of NCCL's."""
    assert [said for said in read(line) if said.host or said.text.startswith("NCCL version")] == []
