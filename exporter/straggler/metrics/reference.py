"""``docs/metrics.md``, from the catalogue."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from straggler.metrics.catalogue import (
    EXPORTER_METRICS,
    GPU_LABELS,
    GPU_METRICS,
    HOST_METRICS,
    INFO_LABELS,
    NETWORK_METRICS,
    PORT_LABELS,
    RANK_LABELS,
    RANK_METRICS,
    Metric,
)

_HEAD = """\
# Metrics

Generated from `exporter/straggler/metrics/catalogue.py` by `make golden`; do not edit.

Base units, ratios from 0 to 1, no timestamps, no NaN. What is not known is absent: a missing series never means zero.
When a rank is gone its gauges go at once; its counters, its state and its info stay for five minutes, so that the last
steps are counted and an alert can say where it was.
"""

_RANK_TEXT = """\
Labels of every series: {labels}. None of them collides with the labels of a scrape target, so `honor_labels` is not
needed. Further labels are named in the table. `training_recent_` gauges are what the rules compare; the counters serve
trends, cost and dashboards: `rate(training_step_seconds_sum[5m]) / (rate(training_step_seconds_count[5m]) > 0)`.

`training_rank_info` has these labels besides: {info}. Join it in annotations and dashboards; a join inside an alert's
expression fails for all ranks as soon as one rank has two of them.
"""

_GPU_TEXT = """\
Labels of every series: {labels}, spelt as dcgm-exporter spells them. `GPU_I_ID` is empty unless the GPU is divided by
MIG; then `UUID` is that of the whole GPU and the two together identify the instance. These series are there for every
GPU of the node, whether or not a rank is on it. In brackets stands DCGM's name; where dcgm-exporter is missing or blind
NVML gives the same quantities in the same units, the activity on Hopper and later (GPM). `gpu_source` of
`training_rank_info` says who spoke.
"""

_HOST_TEXT = """\
Of the node as a whole, as far as the kernel counts it. The `training_rank_host_` series above are about a rank's own
process and control group; they are absent where the sidecar cannot see that process (another PID namespace).
"""

_NETWORK_TEXT = """
Labels of every series: {labels}. `rank_node` is what the ranks of this node call it, so that ports and runs can be
joined by it; `device` is the kernel's name of the adapter. In brackets stands the file under
`/sys/class/infiniband/DEVICE/ports/PORT`; other drivers' names for the same are in `sources/infiniband/counters.py`.

Of RoCE the traffic and the adapter's own counters are shown; the counters of an InfiniBand link stand at zero there and
count nothing, so they are absent. Small counters of InfiniBand do not wrap: `network_saturated_counters` says how many
stand at their maximum.
"""

_EXPORTER_TEXT = """\
How the exporter itself is. Everything that it refuses, drops or cannot see is here with a reason. Source `metrics` is
the page itself: a sample that would have made it unreadable was left out.
"""


def render_reference() -> str:
    """The whole document, in Markdown."""
    info = [label for label in INFO_LABELS if label not in RANK_LABELS]
    parts = [
        _HEAD,
        "## Ranks\n",
        _fill(_RANK_TEXT.format(labels=_codes(RANK_LABELS), info=_codes(info))),
        _table(RANK_METRICS, frozenset(INFO_LABELS)),
        "## GPUs\n",
        _fill(_GPU_TEXT.format(labels=_codes(GPU_LABELS))),
        _table(GPU_METRICS, frozenset(GPU_LABELS)),
        "## Node\n",
        _fill(_HOST_TEXT),
        _table(HOST_METRICS, frozenset()),
        "## RDMA ports\n",
        _fill(_NETWORK_TEXT.format(labels=_codes(PORT_LABELS))),
        _table(NETWORK_METRICS, frozenset(PORT_LABELS)),
        "## Exporter\n",
        _EXPORTER_TEXT,
        _table(EXPORTER_METRICS, frozenset()),
    ]
    return "\n".join(parts)


def _fill(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    filled = (textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) for part in paragraphs)
    return "\n\n".join(filled) + "\n"


def _table(metrics: Iterable[Metric], common: frozenset[str]) -> str:
    rows = ["| metric | type | further labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        further = _codes(label for label in metric.labels if label not in common)
        rows.append(f"| `{metric.name}` | {metric.kind.value} | {further} | {metric.help} |")
    return "\n".join(rows) + "\n"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
