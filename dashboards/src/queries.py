"""The PromQL that several panels share, written once.

What the rules record (``run:…``) is read and not computed again: it is cheap at any number of ranks, and panels and
alerts cannot disagree.

Everything takes ``max by`` over a rank's labels first, so that a page which is scraped twice counts once. Nothing
averages own time, wait or slowdown over ranks: an average hides the one rank that the others wait for.
"""

from __future__ import annotations

GROUP = "cluster, run, peer_group"
"""Ranks that do the same work are compared with each other."""
RANK = "cluster, run, peer_group, rank, rank_node"

RUN_LEVEL = 'cluster=~"$cluster", run="$run"'
"""For recorded series without a peer group."""
FLEET = 'cluster=~"$cluster", run=~"$run"'
RUN = 'cluster=~"$cluster", run="$run", peer_group=~"$peer_group"'
THIS = 'cluster=~"$cluster", run="$run", rank="$rank"'
"""The rank that the Rank dashboard is about."""
ABOUT_THIS = 'cluster=~"$cluster", run="$run", rank=~"$rank|", rank_node=~"$node|"'
"""What is said of it, of its node, or of its whole run."""
ABOUT_RUN = 'cluster=~"$cluster", run="$run", peer_group=~"$peer_group|"'
"""What is said of the run, or of ranks in the chosen peer groups."""
PEERS = 'cluster=~"$cluster", run="$run", peer_group="$peer_group", rank!="$rank"'
"""All others that do the same work."""
COMPARED = 'cluster=~"$cluster", run="$run", rank="$compared"'
"""One of them, as fast as the middle one. Over time a rank is drawn beside this one, not beside a statistic of all:
that would read every series of every peer for each point, which takes minutes at 4,096 ranks."""
SLOWEST = 'cluster=~"$cluster", run="$run", rank="$slowest"'
TYPICAL = 'cluster=~"$cluster", run="$run", rank="$typical"'
"""The same two on the Run dashboard."""

BOTH = 'cluster=~"$cluster", run="$run", rank=~"$rank|$compared"'
"""This rank and the one that it is compared with, on the Rank dashboard."""

RATE = "[$__rate_interval]"
"""The window of a rate over time."""
_LAST = "[$__range] @ end()"


def each_rank(metric: str, selector: str, window: str = "") -> str:
    """One value for each rank.

    Args:
        metric: a gauge of the ranks.
        selector: label matchers without braces.
        window: e.g. ``last_over_time``: over the whole range that is looked at, so that the same ranks are chosen at
            each point of it.
    """
    value = f"{metric}{{{selector}}}"
    return f"max by ({RANK}) ({f'{window}({value}{_LAST})' if window else value})"


def slowdown(selector: str) -> str:
    """Own time of each rank over that of its peers: 1 as fast, 1.25 a quarter slower.

    By the median over the recent steps, so that one stall is not slowness, against the reference that the verdicts use:
    the lower quartile of the peers, of two ranks the faster one.
    """
    value = each_rank("training_recent_own_median_seconds", selector)
    return f"{value}\n/ on ({GROUP}) group_left ()\n(run:training_recent_own_median_seconds:lower_quartile > 0)"


def _over_range(selector: str, window: str) -> str:
    value = each_rank("training_recent_own_median_seconds", selector, window)
    return f"{value}\n/ on ({GROUP}) group_left ()\n(quantile by ({GROUP}) (0.25, {value}) > 0)"


def slowest(selector: str, count: str) -> str:
    """The slowest ranks at the end of the time range; the last value of a run that has ended counts too."""
    return f"topk({count}, {_over_range(selector, 'last_over_time')})"


def ever_slowest(selector: str, count: str) -> str:
    """The ranks that were slowest at any time of the range."""
    return f"topk({count}, {_over_range(selector, 'max_over_time')})"


def slowest_rank(selector: str) -> str:
    """A variable's query for the rank that is slowest at the end of the time range, or at the end of the run."""
    value = f"max by (peer_group, rank) (last_over_time(training_recent_own_median_seconds{{{selector}}}[$__range]))"
    ratio = f"{value} / on (peer_group) group_left () (quantile by (peer_group) (0.25, {value}) > 0)"
    return f"query_result(topk(1, {ratio}))"


def middle_rank(selector: str) -> str:
    """A variable's query for a rank that is as fast as the middle one. Rounded, or it would be another each time."""
    value = f"max by (rank) (last_over_time(training_recent_own_median_seconds{{{selector}}}[$__range]))"
    distance = f"abs({value} / on () group_left () (quantile(0.5, {value}) > 0) - 1)"
    return f"query_result(bottomk(1, round({distance}, 0.005)))"


RANK_OF_RESULT = '/rank="([^"]+)"/'
"""The rank in the text that a variable's ``query_result`` gives."""


def only(value: str, chosen: str) -> str:
    """The values of the chosen ranks."""
    return f"{value}\nand on (cluster, run, rank)\n{chosen}"


def in_order(value: str) -> str:
    """Sort ranks by number: Prometheus sorts series by label text, where 10 comes before 2."""
    padded = f'label_replace({value}, "order", "0000$1", "rank", "(.+)")'
    return f'label_replace({padded}, "order", "$1", "order", ".*(.{{5}})")'


def lost_gpus(selector: str) -> str:
    """GPUs' worth of work lost by each run: to waiting for each other, or all of them while the run hangs."""
    hung = f"run:training_ranks_alive:count{{{selector}}} and on (cluster, run) run:training_hung_ranks:count"
    return f"max by (cluster, run) ({hung}\nor run:training_lost_gpu_seconds:per_second{{{selector}}})"


def lost_share(selector: str) -> str:
    """The same as a share of the run's GPUs."""
    hung = f"0 * run:training_hung_ranks:count{{{selector}}} + 1"
    return f"max by (cluster, run) ({hung}\nor run:training_lost_gpu_seconds:share{{{selector}}})"


def phases_per_step(selector: str) -> str:
    """Seconds a step that one rank spends in each phase."""
    steps = f"max(rate(training_step_seconds_count{{{selector}}}[$__rate_interval])) > 0"
    seconds = f"max by (phase) (rate(training_phase_seconds_total{{{selector}}}[$__rate_interval]))"
    return f"{seconds}\n/ on () group_left () ({steps}) > 0"


def phases_of_each(selector: str) -> str:
    """The same for each of several ranks, and the host's waiting for data. Not over time: see ``COMPARED``."""
    steps = f"max by ({RANK}) (rate(training_step_seconds_count{{{selector}}}[$__rate_interval])) > 0"
    phases = f"max by ({RANK}, phase) (rate(training_phase_seconds_total{{{selector}}}[$__rate_interval]))"
    host = f"max by ({RANK}) (rate(training_host_data_seconds_total{{{selector}}}[$__rate_interval]))"
    seconds = union([phases, named(host, "phase", "data, on the host")])
    return f"({seconds})\n/ on ({RANK}) group_left () ({steps})"


def on_gpu_of(metric: str, selector: str, window: str = "") -> str:
    """Series of a GPU (label ``UUID``) for the GPUs of these ranks. No join that a second info series could break.

    Args:
        metric: of the GPUs.
        selector: ``THIS``, ``COMPARED`` (their UUIDs are variables, so only their series are read), or any other.
        window: ``rate`` or ``increase`` for a counter.
    """
    uuid = {THIS: '{UUID="$uuid"}', COMPARED: '{UUID="$compared_uuid"}'}.get(selector, "")
    value = f"{window}({metric}{uuid}[$__rate_interval])" if window else f"{metric}{uuid}"
    return f"{value} and on (UUID, GPU_I_ID) training_rank_info{{{selector}}}"


def named(value: str, label: str, text: str) -> str:
    """Give a label to a series, e.g. as the name of a bar."""
    return f'label_replace({value}, "{label}", "{text}", "", "")'


def union(values: list[str]) -> str:
    """All of these series."""
    return "\nor ".join(values)


def causes(selector: str) -> str:
    """Why each slow rank is slow: one series for each, with the label ``cause``."""
    return f"max by ({RANK}, cause) (run_rank:straggler_cause{{{selector}}})"


def why(selector: str, *, links: bool) -> str:
    """One series whose label ``cause`` says why a rank is slow; ``none`` if it is not, ``hung`` while its run hangs.

    Args:
        selector: of the rank.
        links: where no rank is slow, say ``link`` or ``transport`` if there is such trouble: it slows all ranks.
    """
    own = f"max by (cluster, run) (training_recent_own_median_seconds{{{selector}}})"
    values = [
        named(f"run:training_hung_ranks:count{{{RUN_LEVEL}}}", "cause", "hung"),
        causes(selector),
        *([named(f"({_port_faults(RUN_LEVEL)})", "cause", "link")] if links else []),
        *([named(f"({_transport_faults(RUN_LEVEL)})", "cause", "transport")] if links else []),
        named(own, "cause", "none"),
    ]
    return "\nor on ()\n".join(f"max by (cause) ({value})" for value in values)


def link_faults(selector: str) -> str:
    """Bad ports of a run's nodes, and nodes whose NCCL does without what is there: by node and ``fault``."""
    return union([_port_faults(selector), _transport_faults(selector)])


def _port_faults(selector: str) -> str:
    nodes = f"on (cluster, rank_node) group_left (run) run_node:training_rank_state:sole{{{selector}}}"
    return union(
        [
            f"port:network_port:degraded * {nodes}",
            named(f"port:network_port:errors * {nodes}", "fault", "errors"),
        ]
    )


def _transport_faults(selector: str) -> str:
    return union(
        [
            named(f"run_node:training_nccl_channels:over_sockets{{{selector}}}", "fault", "over sockets"),
            named(f"run_node:training_nccl_gdr_ratio:lacking{{{selector}}}", "fault", "no GPUDirect"),
        ]
    )


def alerts(selector: str) -> str:
    """Since when each alert fires, in milliseconds since 1970. A critical one stands for its own warning."""

    def since(severity: str) -> str:
        scope = f'alertname=~"Training.+|Straggler.+", {severity}, {selector}'
        firing = f'ALERTS{{alertstate="firing", {scope}}}'
        active = f"ALERTS_FOR_STATE{{{scope}}} and ignoring (alertstate) {firing}"
        return f"1000 * min by (alertname, severity, {RANK}) ({active})"

    critical = since('severity="critical"')
    lesser = since('severity!="critical"')
    return f"{critical}\nor (\n{lesser}\nunless on (alertname, {RANK})\n{critical}\n)"
