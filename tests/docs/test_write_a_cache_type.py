"""The page on writing a cache type: its code passes the suite, and its table is the suite's."""

import os
import re
import subprocess
import sys
from pathlib import Path

from inset.testing.conformance.processor_cache import ProcessorCacheConformance

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "write-a-cache-type.md").read_text("utf-8")


def test_code_of_the_page_passes_the_suite(tmp_path: Path) -> None:
    front, engine, plugin, conformance = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "inset_fifo").mkdir()
    (tmp_path / "inset_fifo" / "cache.py").write_text(front + engine, "utf-8")
    (tmp_path / "inset_fifo" / "plugin.py").write_text(plugin, "utf-8")
    (tmp_path / "test_conformance.py").write_text(conformance, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_conformance.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_table_of_the_page_lists_the_cases_of_the_suite() -> None:
    cases = sorted(name.split("_")[1] for name in dir(ProcessorCacheConformance) if re.match(r"test_\d\d_", name))
    assert re.findall(r"^\| (\d\d) \|", PAGE, re.MULTILINE) == cases
