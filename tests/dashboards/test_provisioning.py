"""The files with which a team installs the dashboards."""

from __future__ import annotations

from typing import Any

import yaml

from dashboards.files import FOLDER, NAMES, load

CONFIG_MAP_LIMIT = 1024 * 1024
"""What the API server takes."""


def read(name: str) -> Any:
    """One YAML file."""
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def test_kustomization_has_every_dashboard() -> None:
    """Each file is in one ConfigMap, under a key that is its uid."""
    generated = [
        entry for generator in read("kustomization.yaml")["configMapGenerator"] for entry in generator["files"]
    ]

    assert sorted(generated) == sorted(f"{load(name)['uid']}.json={name}.json" for name in NAMES)


def test_config_maps_fit() -> None:
    """``kubectl apply`` keeps the whole object once more in an annotation, so half of the limit is all there is."""
    sizes = {name: (FOLDER / f"{name}.json").stat().st_size for name in NAMES}

    assert {name: size for name, size in sizes.items() if size > CONFIG_MAP_LIMIT // 4} == {}


def test_the_sidecar_of_grafana_finds_them() -> None:
    """The label is the one that Grafana's charts look for by default."""
    options = read("kustomization.yaml")["generatorOptions"]

    assert options["labels"]["grafana_dashboard"] == "1"
    assert options["disableNameSuffixHash"] is True


def test_the_provider_reads_files() -> None:
    """Grafana's file provider, from a folder, into a folder of ours."""
    (provider,) = read("provisioning/dashboards.yaml")["providers"]

    assert (provider["type"], provider["folder"]) == ("file", "Straggler")
    assert provider["options"]["path"].startswith("/")


def test_the_data_source_is_prometheus() -> None:
    """The dashboards' data source variable offers exactly this type."""
    (source,) = read("provisioning/datasources.yaml")["datasources"]

    assert source["type"] == "prometheus"
    assert source["isDefault"] is True
