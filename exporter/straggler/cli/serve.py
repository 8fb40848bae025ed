"""``straggler serve``: the sidecar."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from straggler.sidecar import app
from straggler.sidecar.setting import settings, type_name
from straggler.sidecar.settings import CONFIG_VARIABLE, load, to_yaml, unknown_variables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags: one for each setting."""
    parser.epilog = (
        "Each flag can also be a variable (--dcgm-url: STRAGGLER_DCGM_URL) or a key of the YAML file (dcgm: url:). "
        "Flags win over variables, variables over the file. docs/configuration.md has them all."
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"read settings from this YAML file (or {CONFIG_VARIABLE})"
    )
    parser.add_argument("--print-config", action="store_true", help="print the settings as YAML and end")
    parser.add_argument("--check-config", action="store_true", help="say whether the settings can be used and end")
    for setting in settings():
        kind = type_name(setting.field)
        text = (setting.field.description or "").replace("%", "%%").replace("`", "")
        default = setting.default_text()
        parser.add_argument(
            setting.flag,
            dest=setting.flat,
            metavar=kind.upper() if "|" not in kind else "{" + kind.replace("|", ",") + "}",
            nargs="?" if kind == "true|false" else None,
            const="true" if kind == "true|false" else None,
            help=f"{text} (default {default})" if default else text,
        )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: a setting cannot be used, or the address is taken.
    """
    config = load(vars(arguments), os.environ, arguments.config)
    if arguments.print_config:
        sys.stdout.write(to_yaml(config))
        return 0
    logging.basicConfig(
        level=config.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    for sentence in unknown_variables(os.environ):
        logging.getLogger(__name__).warning("%s", sentence)
    if arguments.check_config:
        app.check(config)
        print("the settings can be used")
        return 0
    return app.serve(config)
