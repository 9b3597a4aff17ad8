"""Server of files in memory on this machine. It responds like a store, and fails on request."""

import contextlib
import hashlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

#: Maximum number of keys that are listed together, as by S3.
PAGE = 1000


class Objects:
    """Files by their paths, and the requests that the server received for them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        #: Method, path and range of each request.
        self.requests: list[tuple[str, str, str | None]] = []
        #: Headers of each request.
        self.headers: list[dict[str, str]] = []
        #: Bodies of the responses.
        self.sent: list[bytes] = []
        #: Function called before each response; returns true if it has responded itself.
        self.fault: Callable[[_Handler], bool] | None = None
        #: True if responses state an entity tag, and `If-Match` is obeyed.
        self.has_tags = True
        self.address = ""

    def tag_of(self, path: str) -> str:
        """Return the entity tag of a file."""
        return f'"{hashlib.md5(self.files[path]).hexdigest()}"'

    def count(self, path: str) -> int:
        """Return the number of requests for a path."""
        return sum(one == path for _, one, _ in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a complete response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.objects.sent.append(body)
            self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        """Send an error as S3 does."""
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def do_HEAD(self) -> None:
        """Respond like GET, without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Send a file, or a part of it."""
        url, objects = urlsplit(self.path), self.objects
        path = self.name = unquote(url.path)
        wanted = self.headers["Range"]
        objects.requests.append((self.command, path, wanted))
        objects.headers.append(dict(self.headers))
        if objects.fault is not None and objects.fault(self):
            return
        if "list-type=2" in url.query:
            return self._list(path, parse_qs(url.query))
        if "comp=list" in url.query:
            return self._list_as_azure(path, parse_qs(url.query))
        if path not in objects.files:
            bucket = path.split("/")[1]
            has_bucket = any(one.startswith(f"/{bucket}/") for one in objects.files)
            return self.refuse(404, "NoSuchKey" if has_bucket else "NoSuchBucket")
        content = objects.files[path]
        headers = {"Last_Modified": "Sun, 29 Nov 2026 02:00:00 GMT"}
        if objects.has_tags:
            headers["ETag"] = objects.tag_of(path)
            if self.headers["If-Match"] not in (None, headers["ETag"]):
                return self.refuse(412, "PreconditionFailed")
        if wanted is None:
            return self.answer(200, content, **headers)
        first, last = wanted.removeprefix("bytes=").split("-")
        start, end = int(first), min(int(last) + 1, len(content))
        if start >= len(content):
            return self.refuse(416, "InvalidRange")
        headers["Content_Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        return self.answer(206, content[start:end], **headers)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        """List the keys of a bucket, a page at a time."""
        folder = f"{bucket.rstrip('/')}/"
        if not any(path.startswith(folder) for path in self.objects.files):
            return self.refuse(404, "NoSuchBucket")
        first = int(query.get("continuation-token", ["0"])[0])
        keys = self._keys(folder, query)
        entry = (
            "<Contents><Key>{}</Key><LastModified>2026-11-29T02:00:00.000Z</LastModified>"
            "<Size>{}</Size></Contents>"
        )
        found = "".join(
            entry.format(escape(key), len(self.objects.files[folder + key]))
            for key in keys[first : first + PAGE]
        )
        if first + PAGE < len(keys):
            found += f"<NextContinuationToken>{first + PAGE}</NextContinuationToken>"
        return self.answer(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())

    def _list_as_azure(self, container: str, query: dict[str, list[str]]) -> None:
        """List the keys of a container of Azure, a page at a time."""
        folder = f"{container.rstrip('/')}/"
        first = int(query.get("marker", ["0"])[0])
        keys = self._keys(folder, query)
        entry = (
            "<Blob><Name>{}</Name><Properties><Last-Modified>Sun, 29 Nov 2026 02:00:00 GMT"
            "</Last-Modified><Content-Length>{}</Content-Length><Content-Type>a/b</Content-Type>"
            "<Etag>{}</Etag></Properties></Blob>"
        )
        found = "".join(
            entry.format(escape(key), len(self.objects.files[folder + key]), first)
            for key in keys[first : first + PAGE]
        )
        marker = first + PAGE if first + PAGE < len(keys) else ""
        body = f"<Blobs>{found}</Blobs><NextMarker>{marker}</NextMarker>"
        return self.answer(200, f"<EnumerationResults>{body}</EnumerationResults>".encode())

    def _keys(self, folder: str, query: dict[str, list[str]]) -> list[str]:
        """Return the keys in a bucket that begin with the prefix of a request."""
        begin = folder + query.get("prefix", [""])[0]
        files = self.objects.files
        return sorted(path.removeprefix(folder) for path in files if path.startswith(begin))


@contextlib.contextmanager
def object_server(certificate: Path | None = None) -> Iterator[Objects]:
    """Serve files on a free port of this machine; encrypted with a certificate and its key."""
    objects = Objects()
    handler = type("Handler", (_Handler,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    objects.address = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
