"""Draw every dashboard with Grafana's own front-end libraries, and fail on a panel that is empty or broken.

A real Prometheus is filled with the past of a run with a straggler, a healthy run, one of 512 ranks and small
ones in trouble; a page made of ``@grafana/scenes`` and ``@grafana/ui`` asks it; headless Chromium takes the pictures.
No Grafana server, nothing outside this machine. ``--images`` also writes those that the documentation shows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import requests

from dashboards import courses, server
from dashboards.history import END

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DIST = ROOT / "build" / "preview"
DATA = ROOT / "build" / "preview-data"
STAMP = DATA / ".made"
PICTURES = ROOT / "build" / "pictures"
IMAGES = ROOT / "docs" / "images"
SCHEMA = ROOT / "tests" / "dashboards" / "schema" / "dashboard.schema.json"

WIDTH = 1600
MINUTES = 90
LARGE_MINUTES = 45

GOOD_WHEN_EMPTY = (
    "Firing alerts",
    "Sources in trouble",
    "What cannot be seen now",
    "Ranks without a GPU, by reason",
    "Ranks without own time, by reason",
    "What holds the clock down",
    "What explains the gap",
    "Links in trouble",
)
"""Nothing to show is the good answer there; the panel says so in words."""

STRAGGLER = {"cluster": "eu-west", "run": "aurora-13b", "rank": "5"}
PIPELINE = {"cluster": "eu-west", "run": "dorado-34b", "rank": "21"}
CABLE = {"cluster": "lab", "run": "cable-1b", "rank": "2"}
HEALTHY = {"cluster": "eu-west", "run": "borealis-7b", "rank": "3"}
CRASHED = {"cluster": "lab", "run": "crash-1b"}
LARGE = {"cluster": "us-east", "run": "colossus-70b", "rank": "137"}


@dataclass(frozen=True)
class View:
    """One picture, apart from its theme."""

    dashboard: str
    case: str
    chosen: Mapping[str, str | list[str]] = field(default_factory=dict)
    minutes: int = MINUTES
    documented: tuple[str, ...] = ()
    """Themes in which the documentation shows it."""

    def name(self, theme: str) -> str:
        """Of the file, without its ending."""
        return f"{self.dashboard}-{self.case}-{theme}"


BOTH = ("dark", "light")
VIEWS = (
    View("fleet", "straggler", {"cluster": ["eu-west", "us-east"]}, documented=BOTH),
    View("run", "straggler", STRAGGLER, documented=BOTH),
    View("rank", "straggler", STRAGGLER, documented=BOTH),
    View("exporter", "blind", documented=("dark",)),
    View("fleet", "healthy", {"run": HEALTHY["run"]}),
    View("run", "healthy", HEALTHY, documented=("dark",)),
    View("rank", "healthy", HEALTHY),
    View("exporter", "healthy", {"cluster": HEALTHY["cluster"]}),
    View("fleet", "crash", {"cluster": "lab"}, minutes=20),
    View("run", "crash", CRASHED, minutes=20),
    View("run", "4-stages", PIPELINE, documented=("dark",)),
    View("rank", "4-stages", PIPELINE),
    View("run", "bad-cable", CABLE, minutes=20),
    View("rank", "bad-cable", CABLE, minutes=20),
    View("fleet", "512-ranks", {"run": LARGE["run"]}, LARGE_MINUTES),
    View("run", "512-ranks", LARGE, LARGE_MINUTES, documented=("dark",)),
    View("rank", "512-ranks", LARGE, LARGE_MINUTES),
    View("exporter", "512-ranks", {"cluster": LARGE["cluster"]}, LARGE_MINUTES),
)


def main() -> int:
    """Make what is missing, take the pictures, judge them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="draw only pictures whose name has this in it, e.g. run-straggler")
    parser.add_argument("--same-data", action="store_true", help="ask the database of last time, whatever has changed")
    parser.add_argument("--images", action="store_true", help="write docs/images too")
    arguments = parser.parse_args()
    need("chromium", "chromium")
    need("node", "nodejs npm")
    install_packages()
    check_schema()
    build_page()
    if not (arguments.same_data and STAMP.is_file()):
        fill_database()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with server.serve(DATA) as prometheus, serve_page(prometheus.url) as page:
        jobs = [job(page, view, theme) for view in VIEWS for theme in BOTH if arguments.only in view.name(theme)]
        path = PICTURES / "jobs.json"
        path.write_text(json.dumps(jobs), encoding="utf-8")
        code = subprocess.run(["node", str(HERE / "shoot.mjs"), str(path)], cwd=HERE, check=False).returncode
    if arguments.images and code == 0:
        write_images(arguments.only)
    return code


def job(page: str, view: View, theme: str) -> dict[str, object]:
    """One picture to take, for ``shoot.mjs``."""
    variables = {f"var-{name}": value for name, value in view.chosen.items()}
    query = {"dashboard": view.dashboard, "theme": theme, "from": f"now-{view.minutes}m", "to": "now", **variables}
    return {
        "url": f"{page}/?{urlencode(query, doseq=True)}",
        "picture": str(PICTURES / f"{view.name(theme)}.png"),
        "width": WIDTH,
        "now": END * 1000,
        "allowEmpty": list(GOOD_WHEN_EMPTY),
    }


def need(command: str, packages: str) -> None:
    """Install a program of the distribution if it is missing and that is possible.

    Raises:
        SystemExit: it is not there and cannot be installed.
    """
    if shutil.which(command):
        return
    say(f"{command} is missing: installing {packages} with apt-get")
    root = [] if os.getuid() == 0 else ["sudo", "-n"]
    install = [*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages.split()]
    if not shutil.which("apt-get") or subprocess.run(install, stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(f"cannot install {packages}: install it and run again")


def install_packages() -> None:
    """``npm ci``, if the lock file is another one than last time."""
    stamp = HERE / "node_modules" / ".installed"
    want = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == want:
        return
    say("npm ci: some 500 MB, about a minute")
    subprocess.run(["npm", "ci", "--silent"], cwd=HERE, check=True)
    stamp.write_text(want, encoding="utf-8")


def check_schema() -> None:
    """The committed JSON Schema is the one that the installed types make.

    Raises:
        SystemExit: it is not.
    """
    made = ROOT / "build" / "dashboard.schema.json"
    made.parent.mkdir(exist_ok=True)
    command = ["npx", "ts-json-schema-generator", "--path", "schema.ts", "--tsconfig", "tsconfig.json"]
    command += ["--type", "DashboardFile", "--no-type-check", "--minify", "-o", str(made)]
    subprocess.run(command, cwd=HERE, check=True)
    if made.read_bytes() != SCHEMA.read_bytes():
        raise SystemExit(
            f"{SCHEMA.relative_to(ROOT)} is not what schema.ts makes: `npm run schema` here, read the diff"
        )


def build_page() -> None:
    """Compile the page and put beside it what Grafana's server would serve: dashboards, icons, the font."""
    say("building the page")
    subprocess.run(["npx", "tsc", "--noEmit"], cwd=HERE, check=True)
    subprocess.run(["npx", "vite", "build", "--logLevel", "error"], cwd=HERE, check=True)
    modules = HERE / "node_modules"
    shutil.copytree(modules / "@grafana/ui/dist/public/img", DIST / "public/build/img", dirs_exist_ok=True)
    fonts = DIST / "public/fonts/inter"
    fonts.mkdir(parents=True, exist_ok=True)
    shutil.copy(modules / "@fontsource/inter/files/inter-latin-400-normal.woff2", fonts / "Inter-Regular.woff2")
    for path in (ROOT / "dashboards").glob("*.json"):
        shutil.copy(path, DIST)


def fill_database() -> None:
    """Make the past, unless it is there already; it depends on the generator, the rules and the product's metrics."""
    sources = [*(ROOT / "tests/dashboards").glob("*.py"), *(ROOT / "rules").rglob("*.yaml"), Path(__file__)]
    sources += (ROOT / "exporter/straggler/metrics").glob("*.py")
    want = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == want:
        return
    say("simulating eight runs and backfilling them: some minutes")
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    runs = [courses.straggler(MINUTES), courses.healthy(MINUTES), courses.pipeline(MINUTES)]
    runs += [courses.large(LARGE_MINUTES), *courses.troubled()]
    server.build(DATA, runs)
    STAMP.write_text(want, encoding="utf-8")


@contextmanager
def serve_page(prometheus: str) -> Iterator[str]:
    """Serve the compiled page on loopback, with Prometheus behind it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["node", "node_modules/vite/bin/vite.js", "preview", "--port", str(port), "--logLevel", "error"]
    process = subprocess.Popen(command, cwd=HERE, env={**os.environ, "PROMETHEUS_URL": prometheus})
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                requests.get(url, timeout=5)
                break
            except requests.ConnectionError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def write_images(only: str) -> None:
    """Copy the pictures that the documentation shows, with fewer colours: a third of the bytes."""
    need("pngquant", "pngquant")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for view in VIEWS:
        for theme in view.documented:
            if only not in view.name(theme):
                continue
            target = IMAGES / f"{view.name(theme)}.png"
            source = PICTURES / target.name
            subprocess.run(
                ["pngquant", "--force", "--strip", "--quality=60-95", "--output", str(target), str(source)], check=True
            )
            say(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1000} kB")


def say(text: str) -> None:
    """To the error output, so that the report stays alone on the other."""
    print(f"preview: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
