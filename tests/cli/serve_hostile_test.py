"""The server as clients meet it that are broken, hostile, or die."""

import contextlib
import json
import select
import signal
import socket

from program import HANGS
from server import LONG, PROMPTS, ServedCase, Server, http_post


class ServeHostileTest(ServedCase):
    """One server for all tests."""

    def test_odd_clients_are_harmless(self):
        body = json.dumps({"prompt": "x", "max_tokens": 2})
        raw = self.server.raw
        self.assertEqual(raw(http_post(body) * 3 + http_post(body, Connection="close")).count("HTTP/1.1 200"), 4)
        continued = raw(http_post(body, Expect="100-continue", Connection="close"))
        self.assertTrue(continued.startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), continued)
        old = raw(http_post(body, Expect="100-continue").replace(b"HTTP/1.1", b"HTTP/1.0"))
        self.assertTrue(old.startswith("HTTP/1.1 200"), old)  # HTTP/1.0 knows no 100
        for bad in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), b"nonsense\r\n\r\n", b"GET\r\n\r\n",
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /health HTTP/1.1\r\nX: a\0b\r\n\r\n",
                    b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n",
                    b"GET /health HTTP/1.1\r\nHost:\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: local host\r\nConnection: close\r\n\r\n",
                    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"):
            self.assertIn("HTTP/1.1 400", raw(bad), bad)
        self.assertIn("HTTP/1.1 431", raw(b"GET /health HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n"))
        self.assertIn("HTTP/1.1 431", raw(b"GET /health HTTP/1.1\r\n" + b"a:\r\n" * 200 + b"\r\n"))
        for target, status in (("http://x/health", 200), ("/%68ealth?x", 200), ("/v1/models/%64emo", 200), ("/health%00", 404),
                               ("/health%", 404), ("/../health", 404)):
            self.assertIn(f"HTTP/1.1 {status}", raw(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()), target)
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_pages_whose_name_was_made_to_point_here_may_not_ask(self):
        chat = '{"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}'
        for path, body in (("/", None), ("/health", None), ("/metrics", None), ("/v1/models", None), ("/v1/memory", None),
                           ("/openapi.json", None), ("/nowhere", None), ("/v1/chat/completions", chat)):
            for method in ("OPTIONS", "HEAD", "POST" if body else "GET"):
                port, length = self.server.port, f"Content-Length: {len(body or '')}\r\n" if method == "POST" else ""
                evil = f"Host: evil.example:{port}\r\nOrigin: http://evil.example:{port}\r\n{length}Connection: close\r\n\r\n"
                said = self.server.raw(f"{method} {path} HTTP/1.1\r\n{evil}{body if length else ''}".encode())
                self.assertTrue(said.startswith("HTTP/1.1 403"), said)
                self.assertIn("" if method == "HEAD" else "--allowed-host", said)
                self.assertNotIn("Access-Control", said)
        self.assertTrue(self.server.raw(b"GET /health HTTP/1.0\r\n\r\n").startswith("HTTP/1.1 200"))
        own = f"Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\nConnection: close\r\n\r\n"
        self.assertIn("HTTP/1.1 200", self.server.raw(f"GET /v1/models HTTP/1.1\r\n{own}".encode()))

    def test_where_a_body_ends_is_certain(self):
        body = json.dumps({"prompt": "x", "max_tokens": 2})

        def post(fields, rest):
            head = "".join(field + "\r\n" for field in fields)
            return self.server.raw(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{rest}".encode())

        chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
        for fields in (["Transfer-Encoding: chunked"], ["transfer-encoding:CHUNKED"]):
            self.assertIn("HTTP/1.1 200", post(["Connection: close", *fields], chunked))
        self.assertIn("HTTP/1.1 413", post(["Transfer-Encoding: chunked"], "20000\r\n" + "x" * 0x20000 + "\r\n0\r\n\r\n"))
        self.assertIn("HTTP/1.1 413", post(["Content-Length: 99999999999999"], "x"))
        for bad in ("not a size\r\n", "-1\r\n" + body, "FFFFFFFFFFFFFFFFF\r\n" + body, "5;=;\r\n" + body,
                    f"5\r\n{body}\r\n0\r\n\r\n", chunked[:-2] + "Content-Length: 3\r\n\r\nabc"):
            said = post(["Transfer-Encoding: chunked"], bad)
            self.assertEqual((said.count("HTTP/1.1"), said[9:12]), (1, "400"), bad)
        hidden = body + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # which must not be taken for a request
        length = f"Content-Length: {len(body)}"
        for fields in (["Transfer-Encoding: chunked", length], [length, "Transfer-Encoding: chunked"],
                       [length, "Transfer-Encoding: gzip"], ["Transfer-Encoding: xchunked"], ["Transfer-Encoding: chunked, gzip"],
                       ["Transfer-Encoding: gzip, chunked"], ["Transfer-Encoding: identity", length],
                       ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], [length, "Content-Length: 6"],
                       ["Content-Length: -5"], ["Content-Length: +5"], ["Content-Length: 0x5"], ["Content-Length: 5, 6"]):
            said = post(fields, hidden)
            self.assertEqual((said.count("HTTP/1.1"), said[9:12]), (1, "400"), fields)
        for method in ("GET", "OPTIONS", "HEAD"):
            said = self.server.raw(f"{method} /health HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n{hidden}".encode())
            self.assertEqual(said.count("HTTP/1.1 20"), 1, said)
        said = self.server.raw(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertEqual([part[:12] for part in said.split("\r\n\r\n")], ["HTTP/1.1 200", "HTTP/1.1 404", ""])

    def test_odd_bodies_are_refused(self):
        for body in (b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"prompt": "a\0b"}', b'{"prompt": "x", "prompt": "y"}',
                     b'{"prompt": "x", "seed": 1e999}', b'{"prompt": "x", "seed": ' + b"9" * 50_000 + b"}",
                     b'{"prompt": "x", "temperature": NaN}', b'{"prompt": ' + b"[" * 30_000, b'{"prompt": "x"} {}', b"\xef\xbb",
                     b'{"prompt": "x", "logit_bias": {"99999999999": 1}}', b'{"prompt": "x", "n": 128, "best_of": 1}',
                     b'{"prompt": [' + b'"x",' * 3000 + b'"x"]}', b""):
            status, _, answer = self.server.request("POST", "/v1/completions", body)
            self.assertEqual(status, 400, (body[:60], answer))
            self.assertEqual(answer["error"]["type"], "invalid_request_error")

    def test_large_bodies_are_refused(self):
        server = Server(self.model, "--request-memory", "64MiB")
        self.addCleanup(server.end, signal.SIGKILL)
        message = {"role": "user", "content": "x"}
        stops = {"prompt": "x", "stop": ["a"] * 20_000}
        members = {"max_tokens": 1, "messages": [message], "metadata": {f"a{i}": i for i in range(60_000)}}
        for status, mention, path, body in ((400, "stop has 20000", "/v1/completions", stops),
                                            (400, "more than 1000 members", "/v1/messages", members),
                                            (400, "prompt is too long", "/v1/chat/completions", {"messages": [message] * 4000}),
                                            (413, "--request-memory", "/v1/chat/completions", {"messages": [message] * 100_000}),
                                            (413, "--request-memory", "/v1/completions", {"prompt": "x", "stop": [{}] * 1_000_000}),
                                            (400, "prompt has", "/v1/completions", {"prompt": [{}] * 100_000}),
                                            (400, "may run and wait", "/v1/completions", {"prompt": ["x"] * 12, "n": 128})):
            got, answer = server.post(path, body)
            self.assertEqual(got, status, answer)
            self.assertIn(mention, answer["error"]["message"])
        self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0], 200)

    def test_bodies_that_do_not_come_take_no_room(self):
        server = Server(self.model, "--max-num-seqs", "1", "--max-queue", "0", "--request-memory", "2MiB")
        self.addCleanup(server.end, signal.SIGKILL)
        promise = http_post("x" * 1_000_000)[:1000]
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=HANGS))
                connection.sendall(promise)
            self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0], 200)
            chunk = b"%x\r\n%s\r\n" % (1_000_000, b" " * 1_000_000)  # grows as it comes, to more than there is
            said = server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 2)
            self.assertRegex(said, "HTTP/1.1 (503|413)")

    def test_what_comes_behind_a_request_keeps_no_answer_back(self):
        # Bytes that were read while the answer became ready once made it wait for more of them.
        request = http_post(json.dumps({"prompt": "x", "max_tokens": 1}))
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=HANGS) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(request)
                for byte in b"GET /health HTTP/1.1\r\nX: " + b"x" * 300:
                    if select.select([connection], [], [], 0)[0]:
                        break
                    connection.send(bytes([byte]))
                self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200"))

    def test_clients_that_stop_are_given_up(self):
        # Of its own: no client of the other tests is given up because the machine is busy.
        server = Server(self.model, "--client-timeout", "1")
        self.addCleanup(server.end, signal.SIGKILL)
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=HANGS))
                    for _ in range(4)]
            slow[0].sendall(b"GET /hea")
            slow[1].sendall(http_post("x" * 50)[:-20])
            slow[2].sendall(http_post(json.dumps(LONG)))  # reads nothing and ends its side
            slow[2].shutdown(socket.SHUT_WR)
            for connection in slow:
                server.rest(connection)  # ends
        server.wait_until_idle()

    def test_clients_that_die_leave_nothing(self):
        self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        self.server.wait_until_idle()
        before = self.server.holds()
        for turn in range(4):
            connections = []
            for i in range(50):
                connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=HANGS)
                request = http_post(json.dumps({**LONG, "prompt": PROMPTS[i % 5], "n": 1 + i % 2}))
                connection.sendall(request[:-20] if i % 7 == 6 else request)
                connections.append(connection)
            for i in range(0, 12 * turn, 3):
                if i % 7 != 6:  # which has nothing to come
                    connections[i].recv(100)
            for i, connection in enumerate(connections):
                if i % 2:  # a reset, as after kill -9 with unread data
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()
        self.server.wait_until_idle()
        self.assertEqual(self.server.holds(), before)
