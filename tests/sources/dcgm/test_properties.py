"""What holds for any text: nothing raises, nothing impossible is shown, everything refused has a listed reason."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from straggler.model.gpu import CLOCKS_EVENT_BITS, CLOCKS_EVENT_REASONS, GpuKey
from straggler.sources.dcgm.fields import BY_NAME, FIELDS, Into
from straggler.sources.dcgm.parse import GpuPage, GpuPageParser
from straggler.sources.dcgm.reasons import BLIND_REASONS, LINE_REASONS, PAGE_REASONS, SAMPLE_REASONS
from straggler.sources.dcgm.text import TextParser

LIMITS = {
    field.attribute: (
        min(f.low * f.times / f.per for f in FIELDS if f.attribute == field.attribute),
        max(f.high * f.times / f.per for f in FIELDS if f.attribute == field.attribute),
    )
    for field in FIELDS
    if field.into in (Into.VALUE, Into.EVENT_SECONDS)
}
UUID = "GPU-00000001-1111-2222-3333-000000000001"

fragments = st.sampled_from(
    [
        *BY_NAME,
        *("{", "}", '"', ",", "=", " ", "\n", "\r\n", "\\", "#", "# {", "\t", "\0", "\N{BYTE ORDER MARK}", "\u2028"),
        *('UUID="', 'uuid="', UUID, 'GPU_I_ID="', "0", "7", 'pod="p"', 'hpc_job="a "b""', 'gpu="0"', 'nvlink="1"'),
        *("1", "100", "0.5", "2619", "-1", "NaN", "+Inf", "1e400", "9223372036854775794", "140737488355328.0", "x"),
    ]
)
names = st.sampled_from([*BY_NAME, "DCGM_FI_DEV_BRAND", "node_load1"])
numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.integers(-(2**64), 2**65).map(str),
    st.sampled_from(["0", "1", "50", "0.5", "1.2", "2147483632", "4294967295", "", "x", "1 2"]),
)
lines = st.builds(
    lambda name, uuid, instance, job, value: f'{name}{{UUID="{uuid}",GPU_I_ID="{instance}",hpc_job="{job}"}} {value}\n',
    names,
    st.sampled_from([UUID, UUID.upper(), "GPU-x", "", "<<<NULL>>>"]),
    st.sampled_from(["", "0", "3", "x"]),
    st.one_of(st.just(""), st.text(st.characters(blacklist_characters="\n"), max_size=8)),
    numbers,
)
texts = st.one_of(
    st.text(max_size=300),
    st.lists(fragments, max_size=60).map("".join),
    st.lists(lines, max_size=20).map("".join),
)


def check(page: GpuPage) -> None:
    """All that must hold of what any page gives."""
    assert {problem.reason for problem in page.problems} <= {*LINE_REASONS, *PAGE_REASONS, *SAMPLE_REASONS}
    assert {problem.reason for problem in page.blind} <= set(BLIND_REASONS)
    assert all(problem.count >= 1 and problem.detail.isprintable() for problem in page.problems)
    assert bool(page.facts) != bool(page.refused)
    assert len({gpu.key for gpu in page.facts}) == len(page.facts)
    for gpu in page.facts:
        assert gpu.key.uuid.startswith("GPU-")
        for name, value in (*gpu.values.items(), *gpu.clocks_event_seconds.items()):
            low, high = LIMITS[name]
            assert isfinite(value)
            assert low <= value <= high
        assert all(0 <= value <= 1 for name, value in gpu.values.items() if name.endswith("_ratio"))
        assert set(gpu.clocks_event_seconds) <= set(CLOCKS_EVENT_REASONS)
        assert set(gpu.clocks_event_reasons) in (set(), set(CLOCKS_EVENT_BITS.values()))
        assert set(gpu.clocks_event_reasons.values()) <= {0.0, 1.0}


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts, complete=st.booleans())
def test_any_text(text: str, *, complete: bool) -> None:
    """Any text gives values that can be true, or none, and says what it refused."""
    check(GpuPageParser().parse(text, complete=complete))


@settings(max_examples=100)
@given(pages=st.lists(texts, min_size=2, max_size=4))
def test_no_page_changes_another(pages: list[str]) -> None:
    """A parser that has read other pages reads the last one as a new parser does."""
    used = GpuPageParser()
    readings = [used.parse(page) for page in pages]

    assert readings[-1] == GpuPageParser().parse(pages[-1])


@settings(max_examples=200)
@given(rows=st.lists(lines, max_size=12), data=st.data())
def test_order_of_lines_does_not_matter(rows: list[str], data: st.DataObject) -> None:
    """Families come in any order, so the values are the same in any order of the lines."""
    shuffled = data.draw(st.permutations(rows))
    one, other = GpuPageParser().parse("".join(rows)), GpuPageParser().parse("".join(shuffled))

    assert {gpu.key: dict(gpu.values) for gpu in one.facts} == {gpu.key: dict(gpu.values) for gpu in other.facts}
    assert {p.reason: p.count for p in one.problems} == {p.reason: p.count for p in other.problems}


@settings(max_examples=100)
@given(rows=st.lists(lines, min_size=1, max_size=8), times=st.integers(2, 4))
def test_copies_change_nothing(rows: list[str], times: int) -> None:
    """A page that says everything several times says the same."""
    once, often = GpuPageParser().parse("".join(rows)), GpuPageParser().parse("".join(rows) * times)

    assert {gpu.key: dict(gpu.values) for gpu in once.facts} == {gpu.key: dict(gpu.values) for gpu in often.facts}


@settings(max_examples=200)
@given(
    labels=st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True), st.text(max_size=20), max_size=5),
    value=st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_proper_line_is_read_exactly(labels: dict[str, str], value: float) -> None:
    """Whatever the labels hold, a line that is escaped as the format wants it comes back as it was."""
    escaped = {
        name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in labels.items()
    }
    line = "a{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + f"}} {value!r}\n"
    page = TextParser(lambda _, labels: dict(labels)).parse(line)

    assert page.samples == [(labels, value)]
    assert page.problems == ()


@settings(max_examples=200)
@given(job=st.text(st.characters(blacklist_characters='\n\\,"', blacklist_categories=["Cs"]), min_size=1, max_size=20))
@pytest.mark.parametrize("form", ['train "{}"', '"{}"', "{} run"])
def test_unescaped_quotes_lose_no_sample(form: str, job: str) -> None:
    """A job's name with quotes, from a template that does not escape, costs neither the sample nor another label."""
    text = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",hpc_job="{form.format(job)}",Hostname="n"}} 97\n'
    (gpu,) = GpuPageParser().parse(text).facts

    assert gpu.key == GpuKey(UUID)
    assert gpu.values == {"utilization_ratio": 0.97}
    assert gpu.hostname == "n"


@pytest.mark.parametrize("cut", range(0, 240, 7))
def test_any_cut(cut: int) -> None:
    """A page that is known to be cut anywhere gives a part of the whole page's values, and none that is different."""
    text = "".join(
        f'{name}{{gpu="0",UUID="{UUID}"}} {value}\n'
        for name, value in (("DCGM_FI_DEV_SM_CLOCK", 1980), ("DCGM_FI_DEV_GPU_TEMP", 48), ("DCGM_FI_DEV_GPU_UTIL", 97))
    )
    whole = GpuPageParser().parse(text).facts[0].values
    facts = GpuPageParser().parse(text[:cut], complete=False).facts

    assert all(whole[name] == value for gpu in facts for name, value in gpu.values.items())
