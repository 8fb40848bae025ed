"""What the alert of each verdict is called, who gets it, and what it says besides the numbers.

Names, teams and texts are those of the rules in ``rules/alerts/``; a test compares the names.
"""

from __future__ import annotations

from typing import NamedTuple

from straggler.detect.verdict import WARNING, Verdict


class AlertText(NamedTuple):
    """One alert."""

    name: str
    team: str
    """The label ``team``: ``infrastructure``, ``training`` or ``monitoring``."""
    summary: str
    """With ``{run}``, ``{rank}``, ``{node}``, ``{peer_group}``, ``{ratio}``, ``{lost}``, ``{reason}``."""
    cause: str
    next_step: str


_BY_VERDICT: dict[str, AlertText] = {
    "straggling_rank": AlertText(
        "TrainingStraggler",
        "infrastructure",
        "{run} waits for rank {rank}: {ratio}x its peers' own time",
        "Nothing more is known here: compare its phases, clocks and errors with a peer's.",
        "Run `straggler top` on {node}, then look at the GPU's clocks and errors. If it does not pass, take the node "
        "out at the next checkpoint. The runbook has the commands.",
    ),
    "straggling_node": AlertText(
        "TrainingNodeStraggling",
        "infrastructure",
        "{run} waits for node {node}: {ratio}x the other nodes' own time",
        "Usual suspects: power, cooling, host CPU, memory or local disk of the node.",
        "On {node} look at power, temperature, CPU and I/O of the host. If it does not pass, drain the node at the "
        "next checkpoint. The runbook has the commands.",
    ),
    "heavy_stage": AlertText(
        "TrainingHeavyStage",
        "training",
        "Stage {peer_group} of {run} has more work: {ratio}x the light stages",
        "Uneven layers, most often the last stage with the vocabulary projection and the loss, or the first with the "
        "embedding.",
        "Move layers from this stage to the others, or accept it and silence this alert for the run.",
    ),
    "rotating_imbalance": AlertText(
        "TrainingRotatingImbalance",
        "training",
        "{run} waits for another rank in each step: {lost} of the time",
        "Batches of uneven length, experts of uneven load, or stalls (loader, garbage collection, storage) that hit "
        "one rank after the other.",
        "Look at the phases of a few ranks: varying forward and backward mean uneven batches (sort or pack them), "
        "varying data means the loader.",
    ),
    "input_stall": AlertText(
        "TrainingInputStall",
        "training",
        "{run} waits for its data: {lost} of each step",
        "Too few loader workers, no prefetching, slow storage or network file system, or preprocessing on too few "
        "CPUs.",
        "Raise the workers and the prefetch factor; if that does not help, look at the storage and the CPU of one "
        "node.",
    ),
    "slow_everywhere": AlertText(
        "TrainingSlowEverywhere",
        "infrastructure",
        "{run} is slow on all ranks: {ratio}x its own past",
        "A power cap or a cooling fault for the whole room, a new container or driver, a larger batch or longer "
        "sequences, a noisy neighbour on shared storage.",
        "Find out when it began: a sharp edge is a change somebody made, a slow climb is heat or data.",
    ),
    "hang": AlertText(
        "TrainingHung",
        "infrastructure",
        "Training {run} hangs: no step on any rank",
        "Fewest arrivals means that a rank's own code has not reached the collective (loader, I/O, deadlock, lost "
        "GPU); equal arrivals mean that the collective itself does not end.",
        "On the suspect's node, or without a suspect on any two, take the stacks (`py-spy dump --pid PID`) and look at "
        "`dmesg | grep -i xid` before anybody restarts the job; then restart from the last checkpoint, without that "
        "node if its hardware is to blame.",
    ),
    "crash": AlertText(
        "TrainingRankCrashed",
        "infrastructure",
        "Training {run} lost rank {rank}: the others wait in vain",
        "An exception (the rank's log ends with it), or a kill from outside: out of memory, eviction, a fault in "
        "native code.",
        'On that node: `dmesg -T | grep -iE "oom|killed process|xid"`, then the rank\'s log, then `straggler '
        "inspect` on "
        "its ring file for the last steps. Restart without the node if it was the hardware.",
    ),
    "missing_rank": AlertText(
        "TrainingRankMissing",
        "monitoring",
        "{run} steps, but nobody sees all of its ranks",
        "A rank that writes to another directory or carries no hook, or a ring that was refused "
        "(`straggler_exporter_ranks_refused`).",
        "Run `straggler doctor` on this node.",
    ),
    "utilization_divergence": AlertText(
        "TrainingUtilizationDivergence",
        "training",
        "{run} looks busy but hardly computes",
        "Waiting for peers or data, communication that is not hidden, small kernels, or a GPU that waits for the host.",
        "Look at the phases: wait, data and the rest. If a straggler is named, deal with it first.",
    ),
    "throttled_gpu": AlertText(
        "TrainingGpuThrottled",
        "infrastructure",
        "The GPU of rank {rank} of {run} is held below its clock",
        "Heat, a power brake of the rack, or a fault that the GPU protects itself from.",
        "On {node} look at `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` for this GPU and its neighbours.",
    ),
    "degraded_gpu": AlertText(
        "TrainingGpuDegraded",
        "infrastructure",
        "The GPU of rank {rank} of {run} reports errors",
        "Memory that fails (ECC, row remapping), an NVLink, or the GPU's own controller; the XID's number says which.",
        "On {node}: `dmesg -T | grep -i xid`, then `nvidia-smi -q -d ECC,ROW_REMAPPER`. Take the node out at the next "
        "checkpoint if a reset is pending or the error comes again.",
    ),
    "degraded_link": AlertText(
        "TrainingLinkDegraded",
        "infrastructure",
        "The GPU of rank {rank} of {run} has a narrow PCIe link",
        "A card or riser that is not seated well, or a failing slot.",
        "On {node} look at `nvidia-smi -q | grep -A6 'GPU Link Info'`; reseat the card at the next maintenance.",
    ),
    "slow_transport": AlertText(
        "TrainingSlowNetwork",
        "infrastructure",
        "{run} has a slow network: {lost} of each step",
        "A link or switch with errors, congestion by other jobs, NCCL on sockets instead of InfiniBand, or "
        "communication that is not overlapped with work.",
        "Look for link errors and the NCCL transport on the nodes of the run (`NCCL_DEBUG=INFO` says NET/IB or "
        "NET/Socket).",
    ),
    "blind": AlertText(
        "StragglerExporterBlind",
        "monitoring",
        "Straggler monitoring is blind: {source} {reason} in {run}",
        "Reason as the exporter gives it: {reason}. The runbook lists all of them.",
        "Run `straggler doctor` on this node: it names the missing piece and the line that enables it.",
    ),
}

MANY_SLOW = AlertText(
    "TrainingManyRanksSlow",
    "training",
    "Many ranks of {run} are slow: more than bad hardware explains",
    "Most often these ranks are a pipeline stage with more work, and the hook was not told its peer_group. Else they "
    "share a rack, a power feed, a switch, a container image, or get more data.",
    "Tell the hook the stages (STRAGGLER_PEER_GROUP) if there are any; else look for what the slow ranks share.",
)


DEGRADED_PORTS = AlertText(
    "TrainingLinkDegraded",
    "infrastructure",
    "RDMA ports of {node} are degraded: {run} sends through them",
    "A cable or transceiver that is dirty, loose or dying, a switch port, or a link that came up at a lower speed.",
    "On {node}: `ibstat` and `dmesg -T | grep -iE 'mlx5|ib_|link'`; look at the other end of the cable too.",
)


_TRANSPORT = AlertText(
    "TrainingSlowTransport",
    "infrastructure",
    "{run} does not use the network that it has ({reason})",
    "An image without libibverbs, a container without /dev/infiniband or without locked memory, NCCL_IB_DISABLE or "
    "NCCL_NET left over from a test, a plugin that was not loaded; without GPUDirect RDMA: nvidia_peermem.",
    "Read the log of a rank on that node: `straggler inspect LOG`. Compare `ls /dev/infiniband`, `ulimit -l` and "
    "`env | grep NCCL_` in the container with another node's.",
)


def alert_text(verdict: Verdict) -> AlertText:
    """The alert of a verdict.

    Many slow ranks inside one group are a warning, a stage known to be heavy is not. A slow network that NCCL's log
    explains has an alert of its own.
    """
    if verdict.verdict == "degraded_link" and verdict.rank is None:
        return DEGRADED_PORTS
    if verdict.verdict == "heavy_stage" and verdict.severity == WARNING:
        return MANY_SLOW
    if verdict.verdict == "slow_transport" and verdict.reason:
        return _TRANSPORT
    return _BY_VERDICT[verdict.verdict]
