"""The checks of `inset doctor`; none of them imports torch."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import platform
import resource
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import inset
from inset.plugins import PluginHost, PluginState

if TYPE_CHECKING:
    from inset.config import PluginConfig

__all__ = ["Finding", "check_installation", "check_server"]

_EXTRAS: Final = {"engine": ("torch", "transformers", "safetensors"), "server": ("fastapi", "uvicorn", "httptools", "prometheus-client")}
_LIBRARIES: Final = ("numpy", "pillow", "av", "soundfile", "soxr", "tokenizers", "aiohttp", "pyzmq", "msgspec")
_FEW_FILES: Final = 1024
_GIB: Final = 1024**3
_TIMEOUT_SECONDS: Final = 60.0


class Finding(NamedTuple):
    """One line of the report.

    Attributes:
        verdict: ``ok``, ``note`` for what may be wanted so, or ``fault``.
        subject: What was looked at.
        text: What was found, and what to do about it.
    """

    verdict: str
    subject: str
    text: str


def check_installation(config: PluginConfig) -> Iterator[Finding]:
    """Yields what there is to say about this machine and this environment."""
    yield Finding("ok", "inset", f"{inset.__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    yield Finding("ok", "libraries", ", ".join(f"{name} {_version(name) or 'missing'}" for name in _LIBRARIES))
    for extra, names in _EXTRAS.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        how = f"{', '.join(missing)} missing: pip install 'inset[{extra}]'"
        yield Finding("note" if missing else "ok", f"inset[{extra}]", how if missing else found)
    yield from _check_plugins(config)
    yield from _check_machine()


def _version(name: str) -> str | None:
    import importlib_metadata

    try:
        return importlib_metadata.version(name)
    except importlib_metadata.PackageNotFoundError:
        return None


def _check_plugins(config: PluginConfig) -> Iterator[Finding]:
    host = PluginHost(config, tolerant=True)
    for report in host.report():
        is_well = report.state is PluginState.LOADED
        text = f"{report.distribution} {report.version} is {report.state.value}" + (f": {report.error}" if report.error else "")
        yield Finding("ok" if is_well else "fault" if report.error else "note", f"plugin {report.name}", text)
    if host.failure is not None:
        yield Finding("fault", "plugins", f"with these options start-up fails: {host.failure}")


def _check_machine() -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("ok", "machine", f"{os.cpu_count()} cores, {memory / _GIB:.1f} GiB memory")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    advice = "; many connections need more: ulimit -n 65536" if soft <= _FEW_FILES else ""
    yield Finding("note" if advice else "ok", "open files", f"at most {soft} (hard limit {hard}){advice}")
    yield _check_shared_memory()
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / _GIB
    is_short = len(str(Path(folder) / "inset-12345678" / "messages.sock")) < 100
    text = f"{free:.1f} GiB free" if is_short else "its name is too long for sockets: set TMPDIR to a shorter one"
    yield Finding("ok" if is_short else "fault", "temporary folder", text)


def _check_shared_memory() -> Finding:
    if hasattr(os, "memfd_create"):
        try:
            os.close(os.memfd_create("inset-doctor"))
        except OSError as error:
            return Finding("fault", "shared memory", f"memfd_create fails ({error.strerror}): use --mm-processor-cache-type lru")
        return Finding("ok", "shared memory", "anonymous (memfd): the cache type shm does not need /dev/shm")
    return Finding("note", "shared memory", f"the cache type shm keeps a file in {tempfile.gettempdir()}")


def check_server(url: str, api_key: str | None) -> list[Finding]:
    """Returns what a running server answered to four requests; the first fault ends them."""
    server = _Server(url.rstrip("/").removesuffix("/v1"), api_key)
    findings: list[Finding] = []
    for subject, check in (
        ("health", server.check_health),
        ("models", server.check_models),
        ("text", server.check_text),
        ("picture", server.check_picture),
    ):
        findings.append(_tried(f"server {subject}", check))
        if findings[-1].verdict == "fault":
            break
    return findings


def _tried(subject: str, check: Callable[[], str]) -> Finding:
    started = time.perf_counter()
    try:
        said = check()
    except urllib.error.HTTPError as error:
        return Finding("fault", subject, f"status {error.code}: {_in_one_line(error.read(500).decode(errors='replace'))}")
    except (OSError, http.client.HTTPException) as error:
        said = _in_one_line(str(getattr(error, "reason", error)))  # a URLError wraps what went wrong
        return Finding("fault", subject, f"no answer: {said or type(error).__name__}")
    except (ValueError, LookupError, TypeError) as error:
        return Finding("fault", subject, f"no answer of such a server: {type(error).__name__}: {_in_one_line(str(error))}")
    return Finding("ok", subject, f"{said} ({(time.perf_counter() - started) * 1000:.0f} ms)")


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


class _Server:
    """A running server, asked with nothing but the standard library."""

    def __init__(self, url: str, api_key: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            url = f"http://{url}"
        self._url = url
        self._headers = {"Content-Type": "application/json", **({} if api_key is None else {"Authorization": f"Bearer {api_key}"})}
        self._model = ""

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)  # noqa: S310 - the scheme is checked above
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            answer = json.load(response)
        if not isinstance(answer, dict):
            raise TypeError(f"The body is a JSON {type(answer).__name__}, no object.")
        return answer

    def check_health(self) -> str:
        """Asks whether it is well."""
        return str(self._ask("/health")["status"])

    def check_models(self) -> str:
        """Asks which model it serves."""
        self._model = str(self._ask("/v1/models")["data"][0]["id"])
        return self._model

    def check_text(self) -> str:
        """Asks for a few tokens."""
        return self._chat([{"type": "text", "text": "Say hello."}])

    def check_picture(self) -> str:
        """Asks about a small picture in a data URL."""
        from PIL import Image

        buffer = io.BytesIO()
        Image.new("RGB", (64, 64), (200, 30, 30)).save(buffer, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return self._chat([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Which colour?"}])

    def _chat(self, content: list[dict[str, Any]]) -> str:
        body = {"model": self._model, "messages": [{"role": "user", "content": content}], "max_tokens": 4}
        usage = self._ask("/v1/chat/completions", body)["usage"]
        return f"{usage['prompt_tokens']} prompt tokens, {usage['completion_tokens']} answered"
