"""What the checkpoint's files say about images."""

from __future__ import annotations

from dataclasses import dataclass

from inset.api import Checkpoint, ConfigError

__all__ = ["ImageConfig", "read_image_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image becomes pixels and tokens.

    Attributes:
        token_id: The marker of an image, and the token that stands for one embedding.
        edge: Side of the square that the vision tower takes, in pixels.
        patch_size: Side of a patch, in pixels.
        mean: Mean per channel, in [0, 1].
        std: Standard deviation per channel.
    """

    token_id: int
    edge: int
    patch_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def num_patches(self) -> int:
        """Rows that the vision tower gives for an image."""
        return (self.edge // self.patch_size) ** 2


def read_image_config(checkpoint: Checkpoint) -> ImageConfig:
    """Reads what there is to know about images.

    Raises:
        ConfigError: Something is missing.
    """
    vision, given = checkpoint.config.get("vision_config") or {}, checkpoint.preprocessor_config
    try:
        return ImageConfig(
            token_id=int(checkpoint.config["image_token_id"]),
            edge=int(vision["image_size"]),
            patch_size=int(vision["patch_size"]),
            mean=tuple(given["image_mean"]),
            std=tuple(given["image_std"]),
        )
    except KeyError as error:
        raise ConfigError(f"The configs of the checkpoint {checkpoint.folder.name!r} lack {error}.") from error
