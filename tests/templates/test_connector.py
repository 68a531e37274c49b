"""The connector that `inset new` writes, and the tutorial that fills it in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import httpx

from inset.testing.sample_images import encode_image, make_pixels


def listed(environment: Any) -> dict[str, str]:
    """Plugin -> its state."""
    plugins = json.loads(environment.run("inset", "plugins", "list", "--json"))["plugins"]
    return {plugin["name"]: plugin["state"] for plugin in plugins}


def store_picture(path: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("CREATE TABLE items (key TEXT PRIMARY KEY, data BLOB)")
        store.execute("INSERT INTO items VALUES ('cats/17', ?)", (encode_image(make_pixels(40, 30), "PNG"),))
        store.commit()


def test_package_fails_where_its_author_must_act_and_serves_once_the_tutorial_is_followed(
    render: Callable[[str, str], Any],
    code_of: Callable[[str], Sequence[str]],
    serve: Callable[..., AbstractContextManager[str]],
    tiny_llava_folder: Path,
    tmp_path: Path,
) -> None:
    package = render("connector", "shelf")
    environment = package.environment
    assert listed(environment)["shelf"] == "loaded"
    package.assert_only_unwritten_parts_fail()

    connector, source = code_of("tutorial/first-connector.md")
    package.fill_in("src/inset_shelf/connector.py", connector)
    package.fill_in("tests/test_conformance.py", source)
    package.assert_everything_passes()

    store_picture(tmp_path / "pictures")
    options = json.dumps({"shelf": {"location": str(tmp_path / "pictures")}})
    environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", package.folder)  # as a wheel this time
    with serve(tiny_llava_folder, "--media-connector", "shelf", "--media-connector-options", options) as url:
        answer, refused = (ask(url, name) for name in ("shelf:cats/17", "shelf:cats/18"))
    assert answer.json()["usage"]["prompt_tokens"] > 16
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "media_fetch_failed")

    environment.pip("uninstall", "--yes", "inset-shelf")
    assert "shelf" not in listed(environment)
    assert list(environment.folder.rglob("*inset_shelf*")) == []


def ask(url: str, image_url: str) -> httpx.Response:
    content = [{"type": "image_url", "image_url": {"url": image_url}}, {"type": "text", "text": "What?"}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
