"""What `inset plugins check` runs of a plugin without a checkpoint and without a network: its decoders and its connectors."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from inset.checkpoint import Checkpoint
from inset.config import MediaConfig
from inset.errors import ClientError, ConfigError, InsetError, InvalidRequestError, MediaDecodeError, PluginContractError
from inset.inputs import MODALITIES, MediaIOFactory
from inset.plugins import PluginHost, PluginReport

if TYPE_CHECKING:
    from inset.media.fetcher import MediaFetcher

__all__ = ["NotTriedError", "find_media_io", "try_connector", "try_media_io"]

_SECRET: Final = "b0a7c0de"  # noqa: S105 - what must not be seen in a message
_URLS: Final = (
    "{scheme}:",
    "{scheme}:" + _SECRET,
    "{scheme}://",
    "{scheme}://nothing.invalid",
    "{scheme}://nothing.invalid/" + _SECRET + "?key=" + _SECRET,
    "{scheme}://nothing.invalid/%2e%2e/%00/" + _SECRET + ".zip",
)
"""Forms that clients send by mistake, or try out."""

_FETCH_SECONDS: Final = 2.0
_NO_MEDIA: Final = (b"", b"\0", b"not media at all", bytes(4096))


class NotTriedError(Exception):
    """It cannot be tried as things are, which is no fault of the plugin; the message says what is missing."""


def find_media_io(host: PluginHost, report: PluginReport) -> Iterator[tuple[str, str, MediaIOFactory]]:
    """Yields modality, model_type and factory of each decoder that a plugin answers with for the model types that it serves.

    A plugin that serves none is asked for a model_type that nobody has.

    Raises:
        NotTriedError: The plugin needs more of a checkpoint than its model_type.
        PluginContractError: The hook raises, or answers with something that cannot be called.
    """
    processors = host.registries.processors
    owned = [name for name in processors.names() if (owner := processors.owner_of(name)) is not None and owner.plugin == report.name]
    for model_type in owned or ["any"]:
        info = Checkpoint(Path("no-such-folder"), {"model_type": model_type, "architectures": [model_type]})
        for modality in MODALITIES:
            try:
                factory = host.ask_for_media_io(report.name, modality, info)
            except PluginContractError as error:
                if isinstance(error.__cause__, ConfigError):
                    raise NotTriedError(f"it needs the configs of a checkpoint: {error.__cause__}") from error
                raise
            if factory is not None:
                yield modality, model_type, factory


def try_media_io(modality: str, factory: MediaIOFactory) -> None:
    """Makes a decoder with default options and runs the cases of `inset.testing.conformance.media_io` that need no media.

    Raises:
        PluginContractError: The factory raises, or a case fails.
    """
    from inset.media.io import MediaIO

    decoder = _make(factory, {})
    if not isinstance(decoder, MediaIO) or decoder.modality != modality:
        raise PluginContractError(f"The factory must give a MediaIO of the modality {modality!r}, not {decoder!r}.")
    if decoder.get_decode_spec() != _make(factory, {}).get_decode_spec():
        raise PluginContractError("Two decoders with the same options have different specs, so that nothing would be found in a cache.")
    try:
        factory({"no_such_option": 1}, MediaConfig())
    except InvalidRequestError:
        pass
    else:
        raise PluginContractError("An unknown option must be refused with InvalidRequestError.")
    for data in _NO_MEDIA:
        try:
            decoder.load_bytes_ref(data)
        except MediaDecodeError:
            continue
        raise PluginContractError(f"{len(data)} bytes that are no {modality} must be refused with MediaDecodeError when they are probed.")


def _make(factory: MediaIOFactory, options: Mapping[str, Any]) -> Any:
    try:
        return factory(options, MediaConfig())
    except Exception as error:  # whatever a plugin's code raises
        raise PluginContractError(f"The factory fails with default options: {type(error).__name__}: {error}") from error


def try_connector(host: PluginHost, name: str) -> None:
    """Makes a connector with default options and has it fetch URLs of its schemes that lead nowhere, without a network.

    Each URL must give bytes or a `ClientError`, in time, and its secrets must stay out of the message.

    Raises:
        NotTriedError: It needs options or something that is not installed, opens connections by itself, or is not written yet.
        PluginContractError: The factory gives something else, or a URL ends in another way.
    """
    from inset.media.connector_set import ConnectorSet
    from inset.media.fetcher import MediaFetcher

    registration = host.registries.media_connectors.get(name)
    config = MediaConfig(
        media_connector=(name,),
        image_fetch_timeout_seconds=_FETCH_SECONDS,
        image_fetch_deadline_seconds=_FETCH_SECONDS,
        max_fetch_attempts=1,
    )
    try:
        connectors = ConnectorSet.build(host.registries.media_connectors, config)
    except ConfigError as error:
        raise NotTriedError(str(error)) from error
    if registration.dials_itself:
        raise NotTriedError("it opens connections by itself, so that nothing can be tried without a network")
    with MediaFetcher(connectors, config, resolve=_refuse_to_look_up) as fetcher:
        for scheme in registration.schemes:
            for url in _URLS:
                _try_url(fetcher, url.format(scheme=scheme.replace("*", "https")))


def _refuse_to_look_up(host: str, port: int) -> NoReturn:
    raise socket.gaierror(socket.EAI_NONAME, "nothing is looked up in a trial")


def _try_url(fetcher: MediaFetcher, url: str) -> None:
    from inset.media.io import default_media_io

    shown = url.replace(_SECRET, "...")
    try:
        fetcher.fetch_image(url, default_media_io("image", {}, fetcher.config))
    except ConfigError as error:
        raise NotTriedError(str(error)) from error
    except ClientError as error:
        if isinstance(error.__cause__, NotImplementedError):
            raise NotTriedError(f"it is not written yet: {error.__cause__}") from error
        if error.code == "connector_failed":
            raise PluginContractError(f"{shown} ends in: {error}") from error
        if _SECRET in str(error):
            raise PluginContractError(f"The message about {shown} shows more than scheme and host.") from error
    except InsetError as error:
        raise PluginContractError(f"{shown} ends in {type(error).__name__}: {error}") from error
