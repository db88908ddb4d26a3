"""Many HTTP requests at once from one thread, with little work for each byte that comes: the server
is measured, not its clients.
"""

import itertools
import json
import selectors
import socket
import time

ADDRESS = "127.0.0.1"


def post(path, body, length=None):
    """The bytes of a request. `length`: as it says of itself; None: as it is."""
    data = json.dumps(body).encode() if not isinstance(body, bytes) else body
    head = f"POST {path} HTTP/1.1\r\nHost: {ADDRESS}\r\nContent-Length: {len(data) if length is None else length}\r\n\r\n"
    return head.encode() + data


class Exchange:
    """A request on a connection of its own, and all that the server says to it."""

    def __init__(self, port, request):
        self.data = bytearray()
        self.length = None  # of all the data, once it is known; -1: the end is that of a chunked body
        self.began = time.monotonic()
        self.first = self.ended = None  # when the first event, and the end, have come
        self.socket = socket.create_connection((ADDRESS, port), timeout=60)
        self.socket.sendall(request)
        self.socket.setblocking(False)

    def read(self):
        """Takes what has come; True: that was the end."""
        try:
            piece = self.socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        self.data += piece
        if self.first is None and b"data: " in self.data:
            self.first = time.monotonic()
        if piece and not self.is_whole():
            return False
        self.ended = time.monotonic()
        return True

    def is_whole(self):
        if self.length is None:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = bytes(self.data[:end]).lower()
            at = head.find(b"content-length:")
            self.length = -1 if at < 0 else end + 4 + int(head[at + 15:].split(b"\r\n")[0])
        return self.data.endswith(b"\r\n0\r\n\r\n") if self.length < 0 else len(self.data) >= self.length

    @property
    def status(self):
        """0: the server has said nothing."""
        return int(self.data[9:12]) if self.data.startswith(b"HTTP/1.1 ") else 0

    def body(self):
        head, _, rest = bytes(self.data).partition(b"\r\n\r\n")
        if b"chunked" not in head:
            return rest
        whole = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            size = int(size, 16)
            whole.append(rest[:size])
            rest = rest[size + 2:]
        return b"".join(whole)

    def text(self):
        """Of a stream of completions; None: it is not whole."""
        try:
            *events, done, _ = self.body().decode().split("\n\n")
        except ValueError:
            return None
        if self.status != 200 or done != "data: [DONE]":
            return None
        parts = [json.loads(e.removeprefix("data: ")) for e in events if not e.startswith(":")]
        return "".join(choice["text"] for part in parts for choice in part["choices"])


def exchange_all(port, requests, together=None, longest=900):
    """Has all of them answered, at most `together` at a time (default: all). Returns their exchanges
    in order; one that has not ended after `longest` seconds is ended here."""
    selector = selectors.DefaultSelector()
    exchanges = []
    left = iter(requests)

    def begin(count):
        for request in itertools.islice(left, count):
            exchanges.append(Exchange(port, request))
            selector.register(exchanges[-1].socket, selectors.EVENT_READ, exchanges[-1])

    begin(together or len(requests))
    until = time.monotonic() + longest
    while selector.get_map() and time.monotonic() < until:
        ended = 0
        for key, _ in selector.select(timeout=1):
            if key.data.read():
                selector.unregister(key.fileobj)
                key.fileobj.close()
                ended += 1
        if together:
            begin(ended)
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    selector.close()
    return exchanges
