"""Whatever answers at a URL, or does not, is one line of the doctor's report."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from inset.cli.checkup import check_server

LIMIT_SECONDS = 20.0
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def answer() -> Iterator[Callable[[bytes], str]]:
    """Returns a function that starts a server which says the same bytes to the first who asks, and returns its URL."""
    with ExitStack() as stack:

        def start(said: bytes) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.settimeout(LIMIT_SECONDS)

            def serve() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(LIMIT_SECONDS)
                    connection.recv(65536)
                    connection.sendall(said)

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join, LIMIT_SECONDS)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "no answer: SSH-2.0-OpenSSH"),
        (OK + b"Content-Length: 200\r\n\r\n[]", "no answer: IncompleteRead"),
        (OK + b"Content-Length: 2\r\n\r\n[]", "no answer of such a server: TypeError: The body is a JSON list, no object."),
        (OK + b"Content-Length: 2\r\n\r\n{}", "no answer of such a server: KeyError: 'status'"),
        (OK + b"Content-Length: 0\r\n\r\n", "no answer of such a server: JSONDecodeError"),
        (OK + b"Content-Length: 2\r\n\r\n\xff\xfe", "no answer of such a server: "),
        (b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n<p>\n</p>\n", "status 500: <p> </p>"),
        (b"", "no answer: Remote end closed connection without response"),
    ],
)
def test_what_is_no_server_of_ours_is_a_fault_in_one_line(answer: Callable[[bytes], str], said: bytes, text: str) -> None:
    findings = check_server(answer(said), None)
    assert [(finding.verdict, finding.subject) for finding in findings] == [("fault", "server health")]
    assert findings[0].text.startswith(text)
    assert "\n" not in findings[0].text


@pytest.mark.parametrize(
    "url", ["http://localhost:abc", "http://local host/", "http://[::1/", "http://127.0.0.1:99999", "http://", "http://a..b"]
)
def test_a_url_that_cannot_be_asked_is_a_fault_in_one_line(url: str) -> None:
    findings = check_server(url, None)
    assert [(finding.verdict, finding.subject) for finding in findings] == [("fault", "server health")]
    assert findings[0].text.startswith("no answer")
    assert "\n" not in findings[0].text
