"""``docs/configuration.md``, from the model in ``config.py``."""

from __future__ import annotations

from straggler.sidecar.setting import Setting, settings, type_name

_HEAD = """\
# Configuration of the sidecar

Generated from `exporter/straggler/sidecar/config.py` by `make golden`; do not edit.

Each setting can be given as a flag of `straggler serve`, as a variable, or as a key of a YAML file, which `--config` or
`STRAGGLER_CONFIG` names. Flags win over variables, variables over the file. A variable that is set and empty counts as
not set. In YAML the part before the dot is a section:

```yaml
listen: 127.0.0.1:10110
ring_dir: /run/straggler
dcgm:
  url: http://127.0.0.1:9400/metrics
```

(`dcgm_url: …` on the top level is the same as `url` under `dcgm`.) A key that does not exist, a key that stands twice
and a value that cannot be used are errors: the sidecar says which key, what was given and what to write, and ends with
exit code 2. `straggler serve --check-config` does only that, and `--print-config` prints the settings that result.
A variable that begins with `STRAGGLER_` and is neither here nor one of the hook's is a warning in the log; those that
Kubernetes sets for a Service called `straggler` (`STRAGGLER_PORT=tcp://…`, `STRAGGLER_SERVICE_HOST`, …) mean nothing
here, nor to the hook.

| key | flag | variable | value | default | meaning |
|---|---|---|---|---|---|
"""

_TAIL = """
## Where the GPU page comes from

With `dcgm.url: auto` the sidecar asks dcgm-exporter's usual address on the loopback interface. As long as nobody
answers there the source is `absent`, which is no fault: the node may have no GPU, or no dcgm-exporter. Once it has
answered, its silence is `failed`. An address that is given is expected to answer from the start.

Bus ids and GPU indices are the same on every node, so they prove which GPU a rank is on only if the page is of this
node. It is if the address is loopback, if it has a GPU whose UUID a rank of this node names itself, or if
`dcgm.same_node` says so.
"""


def render_reference() -> str:
    """The whole document, in Markdown."""
    return _HEAD + "".join(map(_row, settings())) + _TAIL


def _row(setting: Setting) -> str:
    cells = (
        f"`{setting.key}`",
        f"`{setting.flag}`",
        f"`{setting.variable}`",
        type_name(setting.field).replace("|", " or "),
        _code(setting.default_text()),
        setting.field.description or "",
    )
    return f"| {' | '.join(cells)} |\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
