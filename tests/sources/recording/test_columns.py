"""Which column is which, and what is said if one is not there."""

from __future__ import annotations

import pytest

from straggler.errors import ConfigError
from straggler.sources.recording.columns import parse_mapping, resolve


def test_mapping() -> None:
    """Ours, then theirs; blanks do not matter."""
    assert parse_mapping("own=own, peer_group = stage") == {"own": "own", "peer_group": "stage"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("own", "no pair"),
        ("own=", "no pair"),
        ("", "no pair"),
        ("peergroup=stage", "the nearest is 'peer_group'"),
        ("own=a,own=b", "given twice"),
    ],
)
def test_wrong_mapping(text: str, said: str) -> None:
    """A wrong mapping is an error that says what is wrong and what is near."""
    with pytest.raises(ConfigError, match=said) as caught:
        parse_mapping(text)

    assert caught.value.key == "columns"


def test_resolve() -> None:
    """Columns are found by our name or the mapped one; others are ignored."""
    found = resolve([" step", "rank", "loss", "wall_s", "own"], {"wall": "wall_s"})

    assert found == {"step": 0, "rank": 1, "wall": 3, "own": 4}


def test_capitals_do_not_matter_unless_they_tell_columns_apart() -> None:
    """``Rank`` is the rank where nothing is called ``rank``; where both are, the exact name counts."""
    assert resolve(["Step", "RANK", "Wall", "own"], {}) == {"step": 0, "rank": 1, "wall": 2, "own": 3}
    assert resolve(["Step", "step", "rank", "wall", "own"], {})["step"] == 1
    assert "time" not in resolve(["step", "rank", "wall", "own", "Time", "Data"], {})


@pytest.mark.parametrize(
    ("header", "mapping", "key", "said"),
    [
        (["step", "rank", "own"], {}, "wall", "no column wall; name yours with --columns wall=NAME; it has step, rank"),
        (["step", "rank", "walltime", "own"], {}, "wall", "the nearest is 'walltime'"),
        (["step", "rank", "wall"], {}, "own", "no column own \\(or wait\\)"),
        (["step", "rank", "wall", "own"], {"own": "ownn"}, "columns", "no column 'ownn' \\(the nearest is 'own'\\)"),
        (["step", "rank", "wall", "own", "own"], {}, "own", "2 columns named own"),
        (["step", "rank", "wall", "Own", "OWN"], {}, "own", "2 columns named own"),
        (["step", "rank", "wall", "Mine"], {"own": "mine"}, "columns", "no column 'mine' \\(the nearest is 'Mine'\\)"),
        ([""], {}, "step", "it has none"),
    ],
)
def test_missing_columns(header: list[str], mapping: dict[str, str], key: str, said: str) -> None:
    """The error names the key, the nearest column and the columns that there are."""
    with pytest.raises(ConfigError, match=said) as caught:
        resolve(header, mapping)

    assert caught.value.key == key
