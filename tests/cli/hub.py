"""A server that speaks the hub's API, with faults on request."""

import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 64 * 1024  # bytes from which a file is kept in the large storage, as *.safetensors always are


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Serves {name: bytes} as the repository acme/tiny. `faults`: what happens to the next answers, one each."""

    def __init__(self, files, *, token=None, faults=(), ranges=True):
        self.files, self.token, self.faults, self.ranges = files, token, list(faults), ranges
        self.requests = []  # (path, the Range header)
        self.strangers = []  # Authorization headers that reached the other host
        self.extra = 0  # bytes that the listing says of a large file beyond those that it has
        self.half_sent = threading.Event()
        self.go_on = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def is_large(self, name):
        return len(self.files[name]) >= LARGE

    def listing(self):
        siblings = []
        for name, data in self.files.items():
            entry = {"rfilename": name, "size": len(data), "blobId": git_hash(data)}
            if self.is_large(name):
                size = entry["size"] = len(data) + self.extra
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 134}
            siblings.append(entry)
        return {"id": "acme/tiny", "sha": COMMIT, "siblings": siblings}


def handler_of(hub):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def give(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
            authorization = self.headers.get("Authorization")
            if path.startswith("/cdn/"):
                if authorization:
                    hub.strangers.append(authorization)
                return self.give_file(path.removeprefix("/cdn/"))
            if hub.token and authorization != f"Bearer {hub.token}":
                return self.give(401)
            if path == "/api/models/acme/tiny/revision/main":
                return self.give(200, json.dumps(hub.listing()).encode())
            prefix = f"/acme/tiny/resolve/{COMMIT}/"
            name = path.removeprefix(prefix)
            if not path.startswith(prefix) or name not in hub.files:
                return self.give(404)
            if hub.is_large(name):  # lies elsewhere: another host than the one that has the token
                port = hub.server.server_address[1]
                return self.give(302, Location=f"http://localhost:{port}/cdn/{urllib.parse.quote(name)}")
            return self.give_file(name)

        def give_file(self, name):
            data, begin = hub.files[name], 0
            asked = self.headers.get("Range")
            hub.requests.append((name, asked))
            fault = hub.faults.pop(0) if hub.faults and hub.is_large(name) else None
            if isinstance(fault, int):
                return self.give(fault, b"a page", Retry_After="0")
            if asked and hub.ranges:
                begin = int(asked.removeprefix("bytes=").removesuffix("-"))
                if begin >= len(data):
                    return self.give(416)
            data = data[begin:]
            if fault == "other bytes":
                data = bytes(len(data))
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{begin + len(data)}")
            claimed = len(data) + {"too long": 1000, "too short": -1000}.get(fault, 0)
            self.send_header("Content-Length", str(claimed))
            self.end_headers()
            if fault == "too short":
                data = data[:claimed]
            if fault in ("reset", "hang"):
                self.wfile.write(data[:len(data) // 2])
                self.wfile.flush()
                if fault == "hang":  # until the test says so
                    hub.half_sent.set()
                    hub.go_on.wait()
                self.close_connection = True
                return None
            self.wfile.write(data)
            if fault == "too long":
                self.close_connection = True
            return None

    return Handler
