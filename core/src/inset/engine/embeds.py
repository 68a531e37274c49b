"""Finished embeddings as requests carry them: NumPy's own file format in base64, or plain numbers. Nothing is ever unpickled."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inset.errors import InvalidRequestError
from inset.media.data_url import iter_base64

if TYPE_CHECKING:
    import numpy as np

__all__ = ["read_embeds"]

_HOW = "Embeddings must be the base64 of a .npy file of numbers (numpy.save), or a list of rows of numbers"


def read_embeds(value: object) -> object:
    """Returns embeddings as arrays: a text is read as base64 of a .npy file, lists as rows, the values of a mapping one by one.

    Arrays and tensors, which callers in this process hand over, pass as they are.

    Raises:
        InvalidRequestError: They are none of these.
    """
    import numpy as np

    if isinstance(value, Mapping):
        return {name: read_embeds(item) if isinstance(item, str) or name.endswith("_embeds") else item for name, item in value.items()}
    if isinstance(value, str):
        return _read_npy(value)
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return value
    try:
        return np.asarray(value, np.float32)
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(f"{_HOW}.", stage="parse") from error


def _read_npy(text: str) -> np.ndarray[Any, Any]:
    """Reads an array of numbers; its header is held against the bytes that are there before anything is allocated."""
    import numpy as np

    try:
        data = b"".join(iter_base64(text, 0, len(text)))
        stream = io.BytesIO(data)
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read_header(stream)
    except Exception as error:  # NumPy reads a header as Python, and a bad one fails in any way that Python does
        raise InvalidRequestError(f"{_HOW}.", stage="parse") from error
    offset = stream.tell()
    if not np.issubdtype(dtype, np.number) or math.prod(shape) * dtype.itemsize != len(data) - offset:
        raise InvalidRequestError(f"{_HOW}; this one holds {dtype} and says that its shape is {shape}.", stage="parse")
    array = np.frombuffer(data, dtype, offset=offset)
    return array.reshape(shape, order="F" if is_fortran else "C")
