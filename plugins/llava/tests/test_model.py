from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inset.checkpoint import load_checkpoint
from inset.errors import ConfigError
from inset.inputs import EngineRequest, ItemPlan, MultiModalFeature, PlaceholderRange
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions, ModelAdapter
from inset.modeling.loading import load_adapter
from inset.sampling_params import SamplingParams
from inset.testing.step_driver import StepDriver
from inset.worker.attention_check import check_paged_attention
from inset.worker.model_runner import ModelRunner
from inset_llava.model import LlavaAdapter

CheckpointFactory = Callable[..., Path]
Item = dict[str, np.ndarray[Any, Any]]

CPU = torch.device("cpu")
IMAGE_TOKEN = 3
NUM_BLOCKS = 512
ADAPTERS = {"llava": "inset_llava.model:LlavaAdapter", "next": "inset_llava.model:LlavaNextAdapter"}

VARIANTS = [
    pytest.param("llava", {}, id="clip"),
    pytest.param("llava", {"layout": "transformers"}, id="clip-transformers-layout"),
    pytest.param("llava", {"vision_feature_select_strategy": "full"}, id="clip-full"),
    pytest.param("llava", {"vision_feature_layer": (-2, 1), "seed": 3}, id="clip-two-layers"),
    pytest.param("llava", {"tower": "siglip"}, id="siglip"),
    pytest.param("llava", {"tower": "siglip", "layout": "transformers", "vision_feature_layer": -1}, id="siglip-transformers-layout"),
    pytest.param("llava", {"text_config": {"model_type": "qwen2", "tie_word_embeddings": True}}, id="qwen2-tied"),
    pytest.param("llava", {"text_config": {"model_type": "mistral", "sliding_window": 24}}, id="mistral-window"),
    pytest.param("next", {}, id="next"),
    pytest.param("next", {"layout": "transformers", "seed": 5}, id="next-transformers-layout"),
]

LAYOUTS: dict[str, list[int | str]] = {
    "text": [30],
    "one": [5, "a", 8],
    "first": ["b", 20],
    "last": [20, "c"],
    "four": [4, "a", 3, "d", "e", 6, "f", 5],
    "twice": ["g", 4, "g", 7],
}


class Reference:
    """The transformers model of one checkpoint, random processed images for it, and its answers."""

    def __init__(self, family: str, folder: Path) -> None:
        import transformers

        self.family = family
        self.checkpoint = load_checkpoint(folder)
        name = "LlavaForConditionalGeneration" if family == "llava" else "LlavaNextForConditionalGeneration"
        self.model: Any = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()

    def make_item(self, seed: int) -> Item:
        rng = np.random.default_rng(seed)
        if self.family == "llava":
            return {"pixel_values": rng.integers(0, 256, (56, 56, 3), dtype=np.uint8)}
        from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

        height, width = (int(side) for side in rng.integers(10, 120, 2))
        num_tiles = image_size_to_num_patches((height, width), self.checkpoint.config["image_grid_pinpoints"], 28)
        tiles = rng.integers(0, 256, (num_tiles, 28, 28, 3), dtype=np.uint8)
        return {"pixel_values": tiles, "image_sizes": np.array([height, width], dtype=np.int64)}

    def inputs(self, items: Sequence[Item]) -> dict[str, torch.Tensor]:
        """Returns what the model's processor would give for these images."""
        if not items:
            return {}
        mean, std = (torch.tensor(self.checkpoint.preprocessor_config[key]) for key in ("image_mean", "image_std"))
        pixels = [((torch.from_numpy(item["pixel_values"]).float() / 255 - mean) / std).movedim(-1, -3) for item in items]
        if self.family == "llava":
            return {"pixel_values": torch.stack(pixels)}
        most = max(len(tiles) for tiles in pixels)
        padded = [torch.cat([tiles, tiles.new_zeros(most - len(tiles), *tiles.shape[1:])]) for tiles in pixels]
        return {"pixel_values": torch.stack(padded), "image_sizes": torch.from_numpy(np.stack([item["image_sizes"] for item in items]))}

    def encode(self, items: Sequence[Item]) -> list[torch.Tensor]:
        with torch.inference_mode():
            return list(self.model.model.get_image_features(**self.inputs(items), return_dict=True).pooler_output)

    def make_request(self, request_id: str, layout: Sequence[int | str]) -> EngineRequest:
        """Returns a request: a number is that many text tokens, text is the name of a picture."""
        ids: list[int] = []
        features: list[MultiModalFeature] = []
        rng = np.random.default_rng(list(request_id.encode()))
        for part in layout:
            if isinstance(part, int):
                ids.extend(rng.integers(10, 250, part).tolist())
                continue
            item = self.make_item(sum(part.encode()))
            count = len(self.encode([item])[0])
            features.append(
                MultiModalFeature(
                    modality="image",
                    item_index=len(features),
                    mm_hash=part.encode().ljust(32, b"."),
                    placeholder=PlaceholderRange(len(ids), count),
                    data=item,
                    plan=ItemPlan(num_tokens=count, num_embeds=count),
                )
            )
            ids.extend([IMAGE_TOKEN] * count)
        params = SamplingParams(temperature=0, max_tokens=12)
        return EngineRequest(request_id=request_id, prompt_token_ids=ids, mm_features=tuple(features), sampling_params=params)

    def answer(self, request: EngineRequest) -> list[int]:
        """Returns what `generate` says, up to where its two best logits are too close to tell."""
        items = [dict(feature.data) for feature in request.mm_features if feature.data is not None]
        prompt = torch.tensor([list(request.prompt_token_ids)])
        output = self.model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            **self.inputs(items),
            max_new_tokens=request.sampling_params.max_tokens,
            eos_token_id=None,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        answer: list[int] = []
        for logits, token in zip(output.logits, output.sequences[0, prompt.shape[1] :].tolist(), strict=True):
            best = logits[0].topk(2).values
            if best[0] - best[1] < 1e-4:
                break
            answer.append(token)
        return answer


def load(family: str, folder: Path, dtype: torch.dtype = torch.float32) -> ModelAdapter:
    torch.set_num_threads(1)
    return load_adapter(ADAPTERS[family], load_checkpoint(folder), LoadOptions(CPU, dtype, register_paged_attention()))


def drive(adapter: ModelAdapter, dtype: torch.dtype = torch.float32) -> StepDriver:
    runner = ModelRunner(adapter, device=CPU, dtype=dtype, block_size=16, num_blocks=NUM_BLOCKS, max_num_seqs=16, max_model_len=1024)
    return StepDriver(runner, block_size=16, num_blocks=NUM_BLOCKS)


@pytest.mark.parametrize(("family", "options"), VARIANTS)
def test_tokens_and_logits_equal_the_references(tiny_checkpoint: CheckpointFactory, family: str, options: dict[str, Any]) -> None:
    folder = tiny_checkpoint(family, **options)
    reference = Reference(family, folder)
    adapter = load(family, folder)
    ids = torch.arange(5, 85)
    with torch.inference_mode():
        torch.testing.assert_close(adapter.plain_forward(ids), reference.model(input_ids=ids[None]).logits[0], rtol=1e-4, atol=1e-4)
    check_paged_attention(adapter, device=CPU, dtype=torch.float32)
    requests = [reference.make_request(name, layout) for name, layout in LAYOUTS.items()]
    expected = {request.request_id: reference.answer(request) for request in requests}
    assert sum(len(answer) for answer in expected.values()) > 40, "references that end at once compare nothing"
    for window in (16, 64, 1000):
        answers = drive(adapter).run(requests, window=window)
        for name, tokens in expected.items():
            assert answers[name][: len(tokens)] == tokens, (name, window)


@pytest.mark.parametrize("family", ["llava", "next"])
def test_eight_strangers_in_one_batch_change_nothing(tiny_checkpoint: CheckpointFactory, family: str) -> None:
    folder = tiny_checkpoint(family)
    reference = Reference(family, folder)
    requests = [reference.make_request(f"r{i}", [3 + i, f"picture {i}", 12 - i]) for i in range(8)]
    answers = drive(load(family, folder)).run(requests, window=40)
    for request in requests:
        expected = reference.answer(request)
        assert answers[request.request_id][: len(expected)] == expected


@pytest.mark.parametrize("family", ["llava", "next"])
def test_another_picture_gives_another_answer(tiny_checkpoint: CheckpointFactory, family: str) -> None:
    """Same text, same number of tokens: only the picture differs."""
    folder = tiny_checkpoint(family)
    reference = Reference(family, folder)
    answers = drive(load(family, folder)).run(
        [
            EngineRequest(
                request_id=f"r{i}",
                prompt_token_ids=request.prompt_token_ids,
                mm_features=request.mm_features,
                sampling_params=request.sampling_params,
            )
            for i in range(4)
            for request in [reference.make_request("same", [6, f"picture {i}", 9])]
        ]
    )
    assert len({tuple(answer) for answer in answers.values()}) == 4


@pytest.mark.parametrize(("family", "options"), [("llava", {}), ("llava", {"tower": "siglip"}), ("next", {})])
def test_rows_of_a_batch_equal_the_references(tiny_checkpoint: CheckpointFactory, family: str, options: dict[str, Any]) -> None:
    folder = tiny_checkpoint(family, **options)
    reference = Reference(family, folder)
    items = [reference.make_item(seed) for seed in range(6)]
    adapter = load(family, folder)
    assert len({adapter.encoder_batch_key("image", item) for item in items}) == 1
    with torch.inference_mode():
        rows = adapter.encode("image", [{name: torch.from_numpy(array) for name, array in item.items()} for item in items])
    for own, expected in zip(rows, reference.encode(items), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("layer", "num_kept"), [(-1, 3), (-2, 2), (-3, 1), (1, 1), (2, 2), ((-3, -2), 2), ((0, -1), 3)], ids=str)
def test_tower_layers_behind_the_features_are_dropped(tiny_checkpoint: CheckpointFactory, layer: Any, num_kept: int) -> None:
    folder = tiny_checkpoint("llava", vision_feature_layer=layer)
    reference = Reference("llava", folder)
    adapter = load("llava", folder)
    assert isinstance(adapter, LlavaAdapter)
    assert len(adapter.module.model.vision_tower.encoder.layers) == num_kept
    item = reference.make_item(0)
    with torch.inference_mode():
        (rows,) = adapter.encode("image", [{"pixel_values": torch.from_numpy(item["pixel_values"])}])
    torch.testing.assert_close(rows, reference.encode([item])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_passes_the_check_and_answers(tiny_checkpoint: CheckpointFactory, dtype: torch.dtype) -> None:
    folder = tiny_checkpoint("llava")
    adapter = load("llava", folder, dtype)
    check_paged_attention(adapter, device=CPU, dtype=dtype)
    request = Reference("llava", folder).make_request("r", [5, "a", 8])
    assert len(drive(adapter, dtype).run([request])["r"]) == 12


def test_missing_unexpected_and_misshapen_weights_are_named(tiny_checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_checkpoint("llava")
    tensors = load_file(folder / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())

    def load_changed(changed: Mapping[str, torch.Tensor]) -> None:
        save_file(dict(changed), tmp_path / "model.safetensors")
        load("llava", tmp_path)

    name = "multi_modal_projector.linear_1.weight"
    with pytest.raises(ConfigError, match=r"no tensors for: model\.multi_modal_projector\.linear_1\.weight"):
        load_changed({n: t for n, t in tensors.items() if n != name})
    with pytest.raises(ConfigError, match=r"does not have: extra\.weight"):
        load_changed({**tensors, "extra.weight": torch.zeros(2)})
    with pytest.raises(ConfigError, match=r"other shapes than its config says: .*linear_1"):
        load_changed({**tensors, name: torch.zeros(3, 3)})
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ConfigError, match="cannot be read"):
        load("llava", tmp_path)


def test_a_text_model_with_another_kind_of_attention_is_refused_by_name(tiny_checkpoint: CheckpointFactory) -> None:
    chunked = {"model_type": "llama4_text", "intermediate_size_mlp": 64, "num_local_experts": 2, "attention_chunk_size": 32}
    folder = tiny_checkpoint("llava", text_config=chunked)
    with pytest.raises(ConfigError, match="chunked_attention"):
        load("llava", folder)
