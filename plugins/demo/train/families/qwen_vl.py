"""shapes-qwen-vl: a Qwen2-VL tower, its merger, and Qwen2 with positions in three axes. Pictures keep their shape; clips are seen too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.vision_utils import get_vision_position_ids

from data import Item, Picture
from families.base import (
    ATTENTION,
    BOS,
    EOS,
    IMAGE,
    MEAN,
    PAD,
    STD,
    TEXT,
    Family,
    Placed,
    Reading,
    normalise,
    position_along,
    run_language_model,
)
from patch_heads import LABEL_SIZES, MOTION_SIZES
from scenes import Pixels
from shards import CELL, CLIP_CELLS, PATCH, PICTURE_CELLS

VISION_START, VISION_END, VIDEO = 7, 8, 9
MERGE = 2
TILT = 0.7
"""Channels look in turn more at the first and at the second of two frames. If they looked at both alike, a movement would be seen, but not
where to; what stands still looks the same in either case.
"""
TYPICAL_SPREAD = 1.9
"""The standard deviation that the CLIP tower's first norm divides by, on average over patches."""


class QwenVL(Family):
    """The family of shapes-qwen-vl."""

    name = "shapes-qwen-vl"
    architecture = "Qwen2VLForConditionalGeneration"
    media_tokens = (IMAGE, VIDEO)
    patches_per_token = 4
    special = (
        *("<pad>", "<s>", "</s>", "<|image_pad|>", "<|system|>", "<|user|>", "<|assistant|>"),
        *("<|vision_start|>", "<|vision_end|>", "<|video_pad|>"),
    )
    vocab_size = 704
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    video = "<|vision_start|><|video_pad|><|vision_end|>"
    label_sizes = {**LABEL_SIZES, **MOTION_SIZES}  # noqa: RUF012 - constant
    pictures = "pictures"

    def config(self) -> Qwen2VLConfig:
        """Returns the configuration of the model: under 5 million parameters."""
        vision = {"embed_dim": 192, "hidden_size": 192, "depth": 5, "num_heads": 6, "mlp_ratio": 3, "hidden_act": "gelu"}
        rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
        return Qwen2VLConfig(
            vision_config={**vision, "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2},
            text_config={"vocab_size": self.vocab_size, **TEXT, "rope_parameters": rope},
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            vision_start_token_id=VISION_START,
            vision_end_token_id=VISION_END,
            tie_word_embeddings=False,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
        )

    def new_tower(self) -> nn.Module:
        return self.tower_of(self.new_model())

    def new_model(self) -> Any:
        config = self.config()
        config.text_config.initializer_range = 0.05
        model = Qwen2VLForConditionalGeneration(config)
        model.set_attn_implementation(ATTENTION)
        model.config.text_config.initializer_range = 0.02
        return model

    def tower_of(self, model: Any) -> nn.Module:
        tower: nn.Module = model.model.visual
        return tower

    def look(self, tower: Any, items: Sequence[Item]) -> Tensor:
        """The blocks of transformers' tower, in its order; only that neighbouring grids of one size share a call of attention."""
        grids = [grid_of(item.frames) for item in items]
        patches = torch.cat([patchify(item.frames) for item in items])
        hidden = nn.functional.linear(patches, tower.patch_embed.proj.weight.flatten(1))
        places = tower.rotary_pos_emb(hidden, get_vision_position_ids(torch.tensor(grids), MERGE))
        lengths = [height * width for steps, height, width in grids for _ in range(steps)]
        whole = torch.tensor([0, sum(lengths)], dtype=torch.int32)
        for block in tower.blocks:
            hidden = block(hidden, cu_seqlens=whole, position_embeddings=places, chunk_lengths=lengths)
        return hidden

    def project(self, model: Any, features: Tensor) -> Tensor:
        embeddings: Tensor = model.model.visual.merger(features)
        return embeddings

    def read(self, model: Any, embeds: Tensor, mask: Tensor, position_ids: Tensor) -> Reading:
        return run_language_model(model.model.language_model, embeds, mask, position_ids)

    def place(self, item: Item, start: int) -> Placed:
        steps, rows, columns = grid_of(item.frames)
        rows, columns = rows // MERGE, columns // MERGE
        token = IMAGE if isinstance(item, Picture) else VIDEO
        grid = np.stack(np.meshgrid(np.arange(steps), np.arange(rows), np.arange(columns), indexing="ij")).reshape(3, -1)
        end = start + 1 + max(rows, columns)
        positions = np.concatenate([position_along(1, start), grid + start + 1, position_along(1, end)], 1)
        return Placed((VISION_START, *(token,) * grid.shape[1], VISION_END), positions, end + 1, np.array([-1, *grid[0], -1]))

    def arrange(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        rows, columns = labels.shape
        return labels.reshape(rows // MERGE, MERGE, columns // MERGE, MERGE).swapaxes(1, 2).ravel()

    def files(self) -> dict[str, dict[str, object]]:
        shared: dict[str, object] = {
            "patch_size": PATCH,
            "merge_size": MERGE,
            "temporal_patch_size": 2,
            "do_convert_rgb": True,
            "do_resize": True,
            "resample": 3,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(MEAN),
            "image_std": list(STD),
        }
        picture = {"image_processor_type": "Qwen2VLImageProcessor", **shared, "size": _size(PICTURE_CELLS)}
        sampling = {"do_sample_frames": True, "fps": 2, "min_frames": 4, "max_frames": 8}
        clip = {"video_processor_type": "Qwen2VLVideoProcessor", **shared, **sampling, "size": _size(CLIP_CELLS)}
        return {
            "preprocessor_config.json": picture,
            "video_preprocessor_config.json": clip,
            "processor_config.json": {"processor_class": "Qwen2VLProcessor"},
        }

    def start_tower(self, tower: Any, folder: Path) -> None:
        """Takes over the blocks of a CLIP tower. Its patches see each of two frames by half; its positions and first norm have no match."""
        _start_tower(tower, _weights(folder))

    def start_language(self, model: Any, tokenizer: Tokenizer, folder: Path) -> None:
        """Takes over Llama's layers, and the embedding of each token: that of the same token there, or the mean of its pieces."""
        _start_language(model, tokenizer, _weights(folder), Tokenizer.from_file(str(folder / "tokenizer.json")))


def _weights(folder: Path) -> dict[str, Tensor]:
    return {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}


def _size(cells: tuple[int, int]) -> dict[str, int]:
    return {"shortest_edge": cells[0] * CELL * CELL, "longest_edge": cells[1] * CELL * CELL}


def grid_of(frames: Pixels) -> tuple[int, int, int]:
    """Returns the grid of patches (t, h, w) of frames (num_frames, height, width, 3)."""
    return -(-len(frames) // 2), frames.shape[1] // PATCH, frames.shape[2] // PATCH


def patchify(frames: Pixels) -> Tensor:
    """Returns float32 (num_patches, 3 * 2 * PATCH * PATCH) from uint8 frames of the model's size; the last one is repeated if it is odd."""
    steps, rows, columns = grid_of(frames)
    if len(frames) % 2:
        frames = np.concatenate([frames, frames[-1:]])
    pixels = normalise(torch.from_numpy(np.ascontiguousarray(frames)))
    cut = pixels.reshape(steps, 2, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH, 3)
    return cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(steps * rows * columns, -1)


def _start_tower(tower: Any, llava: Mapping[str, Tensor]) -> None:
    prefix = next(name for name in llava if name.endswith("embeddings.patch_embedding.weight")).removesuffix(
        "embeddings.patch_embedding.weight"
    )

    def of(name: str) -> Tensor:
        return llava[prefix + name]

    kernel, gain = of("embeddings.patch_embedding.weight"), of("pre_layrnorm.weight")
    centred = (kernel - kernel.mean(0)) * gain[:, None, None, None]
    with torch.no_grad():
        tilt = TILT * (-1.0) ** torch.arange(len(centred))[:, None, None, None]
        halves = [centred * (1 + tilt) / 2, centred * (1 - tilt) / 2]
        tower.patch_embed.proj.weight.copy_(torch.stack(halves, 2) / TYPICAL_SPREAD)
        for number, block in enumerate(tower.blocks):
            layer = f"encoder.layers.{number}."
            parts = {
                "norm1": "layer_norm1",
                "norm2": "layer_norm2",
                "mlp.fc1": "mlp.fc1",
                "mlp.fc2": "mlp.fc2",
                "attn.proj": "self_attn.out_proj",
            }
            for end in ("weight", "bias"):
                for ours, theirs in parts.items():
                    block.get_parameter(f"{ours}.{end}").copy_(of(f"{layer}{theirs}.{end}"))
                fused = torch.cat([of(f"{layer}self_attn.{name}_proj.{end}") for name in "qkv"])
                block.get_parameter(f"attn.qkv.{end}").copy_(fused)


def _start_language(model: Any, tokenizer: Tokenizer, llava: Mapping[str, Tensor], other: Tokenizer) -> None:
    prefix = next(name for name in llava if name.endswith("embed_tokens.weight")).removesuffix("embed_tokens.weight")
    state = model.model.language_model.state_dict()
    copied = {name: llava[prefix + name] for name in state if prefix + name in llava and name != "embed_tokens.weight"}
    missing = {name: torch.zeros_like(value) for name, value in state.items() if name.endswith("_proj.bias")}
    model.model.language_model.load_state_dict({**copied, **missing}, strict=False)
    embeddings, head = llava[prefix + "embed_tokens.weight"], llava[next(name for name in llava if name.endswith("lm_head.weight"))]
    with torch.no_grad():
        for token, number in tokenizer.get_vocab().items():
            pieces = _pieces(token, other)
            if pieces:
                model.model.language_model.embed_tokens.weight[number] = embeddings[pieces].mean(0)
                model.lm_head.weight[number] = head[pieces].mean(0)


def _pieces(token: str, other: Tokenizer) -> list[int]:
    known = other.token_to_id(token)
    if known is not None:
        return [known]
    text = other.decoder.decode([token])
    return [] if token.startswith("<|") else other.encode(text, add_special_tokens=False).ids
