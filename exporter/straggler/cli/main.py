"""The command ``straggler``: which sub-command, and what becomes of its errors.

Only the sub-command that is asked for is imported: the hook's environment may lack what the sidecar needs, and
``straggler --help`` must answer at once.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from straggler import __version__
from straggler.errors import ConfigError, StragglerError


class Command(NamedTuple):
    """One sub-command. Its module has ``add_arguments(parser)`` and ``run(arguments)``, which gives the exit code."""

    module: str
    help: str


COMMANDS: dict[str, Command] = {
    "serve": Command("straggler.cli.serve", "the sidecar: read rings and GPUs of this node, serve /metrics"),
    "demo": Command("straggler.cli.demo", "a straggler from the training step to the alert, on this machine"),
    "run": Command("straggler.cli.run", "a PyTorch program with its ranks measured, its code as it is"),
    "doctor": Command("straggler.cli.doctor", "what is missing on this node, and how to add it"),
    "top": Command("straggler.cli.top", "the ranks of a sidecar, live in the terminal"),
    "inspect": Command("straggler.cli.inspect", "the steps in a ring file, also after a crash, or in a trace"),
    "profile": Command("straggler.cli.profile", "a few steps under a profiler, on a slow rank and a peer"),
    "diagnose": Command("straggler.cli.diagnose", "who is slow, since when, at what cost, why, and what to do"),
    "replay": Command("straggler.cli.replay", "the verdicts that recorded step times would have had"),
    "simulate": Command("straggler.cli.simulate", "what a straggler costs"),
}

EXIT_CODES = """\
exit codes:
  0    done
  1    the thing checked is not so, or could not be done
  2    wrong use or configuration
  126  straggler run: the program cannot be started; 127: it is not found. Else its own exit code
  130  ended by Ctrl-C
With --json, what could not be done is {"ok": false, "problem": "why"}, and on standard error as ever.
"""

_EXTRA_MODULES = frozenset(
    {"bcrypt", "prometheus_client", "pydantic", "pydantic_core", "pynvml", "requests", "rich", "yaml"}
)
"""What the extra ``sidecar`` installs."""

_BROKEN_PIPE = 141
"""As a program that SIGPIPE ended: 128 + 13."""
_INTERRUPTED = 130
_UNWRITABLE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What becomes of output that has no room, or no reader."""


def entry() -> None:
    """The console script."""
    _prepare_streams()
    sys.exit(main(sys.argv[1:]))


def _prepare_streams() -> None:
    """Make the three streams usable, however this was started.

    One that is closed leads nowhere: else the next file that is opened takes its number, and gets what is printed. And
    a character that the terminal cannot show, as in the name of a run, is escaped and does not end the command.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str]) -> int:
    """Run one command line.

    Args:
        argv: without the program's name.

    Returns:
        The exit code, see ``EXIT_CODES``.
    """
    try:
        code = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        # Python flushes standard output once more at exit, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return _BROKEN_PIPE
        print(f"straggler: cannot write: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _run(argv: Sequence[str]) -> int:
    arguments = argparse.Namespace()
    try:
        arguments = _parse(argv)
        code: int = arguments.run(arguments)
    except StragglerError as error:
        print(f"straggler: {error}", file=sys.stderr)
        if getattr(arguments, "json", False):
            print(json.dumps({"ok": False, "problem": str(error)}))
        return 2 if isinstance(error, ConfigError) else 1
    except SystemExit as request:  # argparse has said all: 0 for --help and --version, 2 for wrong use
        return request.code if isinstance(request.code, int) else 0
    return code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="straggler",
        description="Finds the rank that the others wait for, in distributed GPU training.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"straggler {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chosen = next((argument for argument in argv if not argument.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        nearest = get_close_matches(chosen, COMMANDS, n=1)
        parser.error(f"no command {chosen!r}; {f'did you mean {nearest[0]}?' if nearest else '--help has them all'}")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=_sentence(command.help))
        if name == chosen:
            module = _load(name, command)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:  # told by the sub-command, with its own usage
        subparsers.choices.get(chosen or "", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def _load(name: str, command: Command) -> Any:
    """Import the module of a command.

    Raises:
        ConfigError: something that it needs is not installed.
    """
    try:
        return import_module(command.module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA_MODULES:
            raise
        raise ConfigError(
            name, f"needs {missing}, which is not installed; install it with: pip install 'straggler-exporter[sidecar]'"
        ) from error


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
