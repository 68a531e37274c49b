"""What `make demo` runs: a question about a picture file, asked twice through the public API.

python -m inset_demo [PICTURE] [QUESTION]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import inset

__all__ = ["main"]

SAMPLES = Path(__file__).parent / "samples"


class Asked(NamedTuple):
    """One answer, and what it took."""

    text: str
    seconds: float
    stage_seconds: Mapping[str, float]
    prompt_tokens: int
    cached_tokens: int


def main() -> None:
    """Asks twice about one picture; prints the answer, the stage times, and what the second ask saved."""
    parser = argparse.ArgumentParser(prog="python -m inset_demo", description=main.__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=SAMPLES / "two-shapes.jpg", help="a picture file; a sample when left out")
    parser.add_argument("question", nargs="?", default="What is in the picture?", help="what to ask about it")
    options = parser.parse_args()
    if not options.picture.is_file():
        parser.error(f"there is no file {options.picture}")
    say = sys.stdout.write
    began = time.perf_counter()
    with inset.LLM("shapes-llava") as llm:
        say(f"shapes-llava was ready after {time.perf_counter() - began:.1f} s\n\n{options.picture.name}: {options.question}\n")
        first, second = (_ask(llm, options.picture, options.question) for _ in range(2))
    say(f"  {first.text}\n\n{_stages(first)}\n\nasked again: {second.text}\n\n{_stages(second)}\n\n")
    spared = ", ".join(stage for stage in first.stage_seconds if stage not in second.stage_seconds) or "nothing"
    say(f"{first.seconds * 1000:.0f} ms the first time, {second.seconds * 1000:.0f} ms the second. Not done again: {spared}; ")
    say(f"{second.cached_tokens} of {second.prompt_tokens} prompt tokens were still there.\n")


def _ask(llm: inset.LLM, picture: Path, question: str) -> Asked:
    parts = [{"type": "image", "image": picture}, {"type": "text", "text": question}]
    began = time.perf_counter()
    [output] = llm.chat([{"role": "user", "content": parts}], inset.SamplingParams(temperature=0, max_tokens=32))
    seconds = time.perf_counter() - began
    return Asked(output.outputs[0].text, seconds, output.stage_seconds, output.usage.prompt_tokens, output.usage.cached_tokens)


def _stages(asked: Asked) -> str:
    return "\n".join(f"  {stage:14}{seconds * 1000:8.1f} ms" for stage, seconds in asked.stage_seconds.items())


if __name__ == "__main__":
    main()
