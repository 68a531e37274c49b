"""The connector that `inset new` writes, and the tutorial that fills it in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from inset.testing.sample_images import encode_image, make_pixels
from inset.testing.tiny_checkpoints import build_tiny_llava

PLAN = """
import json, sys
from inset import Core
folder, location, url = sys.argv[1:]
options = {"shelf": {"location": location}}
with Core.open(folder, plugins=["llava", "shelf"], media_connectors=["shelf"], media_connector_options=options) as core:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    print(json.dumps([len(ranges) for ranges in core.plan_sync(messages).mm_placeholders.values()]))
"""


def test_package_fails_where_its_author_must_act_and_passes_once_the_tutorial_is_followed(
    render: Callable[[str, str], Any], code_of: Callable[[str], Sequence[str]], tmp_path: Path
) -> None:
    package = render("connector", "shelf")
    environment = package.environment
    listing = json.loads(environment.run("inset", "plugins", "list", "--json"))["plugins"]
    assert [(plugin["name"], plugin["state"]) for plugin in listing if plugin["name"] == "shelf"] == [("shelf", "loaded")]
    package.assert_only_unwritten_parts_fail()

    connector, source = code_of("tutorial/first-connector.md")
    package.fill_in("src/inset_shelf/connector.py", connector)
    package.fill_in("tests/test_conformance.py", source)
    package.assert_everything_passes()

    with closing(sqlite3.connect(tmp_path / "pictures")) as store:
        store.execute("CREATE TABLE items (key TEXT PRIMARY KEY, data BLOB)")
        store.execute("INSERT INTO items VALUES ('cats/17', ?)", (encode_image(make_pixels(40, 30), "PNG"),))
        store.commit()
    folder = build_tiny_llava(tmp_path / "checkpoint")
    assert environment.run("python", "-c", PLAN, folder, tmp_path / "pictures", "shelf:cats/17") == "[1]\n"

    environment.pip("uninstall", "--yes", "inset-shelf")
    listing = json.loads(environment.run("inset", "plugins", "list", "--json"))["plugins"]
    assert "shelf" not in {plugin["name"] for plugin in listing}
