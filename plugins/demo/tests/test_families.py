"""Training sees what serving sees: the same features, and the same positions, as the model of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clips import draw_clip
from data import Film, Item, Picture
from families import FAMILIES
from families.qwen_vl import MERGE, VIDEO, QwenVL, grid_of, patchify
from packing import Row
from scenes import draw_scene


@pytest.fixture(scope="module")
def items() -> list[Item]:
    clip, wide, tall = draw_clip("test", 1, (112, 84)), draw_scene("test", 1, (168, 84)), draw_scene("test", 2, (84, 112))
    pictures = [Picture(scene.picture, scene.shapes, scene.patches) for scene in (wide, tall)]
    return [pictures[0], Film(clip.frames, clip.actors, clip.patches), pictures[1]]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_model_is_small(name: str) -> None:
    assert sum(parameter.numel() for parameter in FAMILIES[name].new_model().parameters()) < 5_000_000


def test_tower_of_qwen_vl_sees_grids_of_one_batch_as_transformers_does(items: list[Item]) -> None:
    family = QwenVL()
    model = family.new_model()
    with torch.no_grad():
        features = family.look(family.tower_of(model), items)
        model.set_attn_implementation("sdpa")
        patches = torch.cat([patchify(item.frames) for item in items])
        wanted = model.model.visual(patches, grid_thw=torch.tensor([grid_of(item.frames) for item in items]))
    torch.testing.assert_close(features, wanted.last_hidden_state, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(family.project(model, features), wanted.pooler_output, rtol=1e-4, atol=1e-4)


def test_positions_of_qwen_vl_are_those_of_transformers(items: list[Item]) -> None:
    family = QwenVL()
    row = Row(family.place)
    row.add((1, 5))
    for item in items:
        row.show(item)
        row.add((40, 41))
    ids = torch.tensor([row.ids])
    grids = {kind: torch.tensor([grid_of(i.frames) for i in items if isinstance(i, kind)]) for kind in (Picture, Film)}
    types = (ids == family.media_tokens[0]).int() + 2 * (ids == VIDEO).int()
    wanted, _ = family.new_model().model.get_rope_index(ids, types, grids[Picture], grids[Film])
    np.testing.assert_array_equal(np.concatenate(row.positions, 1), wanted[:, 0].numpy())


def test_labels_of_qwen_vl_follow_the_order_of_its_patches() -> None:
    scene = draw_scene("test", 8, (140, 112), grid=(8, 10))
    arranged = QwenVL().arrange(scene.patches.astype(np.int64))
    pixels = np.repeat(np.repeat(scene.patches, 14, 0), 14, 1)[..., None].repeat(3, 2)
    first_of_patch = patchify(pixels[None])[:, 0]
    levels = ((first_of_patch * 0.25 + 0.5) * 255).round().long()
    np.testing.assert_array_equal(levels.numpy(), arranged)
    assert len(arranged) // MERGE**2 == 20
