from __future__ import annotations

import subprocess
import sys

CODE = """
from inset.server.front_main import take_standard_output
parent = take_standard_output()
print("a plugin says hello")
parent.write(b"ready")
parent.flush()
"""


def test_what_a_plugin_prints_does_not_reach_the_parent() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("ready", "a plugin says hello\n", 0)
