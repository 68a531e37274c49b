"""The families of models that are trained here."""

from __future__ import annotations

from families.base import Family
from families.llava import Llava
from families.qwen_vl import QwenVL

FAMILIES: dict[str, Family] = {"llava": Llava(), "qwen_vl": QwenVL()}
