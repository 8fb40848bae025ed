"""The ``sitecustomize`` on the path: it gives way to others, leaves no trace, and sees ``torch`` being imported.

A stand-in package called ``torch`` is imported here, since only that it is imported matters; real jobs are in
``tests/hook/torch/test_launched_jobs.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launched import clean_environment, finished, on_path
from straggler.cli.run import ON_PATH

BASE: str = getattr(sys, "_base_executable", sys.executable)
"""The interpreter that this environment was made from: our package is not installed in it."""
OTHERS = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))


def told(code: str, environment: dict[str, str], python: str = sys.executable) -> str:
    """What a program prints; it may complain about nothing."""
    done = finished([python, "-B", "-W", "error", "-c", code], environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """A directory with a package ``torch`` in it, of which nothing of ours can be made to work."""
    directory = tmp_path / "with torch"
    (directory / "torch").mkdir(parents=True)
    (directory / "torch" / "__init__.py").write_text("value = 7\n")
    return directory


def test_another_sitecustomize_runs_as_ever(tmp_path: Path) -> None:
    """Once, under its own name; and the path looks as it does without us."""
    (tmp_path / "sitecustomize.py").write_text("import sys; print('theirs'); here = list(sys.path)\n")
    code = "import sitecustomize, sys; print(sitecustomize.__file__, sys.path == sitecustomize.here, sys.path)"

    with_us = told(code, on_path(tmp_path))
    assert with_us == told(code, clean_environment(PYTHONPATH=str(tmp_path)))
    assert with_us.startswith(f"theirs\n{tmp_path}")


@pytest.mark.parametrize("body", ["1 / 0", "import no_such_module", "raise SystemExit(5)", "def broken("])
def test_another_sitecustomize_fails_as_ever(tmp_path: Path, body: str) -> None:
    """Python says what it would say without us, and goes on or ends as it would."""
    (tmp_path / "sitecustomize.py").write_text(body)
    with_us, without = (
        finished([sys.executable, "-c", "print('after')"], environment)
        for environment in (on_path(tmp_path), clean_environment(PYTHONPATH=str(tmp_path)))
    )

    assert (with_us.returncode, with_us.stdout) == (without.returncode, without.stdout)
    first_and_last = [(done.stderr.splitlines()[0], done.stderr.splitlines()[-1]) for done in (with_us, without)]
    assert first_and_last[0] == first_and_last[1]  # between them stands, for SystemExit alone, where it came through


def test_usercustomize_runs_as_ever(tmp_path: Path) -> None:
    """It comes after, as Python's ``site`` has it."""
    environment = on_path(PYTHONUSERBASE=str(tmp_path))
    place = Path(told("import site; print(site.getusersitepackages())", environment, BASE))
    place.mkdir(parents=True)
    (place / "usercustomize.py").write_text("import sys; print('sitecustomize' in sys.modules)")

    assert told("", environment, BASE) == "True"


@pytest.mark.parametrize("python", OTHERS, ids=[python.parts[-3] for python in OTHERS])
def test_any_python_bears_it(python: Path) -> None:
    """Old ones too, which some helper script of a job may ask for: no error, no warning, nothing on the path."""
    code = "import sys; print([entry for entry in sys.path if 'on_path' in entry])"

    assert told(code, on_path(), str(python)) == "[]"


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_without_the_variable_nothing_waits(value: str) -> None:
    """The path alone does nothing."""
    code = "import sys; print([type(finder).__name__ for finder in sys.meta_path])"

    assert "_WaitForTorch" not in told(code, on_path(STRAGGLER_TORCH=value))
    assert "_WaitForTorch" in told(code, on_path())


def test_a_python_without_torch_loads_nothing_of_ours() -> None:
    """Most processes of a job are shells' helpers; they import no module more."""
    code = "import sys; print([name for name in sys.modules if name.startswith('straggler')])"

    assert told(code, on_path(), BASE) == "[]"


def test_looking_for_torch_is_not_importing_it(torch: Path) -> None:
    """Libraries ask whether torch is there long before anybody imports it; the import is seen all the same."""
    code = (
        "import importlib.util, sys; spec = importlib.util.find_spec('torch');"
        "print(type(spec.loader).__name__, 'straggler_autoload' in sys.modules);"
        "import torch; print(torch.value, 'straggler_autoload' in sys.modules, vars(torch.__loader__).keys());"
        "print([type(finder).__name__ for finder in sys.meta_path])"
    )
    lines = told(code, on_path(torch, STRAGGLER_DISABLED="1")).splitlines()

    assert lines[0] == "SourceFileLoader False"
    assert lines[1] == "7 True dict_keys(['name', 'path'])"
    assert "_WaitForTorch" not in lines[2]


def test_a_loader_that_is_given_twice(torch: Path) -> None:
    """Some finders keep their loaders: whoever has looked for torch before, it can be imported."""
    (torch / "sitecustomize.py").write_text(
        "import importlib.machinery, sys\n"
        "class Keeps:\n"
        "    spec = None\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name != 'torch': return None\n"
        "        Keeps.spec = Keeps.spec or importlib.machinery.PathFinder.find_spec(name)\n"
        "        return Keeps.spec\n"
        "sys.meta_path.insert(1, Keeps())\n"
    )
    code = "import importlib.util; importlib.util.find_spec('torch'); import torch; print(torch.value)"

    assert told(code, on_path(torch, STRAGGLER_DISABLED="1")) == "7"


def test_an_import_of_torch_that_fails_may_be_tried_again(torch: Path) -> None:
    """As it may without us, and the second one is seen."""
    (torch / "torch" / "__init__.py").write_text(
        "import builtins\nif not hasattr(builtins, 'again'):\n    builtins.again = 1\n    raise ImportError('busy')\n"
    )
    code = (
        "import sys\ntry:\n    import torch\nexcept ImportError as error:\n    print(error)\n"
        "import torch\nprint('straggler_autoload' in sys.modules)"
    )

    assert told(code, on_path(torch, STRAGGLER_DISABLED="1")).splitlines() == ["busy", "True"]


def test_finders_of_other_tools_do_not_trip_over_ours(torch: Path) -> None:
    """Neither one that asks all finders in its turn, nor one of the old kind that cannot be asked."""
    (torch / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "class Old:\n    def find_module(self, name, path=None): return None\n"
        "class Asks:\n"
        "    busy = False\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if self.busy or name != 'torch': return None\n"
        "        self.busy = True\n"
        "        try: return importlib.util.find_spec(name)\n"
        "        finally: self.busy = False\n"
        "sys.meta_path[:0] = [Asks()]\n"
        "sys.meta_path.append(Asks())\n"
        "if sys.version_info < (3, 12): sys.meta_path.append(Old())\n"
    )
    code = "import torch, sys; print(torch.value, 'straggler_autoload' in sys.modules)"

    done = finished([sys.executable, "-c", code], on_path(torch, STRAGGLER_DISABLED="1"))
    assert (done.stdout, done.stderr) == ("7 True\n", "")


def test_a_python_without_our_package_uses_ours_and_no_other(torch: Path) -> None:
    """The hook comes from beside the file on the path; the packages that lie around it stay unseen."""
    code = (
        "import torch, sys; import straggler_autoload, straggler.torch;"
        "print(straggler_autoload.__file__, any(entry in straggler_autoload.__file__ for entry in sys.path if entry))"
    )
    file, is_on_path = told(code, on_path(torch, STRAGGLER_DISABLED="1"), BASE).split()

    assert Path(file) == ON_PATH.parents[3] / "straggler_autoload.py"
    assert is_on_path == "False"


def test_an_error_of_ours_is_one_line_and_torch_is_there(torch: Path) -> None:
    """The stand-in has nothing that the instrument needs: the import of torch succeeds all the same."""
    done = finished([sys.executable, "-c", "import torch; print(torch.value)"], on_path(torch))

    assert (done.returncode, done.stdout) == (0, "7\n")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("this process is not measured: ")


def test_a_users_module_of_our_name_is_his(torch: Path) -> None:
    """A researcher's own ``straggler.py`` is what he imports; his job is not measured, and is told so."""
    (torch / "straggler.py").write_text("mine = 1\n")
    code = "import torch, straggler; print(torch.value, straggler.mine)"
    done = finished([sys.executable, "-c", code], on_path(torch))

    assert (done.returncode, done.stdout) == (0, "7 1\n")
    assert "this process is not measured: ModuleNotFoundError" in done.stderr


def test_the_path_is_inherited(tmp_path: Path) -> None:
    """A child of a child still waits for torch, though nobody's ``sys.path`` has our directory."""
    code = "import sys; print([type(finder).__name__ for finder in sys.meta_path])"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"

    assert "_WaitForTorch" in told(child, on_path(tmp_path))
