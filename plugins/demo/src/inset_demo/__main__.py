"""What `make demo` runs: a question about a picture file, put to `inset serve` twice by the official OpenAI client.

python -m inset_demo [PICTURE] [QUESTION]
"""

from __future__ import annotations

import argparse
import base64
import mimetypes
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inset_demo.served import ENDING_SIGNALS, NotServedError, ServeProcess

if TYPE_CHECKING:
    from inset_demo.asking import Asked

__all__ = ["main"]

SAMPLES: Final = Path(__file__).parent / "samples"
MODEL: Final = "shapes-llava"
EXIT_FAILURE: Final = 1
EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Asks a server twice about one picture; prints the answer, the stage times, and what the second ask saved."""
    parser = argparse.ArgumentParser(prog="python -m inset_demo", description=main.__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=SAMPLES / "two-shapes.jpg", help="a picture file; a sample when left out")
    parser.add_argument("question", nargs="?", default="What is in the picture?", help="what to ask about it")
    options = parser.parse_args()
    try:
        url = _data_url(options.picture)
    except OSError as error:
        parser.error(f"{options.picture} cannot be read: {error.strerror}")
    for number in ENDING_SIGNALS:  # Ctrl-C is not the only one after which no server of ours may stay behind
        signal.signal(number, signal.default_int_handler)
    try:
        _demonstrate(options.picture.name, url, options.question)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except NotServedError as error:
        sys.stderr.write(f"inset_demo: {error}\n")
        return EXIT_FAILURE
    return 0


def _data_url(picture: Path) -> str:
    """Returns a picture file as a client sends it."""
    media_type = mimetypes.guess_type(picture.name)[0] or "application/octet-stream"
    return f"data:{media_type};base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _demonstrate(name: str, url: str, question: str) -> None:
    try:
        from inset_demo.asking import ask, connect
    except ImportError as error:
        raise NotServedError(f"the demo asks through the OpenAI client: pip install 'inset-demo[client]' ({error})") from error
    _say(f"$ inset serve {MODEL} --port 0\n")
    began = time.perf_counter()
    with ServeProcess(MODEL) as server, connect(server) as client:
        _say(f"ready at {server.base_url} after {time.perf_counter() - began:.1f} s\n\n{name}: {question}\n")
        first = ask(client, MODEL, question, picture_url=url)
        _say(f"  {first.text}\n\n{_stages(first)}\n\n")
        second = ask(client, MODEL, question, picture_url=url)
        _say(f"asked again: {second.text}\n\n{_stages(second)}\n\n")
    spared = ", ".join(stage for stage in first.stage_seconds if stage not in second.stage_seconds) or "nothing"
    _say(f"{first.seconds * 1000:.0f} ms the first time, {second.seconds * 1000:.0f} ms the second. ")
    _say(f"Not done again: {spared}; {second.cached_tokens} of {second.prompt_tokens} prompt tokens were still there.\n")


def _stages(asked: Asked) -> str:
    return "\n".join(f"  {stage:14}{seconds * 1000:8.1f} ms" for stage, seconds in asked.stage_seconds.items())


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
