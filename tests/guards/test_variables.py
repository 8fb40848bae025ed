"""The variables of hook and sidecar share a prefix, an environment and a reader of warnings."""

from __future__ import annotations

import re
from pathlib import Path

import straggler
from straggler.sidecar.setting import settings
from straggler.sidecar.settings import CONFIG_VARIABLE, HOOK_VARIABLES

HOOK = Path(straggler.__file__).parent / "hook"
VARIABLE = re.compile(r'"(STRAGGLER_[A-Z_]*[A-Z])"')


def test_the_sidecar_knows_the_hooks_variables() -> None:
    """A job that sets a variable of the hook on a node with a sidecar was once told that it is misspelt."""
    used = {name for file in HOOK.rglob("*.py") for name in VARIABLE.findall(file.read_text(encoding="utf-8"))}

    assert used == HOOK_VARIABLES


def test_each_variable_of_the_hook_is_documented() -> None:
    """``docs/hook.md`` spells out every variable, and none that the hook does not read."""
    page = (Path(__file__).parents[2] / "docs/hook.md").read_text(encoding="utf-8").partition("## Variables")[2]

    assert set(re.findall(r"STRAGGLER_[A-Z_]*[A-Z]", page)) == HOOK_VARIABLES


def test_no_variable_means_two_things() -> None:
    """A token to push with, found in the environment, must not switch push on in a sidecar that inherits it."""
    ours = {CONFIG_VARIABLE, *(setting.variable for setting in settings())}

    assert not ours & HOOK_VARIABLES


def test_no_variable_is_one_of_kubernetes() -> None:
    """Kubernetes sets ``NAME_PORT=tcp://…`` for each Service: one called ``straggler`` must not set anything here."""
    ours = {CONFIG_VARIABLE, *HOOK_VARIABLES, *(setting.variable for setting in settings())}

    assert {name for name in ours if re.search(r"_SERVICE_HOST|_PORT(_|$)", name)} == set()
