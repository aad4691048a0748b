"""Stand-ins for `ray` and `vllm`: real processes and sockets that hold together and fall apart as Ray and vLLM do.

The head listens where it is told; a worker connects with the token, stays connected, and ends when the head is gone;
`vllm serve` waits until it has all cards, then answers as the sim engine, and ends when a card leaves. Both read the
command line as strictly as the real ones.
"""

import sys
from pathlib import Path

from tests.support.agent_node import ROOT

RAY = """
import argparse, os, socket, sys, threading
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("command", choices=["start"])
for name in ("--address", "--port", "--ray-client-server-port", "--include-dashboard", "--node-ip-address",
             "--node-manager-port", "--object-manager-port", "--runtime-env-agent-port", "--dashboard-agent-grpc-port",
             "--dashboard-agent-listen-port", "--metrics-export-port", "--worker-port-list", "--num-gpus",
             "--num-cpus", "--object-store-memory"):
    parser.add_argument(name)
for name in ("--head", "--block", "--disable-usage-stats"):
    parser.add_argument(name, action="store_true")
args = parser.parse_args()
assert args.block and args.head != bool(args.address)
assert os.environ["RAY_AUTH_MODE"] == "token" and os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
assert os.path.isdir(os.environ["RAY_TMPDIR"]) and "PYTHONPATH" not in os.environ
assert not os.environ.get("VLLM_API_KEY") if args.head else "VLLM_API_KEY" not in os.environ
assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == int(args.num_gpus)
assert all(card.isdigit() for card in os.environ["CUDA_VISIBLE_DEVICES"].split(","))
token, here = os.environ["RAY_AUTH_TOKEN"], args.node_ip_address
for port in (args.object_manager_port, args.runtime_env_agent_port, args.dashboard_agent_grpc_port,
             args.dashboard_agent_listen_port, args.metrics_export_port, *args.worker_port_list.split(",")):
    socket.create_server((here, int(port))).close()
manager = socket.create_server((here, int(args.node_manager_port)))

def take_in(listener):
    while True:
        listener.accept()[0].close()

threading.Thread(target=take_in, args=(manager,), daemon=True).start()
if args.address:
    host, _, port = args.address.rpartition(":")
    head = socket.create_connection((host, int(port)))
    head.sendall(f"JOIN {token} {args.num_gpus}\\n".encode())
    assert head.recv(3) == b"OK\\n", "the head did not take it in"
    print("joined", flush=True)
    head.recv(1)
    sys.exit("the head is gone")

lock, cards, drivers = threading.Lock(), {"own": int(args.num_gpus)}, []

def tell():
    for driver in drivers:
        try:
            driver.sendall(f"{sum(cards.values())}\\n".encode())
        except OSError:
            pass

def attend(peer):
    line = peer.makefile().readline().split()
    if len(line) < 2 or line[1] != token:
        return peer.close()
    with lock:
        if line[0] == "DRIVER":
            drivers.append(peer)
            return tell()
        peer.sendall(b"OK\\n")
        cards[peer] = int(line[2])
        tell()
    while peer.recv(64):
        pass
    with lock:
        del cards[peer]
        tell()

listener = socket.create_server((here, int(args.port)))
print("listening", flush=True)
while True:
    threading.Thread(target=attend, args=(listener.accept()[0],), daemon=True).start()
"""

VLLM = """
import argparse, os, socket, sys, threading
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("command", choices=["serve"])
parser.add_argument("model")
for name in ("--served-model-name", "--host", "--port", "--max-model-len", "--tensor-parallel-size",
             "--pipeline-parallel-size", "--distributed-executor-backend", "--uvicorn-log-level",
             "--gpu-memory-utilization", "--max-num-seqs"):
    parser.add_argument(name)
parser.add_argument("--enable-prompt-tokens-details", action="store_true")
args = parser.parse_args()
name, context, key = args.served_model_name, args.max_model_len, os.environ["VLLM_API_KEY"]
assert args.distributed_executor_backend == "ray"
assert os.path.exists(os.path.join(args.model, "config.json")), args.model
wanted = int(args.tensor_parallel_size) * int(args.pipeline_parallel_size or 1)
host, _, port = os.environ["RAY_ADDRESS"].rpartition(":")
driver = socket.create_connection((host, int(port)))
driver.sendall(f"DRIVER {os.environ['RAY_AUTH_TOKEN']}\\n".encode())
lines = driver.makefile()
for line in lines:
    print("cards:", line.strip(), flush=True)
    if int(line) >= wanted:
        break
else:
    sys.exit("the runtime is gone")

def watch():
    for line in lines:
        if int(line) < wanted:
            break
    print("a card is gone", flush=True)
    os._exit(1)

threading.Thread(target=watch, daemon=True).start()
import runpy, tempfile
sys.path.insert(0, ROOT)
with tempfile.NamedTemporaryFile("w", delete=False, dir=os.getcwd()) as file:
    file.write(key)
sys.argv = ["engine", "--host", args.host, "--port", args.port, "--model", name, "--ctx-size", context,
            "--slots", "2", "--api-key-file", file.name]
runpy.run_module("llmgw.sim.engine", run_name="__main__")
"""

_CARD = """<gpu id="00000000:{bus}:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>
<mig_mode><current_mig>Disabled</current_mig></mig_mode><mig_devices>None</mig_devices><uuid>GPU-{node}-{index}</uuid>
<fb_memory_usage><total>81559 MiB</total><used>0 MiB</used><free>81559 MiB</free></fb_memory_usage></gpu>"""
GPU_CLASS = "h100-80g"


def install(directory: Path, *, ray_version: str = "2.55.0") -> Path:
    """An environment with both stand-ins; its directory."""
    programs = directory / "bin"
    programs.mkdir(parents=True)
    for name, text in (("ray", RAY), ("vllm", VLLM)):
        (programs / name).write_text(f"#!{sys.executable}\nROOT = {str(ROOT)!r}\n{text}")
        (programs / name).chmod(0o755)
    for package in ("vllm-0.30.0", f"ray-{ray_version}"):
        (directory / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info").mkdir(parents=True)
    return directory


def cards_on_path(directory: Path, node: str, count: int) -> Path:
    """A directory for PATH with an `nvidia-smi` that tells of so many idle cards."""
    directory.mkdir(parents=True)
    cards = "".join(_CARD.format(bus=f"{16 + i:02X}", node=node, index=i) for i in range(count))
    log = directory / "cards.xml"
    told = f"<nvidia_smi_log><driver_version>580.1</driver_version>{cards}</nvidia_smi_log>"
    log.write_text(f'<?xml version="1.0" ?>\n{told}')
    program = directory / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$*" in\n"-q -x") cat "{log}" ;;\n*) exit 2 ;;\nesac\n')
    program.chmod(0o755)
    return directory
