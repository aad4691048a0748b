"""One command, a real model, the official client: what a newcomer tries first."""

import openai
import pytest

from tests.support.cluster import DemoCluster
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance
QUESTION: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Who wrote Hamlet?"}]


@pytest.fixture
def client(real_cluster: DemoCluster) -> openai.OpenAI:
    return openai.OpenAI(base_url=real_cluster.url, api_key=real_cluster.key, max_retries=0)


def test_ready_names_what_scripts_need(real_cluster: DemoCluster) -> None:
    fields = dict(part.split("=", 1) for part in real_cluster.ready.removeprefix("READY ").split(" ") if "=" in part)
    assert fields["url"] == f"http://127.0.0.1:{real_cluster.port}"
    assert fields["key"] == real_cluster.key
    assert fields["model"] == "smollm2"
    assert f"admin=unix:{real_cluster.data}/admin.sock" in real_cluster.ready
    assert (real_cluster.data / "demo.key").stat().st_mode & 0o777 == 0o600


def test_an_unstreamed_answer_has_text_and_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=24, temperature=0)
    assert "Shakespeare" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 24
    assert answer.usage.prompt_tokens > 10
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_answer_is_the_same_and_ends_with_usage(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=16, temperature=0)
    stream = client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        max_tokens=16,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_operators_are_told_where_the_engine_computes(real_cluster: DemoCluster) -> None:
    (replica,) = real_cluster.ctl_json("replicas", "--model", "smollm2")
    assert replica["compute"]["cpu_only"]
    assert "compute: all layers are on the CPU" in replica["compute"]["line"]
    assert real_cluster.ctl_json("explain", "smollm2")["message"].endswith("; it computes on the CPU")
    assert "runs it on the CPU" not in real_cluster.ctl("status").stdout


def test_usage_is_not_sent_to_who_did_not_ask(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=4, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_completions_and_models(client: openai.OpenAI, real_cluster: DemoCluster) -> None:
    done = client.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in done.choices[0].text
    (model,) = client.models.list().data
    assert model.id == "smollm2"
    document = post(real_cluster, "/v1/models", None, method="GET").json()["data"][0]
    assert document["context_length"] == 4096
    assert document["max_output_tokens"] == 4096


def test_what_was_used_is_counted_once(client: openai.OpenAI, real_cluster: DemoCluster) -> None:
    from tests.support.cluster import wait_for

    created = real_cluster.ctl_json("keys", "create", "counted")
    mine = openai.OpenAI(base_url=real_cluster.url, api_key=created["key"], max_retries=0)
    answers = [mine.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=6) for _ in range(3)]
    output = sum(a.usage.completion_tokens for a in answers if a.usage)
    prompt = sum(a.usage.prompt_tokens for a in answers if a.usage)

    def counted() -> bool:
        key = next(k for k in real_cluster.ctl_json("keys", "list") if k["id"] == created["id"])
        return bool(key["requests"] == 3 and key["output_tokens"] == output and key["input_tokens"] == prompt)

    assert wait_for("3 requests counted", counted)


def test_a_wrong_key_is_401_in_openais_shape(real_cluster: DemoCluster) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(base_url=real_cluster.url, api_key="sk-wrong-0123456789", max_retries=0).models.list()
    assert refused.value.code == "invalid_api_key"


def test_an_unknown_model_is_404(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="nobody", messages=QUESTION)
    assert refused.value.code == "model_not_found"
    assert "nobody" in str(refused.value)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[]",
        b'{"model": "smollm2"}',
        b'{"model": 7, "messages": []}',
        b'{"model": "smollm2", "messages": [], "max_tokens": -1}',
        b'{"model": "smollm2", "model": "other", "messages": []}',
        b"\xff\xfe",
    ],
)
def test_a_malformed_body_is_400_in_openais_shape(real_cluster: DemoCluster, body: bytes) -> None:
    answer = post(real_cluster, "/v1/chat/completions", body)
    assert answer.status == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert {"message", "type", "param", "code"} <= error.keys()


def test_an_answer_longer_than_the_context_is_refused_with_the_limit(real_cluster: DemoCluster) -> None:
    answer = post(real_cluster, "/v1/chat/completions", chat_body("smollm2", tokens=4097))
    assert answer.status == 400
    assert "4096" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/%2e%2e/api/v1/status",
        "/v1/../api/v1/status",
        "/v1/..%2fapi/v1/status",
        "//api/v1/status",
        "/api/v1/status",
        "/leader/../api/v1/status",
        "/leader/%2e%2e/api/v1/status",
        "/v1/models/..;/api",
        "/v1\\..\\api",
        "/v1/models%00",
    ],
)
def test_no_path_reaches_the_admin_app(real_cluster: DemoCluster, path: str) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", real_cluster.port), timeout=60) as sock:
        request = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {real_cluster.key}\r\nConnection: close\r\n\r\n"
        )
        sock.sendall(request.encode())
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 404), answer[:200]
    assert b"cluster_id" not in answer
    assert b'"routers"' not in answer


def test_leader_and_ready_answer_on_the_client_port(real_cluster: DemoCluster) -> None:
    leader = post(real_cluster, "/leader", None, method="GET")
    assert leader.status == 200
    assert leader.json()["is_self"] is True
    assert post(real_cluster, "/ready", None, method="GET").status == 200


def test_memory_fit_is_read_from_the_real_header(real_cluster: DemoCluster) -> None:
    info = real_cluster.model_info()
    assert info.facts is not None
    assert info.facts.architecture == "llama"
    assert info.facts.trained_context == 8192
    assert info.facts.layers == 30
    assert 95_000_000 < info.facts.weights_bytes < 105_000_000
    explained = real_cluster.ctl_json("explain", "smollm2")
    assert explained["placed"]
    assert "weights" in explained["need_detail"]
