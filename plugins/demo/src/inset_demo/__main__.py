"""What `make demo` runs: a question about a picture file, asked twice through the public API.

python -m inset_demo [PICTURE] [QUESTION]
"""

from __future__ import annotations

import argparse
import base64
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import inset

if TYPE_CHECKING:
    from inset.api import RequestOutput

__all__ = ["main"]

SAMPLES = Path(__file__).parent / "samples"


def main() -> None:
    """Asks twice about one picture; prints the answer, the stage times, and what the second ask saved."""
    parser = argparse.ArgumentParser(prog="inset_demo", description=main.__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=SAMPLES / "two-shapes.jpg")
    parser.add_argument("question", nargs="?", default="What is in the picture?")
    options = parser.parse_args()
    say = sys.stdout.write
    began = time.perf_counter()
    llm = inset.LLM("shapes-llava")
    say(f"shapes-llava was ready after {time.perf_counter() - began:.1f} s\n\n")
    say(f"{options.picture.name}: {options.question}\n")
    first, first_seconds = _ask(llm, options.picture, options.question)
    say(f"  {first.outputs[0].text}\n\n{_stages(first)}\n\n")
    second, second_seconds = _ask(llm, options.picture, options.question)
    say(f"asked again: {second.outputs[0].text}\n\n{_stages(second)}\n\n")
    held, prompt = second.usage.cached_tokens, second.usage.prompt_tokens
    say(f"{first_seconds * 1000:.0f} ms the first time, {second_seconds * 1000:.0f} ms the second: ")
    say(f"{held} of {prompt} prompt tokens and the picture's features were still there.\n")


def _ask(llm: inset.LLM, picture: Path, question: str) -> tuple[RequestOutput, float]:
    url = "data:application/octet-stream;base64," + base64.b64encode(picture.read_bytes()).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    began = time.perf_counter()
    output = llm.chat([{"role": "user", "content": parts}], inset.SamplingParams(temperature=0, max_tokens=32))[0]
    return output, time.perf_counter() - began


def _stages(output: RequestOutput) -> str:
    rows = [f"  {stage:14}{seconds * 1000:8.1f} ms" for stage, seconds in output.stage_seconds.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
