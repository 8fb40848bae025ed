"""Every input met in the field gives facts or a counted reason; the table is printed for people (``pytest -rP``)."""

from __future__ import annotations

from pathlib import Path

from field_inputs import rows, table


def test_every_input_gives_facts_or_a_reason(corpus: Path) -> None:
    """No file is read in vain without somebody saying why."""
    found = list(rows(corpus))
    print(table(found))  # noqa: T201 - the table is for people

    assert found
    assert [file for file, _source, facts, refused in found if not facts and not refused] == []
