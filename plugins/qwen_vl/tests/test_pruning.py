"""What is left out of a video: the number is known from its header, the choice is the encoder's, and the answers are transformers'."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from inset import LLM, SamplingParams
from inset.config import read_configs
from inset.engine.build import build_front
from inset.engine.process.launcher import EngineProcess
from inset.engine.prompts import RequestOptions, TextPrompt
from inset.errors import ConfigError, InvalidRequestError
from inset.inputs import ItemPlan, MultiModalFeature, PlaceholderRange
from inset.media.decoded import VideoFrames
from inset.media.header import MediaHeader
from inset.processing.inputs import ProcessorInputs
from inset_qwen_vl.pruning import choose_kept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inset.inputs import ProcessedPrompt

FAMILIES = ["qwen2_vl", "qwen2_5_vl"]
GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
IMAGE, VIDEO = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"
IMAGE_ID, VIDEO_ID, TEXT_ID = 5, 6, 20
WAIT_SECONDS = 60.0

Part = str | tuple[int, ...]

# (height, width) is an image, (num_frames, height, width) a video of noise.
LAYOUTS: Sequence[Sequence[Part]] = [
    ["a", (8, 150, 200), "b"],
    ["c", (11, 112, 140), (80, 120), "d"],
    ["and", (4, 84, 84), "then", (12, 90, 120), (11, 112, 140), "e"],
]


# The choice


def choose_by_hand(rows: NDArray[np.float32], num_steps: int, num_kept: int) -> list[int]:
    """The same as `choose_kept`, one token after another."""
    per_step = len(rows) // num_steps
    change = []
    for index in range(per_step, len(rows)):
        one, before = rows[index].astype(np.float64), rows[index - per_step].astype(np.float64)
        change.append((-round(1024 * (1 - one @ before / np.linalg.norm(one) / np.linalg.norm(before))), index))
    return sorted([*range(per_step), *(index for _, index in sorted(change)[: num_kept - per_step])])


@pytest.mark.parametrize("num_kept", [6, 7, 20, 41, 42])
@pytest.mark.parametrize("likeness", [0.0, 0.9, 0.999])
def test_the_first_step_stays_and_of_the_others_what_differs_most(num_kept: int, likeness: float) -> None:
    rng = np.random.default_rng(num_kept)
    rows = rng.normal(size=(7, 6, 16)).astype(np.float32)
    for step in range(1, 7):
        rows[step] = likeness * rows[step - 1] + (1 - likeness) * rows[step]
    rows = rows.reshape(42, 16)
    assert choose_kept(torch.from_numpy(rows), num_steps=7, num_kept=num_kept).tolist() == choose_by_hand(rows, 7, num_kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_what_stands_still_the_earliest_tokens_stay_whatever_rounding_does(dtype: torch.dtype) -> None:
    """Equal rows, and rows that another batch rounded otherwise, whose cosines are only nearly 1."""
    still = torch.randn(6, 64, generator=torch.Generator().manual_seed(0)).repeat(5, 1)
    rounded = still * (1 + 1e-6 * torch.randn(30, 64, generator=torch.Generator().manual_seed(1)))
    for rows in (still, rounded):
        assert choose_kept(rows.to(dtype), num_steps=5, num_kept=11).tolist() == list(range(11))


def test_what_moves_stays_and_what_stands_still_is_left_out(load_qwen: Any) -> None:
    adapter = load_qwen("qwen2_vl")
    patches = np.random.default_rng(0).integers(0, 256, (64, 2, 14, 14, 3), dtype=np.uint8)
    steps = np.tile(patches, (4, 1, 1, 1, 1, 1)).reshape(4, 16, 4, 2, 14, 14, 3)
    steps[2, 15] = 255 - steps[2, 15]  # the last token of the third step; the tower of this family mixes what stands beside it
    item = {
        "pixel_values_videos": torch.from_numpy(steps.reshape(-1, 2, 14, 14, 3)),
        "video_grid_thw": torch.tensor([4, 8, 8]),
        "num_kept": torch.tensor([18]),
    }
    with torch.inference_mode():
        (rows,) = adapter.encode("video", [item])
        _, offsets = adapter.select_rows("video", item, rows)
    assert offsets[:, :16].tolist() == [[0] * 16, [n // 4 for n in range(16)], [n % 4 for n in range(16)]]
    assert offsets[:, 16:].tolist() == [[2, 3], [3, 3], [3, 3]], "it appears in the third step and is gone in the fourth"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_video_has_the_same_rows_and_places_bit_for_bit_whatever_runs_beside_it(family: str, load_qwen: Any) -> None:
    """Encoded again later, beside others, it must keep the same tokens: keys and values of the first time may still be there."""
    adapter = load_qwen(family)
    rng = np.random.default_rng(0)
    items = []
    for steps, height, width in [(3, 2, 2), (8, 4, 4), (2, 4, 2)]:
        patches = rng.integers(0, 256, (steps * height * width, 2, 14, 14, 3), dtype=np.uint8)
        grid, num_kept = torch.tensor([steps, height, width]), torch.tensor([steps * height * width // 4 - 1])
        items.append({"pixel_values_videos": torch.from_numpy(patches), "video_grid_thw": grid, "num_kept": num_kept})
    whole = {name: tensor for name, tensor in items[0].items() if name != "num_kept"}
    with torch.inference_mode():
        for batch in (items, items[::-1], [items[1], items[0], items[0]], [whole, *items]):
            for item, rows in zip(batch, adapter.encode("video", batch), strict=True):
                alone = adapter.select_rows("video", item, *adapter.encode("video", [item]))
                beside = adapter.select_rows("video", item, rows)
                assert torch.equal(beside.rows, alone.rows)
                assert item is whole or torch.equal(beside.offsets, alone.offsets)


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_are_those_of_get_rope_index_at_the_kept_places(family: str, load_qwen: Any, reference: Any) -> None:
    adapter, model = load_qwen(family), reference(family).model.model
    rng = np.random.default_rng(5)
    for _ in range(50):
        steps, height, width = (int(rng.integers(low, 9)) for low in (2, 1, 1))
        num_rows, grid, seconds = steps * height * width, (steps, 2 * height, 2 * width), float(rng.choice([0.08, 1 / 3, 1.0, 7.3]))
        num_kept = int(rng.integers(height * width, num_rows))
        before, behind = (int(count) for count in rng.integers(1, 9, 2))
        rows = rng.normal(size=(num_rows, 16)).astype(np.float32)
        item = {"video_grid_thw": torch.tensor(grid), "num_kept": torch.tensor([num_kept]), "second_per_grid_ts": torch.tensor([seconds])}
        encoded = adapter.select_rows("video", item, torch.from_numpy(rows))
        details = {"num_kept": num_kept, "second_per_grid_ts": seconds}
        feature = MultiModalFeature(
            modality="video",
            item_index=0,
            mm_hash=bytes(32),
            placeholder=PlaceholderRange(before, num_kept),
            data=None,
            plan=ItemPlan(num_tokens=num_kept, num_embeds=num_kept, grid=grid, details=details),
        )
        positions, following = adapter.get_positions([TEXT_ID] * (before + num_kept + behind), [feature])
        positions[:, before : before + num_kept] = positions[:, before, None] + encoded.offsets
        kept = before + np.array(choose_by_hand(rows, steps, num_kept))
        stays = [*range(before), *kept, *range(before + num_rows, before + num_rows + behind + 1)]
        ids = torch.tensor([[TEXT_ID] * before + [VIDEO_ID] * num_rows + [TEXT_ID] * (behind + 1)])
        given = {"second_per_grid_ts": torch.tensor([seconds])} if family == "qwen2_5_vl" else {}
        whole, _ = model.get_rope_index(ids, mm_token_type_ids=2 * (ids == VIDEO_ID).int(), video_grid_thw=torch.tensor([grid]), **given)
        assert torch.equal(torch.cat([positions, torch.full((3, 1), following)], dim=1), whole[:, 0, stays])
        assert torch.equal(encoded.rows, torch.from_numpy(rows[kept - before]))


# The number


def video_header(num_frames: int, side: int) -> MediaHeader:
    times = tuple(index / 24 for index in range(num_frames))
    return MediaHeader(
        modality="video",
        height=side,
        width=side,
        num_frames=num_frames,
        total_num_frames=num_frames,
        fps=24.0,
        frame_indices=tuple(range(num_frames)),
        timestamps_seconds=times,
        duration_seconds=num_frames / 24,
        decoded_bytes=3 * num_frames * side**2,
    )


def frames_of(header: MediaHeader, frames: NDArray[np.uint8]) -> VideoFrames:
    return VideoFrames(
        frames=frames,
        total_num_frames=len(frames),
        fps=24.0,
        duration_seconds=header.duration_seconds or 0.0,
        frame_indices=header.frame_indices,
        timestamps_seconds=header.timestamps_seconds,
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("rate", "expected"), [(0, 64), (0.01, 63), (0.25, 48), (0.5, 32), (0.7, 19), (0.75, 16), (0.9, 16), (0.99, 16)])
def test_the_number_that_stays_is_known_from_the_header(make_processor: Any, family: str, rate: float, expected: int) -> None:
    processor = make_processor(family, video={"size": {"shortest_edge": 1000, "longest_edge": 12544}})
    header, options = video_header(8, 112), {"video_pruning_rate": rate}
    plan = processor.plan("video", header, options=options)
    assert plan.grid == (4, 8, 8)
    assert plan.num_tokens == plan.num_embeds == expected
    decoded = frames_of(header, np.zeros((8, 112, 112, 3), np.uint8))
    tensors = processor.materialize("video", decoded, plan=plan, options=options)
    assert sum(array.nbytes for array in tensors.values()) == plan.tensor_bytes
    if rate:
        assert tensors["num_kept"].tolist() == [expected]
    else:
        assert plan == processor.plan("video", header, options={}), "a rate of 0 is no pruning"
        assert set(tensors) == set(processor.materialize("video", decoded, plan=plan, options={}))


def test_a_video_of_one_step_is_as_if_nothing_were_pruned(make_processor: Any) -> None:
    processor = make_processor("qwen2_5_vl")
    header = video_header(2, 112)
    assert processor.plan("video", header, options={"video_pruning_rate": 0.9}) == processor.plan("video", header, options={})


@pytest.mark.parametrize("rate", [1, -0.1, "half", True])
def test_a_rate_that_keeps_nothing_is_refused(make_processor: Any, rate: Any) -> None:
    with pytest.raises(InvalidRequestError, match="video_pruning_rate must be"):
        make_processor().plan("video", video_header(4, 56), options={"video_pruning_rate": rate})


def test_the_third_generation_does_not_know_pruning(make_processor: Any) -> None:
    inputs = ProcessorInputs(request_id="a", prompt="x", mm_processor_kwargs={"video_pruning_rate": 0.5})
    with pytest.raises(InvalidRequestError, match="'video_pruning_rate'"):
        make_processor("qwen3_vl").apply(inputs)


def test_transformers_is_not_given_a_pruned_video(make_processor: Any) -> None:
    processor = make_processor("qwen2_vl")
    header, options = video_header(8, 112), {"video_pruning_rate": 0.5}
    plan = processor.plan("video", header, options=options)
    item = processor.materialize("video", frames_of(header, np.zeros((8, 112, 112, 3), np.uint8)), plan=plan, options=options)
    with pytest.raises(ConfigError, match="without video_pruning_rate"):
        processor.to_transformers("video", [item])


# Answers


class PruningReference:
    """transformers with the whole prompt, from which rows of videos are taken out together with their positions."""

    def __init__(self, reference: Any, rate: float) -> None:
        self._reference = reference
        self._model = reference.model
        self._rate = rate

    def prune(self, prompt: ProcessedPrompt) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        """Returns the prompt's remaining tokens, ``(1, num_tokens, hidden_size)`` embeddings and ``(3, 1, num_tokens)`` positions."""
        given = self._reference.inputs(prompt)
        ids, model = given["input_ids"], self._model.model
        positions, _ = model.get_rope_index(**{name: value for name, value in given.items() if not name.startswith("pixel_values")})
        embeds = model.get_input_embeddings()(ids)
        stays = torch.ones(ids.shape[1], dtype=torch.bool)
        if "image_grid_thw" in given:
            embeds[ids == IMAGE_ID] = torch.cat(
                list(model.get_image_features(given["pixel_values"], given["image_grid_thw"]).pooler_output)
            )
        videos = model.get_video_features(given["pixel_values_videos"], given["video_grid_thw"]).pooler_output
        embeds[ids == VIDEO_ID] = torch.cat(list(videos))
        for place, rows, grid in zip(prompt.mm_placeholders["video"], videos, given["video_grid_thw"], strict=True):
            steps, num_rows = int(grid[0]), len(rows)
            kept = choose_by_hand(rows.numpy(), steps, max(num_rows // steps, int(num_rows * (1 - self._rate))))
            stays[place.offset : place.end] = False
            stays[place.offset + torch.tensor(kept)] = True
        return ids[0, stays].tolist(), embeds[:, stays], positions[:, :, stays]

    @torch.inference_mode()
    def answer(self, prompt: ProcessedPrompt, max_tokens: int = 10) -> tuple[list[int], list[int]]:
        """Returns the remaining tokens, and the answer up to where its two best logits are too close to tell."""
        tokens, embeds, positions = self.prune(prompt)
        answer: list[int] = []
        while len(answer) < max_tokens:
            mask = torch.ones(embeds.shape[:2], dtype=torch.int64)
            logits = self._model(inputs_embeds=embeds, position_ids=positions, attention_mask=mask, use_cache=False).logits[0, -1]
            best = logits.topk(2)
            if best.values[0] - best.values[1] < 1e-4:
                break
            answer.append(int(best.indices[0]))
            embeds = torch.cat([embeds, self._model.model.get_input_embeddings()(best.indices[None, :1])], dim=1)
            positions = torch.cat([positions, positions[:, :, -1:] + 1], dim=2)
        return tokens, answer


def array_of(part: tuple[int, ...]) -> Any:
    pixels = np.random.default_rng(part).integers(0, 256, (*part, 3), dtype=np.uint8)
    return Image.fromarray(pixels) if len(part) == 2 else (pixels, {"fps": 1.0 + part[0] / 2})


def prompt_of(layout: Sequence[Part], rate: float) -> TextPrompt:
    text = "".join(part if isinstance(part, str) else IMAGE if len(part) == 2 else VIDEO for part in layout)
    items = [part for part in layout if not isinstance(part, str)]
    data = {"image": [array_of(part) for part in items if len(part) == 2], "video": [array_of(part) for part in items if len(part) == 3]}
    options = RequestOptions(mm_processor_kwargs={"video": {"video_pruning_rate": rate}})
    return TextPrompt(prompt=text, multi_modal_data={name: media for name, media in data.items() if media}, options=options)


@pytest.fixture(scope="module")
def expected(reference: Any, tiny_checkpoint: Callable[..., Path]) -> Callable[[str, float], list[tuple[list[int], list[int]]]]:
    """Returns a function (family, rate) -> remaining tokens and answer of each of the `LAYOUTS`, by transformers."""
    known: dict[tuple[str, float], list[tuple[list[int], list[int]]]] = {}

    def of(family: str, rate: float) -> list[tuple[list[int], list[int]]]:
        if (family, rate) not in known:
            pruning = PruningReference(reference(family), rate)
            with LLM(tiny_checkpoint(family), engine_threads=1, mm_processor_cache_gb=0) as llm:
                whole = [llm._call(llm.engine.core.process(prompt_of(layout, 0))) for layout in LAYOUTS]
            known[family, rate] = [pruning.answer(prompt) for prompt in whole]
        return known[family, rate]

    return of


def assert_answers(outputs: Sequence[Any], expected: Sequence[tuple[list[int], list[int]]]) -> None:
    for output, (tokens, answer) in zip(outputs, expected, strict=True):
        assert list(output.prompt_token_ids) == tokens
        assert len(answer) >= 4, "a reference that ends at once compares nothing"
        assert list(output.outputs[0].token_ids)[: len(answer)] == answer


OPTIONS: dict[str, dict[str, Any]] = {
    "whole prompts": {},
    "windows of 16 tokens": {"max_num_batched_tokens": 16},
    "windows of 64 tokens": {"max_num_batched_tokens": 64},
    "no cache at all": {"enable_prefix_caching": False, "mm_processor_cache_gb": 0, "max_num_batched_tokens": 64},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", OPTIONS)
def test_answers_about_pruned_videos_equal_transformers(family: str, options: str, tiny_checkpoint: Any, expected: Any) -> None:
    with LLM(tiny_checkpoint(family), engine_threads=1, **OPTIONS[options]) as llm:
        for rate in (0.5, 0.8, 0.5):  # together; the last time with warm caches, which hold the same videos pruned otherwise
            outputs = llm.generate([prompt_of(layout, rate) for layout in LAYOUTS], GREEDY, use_tqdm=False)
            assert_answers(outputs, expected(family, rate))


def test_a_prefix_that_ends_inside_a_pruned_video_is_answered_like_the_whole(tiny_checkpoint: Any) -> None:
    first, second = (prompt_of([(8, 150, 200), text], 0.5) for text in ("?", "!"))
    with LLM(tiny_checkpoint("qwen2_5_vl"), engine_threads=1) as llm:
        llm.generate(first, GREEDY)
        [shared] = llm.generate(second, GREEDY)
    with LLM(tiny_checkpoint("qwen2_5_vl"), engine_threads=1, enable_prefix_caching=False) as llm:
        [alone] = llm.generate(second, GREEDY)
    assert 0 < shared.usage.cached_tokens < list(shared.prompt_token_ids).index(VIDEO_ID) + list(shared.prompt_token_ids).count(VIDEO_ID)
    assert shared.outputs[0].token_ids == alone.outputs[0].token_ids


@pytest.fixture(scope="module")
def served(tiny_checkpoint: Any) -> Iterator[tuple[EngineProcess, Any]]:
    configs = read_configs(
        {"model": str(tiny_checkpoint("qwen2_5_vl")), "engine_threads": 1, "max_num_batched_tokens": 64, "trust_request_mm_kwargs": True},
        {},
    )
    with EngineProcess(configs) as process:
        process.wait_until_listening()
        yield process, configs


def test_answers_of_an_engine_in_another_process_equal_transformers(served: tuple[EngineProcess, Any], expected: Any) -> None:
    process, configs = served

    async def ask(engine: Any, layout: Sequence[Part]) -> Any:
        async for output in engine.generate(prompt_of(layout, 0.5), GREEDY):
            last = output
        return last

    async def run() -> None:
        async with build_front(configs, process.folder, front_id="0") as engine, asyncio.timeout(WAIT_SECONDS):
            for _ in range(2):
                assert_answers(await asyncio.gather(*(ask(engine, layout) for layout in LAYOUTS)), expected("qwen2_5_vl", 0.5))

    asyncio.run(run())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_still_video_keeps_exactly_the_promised_number(family: str, tiny_checkpoint: Any) -> None:
    frames = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 60, 90, 3), dtype=np.uint8), 10, axis=0)
    with LLM(tiny_checkpoint(family), engine_threads=1, mm_processor_kwargs={"video_pruning_rate": 0.7}, max_num_batched_tokens=16) as llm:
        prompt = TextPrompt(prompt=f"{VIDEO}?", multi_modal_data={"video": [(frames, {"fps": 2.0})]})
        [plan] = llm._call(llm.engine.core.process(prompt)).mm_plans["video"]
        [output] = llm.generate(prompt, GREEDY)
    assert plan.grid is not None
    assert list(output.prompt_token_ids).count(VIDEO_ID) == plan.num_tokens == int(0.3 * math.prod(plan.grid) / 4)
    assert len(output.outputs[0].token_ids) == 10
