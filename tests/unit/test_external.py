"""Endpoints outside the cluster: which entries are taken, which files are keys, what routers and people are told."""

import datetime as dt
import os
import re
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from llmgw.control import external, views
from llmgw.control.client_tls import ClientCertificate
from llmgw.control.local_files import LocalFiles
from llmgw.control.routing import RoutingBuilder
from llmgw.core.catalog import Model, check_model
from llmgw.core.config import ClientTls, ServerConfig, load_server_config
from llmgw.core.errors import Conflict, InvalidInput
from llmgw.core.external import External, external_id, model_of_external, parse_keys
from llmgw.core.layout import ServerLayout
from llmgw.core.reconcile import reconcile
from llmgw.core.routing import RoutedExternal, Timeouts
from llmgw.core.snapshot import CatalogEntry
from llmgw.core.yamlfile import decode_yaml
from llmgw.router.provider_keys import KeyRing, NoKeys, Resting, read_keys
from llmgw.router.tls import MAX_CA_FILE_BYTES, TlsFailure, provider_context
from tests.support.builders import a_model, a_node, a_profile, a_replica, a_snapshot, an_entry
from tests.support.certificates import TestAuthority
from tests.support.waiting import until

URL = "https://api.example.com/v1"
KEY = "sk-0123456789abcdef"


def outside(*urls: str, **over: object) -> Model:
    """A model at these endpoints."""
    endpoints = tuple(External(base_url=url, **over) for url in urls or (URL,))  # type: ignore[arg-type]
    return Model(name="gpt", external=endpoints)


# entries


def test_one_endpoint_is_a_list_of_one() -> None:
    one = decode_yaml(b"name: gpt\nexternal: {base_url: 'https://api.example.com/v1'}\n", Model, where="f")
    many = decode_yaml(b"name: gpt\nexternal:\n  - {base_url: 'https://api.example.com/v1'}\n", Model, where="f")
    assert one == many == outside()
    check_model(one)


def test_a_misspelt_field_of_an_endpoint_is_named_with_its_line() -> None:
    with pytest.raises(InvalidInput, match=r"f:3: unknown key 'api_key_file'; did you mean 'api_keys_file'"):
        decode_yaml(b"name: g\nexternal:\n  api_key_file: /k\n", Model, where="f")


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (Model(name="g"), "model"),
        (Model(name="g", source="sim:", external=External(base_url=URL)), "source"),
        (Model(name="g", profiles=(a_profile(),), external=External(base_url=URL)), "profiles"),
        (a_model(external=External(base_url=URL), source="", profiles=(), replicas=2), "scaling"),
    ],
)
def test_a_model_runs_here_or_elsewhere_and_never_both(model: Model, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_model(model)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "https://api.example.com/v1/",
        "http://10.0.0.7:8080",
        "https://[2001:db8::1]:8443/openai/v1",
        "https://localhost/a/b/c",
        "https://api.example.com./v1",
        "https://my_api.internal/v1",
    ],
)
def test_base_urls(url: str) -> None:
    check_model(outside(url))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com/v1",
        "ftp://api.example.com/v1",
        "https://",
        "https:///v1",
        "https://user:secret@api.example.com/v1",
        "https://api.example.com/v1?key=secret",
        "https://api.example.com/v1#x",
        "https://api.example.com/v1?",
        "https://api.example.com/../v1",
        "https://api.example.com/%2e%2e/v1",
        "https://api.example.com//v1",
        "https://api.example.com/v1\r\nx: y",
        "https://api.example.com/v 1",
        "https://api.example.com:99999/v1",
        "https://api.example.com:/v1",
        "https://ex ample/v1",
        "https://exämple.com/v1",
        "https://a\\b/v1",
        "https://a..b/v1",
        "https://api.example.com/v1/chat/completions",
        "https://api.example.com/v1/embeddings/",
        "https://.../v1",
        "https://" + "a" * 64 + ".example/v1",
        "https://" + "a" * 3000,
    ],
)
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_model(outside(url))
    assert refused.value.field == "external[0].base_url"
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    "over",
    [
        {"api_keys_file": "keys"},
        {"api_keys_file": "/etc/../keys"},
        {"api_keys_file": "/etc/ke\nys"},
        {"ca_file": "ca.pem"},
        {"weight": 0.0},
        {"weight": float("nan")},
        {"weight": 1e9},
        {"model": "a\x1b[31m"},
    ],
)
def test_what_an_endpoint_may_not_say(over: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_model(outside(URL, **over))
    assert refused.value.field == f"external[0].{next(iter(over))}"


def test_authorities_are_for_secure_endpoints() -> None:
    with pytest.raises(InvalidInput, match="https"):
        check_model(outside("http://10.0.0.1/v1", ca_file="/etc/ca.pem"))


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,30}", fullmatch=True), st.integers(0, 99))
def test_an_endpoints_id_leads_back_to_its_model(name: str, number: int) -> None:
    assert model_of_external(external_id(name, number)) == name


def test_a_replicas_id_is_no_endpoints() -> None:
    assert model_of_external("m-n1-abcdef") is None


# keys


def test_keys_are_one_a_line_with_blank_and_commented_ones_left_out() -> None:
    assert parse_keys(b"# ours\n\n  sk-one-111111\r\nsk-two/+=~._-2\nsk-one-111111\n") == (
        "sk-one-111111",
        "sk-two/+=~._-2",
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no key"),
        (b"# only\n\n", "holds no key"),
        (b"short\n", "line 1 is no key"),
        (b"sk-one-111111\nroot:x:0:0:root:/root:/bin/bash\n", "line 2 is no key"),
        (b"sk-one-111111\n-----BEGIN PRIVATE KEY-----\n", "line 2 is no key"),
        (b"sk-one-111111\nHost: evil\n", "line 2 is no key"),
        (b"\x00\xff\xfe binary", "line 1 is no key"),
        (b"a" * 513, "line 1 is no key"),
        (b"sk-one-111111\x00\n", "line 1 is no key"),
        (b"\n".join(b"sk-%08d" % i for i in range(300)), "more than 256"),
        (b"a" * 300_000, "KiB"),
    ],
)
def test_a_file_with_anything_else_in_it_is_none_of_keys(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        parse_keys(data)


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_only_tokens_come_out_and_no_content_is_told(data: bytes) -> None:
    said = ""
    keys: tuple[str, ...] = ()
    try:
        keys = parse_keys(data)
    except InvalidInput as error:
        said = re.sub("[0-9]+", "N", error.message)
    assert said in ("", "it holds no key", "line N is no key: a key is N to N of letters, digits and . _ ~ + / = -")
    assert all(re.fullmatch(r"[A-Za-z0-9._~+/=-]{8,512}", key) for key in keys)


def test_only_regular_files_outside_the_servers_own_are_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    own = data / "admin.token"
    own.write_text(f"{KEY}\n")
    (tmp_path / "link").symlink_to(own)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "good").write_text(f"{KEY}\n")
    (tmp_path / "link-to-good").symlink_to(tmp_path / "good")
    for name, words in (
        ("data/admin.token", "belongs to the server"),
        ("link", "belongs to the server"),
        ("fifo", "no regular file"),
        ("data", "belongs to the server"),
        (".", "no regular file"),
        ("missing", "cannot be read"),
    ):
        with pytest.raises(NoKeys, match=words):
            read_keys(str(tmp_path / name), (data,))
    assert read_keys(str(tmp_path / "link-to-good"), (data,)) == (KEY,)


def test_keys_take_turns_and_rest_as_long_as_they_were_told(tmp_path: Path) -> None:
    first, second = "sk-first-1111", "sk-second-2222"
    (tmp_path / "keys").write_text(f"{first}\n{second}\n")
    ring = KeyRing(str(tmp_path / "keys"))
    assert {ring.take(0.0), ring.take(0.0)} == {first, second}
    assert ring.refused(first, 429, 20.0, now=0.0) == 0.0
    assert [ring.take(1.0) for _ in range(3)] == [second] * 3
    assert ring.has_other(first, 1.0)
    assert not ring.has_other(second, 1.0)
    assert ring.refused(second, 401, None, now=1.0) == 19.0
    with pytest.raises(Resting) as resting:
        ring.take(2.0)
    assert resting.value.retry_after_s == 18.0
    assert resting.value.limited
    assert ring.take(20.0) == first
    assert {ring.take(61.5), ring.take(61.5)} == {first, second}


def test_a_403_rests_a_key_that_did_not_work_lately(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    ring = KeyRing(str(tmp_path / "keys"))
    assert ring.take(0.0) == KEY
    ring.worked(KEY, 0.0)
    assert ring.refused(KEY, 403, None, now=59.0) == 0.0
    assert ring.take(59.0) == KEY
    assert ring.refused(KEY, 401, None, now=59.0) == 60.0
    assert ring.refused(KEY, 403, None, now=120.0) == 60.0
    with pytest.raises(Resting):
        ring.take(120.0)


def test_a_402_about_one_clients_request_leaves_a_key_that_worked_lately_to_the_others(tmp_path: Path) -> None:
    """Providers answer 402 to a request for more tokens than the account can afford, with a key that is in order."""
    (tmp_path / "keys").write_text(f"{KEY}\n")
    ring = KeyRing(str(tmp_path / "keys"))
    ring.worked(ring.take(0.0), 0.0)
    assert ring.refused(KEY, 402, None, now=59.0) == 0.0
    assert ring.take(59.0) == KEY
    assert ring.refused(KEY, 402, None, now=60.0) == 60.0


def test_no_rest_is_endless_or_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    ring = KeyRing(str(tmp_path / "keys"))
    ring.take(0.0)
    assert ring.refused(KEY, 429, 1e12, now=0.0) == 3600.0
    assert ring.refused(KEY, 429, 0.0, now=0.0) == 1.0


def test_changing_the_file_ends_every_rest(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    ring = KeyRing(str(tmp_path / "keys"))
    ring.take(0.0)
    ring.refused(KEY, 403, None, now=0.0)
    (tmp_path / "keys").write_text(f"# mended\n{KEY}\n")
    assert ring.take(2.0) == KEY


def test_an_endpoint_without_keys_rests_itself() -> None:
    ring = KeyRing("")
    assert ring.take(0.0) == ""
    assert ring.refused("", 429, 30.0, now=0.0) == 30.0
    assert not ring.has_other("", 0.0)


# the files of an entry


def test_files_are_looked_at_when_a_model_is_added(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\nnot a key\n")
    with pytest.raises(InvalidInput, match="line 2") as refused:
        external.check_files(outside(URL, api_keys_file=str(tmp_path / "keys")), ())
    assert refused.value.field == "external[0].api_keys_file"
    assert "not a key" not in refused.value.message
    with pytest.raises(InvalidInput, match="no certificates") as refused:
        external.check_files(outside(URL, ca_file=str(tmp_path / "keys")), ())
    assert refused.value.field == "external[0].ca_file"
    external.check_files(outside(URL, ca_file=str(TestAuthority(tmp_path).ca)), ())


def test_what_is_no_file_of_authorities_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    """Of an empty one the library would make the system's authorities; a pipe never ends."""
    empty, pipe, long = tmp_path / "empty", tmp_path / "pipe", tmp_path / "long"
    empty.touch()
    os.mkfifo(pipe)
    with long.open("wb") as file:
        file.truncate(MAX_CA_FILE_BYTES + 1)
    for path, words in (
        (empty, "no certificates"),
        (pipe, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (long, "is longer than"),
        (tmp_path / "absent", "cannot be read"),
    ):
        with pytest.raises(TlsFailure, match=words):
            provider_context(str(path))


@pytest.mark.trio
async def test_what_is_wrong_with_files_is_found_without_being_asked(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    model = outside(URL, api_keys_file=str(keys))
    files = LocalFiles(ClientCertificate(None, ServerLayout(data=tmp_path)), lambda: [model], ())
    async with trio.open_nursery() as nursery:
        await nursery.start(files.run)
        await until(lambda: files.problems() != ())
        assert files.problems() == external.file_problems([model], ())
        nursery.cancel_scope.cancel()


def test_secrets_the_configuration_names_are_no_providers_keys(tmp_path: Path) -> None:
    token = tmp_path / "hub.token"
    token.write_text("hf_0123456789\n")
    config = ServerConfig(data=str(tmp_path / "data"), hf_token_file=str(token))
    private = external.private_files(config, ServerLayout(data=tmp_path / "data"))
    with pytest.raises(InvalidInput, match="belongs to the server"):
        external.check_files(outside(URL, api_keys_file=str(token)), private)


def test_keys_that_cannot_be_read_any_more_are_told_of(tmp_path: Path) -> None:
    model = outside(URL, api_keys_file=str(tmp_path / "keys"))
    (told,) = external.file_problems([model, a_model()], ())
    assert told == f"model gpt: keys file {tmp_path}/keys: it cannot be read: No such file or directory"
    (tmp_path / "keys").write_text(KEY)
    assert external.file_problems([model], ()) == ()


# what the cluster makes of it


def test_endpoints_are_routed_for_as_long_as_their_model_is_not_stopped() -> None:
    model = Model(
        name="gpt",
        external=(
            External(base_url=f"{URL}/", model="up", api_keys_file="/k", ca_file="/ca", weight=2.0),
            External(base_url="http://10.0.0.1"),
        ),
    )
    entries = (an_entry(), CatalogEntry(model=model))
    builder = RoutingBuilder("me")
    routing = builder.build(a_snapshot(entries=entries, nodes=(a_node(),), replicas=(a_replica(),)), Timeouts(), {})
    assert [r.id for r in routing.replicas] == ["r1", "external:gpt:0", "external:gpt:1"]
    first, second = routing.replicas[1:]
    assert (first.endpoint, first.upstream_model, first.weight) == (URL, "up", 2.0)
    assert first.external == RoutedExternal(keys_file="/k", ca_file="/ca")
    assert second.external == RoutedExternal()
    routed = next(m for m in routing.models if m.name == "gpt")
    assert (routed.context_length, routed.max_output) == (0, 0)
    stopped = CatalogEntry(model=Model(name="gpt", external=model.external, stopped=True))
    assert builder.build(a_snapshot(entries=(stopped,)), Timeouts(), {}).replicas == ()


def test_an_outside_model_needs_no_node_and_ends_the_replicas_it_had() -> None:
    entry = CatalogEntry(model=Model(name="m", external=External(base_url=URL)))
    plan = reconcile(a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(a_replica(),)))
    assert plan.starts == ()
    assert plan.fetches == ()
    assert plan.unplaced == ()
    assert [drain.replica for drain in plan.drains] == ["r1"]
    assert reconcile(a_snapshot(entries=(entry,))).unplaced == ()


def test_people_see_it_ready_and_where_it_is() -> None:
    entry = CatalogEntry(model=outside(URL, "https://b.example.com/v1"))
    info = views.model_info(entry, None, a_snapshot(entries=(entry,)), None)
    assert (info.state, info.ready, info.wanted, info.message) == ("ready", 2, 2, "")
    assert info.source == f"{URL} and 1 more"
    stopped = CatalogEntry(model=Model(name="g", external=External(base_url=URL), stopped=True))
    info = views.model_info(stopped, None, a_snapshot(entries=(stopped,)), None)
    assert (info.state, info.ready, info.wanted) == ("stopped", 0, 0)


def test_what_takes_replicas_is_refused_with_what_works_instead() -> None:
    with pytest.raises(Conflict, match="no replica to scale; `llmgw ctl model stop gpt`"):
        external.refuse_external(outside(), "scale")
    external.refuse_external(a_model(), "scale")


# the client port's certificate


def test_tls_files_are_taken_from_the_configurations_directory(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("data: d\nclient: {tls: {certificate: tls.crt, key: /etc/tls.key}}\n")
    config = load_server_config(file, {})
    assert config.client.tls == ClientTls(certificate=str(tmp_path / "tls.crt"), key="/etc/tls.key")
    file.write_text("data: d\nclient: {tls: {certificate: tls.crt}}\n")
    with pytest.raises(InvalidInput, match="key"):
        load_server_config(file, {})


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        (None, "", "certificate .* cannot be read: No such file"),
        ("", None, "key .* cannot be read: No such file"),
        ("nonsense", "", "not a certificate and its key in PEM"),
        ("", "nonsense", "not a certificate and its key in PEM"),
        ("", "-----BEGIN ENCRYPTED PRIVATE KEY-----", "is encrypted"),
    ],
)
def test_files_that_cannot_be_used_end_the_start_with_a_sentence(
    tmp_path: Path, certificate: str | None, key: str | None, words: str
) -> None:
    leaf = TestAuthority(tmp_path).leaf("localhost")
    for path, text in ((leaf.certificate, certificate), (leaf.key, key)):
        if text is None:
            path.unlink()
        elif text:
            path.write_text(text)
    tls = ClientTls(certificate=str(leaf.certificate), key=str(leaf.key))
    with pytest.raises(InvalidInput, match=words) as refused:
        ClientCertificate(tls, ServerLayout(data=tmp_path))
    assert refused.value.field == "client.tls"


def test_a_key_of_another_certificate_is_told_apart(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    one, other = authority.leaf("localhost", file="one"), authority.leaf("localhost", file="other")
    with pytest.raises(InvalidInput, match="is not the one of the certificate"):
        ClientCertificate(ClientTls(certificate=str(one.certificate), key=str(other.key)), ServerLayout(data=tmp_path))


def test_a_certificate_is_told_of_before_and_after_it_expires(tmp_path: Path) -> None:
    leaf = TestAuthority(tmp_path).leaf("localhost", life=dt.timedelta(days=30))
    tls = ClientTls(certificate=str(leaf.certificate), key=str(leaf.key))
    now = dt.datetime.now(dt.UTC)

    def told(days: float) -> tuple[str, ...]:
        moment = now + dt.timedelta(days=days)
        return ClientCertificate(tls, ServerLayout(data=tmp_path), now=lambda: moment).problems()

    assert told(0) == ()
    assert "expires on" in told(10)[0]
    assert "expired on" in told(31)[0]
    certificate = ClientCertificate(tls, ServerLayout(data=tmp_path))
    leaf.certificate.unlink()
    assert "routers go on with the certificate they have" in certificate.problems()[0]


def test_routers_are_told_of_tls_and_of_its_end(tmp_path: Path) -> None:
    layout = ServerLayout(data=tmp_path)
    layout.run.mkdir()
    leaf = TestAuthority(tmp_path).leaf("localhost")
    ClientCertificate(ClientTls(certificate=str(leaf.certificate), key=str(leaf.key)), layout).tell_routers()
    assert layout.client_tls.stat().st_mode & 0o777 == 0o600
    assert str(leaf.key) in layout.client_tls.read_text()
    ClientCertificate(None, layout).tell_routers()
    assert not layout.client_tls.exists()
