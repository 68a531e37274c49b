from __future__ import annotations

import gc
import socket
import threading

import pytest

from inset.testing.media_server import MediaServer, Reply


def ask(server: MediaServer, path: str, *, num_bytes: int | None = None) -> bytes:
    """Returns the raw answer to one request, to its end or up to so many bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Name: value\r\n\r\n".encode())
        answer = b""
        while num_bytes is None or len(answer) < num_bytes:
            piece = client.recv(65_536)
            if not piece:
                break
            answer += piece
    return answer


def test_replies_come_in_turn_and_the_last_one_stays(media_server: MediaServer) -> None:
    media_server.serve("/a", *(Reply(body=body, content_length=None) for body in (b"one", b"two")))
    assert [ask(media_server, "/a?x").rpartition(b"\r\n\r\n")[2] for _ in range(3)] == [b"one", b"two", b"two"]
    assert media_server.count("/a") == 3
    assert media_server.requests[0].path == "/a?x"
    assert media_server.requests[0].headers["x-name"] == "value"


def test_unknown_path_is_404(media_server: MediaServer) -> None:
    assert ask(media_server, "/none", num_bytes=20).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(body=b"abc", content_length="7"), b"HTTP/1.1 200 Scripted\r\nContent-Length: 7\r\n\r\nabc"),
        (Reply.cut_short(b"abcdef", num_bytes=2), b"HTTP/1.1 200 Scripted\r\nContent-Length: 6\r\n\r\nab"),
        (Reply(body=b"abc", content_length=None), b"HTTP/1.1 200 Scripted\r\n\r\nabc"),
        (Reply(body=b"abc", content_length=None, piece_bytes=1, pause_seconds=0.001), b"HTTP/1.1 200 Scripted\r\n\r\nabc"),
        (Reply.hang_up(), b""),
        (Reply(raw=b"junk"), b"junk"),
    ],
)
def test_server_says_exactly_what_it_was_told(media_server: MediaServer, reply: Reply, expected: bytes) -> None:
    media_server.serve("/a", reply)
    assert ask(media_server, "/a") == expected


def test_redirect_without_a_place_has_no_location(media_server: MediaServer) -> None:
    media_server.serve("/a", Reply.redirect(None), Reply.redirect("/b", status=308))
    assert b"Location" not in ask(media_server, "/a", num_bytes=30)
    answer = ask(media_server, "/a", num_bytes=50)
    assert answer.startswith(b"HTTP/1.1 308 ")
    assert b"Location: /b\r\n" in answer


def test_endless_body_ends_when_the_client_leaves(media_server: MediaServer) -> None:
    media_server.serve("/a", Reply(is_endless=True, content_length=None))
    assert len(ask(media_server, "/a", num_bytes=1_000_000)) >= 1_000_000
    media_server.wait_until_idle()


def test_gate_holds_the_answer(media_server: MediaServer) -> None:
    gate = threading.Event()
    media_server.serve("/a", Reply(body=b"x", content_length=None, gate=gate))
    answers: list[bytes] = []
    thread = threading.Thread(target=lambda: answers.append(ask(media_server, "/a")))
    thread.start()
    media_server.wait_for_requests("/a")
    assert answers == []
    gate.set()
    thread.join(20)
    assert answers[0].endswith(b"x")


def test_connection_is_kept_for_the_next_request(media_server: MediaServer) -> None:
    media_server.serve("/a", b"x")
    with socket.create_connection(("127.0.0.1", media_server.port), timeout=10) as client:
        for _ in range(3):
            client.sendall(b"GET /a HTTP/1.1\r\n\r\n")
            answer = b""
            while not answer.endswith(b"\r\n\r\nx"):
                answer += client.recv(1000)
    assert media_server.count("/a") == 3


def test_server_stops_while_clients_do_not_read() -> None:
    with MediaServer() as server:
        server.serve("/a", Reply(is_endless=True, content_length=None))
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(3)]
        for client in clients:
            client.sendall(b"GET /a HTTP/1.1\r\n\r\n")
            client.recv(10)
    for client in clients:
        client.close()
    gc.collect()  # what was left open would warn now
