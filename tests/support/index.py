"""A package index on loopback that tells days and what was withdrawn, and breaks a download off when it is told to."""

import hashlib
import http.server
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.wheels import make_wheel


@dataclass
class Index:
    """Wheels of a directory."""

    directory: Path
    days: dict[str, str] = field(default_factory=dict)
    """When a file was published, by the beginning of its name; the others long ago."""
    withdrawn: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    """Files whose download ends in the middle, by the beginning of their names."""
    url: str = ""

    def add(self, name: str, version: str, *, day: str = "", padding: int = 0, requires: tuple[str, ...] = ()) -> None:
        """Publish a package with a program of its name."""
        wheel = make_wheel(self.directory, name, version, program=name, requires=requires)
        if padding:
            with zipfile.ZipFile(wheel, "a") as archive:
                archive.writestr("padding.bin", Random(1).randbytes(padding))
        if day:
            self.days[f"{name}-{version}-"] = day

    def page(self, package: str) -> bytes:
        """The package's files, as the JSON form of the simple API has them."""
        files = [
            {
                "filename": wheel.name,
                "url": f"/files/{wheel.name}",
                "hashes": {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()},
                "yanked": any(wheel.name.startswith(start) for start in self.withdrawn),
                "upload-time": f"{self._day(wheel.name)}T12:00:00Z",
            }
            for wheel in sorted(self.directory.glob(f"{package}-*.whl"))
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": package, "files": files, "versions": []}).encode()

    def _day(self, name: str) -> str:
        return next((day for start, day in self.days.items() if name.startswith(start)), "2020-01-01")


@contextmanager
def running_index(directory: Path) -> Iterator[Index]:
    """Serve it until the block ends."""
    index = Index(directory=directory)

    class Handler(http.server.BaseHTTPRequestHandler):
        """Pages and files."""

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            """What a GET would have."""
            self._answer(with_body=False)

        def do_GET(self) -> None:
            """A page or a file."""
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            _, kind, name, *_ = [*self.path.split("/"), "", ""]
            cut = False
            if kind == "simple" and list(directory.glob(f"{name}-*.whl")):
                body, content = index.page(name), "application/vnd.pypi.simple.v1+json"
            elif kind == "files" and (directory / name).is_file():
                body, content = (directory / name).read_bytes(), "application/octet-stream"
                cut = any(name.startswith(start) for start in index.cut)
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                with suppress(ConnectionError):  # uv leaves a file whose metadata it has read
                    self.wfile.write(body[: len(body) // 2] if cut else body)
                self.close_connection = True

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
