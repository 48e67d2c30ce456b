"""A server on loopback that sends the files of a folder, in ranges too, and fails as it is told."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Fault = int | str | None  # a status; "reset", "cut" (the body), "short" (an answer that says so), "silent"


class FaultyServer(ThreadingHTTPServer):
    """Sends the files of `folder`.

    Attributes
    ----------
    fault : callable
        Given "HEAD" or "GET" and the path of each request, returns what to do instead of answering, or None.
    requests : list of tuple of str
        Method and path of each.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.fault: Callable[[str, str], Fault] = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self.released = threading.Event()  # when silent requests end

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: clients hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(None)

    def log_message(self, *words: object) -> None:
        """Print nothing."""

    def _answer(self, body: bytes | None) -> None:
        path = self.path.lstrip("/")
        self.server.requests.append((self.command, path))
        fault = self.server.fault(self.command, path)
        file = self.server.folder / path
        if fault == "silent":
            self.server.released.wait()
        if fault in ("reset", "silent"):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        if isinstance(fault, int) or not file.is_file():
            self.send_response(fault if isinstance(fault, int) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = file.read_bytes()
        wanted = self.headers.get("Range")
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else len(content) - int(last)
            stop = min(int(last) + 1, len(content)) if first and last else len(content)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
            content = content[start:stop]
        else:
            self.send_response(200)
        if fault == "short":
            content = content[: len(content) // 2]
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body is None:
            self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
        if fault == "cut":
            self.close_connection = True


@contextmanager
def served(folder: Path) -> Iterator[FaultyServer]:
    """A server of `folder` while the context lasts."""
    with FaultyServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
