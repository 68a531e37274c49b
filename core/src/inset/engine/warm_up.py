"""The first request of a front end, made by itself."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from inset.engine.prompts import TextPrompt

if TYPE_CHECKING:
    from inset.engine.core import Core

__all__ = ["warm_up"]

logger = logging.getLogger(__name__)


def warm_up(core: Core) -> None:
    """Processes one small picture, so that the first request does not wait while libraries are imported."""
    info = core.processor.info
    if not info.get_mm_limits().get("image"):
        return
    from PIL import Image

    picture = io.BytesIO()
    try:
        Image.new("RGB", (64, 64)).save(picture, "PNG")
        marker = info.get_placeholder_text("image", 0)
        core.process_sync(TextPrompt(prompt=marker, multi_modal_data={"image": [picture.getvalue()]}))
    except Exception:
        logger.exception("The front end could not be warmed up; the first request will be slow")
