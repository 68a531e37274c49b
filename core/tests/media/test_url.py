from __future__ import annotations

import pytest

from inset.errors import MediaPolicyError
from inset.media.url import MediaUrl, normalize_host


@pytest.mark.parametrize(
    ("text", "normal", "host", "port"),
    [
        ("HTTP://Example.COM/A?B=%2f#fragment", "http://example.com/A?B=%2f", "example.com", None),
        ("https://example.com.:8443", "https://example.com:8443", "example.com", 8443),
        ("http://example.com?x", "http://example.com/?x", "example.com", None),
        ("http://example.com/a b/é", "http://example.com/a%20b/%C3%A9", "example.com", None),
        ("http://bücher.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", None),
        ("http://[::FFFF:127.0.0.1]:80/", "http://[::ffff:7f00:1]:80/", "::ffff:7f00:1", 80),
        ("http://\uff11\uff12\uff17.0.0.1/", "http://127.0.0.1/", "127.0.0.1", None),
        ("http://127.0.0.1./", "http://127.0.0.1/", "127.0.0.1", None),
        ("file:///tmp/a%20b.png", "file:///tmp/a%20b.png", None, None),
        ("file:/tmp/a.png", "file:/tmp/a.png", None, None),
        ("s3://Bucket.2024/Key", "s3://bucket.2024/Key", "bucket.2024", None),
    ],
)
def test_url_has_one_normal_form(text: str, normal: str, host: str | None, port: int | None) -> None:
    url = MediaUrl.parse(text)
    assert (url.text, url.host, url.port) == (normal, host, port)
    assert MediaUrl.parse(url.text) == url


def test_data_url_is_neither_copied_nor_scanned() -> None:
    text = "DATA:image/png;base64," + "\x00" * 10
    assert MediaUrl.parse(text).text is text


@pytest.mark.parametrize(
    "text",
    [
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://@example.com/",
        "http://allowed.example\\@evil.example/",
        "http:\\\\example.com/",
        "http://exam\tple.com/",
        "http://exam\nple.com/",
        "http://exam\x00ple.com/",
        "http://example.com/\x00",
        "http://example.com/\x85",
        "http://example.com/\ud800",
        "http://exam%70le.com/",
        "http://exam ple.com/",
        "http://example.com:/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:8o/",
        "http://example.com:80:80/",
        "http://example.com:-1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[127.0.0.1]/",
        "http://-a.example/",
        "http://a..example/",
        "http://.example/",
        "http://" + "a" * 64 + ".example/",
        "http:///path",
        "s3://:80/key",
        "http:example.com",
        "http:",
        "//example.com/",
        "example.com/a.png",
        "",
        "http://example.com/" + "a" * 20_000,
    ],
)
def test_doubtful_text_is_refused_before_any_library_reads_it(text: str) -> None:
    with pytest.raises(MediaPolicyError) as caught:
        MediaUrl.parse(text)
    assert caught.value.status == 400
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("/other?x", "http://example.com/other?x"),
        ("other", "http://example.com/folder/other"),
        ("//elsewhere.example/", "http://elsewhere.example/"),
        ("https://elsewhere.example", "https://elsewhere.example"),
        ("?page=2", "http://example.com/folder/item?page=2"),
    ],
)
def test_redirect_may_be_relative(location: str, text: str) -> None:
    assert MediaUrl.parse("http://example.com/folder/item?page=1").join(location).text == text


@pytest.mark.parametrize("location", ["http://user@example.com/", "/a\tb", "\\\\evil.example", "http://127.1/", "//[", "http://[::1"])
def test_redirect_is_checked_like_the_first_url(location: str) -> None:
    with pytest.raises(MediaPolicyError):
        MediaUrl.parse("http://example.com/").join(location)


def test_what_may_be_shown_of_a_url_is_scheme_and_host() -> None:
    url = MediaUrl.parse("https://example.com:8443/folder/secret?signature=secret")
    assert url.where == "https://example.com"
    assert "secret" not in f"{url} {url!r}"


def test_host_in_options_has_the_same_normal_form() -> None:
    assert normalize_host("EXAMPLE.com.") == "example.com"
    assert normalize_host("[::1]") == "::1"
