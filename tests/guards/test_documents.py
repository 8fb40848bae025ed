"""What the documents name is there.

``straggler doctor`` once told to enable a unit that nothing of ours installs. Each kind of name that somebody will type
or click is looked up: links with their headings, paths, series, alerts, units, targets of make.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import straggler

ROOT = Path(__file__).parents[2]
_FRONT = "README CHANGELOG CONTRIBUTING SECURITY rules/README dashboards/README"
DOCUMENTS = [*(ROOT / f"{name}.md" for name in _FRONT.split()), *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE = "adapters cli detect hook join metrics model sidecar simulate sources wire"
FOLDERS = f"deploy docs rules dashboards exporter tests {PACKAGE}".split()
"""Where a path in a text begins: at the top, or in the package."""
PLACES = ("", "exporter/straggler", "tests", "deploy/kubernetes", "deploy/systemd", "rules")
"""What a path in a text may be relative to."""

LINK = re.compile(r'\]\((?!https?:)([^)\s]+)\)|(?:src|srcset)="([^"]+)"')
PATH = re.compile(rf"(?<![\w/.$~-])((?:{'|'.join(FOLDERS)})/[\w./*{{}}<>-]*[\w*])(?!\w*[<{{…])")
PAGE = re.compile(r"(?<![\w/.])docs/[\w/*-]+(?:\.md)?")
SERIES = re.compile(r"(?<![\w./:-])(?:training|gpu|network|straggler_exporter)_[a-z0-9_]*[a-z0-9](?![\w(:])")
RECORDED = re.compile(r"\b(?:run|run_rank|run_node|gpu_model)(?:_[a-z]+)*:[a-z_]+:[a-z0-9_]*[a-z0-9]\b")
ALERT = re.compile(r"\b(?:Training|StragglerExporter)(?:[A-Z][a-z]+)+\b")
UNIT = re.compile(r"systemctl [a-z -]*?(straggler[\w.-]*)|journalctl -u (straggler[\w.-]*)")
TARGET = re.compile(r"`make ([a-z-]+)|^make ([a-z-]+)(?= *$|  )", re.MULTILINE)


def _text(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def _anchors(document: Path) -> set[str]:
    """The names that a forge gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _text(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _found(pattern: re.Pattern[str], text: str) -> set[str]:
    return {next(filter(None, found.groups() or (found[0],))) for found in pattern.finditer(text)}


def _rules(kind: str) -> set[str]:
    files = (ROOT / "rules").rglob("*.yaml")
    return {name for file in files for name in re.findall(rf"^\s*-? ?{kind}: (\S+)$", _text(file), re.MULTILINE)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(document: Path) -> None:
    """Each relative link is a file of the project, and what stands behind its ``#`` a heading there."""
    dead = []
    for link in _found(LINK, _text(document)):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(link)

    assert dead == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_paths_are_there(document: Path) -> None:
    """Each path below one of the project's folders, in a command or a sentence, is there; ``*`` as a shell has it."""
    paths = _found(PATH, _text(document))

    assert [
        path for path in sorted(paths) if not any(any(ROOT.glob(f"{place}/{path}".strip("/"))) for place in PLACES)
    ] == []


def test_documents_that_the_program_names_are_there() -> None:
    """Help texts, messages, comments in rules and deploy files lead to pages that exist."""
    sources = [
        *(ROOT / "exporter").rglob("*.py"),
        *(ROOT / "rules").rglob("*.yaml"),
        *(ROOT / "deploy").rglob("*.yaml"),
    ]
    pages = {page for source in sources for page in _found(PAGE, _text(source))}

    assert pages
    assert [page for page in sorted(pages) if not any(ROOT.glob(page))] == []


def test_series_exist() -> None:
    """Each series that a page names is in the catalogue, or is recorded by a rule."""
    catalogue = set(re.findall(r"^\w+", _text(ROOT / "tests/expected/metric_names.txt"), re.MULTILINE))
    text = "\n".join(_text(document) for document in DOCUMENTS)
    named = {re.sub("_(sum|count)$", "", name) for name in _found(SERIES, text)}

    assert named
    assert named - catalogue - _words_of_the_code() == set()
    assert _found(RECORDED, text) - _rules("record") == set()


def _words_of_the_code() -> set[str]:
    """Labels, reasons, settings and keys of JSON that begin like a series: ``gpu_model``, ``gpu_sharing``."""
    files = (ROOT / "exporter").rglob("*.py")
    return {word for file in files for word in re.findall(r"\b(?:gpu|network)_\w+", _text(file))}


def test_alerts_exist() -> None:
    """Each alert that a page names is one of the rules'."""
    named = _found(ALERT, "\n".join(_text(document) for document in DOCUMENTS))

    assert named
    assert named - _rules("alert") == set()


def test_units_are_installed() -> None:
    """Each unit of ours that a page or the program tells to start or to look at is one that we install."""
    sources = [*DOCUMENTS, *(ROOT / "exporter").rglob("*.py"), ROOT / "rules/alerts/exporter.yaml"]
    named = {name for source in sources for name in _found(UNIT, _text(source))}
    installed = {file.name for file in (ROOT / "deploy/systemd").iterdir()}

    assert named
    assert {name for name in named if not {name, f"{name}.service"} & installed} == set()


def test_every_page_is_in_the_index() -> None:
    """``docs/README.md`` leads to each page beside it."""
    pages = {file.name for file in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert pages - _found(LINK, _text(ROOT / "docs/README.md")) == set()


def test_decisions_have_their_numbers_alone() -> None:
    """No two decisions share a number, and each begins with its own."""
    files = sorted((ROOT / "docs/decisions").glob("*.md"))
    numbers = [file.name.partition("-")[0] for file in files]

    assert len(set(numbers)) == len(files)
    assert [
        file.name for file, number in zip(files, numbers, strict=True) if number not in _text(file).split("\n")[0]
    ] == []


def test_there_is_one_version() -> None:
    """The package, the command, the chart, and the images that files and pages name are of the same version."""
    version = re.search(r'^version = "(.+)"$', _text(ROOT / "pyproject.toml"), re.MULTILINE)
    assert version
    chart = re.findall(
        r"^(?:version|appVersion): (\S+)$", _text(ROOT / "deploy/kubernetes/chart/Chart.yaml"), re.MULTILINE
    )
    files = [
        *DOCUMENTS,
        *(file for file in (ROOT / "deploy").rglob("*") if file.suffix in {".yaml", ""} and file.is_file()),
    ]
    images = [tag for file in files for tag in re.findall(r"straggler-exporter:(\d[\w.]*\w)", _text(file))]

    assert images
    assert {straggler.__version__, *chart, *images} == {version[1]}


def test_targets_of_make_exist() -> None:
    """Each ``make`` that a page tells to type has a target."""
    targets = set(re.findall(r"^([a-z-]+):", _text(ROOT / "Makefile"), re.MULTILINE))
    named = {name for document in DOCUMENTS for name in _found(TARGET, _text(document))}

    assert named
    assert named - targets == set()
