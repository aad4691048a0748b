"""Sets Strata up for one model, then becomes its server: `python -m agent.engines.strata_launcher ROOT DATA NAME HOST
PORT SETUP-FLAG…`.

The setup runs once for the same flags and the same Strata; what it wrote is kept in DATA. Exit code 1 is a setup that
failed, with its own words before it, and exit code 2 flags it cannot be set up with. It imports nothing of the agent's.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

KEY_VARIABLE = "STRATA_API_KEY"
OUR_PATH = "PYTHONPATH"
"""What this program runs from is not what Strata runs from."""
LEFT_OUT = ("gpu", "host", "api_key", "vision", "mcp_servers")
"""Of what the setup writes: what the environment says, and what would let clients reach files and programs."""
CONFIG = "strata.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Set up and serve; does not return where it serves."""
    root_text, data_text, name, host, port, *flags = sys.argv[1:] if argv is None else argv
    root, data = Path(root_text), Path(data_text)
    for flag in ("--family", "--model"):
        if flag not in flags:
            print(f"strata is not told which model it gets: add {flag} to the profile's args", file=sys.stderr)
            return 2
    written = prepared(root, data, flags)
    if written is None:
        return 1
    return serve(root, written, name=name, host=host, port=port)


def serve(root: Path, written: Path, *, name: str, host: str, port: str) -> NoReturn:
    """Become the server on what the setup wrote, under the catalog's name and with the card the environment names."""
    config = Path(CONFIG).absolute()
    kept = {key: value for key, value in json.loads(written.read_bytes()).items() if key not in LEFT_OUT}
    config.write_text(json.dumps({**kept, "model_name": name}, indent=1), encoding="utf-8")
    python = str(root / ".venv/bin/python")
    server = [python, str(root / "serve/server.py"), "--engine", "strata", "--config", str(config)]
    os.chdir(root)
    environment = {name: value for name, value in os.environ.items() if name != OUR_PATH}
    os.execve(python, [*server, "--host", host, "--port", port], environment)


def prepared(root: Path, data: Path, flags: Sequence[str]) -> Path | None:
    """What the setup wrote for these flags, now or before; none when it failed."""
    setup = root / "setup.py"
    told = json.dumps([str(root), setup.stat().st_mtime_ns, *flags])
    kept = data / f"prepared-{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"
    with (data / "setup.lock").open("w", encoding="utf-8") as lock:
        # It writes beside itself, under a name of the model's: one at a time, so that what is newest is this one's.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            return kept
        environment = {name: value for name, value in os.environ.items() if name not in (KEY_VARIABLE, OUR_PATH)}
        done = subprocess.run(
            [str(root / ".venv/bin/python"), str(setup), *flags],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            print(f"strata's setup ended with exit code {done.returncode}", file=sys.stderr)
            return None
        found = [path for path in root.glob("strata-*.json") if not path.name.endswith(".shared-settings.json")]
        if not found:
            print(f"strata's setup ended well and wrote no strata-*.json in {root}", file=sys.stderr)
            return None
        part = kept.with_suffix(".part")
        part.write_bytes(max(found, key=lambda path: path.stat().st_mtime_ns).read_bytes())
        part.rename(kept)
        return kept


if __name__ == "__main__":
    sys.exit(main())
