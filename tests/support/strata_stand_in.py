"""A directory that looks like Strata's from outside: a setup that writes a run configuration, and a server of it."""

import sys
from pathlib import Path

SETUP = """
import json, os, pathlib, sys
root = pathlib.Path(__file__).parent
if "--help" in sys.argv:
    print("usage: setup.py {flags}")
    sys.exit(0)
with (root / "calls.jsonl").open("a") as log:
    names = [name for name in ("STRATA_API_KEY", "PYTHONPATH") if name in os.environ]
    print(json.dumps({"argv": sys.argv[1:], "names": names}), file=log)
if "--family" in sys.argv and sys.argv[sys.argv.index("--family") + 1] == "broken":
    print("the engine could not be fetched")
    sys.exit(3)
context = sys.argv[sys.argv.index("--context") + 1]
told = {"exe": "x", "args": ["--max-context", context], "model_name": "own", "gpu": 3, "host": "0.0.0.0"}
told |= {"api_key": "old", "vision": {"mmproj": "x"}, "mcp_servers": {"a": {}}}
(root / "strata-iq2_xs.json").write_text(json.dumps(told))
"""

SERVER = """
import argparse, http.server, json, os, pathlib
p = argparse.ArgumentParser()
for name in ("engine", "config", "host", "port", "api-key"):
    p.add_argument("--" + name, default=os.environ.get("STRATA_API_KEY", "") if name == "api-key" else None)
a = p.parse_args()
config = json.loads(pathlib.Path(a.config).read_text())

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        allowed = self.headers.get("Authorization") == "Bearer " + a.api_key
        code, told = 200, {"loaded": True}
        if self.path.startswith("/v1/"):
            code = 200 if allowed else 401
            told = {"object": "list", "data": [{"id": config["model_name"]}]} if allowed else {}
        if self.path == "/v1/config" and allowed:
            told = {"config": config, "cards": os.environ["CUDA_VISIBLE_DEVICES"], "cwd": os.getcwd(),
                    "path": os.environ.get("PYTHONPATH", "")}
        body = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer((a.host, int(a.port)), Handler).serve_forever()
"""


def strata_stand_in(root: Path, *, flags: str = "") -> Path:
    """Make it; its help names `flags`."""
    (root / "serve").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (root / "setup.py").write_text(SETUP.replace("{flags}", flags))
    (root / "serve" / "server.py").write_text(SERVER)
    (root / "engine").mkdir()
    (root / "engine" / "BUILD.json").write_text('{"version": "0.2.7"}')
    return root
