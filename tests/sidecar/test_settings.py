"""From flags, environment and file to a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Expected
from straggler.errors import ConfigError
from straggler.sidecar.config import Address, Config, is_loopback, parse_address
from straggler.sidecar.config_reference import render_reference
from straggler.sidecar.setting import settings
from straggler.sidecar.settings import load, to_yaml, unknown_variables


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test writes its YAML."""
    return tmp_path / "config.yml"


def _error(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load({}, {}, file)
    return str(caught.value)


def test_defaults() -> None:
    """Without any setting the sidecar serves on its own port on every address."""
    config = load({}, {})

    assert config == Config()
    assert str(config.listen) == ":10110"


def test_flags_win_over_variables_over_the_file(file: Path) -> None:
    """Each place is overruled by the one before it, key by key."""
    file.write_text("listen: :1\nring_dir: /file\ndcgm: {url: none, username: file}\n", encoding="utf-8")
    variables = {"STRAGGLER_LISTEN": ":2", "STRAGGLER_RING_DIR": "/variable"}

    config = load({"listen": ":3"}, variables, file)

    assert config.listen == Address("", 3)
    assert config.ring_dir == Path("/variable")
    assert (config.dcgm.url, config.dcgm.username) == ("none", "file")


def test_empty_variable_is_not_set() -> None:
    """An EnvironmentFile with ``STRAGGLER_LISTEN=`` leaves the default."""
    assert load({}, {"STRAGGLER_LISTEN": ""}).listen == Address("", 10110)


def test_config_file_by_variable(file: Path) -> None:
    """``STRAGGLER_CONFIG`` names the file as ``--config`` does."""
    file.write_text("listen: 127.0.0.1:99\n", encoding="utf-8")

    assert load({}, {"STRAGGLER_CONFIG": str(file)}).listen == Address("127.0.0.1", 99)


def test_flat_key_is_the_nested_one(file: Path) -> None:
    """``dcgm_url`` on the top level is ``url`` under ``dcgm``."""
    file.write_text("dcgm_url: none\ndcgm:\n  username: me\n", encoding="utf-8")

    config = load({}, {}, file)
    assert (config.dcgm.url, config.dcgm.username) == ("none", "me")


@pytest.mark.parametrize("text", ["", "dcgm:\n", "# nothing\n", "dcgm: {}\n"])
def test_empty_file_or_section(file: Path, text: str) -> None:
    """A file or a section without keys sets nothing."""
    file.write_text(text, encoding="utf-8")

    assert load({}, {}, file) == Config()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("dcgm: {urll: none}", ("dcgm.urll: unknown key", "config.yml", "did you mean dcgm.url?")),
        ("lisen: :1", ("lisen: unknown key", "did you mean listen?")),
        ("zzz: 1", ("zzz: unknown key",)),
        ("limits: {ranks: many}", ("limits.ranks: 'many'", "config.yml", "write a whole number")),
        ("limits: {ranks: 0}", ("limits.ranks: 0", "at least 1")),
        ("poll_seconds: -1", ("poll_seconds: -1", "greater than 0")),
        ("poll_seconds: .inf", ("poll_seconds: inf", "write a number")),
        ("dcgm: {same_node: perhaps}", ("dcgm.same_node: 'perhaps'", "true or false")),
        ("dcgm: {username: 5}", ("dcgm.username: 5", "in quotes")),
        ("dcgm: 5", ("dcgm: 5", "is no section")),
        ("log_level: loud", ("log_level: 'loud'", "'debug', 'info', 'warning' or 'error'")),
        ("listen: '::1:5'", ("listen: '::1:5'", "[::1]:5")),
        ("listen: host", ("listen: 'host'", "HOST:PORT")),
        ("listen: ':70000'", ("listen: ':70000'", "0 to 65535")),
        ("dcgm_url: ftp://x", ("dcgm.url: 'ftp://x'", "http://127.0.0.1:9400/metrics")),
        ("dcgm_url: http://u:p@x/", ("dcgm.url", "password_file")),
        ("dcgm_url: http://x:port/", ("dcgm.url", "http://127.0.0.1:9400/metrics")),
        ("dcgm_url: none\ndcgm: {url: none}", ("dcgm.url", "stands twice")),
        ("listen: :1\nlisten: :2", ("config", "listen stands twice", "line 2")),
        ("[1, 2]", ("config", "is no mapping")),
        ("a: [", ("config", "is not YAML", "line")),
        ("dcgm: {url: [1]}", ("dcgm.url", "http://127.0.0.1:9400/metrics")),
    ],
)
def test_wrong_file_is_told(file: Path, text: str, parts: tuple[str, ...]) -> None:
    """An error names the key, where it stands, what was given, and what to write instead."""
    message = _error(file, text)

    for part in parts:
        assert part in message


def test_all_errors_at_once(file: Path) -> None:
    """Two mistakes are told in one go, on a line each."""
    lines = _error(file, "lisen: :1\nlog_level: loud\n").splitlines()

    assert len(lines) == 2


def test_wrong_flag_and_variable_are_named() -> None:
    """An error says whether the value came from a flag or a variable."""
    with pytest.raises(ConfigError, match=r"limits.ranks: 'x' \(STRAGGLER_LIMITS_RANKS\)"):
        load({}, {"STRAGGLER_LIMITS_RANKS": "x"})
    with pytest.raises(ConfigError, match=r"limits.ranks: 'x' \(--limits-ranks\)"):
        load({"limits_ranks": "x"}, {"STRAGGLER_LIMITS_RANKS": "5"})


def test_missing_file(tmp_path: Path) -> None:
    """A configuration file that cannot be read is an error, not the defaults."""
    with pytest.raises(ConfigError, match=r"config: cannot read .*nowhere.yml"):
        load({}, {}, tmp_path / "nowhere.yml")


def test_file_that_is_no_text(file: Path) -> None:
    """Bytes that are no UTF-8 are told as such."""
    file.write_bytes(b"listen: \xff\n")

    with pytest.raises(ConfigError, match="is not UTF-8"):
        load({}, {}, file)


def test_unknown_variables_name_the_nearest() -> None:
    """A misspelt variable of ours is told; those of the hook and of others are not."""
    environment = {"STRAGGLER_LISTENN": ":1", "STRAGGLER_RUN": "r", "PATH": "/bin", "STRAGGLER_CONFIG": "x"}

    assert unknown_variables(environment) == [
        "unknown variable STRAGGLER_LISTENN in the environment; did you mean STRAGGLER_LISTEN?"
    ]


LINKS = {
    "STRAGGLER_SERVICE_HOST": "10.0.0.1",
    "STRAGGLER_SERVICE_PORT": "9000",
    "STRAGGLER_SERVICE_PORT_PUSH": "9000",
    "STRAGGLER_PORT": "tcp://10.0.0.1:9000",
    "STRAGGLER_PORT_9000_TCP": "tcp://10.0.0.1:9000",
    "STRAGGLER_PORT_9000_TCP_PROTO": "tcp",
    "STRAGGLER_PORT_9000_TCP_PORT": "9000",
    "STRAGGLER_PORT_9000_TCP_ADDR": "10.0.0.1",
}
"""What a pod finds beside a Service called ``straggler``."""


@pytest.mark.parametrize("service", ["STRAGGLER", "STRAGGLER_DCGM"])
def test_links_to_services_are_no_variables_of_ours(service: str) -> None:
    """What Kubernetes sets for a Service of our name is neither a setting nor a misspelt one."""
    links = {name.replace("STRAGGLER", service): value for name, value in LINKS.items()}

    assert unknown_variables(links) == []
    assert load({}, links) == Config()


def test_port_without_a_service_is_told() -> None:
    """Whoever makes up ``STRAGGLER_PORT`` learns that it is none."""
    assert len(unknown_variables({"STRAGGLER_PORT": "9000"})) == 1


def test_printed_settings_read_back(file: Path) -> None:
    """What ``--print-config`` prints is a file with the same settings."""
    config = load({"listen": "[::1]:5", "ring_dir": "/x", "dcgm_same_node": "true", "dcgm_url": "http://h:1"}, {})
    file.write_text(to_yaml(config), encoding="utf-8")

    assert load({}, {}, file) == config


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        (":1", Address("", 1)),
        ("1", Address("", 1)),
        ("[::1]:1", Address("::1", 1)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
        ("node-7.example:0", Address("node-7.example", 0)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    """Addresses of both families, with and without a host."""
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":", "host", "::1:1", "host:-1", "host:٣", "[::1", "host:65536"])
def test_no_address(text: str) -> None:
    """What is no address is refused."""
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        parse_address(text)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:9400/metrics", True),
        ("http://127.8.8.8/", True),
        ("https://[::1]:9400/metrics", True),
        ("http://localhost:9400/", True),
        ("http://localhost.example:9400/", False),
        ("http://10.0.0.1:9400/", False),
        ("http://dcgm-exporter:9400/", False),
    ],
)
def test_loopback(url: str, *, loopback: bool) -> None:
    """Only an address that cannot leave this machine proves that the page is of this node."""
    assert is_loopback(url) is loopback


def test_settings_have_one_spelling() -> None:
    """No two keys share a flag or a variable, and each is described."""
    flags = [setting.flag for setting in settings()]

    assert len(flags) == len(set(flags))
    assert all(setting.field.description for setting in settings())


def test_reference_is_current(expected: Expected) -> None:
    """``docs/configuration.md`` says what the model says."""
    expected.check("../../docs/configuration.md", render_reference())
