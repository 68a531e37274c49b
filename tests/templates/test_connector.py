"""The connector that `inset new` writes, and the tutorial that fills it in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx

from inset.testing.sample_images import encode_image, make_pixels


def listed(environment: Any) -> dict[str, str]:
    """Plugin -> its state."""
    plugins = json.loads(environment.run("inset", "plugins", "list", "--json"))["plugins"]
    return {plugin["name"]: plugin["state"] for plugin in plugins}


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

    connector, source, fill_store = code_of("tutorial/first-connector.md")
    package.fill_in("src/inset_shelf/connector.py", connector)
    package.fill_in("tests/test_conformance.py", source)
    package.assert_everything_passes()

    (tmp_path / "shapes.png").write_bytes(encode_image(make_pixels(40, 30), "PNG"))
    environment.run("python", "-c", fill_store, cwd=tmp_path)
    options = json.dumps({"shelf": {"location": str(tmp_path / "pictures.sqlite")}})
    environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", package.folder)  # as a wheel this time
    with serve(tiny_llava_folder, "--media-connector", "shelf", "--media-connector-options", options) as url:
        answer, refused = (ask(url, name) for name in ("shelf:shapes/17", "shelf:shapes/18"))
    assert answer.json()["usage"]["prompt_tokens"] > 16
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "media_fetch_failed")

    environment.pip("uninstall", "--yes", "inset-shelf")
    assert "shelf" not in listed(environment)
    assert list(environment.folder.rglob("*inset_shelf*")) == []


def ask(url: str, image_url: str) -> httpx.Response:
    content = [{"type": "image_url", "image_url": {"url": image_url}}, {"type": "text", "text": "What?"}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
