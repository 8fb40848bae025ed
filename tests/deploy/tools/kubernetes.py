"""Helm and kubernetes-validate, which live in an environment of their own: JSON in, JSON out.

.deploy-tools/bin/python kubernetes.py render CHART    values in, text by template out; or {"error": ...}
.deploy-tools/bin/python kubernetes.py lint CHART      values in, findings out
.deploy-tools/bin/python kubernetes.py validate        objects in, for each what is wrong with it, or null, out
"""

from __future__ import annotations

import json
import sys
from typing import Any

RELEASE = "straggler"


def render(chart: str, values: Any) -> Any:
    """Render all templates for a release ``straggler`` in a namespace of that name."""
    from helm_python import Chart, HelmError  # type: ignore[import-not-found]  # in an environment of its own

    loaded = Chart.load(chart)
    try:
        loaded.validate_schema(values)
        return loaded.render(values, name=RELEASE, namespace=RELEASE)
    except HelmError as error:
        return {"error": str(error)}


def lint(chart: str, values: Any) -> Any:
    """Helm's own linter; findings from warnings upwards."""
    import helm_python

    report = helm_python.lint(chart, values, strict=True)
    return [*report["errors"], *(found for found in report["messages"] if found["severity"] > 1)]


def validate(objects: Any) -> Any:
    """Against the schemas of Kubernetes, unknown keys refused; ``no schema`` for what is not Kubernetes' own."""
    return [_problem(value) for value in objects]


def _problem(value: Any) -> str | None:
    import kubernetes_validate  # type: ignore[import-not-found]  # in an environment of its own

    try:
        kubernetes_validate.validate(value, "1.34", strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return "no schema"
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    return None


if __name__ == "__main__":
    given = json.load(sys.stdin)
    match sys.argv[1:]:
        case ["render", path]:
            answer = render(path, given)
        case ["lint", path]:
            answer = lint(path, given)
        case ["validate"]:
            answer = validate(given)
        case _:
            sys.exit(__doc__)
    json.dump(answer, sys.stdout)
