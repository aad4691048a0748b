"""Each kind of source against the real thing or its exact shape on loopback."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from llmgw.core.sources import parse_source, source_id
from llmgw.core.weights import SetState
from llmgw.mirror.source import MirrorConfig
from tests.support.hub import COMMIT, hub_server
from tests.support.mirrors import running_mirror
from tests.support.rawhttp import answers, files, gzipped, raw_server, whole
from tests.support.weights import gguf, quick, tensor, text, tiny_llama, u32

GGUF = tiny_llama(padding=200_000)
ONE_TENSOR = [tensor("t", (1,), 0, 0)]
TENSORS = (100).to_bytes(8, "little") + b"{" + os.urandom(50_000)
_HEADER = json.dumps({"w": {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}).encode()
WHOLE_TENSORS = len(_HEADER).to_bytes(8, "little") + _HEADER + bytes(1024)
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "vocab_size": 100,
    }
).encode()
REPOSITORY = {
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model-00001-of-00002.safetensors": TENSORS,
    "model-00002-of-00002.safetensors": TENSORS + b"2",
    "consolidated.safetensors": TENSORS,
    "pytorch_model.bin": b"PK\x03\x04 pickle",
    "modeling_evil.py": b"import os",
    "original/params.json": b"{}",
    "README.md": b"# hello",
}


def hub_config(url: str, **more: object) -> MirrorConfig:
    return MirrorConfig(hf_endpoint=url, policy=quick(), **more)  # type: ignore[arg-type]


@pytest.mark.trio
async def test_a_repository_is_pinned_checked_and_reduced_to_data(tmp_path: Path) -> None:
    async with hub_server(REPOSITORY) as hub, running_mirror(tmp_path, config=hub_config(hub.url)) as running:
        hub.page = 3
        status = await running.settled("hf:org/model")
        assert status.state is SetState.READY, status.message
        answer = running.mirror.answer(status.id)
        assert answer is not None
        assert answer.manifest is not None
        manifest = answer.manifest
        assert manifest.revision == COMMIT
        assert manifest.main == ""
        names = [file.name for file in manifest.files]
        assert names == [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "tokenizer.json",
        ]
        for file in manifest.files:
            assert (file.bytes, file.sha256) == (
                len(REPOSITORY[file.name]),
                hashlib.sha256(REPOSITORY[file.name]).hexdigest(),
            )
        facts = running.mirror.facts("hf:org/model")
        assert facts is not None
        assert (facts.weights_bytes, facts.kv_bytes_per_token, facts.layers) == (2 * len(TENSORS) + 1, 256, 2)
        assert status.done_bytes == status.total_bytes == manifest.total_bytes
        assert all("authorization" not in asked.headers for asked in hub.cdn.asked)


@pytest.mark.trio
async def test_one_file_of_a_commit_with_a_token_that_stays_home(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hf_canary\n")
    contents = {"q/m Q4_0.gguf": GGUF, "README.md": b""}
    async with hub_server(contents) as hub:
        hub.token = "hf_canary"
        config = hub_config(hub.url, hf_token_file=token)
        async with running_mirror(tmp_path / "mirror", config=config) as running:
            source = f"hf:org/model@{COMMIT}:q/m_Q4_0.gguf"
            assert "has no file" in (await running.settled(source)).message
        contents["q/m_Q4_0.gguf"] = contents.pop("q/m Q4_0.gguf")
        hub.cdn.asked.clear()
        async with raw_server(files({"/q/m_Q4_0.gguf?sig=s3cret": GGUF})) as cdn:
            hub.cdn = cdn
            async with running_mirror(tmp_path / "mirror", config=config) as running:
                status = await running.settled(source)
                assert status.state is SetState.READY, status.message
                assert all("authorization" not in asked.headers for asked in cdn.asked)
                assert len(cdn.asked) == 1
                for path in (tmp_path / "mirror").rglob("*"):
                    assert not path.is_file() or b"hf_canary" not in path.read_bytes()


@pytest.mark.trio
@pytest.mark.parametrize("token", [None, "hf_wrong"])
async def test_a_gated_repository_names_the_setting(tmp_path: Path, token: str | None) -> None:
    token_file = None
    if token:
        token_file = tmp_path / "token"
        token_file.write_text(token)
    async with hub_server(REPOSITORY) as hub:
        hub.token = "hf_right"
        config = hub_config(hub.url, hf_token_file=token_file)
        async with running_mirror(tmp_path / "m", config=config) as running:
            status = await running.settled("hf:org/model")
            assert status.state is SetState.FAILED
            assert "hf_token_file" in status.message
            assert f"{hub.url}/org/model" in status.message
            assert "hf_wrong" not in status.message


@pytest.mark.trio
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("hf:org/other", "the hub has no org/other"),
        ("hf:org/model@v9", "no revision v9 in org/model"),
        ("hf:org/model:m.gguf", "has no file 'm.gguf'"),
        ("hf:org/model:pytorch_model.bin", "allow_pickle"),
        ("hf:org/model:modeling_evil.py", "allow_pickle"),
    ],
)
async def test_what_a_repository_does_not_give_is_said(tmp_path: Path, source: str, why: str) -> None:
    async with hub_server(REPOSITORY) as hub, running_mirror(tmp_path, config=hub_config(hub.url)) as running:
        status = await running.settled(source)
        assert status.state is SetState.FAILED
        assert why in status.message


@pytest.mark.trio
@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ({"pytorch_model.bin": b"PK", "config.json": CONFIG}, "allow_pickle"),
        ({"a.gguf": GGUF, "b.gguf": GGUF}, "a.gguf, b.gguf"),
        ({"README.md": b""}, "no safetensors and no GGUF"),
        ({"m.safetensors": TENSORS}, "no config.json"),
        ({"m.gguf": b"PK\x03\x04" + bytes(100)}, "zip"),
        ({"m.gguf": b"<html>" + bytes(100)}, "not GGUF inside"),
        ({"m.gguf": GGUF[:300]}, "GGUF"),
        ({"m.safetensors": b"\x80\x02" + b"\xff" * 100, "config.json": CONFIG}, "not safetensors"),
        ({"m.safetensors": TENSORS, "config.json": b'{"auto_map": {"AutoModel": "x--y.Z"}}'}, "auto_map"),
        ({"m-00001-of-00002.gguf": GGUF}, "m-00002-of-00002.gguf"),
        (
            {"config.json": CONFIG, "m-00001-of-000003.safetensors": TENSORS, "m-00003-of-000003.safetensors": TENSORS},
            "m-00002-of-000003.safetensors is missing",
        ),
        ({"config.json": CONFIG, "m-00000-of-00002.safetensors": TENSORS}, "m-00001-of-00002.safetensors is missing"),
        ({"m.gguf": gguf([text("general.type", "adapter")], ONE_TENSOR, data=bytes(4))}, "an adapter for a model"),
        ({"m.gguf": gguf([text("general.type", "mmproj")], ONE_TENSOR, data=bytes(4))}, "reads pictures"),
        (
            {"m.gguf": gguf([u32("split.count", 3)], ONE_TENSOR, data=bytes(4))},
            "m.gguf is one of 3 parts, and 1 are here",
        ),
    ],
)
async def test_what_must_not_be_served_is_refused(tmp_path: Path, contents: dict[str, bytes], why: str) -> None:
    async with hub_server(contents) as hub, running_mirror(tmp_path, config=hub_config(hub.url)) as running:
        status = await running.settled("hf:org/model")
        assert status.state is SetState.FAILED
        assert why in status.message


@pytest.mark.trio
async def test_a_file_that_is_not_the_published_one_is_removed(tmp_path: Path) -> None:
    async with hub_server({"m.gguf": GGUF}) as hub, running_mirror(tmp_path, config=hub_config(hub.url)) as running:
        hub.published["m.gguf"] = "0" * 64
        status = await running.settled("hf:org/model")
        assert status.state is SetState.FAILED
        assert "was removed" in status.message
        assert not [path for path in tmp_path.rglob("*.gguf*") if path.is_file()]
        hub.published.clear()
        assert (await running.settled("hf:org/model", now=True)).state is SetState.READY


@pytest.mark.trio
async def test_a_split_gguf_is_fetched_whole_and_started_by_its_first_part(tmp_path: Path) -> None:
    contents = {f"m-0000{i}-of-00002.gguf": tiny_llama(padding=i) for i in (1, 2)}
    async with hub_server(contents) as hub, running_mirror(tmp_path, config=hub_config(hub.url)) as running:
        status = await running.settled("hf:org/model")
        assert status.state is SetState.READY, status.message
        assert status.files == 2
        facts = running.mirror.facts("hf:org/model")
        assert facts is not None
        assert facts.parameters == 128
        assert facts.weights_bytes == sum(map(len, contents.values()))


@pytest.mark.trio
async def test_an_address_with_a_checksum(tmp_path: Path) -> None:
    sha = hashlib.sha256(GGUF).hexdigest()
    async with raw_server(answers(gzipped(GGUF), whole(GGUF))) as server, running_mirror(tmp_path) as running:
        good = await running.settled(f"{server.url}/m.gguf#sha256={sha}")
        assert good.state is SetState.READY, good.message
        bad = await running.settled(f"{server.url}/m.gguf#sha256={'0' * 64}")
        assert bad.state is SetState.FAILED
        assert "was removed" in bad.message
        pickle = await running.settled(f"{server.url}/pytorch_model.bin")
        assert "allow_pickle" in pickle.message


@pytest.mark.trio
async def test_a_pickle_under_another_name_is_removed_unless_allowed(tmp_path: Path) -> None:
    data = b"PK\x03\x04" + bytes(1000)
    async with raw_server(files({"/model.dat": data})) as server:
        async with running_mirror(tmp_path / "a") as running:
            status = await running.settled(f"{server.url}/model.dat")
            assert "zip" in status.message
            assert not [path for path in (tmp_path / "a").rglob("model.dat*") if path.is_file()]
        config = MirrorConfig(policy=quick(), allow_pickle=True)
        async with running_mirror(tmp_path / "b", config=config) as running:
            assert (await running.settled(f"{server.url}/model.dat")).state is SetState.READY


@pytest.mark.trio
async def test_a_local_file_is_served_where_it_is_and_hashed_again_when_it_changes(tmp_path: Path) -> None:
    model = tmp_path / "My Models" / "m.gguf"
    model.parent.mkdir()
    model.write_bytes(GGUF)
    source = f"file:{model}"
    async with running_mirror(tmp_path / "mirror") as running:
        status = await running.settled(source)
        assert status.state is SetState.READY, status.message
        found = running.mirror.file(status.id, "m.gguf")
        assert found is not None
        assert found[1] == model
        assert found[0].sha256 == hashlib.sha256(GGUF).hexdigest()
        other = tiny_llama(padding=77)
        model.write_bytes(other)
        await running.settled(source)
        found = running.mirror.file(status.id, "m.gguf")
        assert found is not None
        assert found[0].sha256 == hashlib.sha256(other).hexdigest()
        await running.mirror.remove(source)
        assert running.mirror.status(source) is None
        assert model.read_bytes() == other
    assert source_id(parse_source(source)) == status.id


@pytest.mark.trio
@pytest.mark.parametrize("name", ["ca.key", "cluster.secret", "passwd", "m.gguf.txt"])
async def test_a_local_file_that_is_no_weights_is_not_served(tmp_path: Path, name: str) -> None:
    secret = tmp_path / name
    secret.write_bytes(b"-----BEGIN PRIVATE KEY-----")
    async with running_mirror(tmp_path / "mirror") as running:
        status = await running.settled(f"file:{secret}")
        assert status.state is SetState.FAILED
        assert ".gguf or .safetensors" in status.message
        assert running.mirror.file(status.id, name) is None


@pytest.mark.trio
async def test_a_local_directory_follows_the_hubs_own_links_and_no_others(tmp_path: Path) -> None:
    root = tmp_path / "models--org--model"
    snapshot = root / "snapshots" / COMMIT
    (root / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name, data in (("config.json", CONFIG), ("model.safetensors", WHOLE_TENSORS)):
        (root / "blobs" / name).write_bytes(data)
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    (snapshot / "evil.py").write_bytes(b"import os")
    secret = tmp_path / "secret"
    secret.write_text("s")
    async with running_mirror(tmp_path / "mirror") as running:
        status = await running.settled(f"file:{snapshot}")
        assert status.state is SetState.READY, status.message
        assert status.files == 2
        (snapshot / "tokenizer.json").symlink_to(secret)
        (tmp_path / "mirror").joinpath("sets").rename(tmp_path / "old")
    async with running_mirror(tmp_path / "mirror") as running:
        status = await running.settled(f"file:{snapshot}")
        assert status.state is SetState.FAILED
        assert "link out of" in status.message
        gone = await running.settled(f"file:{tmp_path}/nothing.gguf")
        assert "there is no" in gone.message


@pytest.mark.trio
async def test_a_local_directory_with_a_file_that_was_copied_in_part_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_bytes(CONFIG)
    tensors = weights / "model.safetensors"
    tensors.write_bytes(WHOLE_TENSORS[:-1])
    async with running_mirror(tmp_path / "mirror") as running:
        status = await running.settled(f"file:{weights}")
        assert status.state is SetState.FAILED
        assert f"model.safetensors is not whole: its header tells of {len(WHOLE_TENSORS)} bytes" in status.message
        assert tensors.read_bytes() == WHOLE_TENSORS[:-1]
        tensors.write_bytes(WHOLE_TENSORS)
        status = await running.settled(f"file:{weights}", now=True)
        assert status.state is SetState.READY, status.message


@pytest.mark.trio
@pytest.mark.parametrize(
    "extra", [b', "time_step_limit": [0.0, Infinity]}', b', "router_z_loss": NaN}', b', "model_name": "\\ud83d"}']
)
async def test_a_configuration_as_python_writes_it_is_read(tmp_path: Path, extra: bytes) -> None:
    config = b"\xef\xbb\xbf" + CONFIG[:-1] + extra
    contents = {"config.json": config, "model.safetensors": TENSORS}
    async with hub_server(contents) as hub, running_mirror(tmp_path, config=hub_config(hub.url)) as running:
        status = await running.settled("hf:org/model")
        assert status.state is SetState.READY, status.message
        facts = running.mirror.facts("hf:org/model")
        assert facts is not None
        assert (facts.kv_bytes_per_token, facts.architecture) == (256, "llama")


@pytest.mark.trio
async def test_a_gguf_in_capitals_is_read_like_any(tmp_path: Path) -> None:
    (tmp_path / "M.GGUF").write_bytes(GGUF)
    (tmp_path / "CUT.GGUF").write_bytes(GGUF[:300])
    async with running_mirror(tmp_path / "mirror") as running:
        status = await running.settled(f"file:{tmp_path}/M.GGUF")
        assert status.state is SetState.READY, status.message
        facts = running.mirror.facts(f"file:{tmp_path}/M.GGUF")
        assert facts is not None
        assert (facts.layers, facts.kv_bytes_per_token > 0) == (2, True)
        cut = await running.settled(f"file:{tmp_path}/CUT.GGUF")
        assert (cut.state, "not a GGUF file llmgw can read" in cut.message) == (SetState.FAILED, True)
