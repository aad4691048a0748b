"""The request log's and traces' settings, the ration of refusals, the collector's headers, and who is traced."""

from pathlib import Path

import pytest

from llmgw.control import settings
from llmgw.core.errors import InvalidInput
from llmgw.core.requests import Seen
from llmgw.router.refusal_ration import IN_A_ROW, MAX_KEYS, RefusalRation
from llmgw.router.span_headers import BadHeaders, read_headers
from llmgw.router.traces import is_sampled, parse_parent


def test_settings_reach_the_routers_as_they_are_stored_and_what_does_not_fit_is_the_default() -> None:
    stored = {
        "router.request_log.keep": b'"failed"',
        "router.request_log.bytes": b"1048576",
        "router.request_log.files": b"0",
        "router.telemetry.endpoint": b'"https://otel.lab/v1/traces"',
        "router.telemetry.sample": b"0.25",
        "router.telemetry.headers_file": b'"/etc/llmgw/otel"',
    }
    assert settings.seen(stored) == Seen(
        log="failed",
        log_bytes=1_048_576,
        endpoint="https://otel.lab/v1/traces",
        sample=0.25,
        headers_file="/etc/llmgw/otel",
    )
    assert settings.seen({}) == Seen()
    assert {settings.SEEN[name] for name in Seen.__struct_fields__} <= settings.KINDS.keys()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("router.request_log.keep", b'"some"', "not one of all, failed, off"),
        ("router.request_log.bytes", b"1", "64 KiB"),
        ("router.request_log.files", b"0", "outside 1 to 100"),
        ("router.telemetry.sample", b"1.5", "write 0 to 1"),
        ("router.telemetry.headers_file", b'"headers"', "not a path from the root"),
        ("router.telemetry.endpoint", b'"otel.lab:4318"', "is not http://"),
        ("router.telemetry.endpoint", b'"http://"', "is not http://"),
        ("router.telemetry.endpoint", b'"http://h:99999/"', "no URL"),
        ("router.telemetry.endpoint", b'"http://h/a b"', "is not http://"),
        ("router.telemetry.endpoint", b'"http://me:pass@h/"', "headers_file"),
        ("router.telemetry.endpoint", b'"http://h/#x"', "no fragment"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_in_a_sentence(key: str, value: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        settings.decode(key, value)


def test_refusals_of_one_key_are_rationed_and_cost_no_other_key_its_own() -> None:
    ration, told = RefusalRation(), 0
    for _ in range(1000):
        told += ration.take("k1", 0.0) is not None
    assert told == IN_A_ROW
    assert ration.take("k2", 0.0) == 0
    assert ration.take("k1", 0.4) is None
    assert ration.take("k1", 1.0) == 1000 - IN_A_ROW + 1
    assert ration.take("k1", 1000.0) == 0


def test_the_ration_remembers_a_bounded_number_of_keys() -> None:
    ration = RefusalRation()
    for number in range(3 * MAX_KEYS):
        assert ration.take(f"k{number}", 0.0) == 0
        assert len(ration._accounts) <= MAX_KEYS


@pytest.mark.parametrize(
    "text",
    [
        "root:x:0:0:root:/root:/bin/sh\n",
        "authorization: Bearer x\nnot a header\n",
        "host: elsewhere\n",
        "content-length: 5\n",
        "x: \n",
        "x:y\n",
        "a b: c\n",
        "x: y\x00\n",
        "x: é\n",
        "".join(f"x-{number}: y\n" for number in range(21)),
        "x: " + "y" * 20_000,
    ],
)
def test_a_file_that_holds_anything_but_headers_is_not_sent_anywhere(tmp_path: Path, text: str) -> None:
    path = tmp_path / "headers"
    path.write_text(text)
    with pytest.raises(BadHeaders) as refused:
        read_headers(str(path))
    assert "Bearer" not in str(refused.value)
    assert "root:x" not in str(refused.value)


def test_headers_are_read_with_comments_and_empty_lines_aside(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("# ours\n\nAuthorization: Bearer a b\nx-tenant: lab\n")
    assert read_headers(str(path)) == {"Authorization": "Bearer a b", "x-tenant": "lab"}
    assert read_headers("") == {}
    with pytest.raises(BadHeaders, match="No such file"):
        read_headers(str(tmp_path / "none"))


def test_a_share_of_traces_is_sampled_and_the_same_ones_everywhere() -> None:
    ids = [f"{number * 0x9E3779B97F4A7C15 % 2**64:032x}" for number in range(4000)]
    quarter = {id_ for id_ in ids if is_sampled(id_, 0.25)}
    assert 800 < len(quarter) < 1200
    assert quarter <= {id_ for id_ in ids if is_sampled(id_, 0.5)}
    assert not any(is_sampled(id_, 0.0) for id_ in ids)
    assert all(is_sampled(id_, 1.0) for id_ in [*ids, "f" * 32])


def test_a_parent_is_read_strictly() -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    assert parse_parent(f"00-{trace}-{span}-01".encode()) == (trace, span, True)
    assert parse_parent(f"00-{trace}-{span}-02".encode()) == (trace, span, False)
    assert parse_parent(f"01-{trace}-{span}-03-x".encode()) == (trace, span, True)
    for wrong in (f"00-{trace}-{span}-01 ", f"00-{trace}-{span}", f"0-{trace}-{span}-01", f"01-{trace}-{span}-01x", ""):
        assert parse_parent(wrong.encode()) is None
