"""Reads the decode options of one modality and names whatever is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from inset.errors import InvalidRequestError
from inset.identity import JSON

__all__ = ["MediaOptions"]


class MediaOptions:
    """The media IO options of one modality; each is read once, and `finish` refuses what nobody has read.

    JSON null stands for an option that is not given.
    """

    def __init__(self, modality: str, options: Mapping[str, JSON]) -> None:
        self._modality = modality
        self._options = dict(options)
        self._known: list[str] = []

    def integer(self, name: str, default: int | None, *, minimum: int, maximum: int | None = None) -> int | None:
        """Returns a whole number within limits, or the default.

        Raises:
            InvalidRequestError: It is another kind of value, or out of limits.
        """
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, value, "a whole number")
        if value < minimum or (maximum is not None and value > maximum):
            raise self.wrong(name, value, f"at least {minimum}" + ("" if maximum is None else f" and at most {maximum}"))
        return value

    def number(self, name: str, default: float | None, *, above: float) -> float | None:
        """Returns a finite number above a limit, or the default.

        Raises:
            InvalidRequestError: It is another kind of value, or out of limits.
        """
        value = self._take(name)
        if value is None:
            return default
        number = _as_finite(value)
        if number is None or number <= above:
            raise self.wrong(name, value, f"a number above {above:g}")
        return number

    def switch(self, name: str, default: bool) -> bool:
        """Returns true or false, or the default.

        Raises:
            InvalidRequestError: It is another kind of value.
        """
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Returns one of several words, or the default.

        Raises:
            InvalidRequestError: It is something else.
        """
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, value, "one of " + ", ".join(choices))
        return value

    def colour(self, name: str, default: tuple[int, int, int]) -> tuple[int, int, int]:
        """Returns red, green and blue in [0, 255], or the default.

        Raises:
            InvalidRequestError: It is another kind of value, or out of range.
        """
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, list | tuple) and len(value) == 3:
            levels = [level for level in value if isinstance(level, int) and not isinstance(level, bool) and 0 <= level <= 255]
            if len(levels) == 3:
                return levels[0], levels[1], levels[2]
        raise self.wrong(name, value, "three whole numbers from 0 to 255")

    def finish(self) -> None:
        """Refuses options that were not read.

        Raises:
            InvalidRequestError: There are some; they are named, and so are those that exist.
        """
        if unknown := sorted(str(name) for name in self._options):
            raise InvalidRequestError(
                f"Unknown {self._modality} media IO options: {', '.join(unknown)}. Known: {', '.join(sorted(self._known)) or 'none'}.",
                stage="parse",
                modality=self._modality,
            )

    def _take(self, name: str) -> JSON:
        self._known.append(name)
        return self._options.pop(name, None)

    def wrong(self, name: str, value: object, expected: str) -> InvalidRequestError:
        """Returns the error for an option, with what it has to be."""
        return InvalidRequestError(
            f"The {self._modality} media IO option {name} must be {expected}, not {_quote(value)}.",
            stage="parse",
            modality=self._modality,
        )


def _as_finite(value: JSON) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond every float
        return None
    return number if math.isfinite(number) else None


def _quote(value: object) -> str:
    try:
        return str(value)[:80]
    except ValueError:  # Python writes no whole number of more than some thousand digits
        return "one of thousands of digits"
