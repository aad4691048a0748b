"""What our router is compared with: nothing between, nginx, vllm-router and LiteLLM, each set up for speed."""

import contextlib
import os
import secrets
import shutil
from functools import partial
from pathlib import Path

from tests.bench.gateways import Gateway, connects, free_port, gets, until
from tests.bench.native import Missing, child
from tests.bench.proc import children
from tests.bench.venvs import installed

SLOW_START_S = 60.0
"""LiteLLM imports for ten seconds on a quiet machine."""

NGINX_CONF = """
{user}
worker_processes 1;
worker_rlimit_nofile {files};
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 10000000;
    upstream engine {{ server 127.0.0.1:{engine}; keepalive 512; keepalive_requests 10000000; }}
    server {{
        listen 127.0.0.1:{port}{ssl} backlog=4096;
        {certificate}
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""

LITELLM_CONF = """
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{engine}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
litellm_settings: {{telemetry: false}}
"""


def direct(stack: contextlib.ExitStack, directory: Path, engine_port: int) -> Gateway:
    """The engine itself."""
    return Gateway(name="direct", port=engine_port)


def nginx(
    stack: contextlib.ExitStack, directory: Path, engine_port: int, *, certificate: tuple[Path, Path] | None = None
) -> Gateway:
    """nginx with one worker, no buffering and kept upstream connections; TLS with a certificate and its key.

    Raises Missing.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Missing("nginx is not installed (Debian, Ubuntu: apt install nginx-light)")
    directory.mkdir()
    port = free_port()
    conf, log = directory / "nginx.conf", directory / "nginx.log"
    shown = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};" if certificate else ""
    conf.write_text(
        NGINX_CONF.format(
            directory=directory,
            engine=engine_port,
            port=port,
            user="user root;" if os.geteuid() == 0 else "",
            files=os.sysconf("SC_OPEN_MAX"),
            ssl=" ssl" if certificate else "",
            certificate=shown,
        )
    )
    process = stack.enter_context(child([program, "-p", str(directory), "-c", str(conf), "-e", str(log)]))
    until(partial(connects, port), f"nginx on port {port}", process, log)
    until(lambda: len(children(process.pid)) == 1, "nginx's worker")
    return Gateway(name="nginx", port=port, roots=(process.pid,), tls=certificate is not None, does="nothing")


def vllm_router(
    stack: contextlib.ExitStack,
    directory: Path,
    engine_port: int,
    *,
    others: tuple[int, ...] = (),
    policy: str = "round_robin",
) -> Gateway:
    """vllm-router before one worker or more, with room for every client; raises Missing."""
    program = installed("vllm-router") / "vllm-router"
    directory.mkdir()
    port, log = free_port(), directory / "vllm-router.log"
    argv = [str(program), "--host", "127.0.0.1", "--port", str(port), "--policy", policy]
    argv += ["--worker-urls", *(f"http://127.0.0.1:{port}" for port in (engine_port, *others))]
    argv += ["--worker-startup-check-interval", "1"]
    argv += ["--prometheus-port", str(free_port()), "--max-concurrent-requests", "16384", "--log-level", "warning"]
    process = stack.enter_context(child(argv, stderr=log))
    until(partial(gets, port, "/health"), "vllm-router", process, log, within_s=SLOW_START_S)
    return Gateway(name="vllm-router", port=port, roots=(process.pid,), does="metrics; checks no key, counts no tokens")


def litellm(stack: contextlib.ExitStack, directory: Path, engine_port: int) -> Gateway:
    """LiteLLM's proxy with one worker and one key, without a database; raises Missing."""
    program = installed("litellm") / "litellm"
    directory.mkdir()
    port, log, conf, key = free_port(), directory / "litellm.log", directory / "litellm.yaml", secrets.token_urlsafe(24)
    conf.write_text(LITELLM_CONF.format(engine=engine_port, key=f"sk-{key}"))
    argv = [str(program), "--config", str(conf), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    # Prices come with the package; fetching newer ones would leave this machine.
    env = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(directory)}
    process = stack.enter_context(child([*argv, "--telemetry", "False"], stderr=log, cwd=directory, env=env))
    alive = partial(gets, port, "/health/liveliness")
    until(alive, "LiteLLM", process, log, within_s=SLOW_START_S)
    does = "checks its one key, counts tokens; no database, so no limits or budgets"
    return Gateway(name="LiteLLM", port=port, roots=(process.pid,), key=f"sk-{key}", does=does, few=True)
