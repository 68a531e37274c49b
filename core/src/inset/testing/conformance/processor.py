"""What every processor must show: inherit `ProcessorConformance`, name the plugin module, and give a checkpoint.

The cases are numbered; ``docs/reference/conformance.md`` lists them under the same numbers.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from inset.cache.base import ProcessorCacheFront
from inset.cache.lru import LruCacheFront
from inset.cache.processor_only import ProcessorOnlyCacheFront
from inset.errors import ConfigError, InvalidRequestError, PlaceholderError
from inset.identity import JSON, canonical_json
from inset.inputs import MODALITIES, PlaceholderRange, ProcessedPrompt
from inset.testing.family import NUM_SIZES, DecodeCounter, FamilyBench, Item, Prompter, make_sample_media
from inset.testing.golden import process_image_with_transformers
from inset.testing.headers import with_frames
from inset.testing.sameness import assert_same_prompt, assert_same_tensors
from inset.testing.sample_images import encode_image, make_pixels

__all__ = ["ProcessorConformance", "assert_same_prompt", "assert_same_tensors"]

_CACHE_BYTES = 1 << 28
_WAIT_SECONDS = 60.0


def flat_ranges(prompt: ProcessedPrompt) -> list[PlaceholderRange]:
    """The placeholders of all modalities in the order of the prompt."""
    return sorted((r for ranges in prompt.mm_placeholders.values() for r in ranges), key=lambda r: r.offset)


class ProcessorConformance:
    """Inherited tests of a model family's `MultiModalProcessor`.

    A subclass names `plugin`, and has a fixture ``checkpoint_folder`` that returns the folder of a small checkpoint with configs and
    tokenizer; weights are not read.

    Attributes:
        plugin: The plugin module, whose hooks are called.
        options: Modality -> processor options with values that change the result; a modality without options is left out.
        decode_options: Modality -> decode options of an operator, such as fewer frames; the largest item goes by them too.
        most_frames: Videos of 1 to so many frames are planned; set it lower where the checkpoint's decoder takes fewer.
        image_tolerance: Largest difference of a normalised pixel from that of transformers' own image processor.
    """

    plugin: ModuleType
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {}
    decode_options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {}
    most_frames: ClassVar[int] = 8
    image_tolerance: ClassVar[float] = 0.06

    def make_media(self, modality: str, number: int) -> bytes:
        """Returns encoded media; override it where the family needs other media than `make_sample_media` makes."""
        return make_sample_media(modality, number)

    @pytest.fixture
    def bench(self, checkpoint_folder: Path) -> Iterator[FamilyBench]:
        """The plugin under test with the checkpoint."""
        with FamilyBench(self.plugin, checkpoint_folder) as bench:
            yield bench

    @pytest.fixture
    def prompter(self, bench: FamilyBench) -> Prompter:
        """Requests for the processor without a cache."""
        return self.make_prompter(bench)

    def make_prompter(self, bench: FamilyBench, **options: Any) -> Prompter:
        """Returns requests for another processor of the same checkpoint; `options` go to `FamilyBench.build`."""
        return Prompter(bench.build(**options).processor, self.make_media)

    def modalities(self, prompter: Prompter) -> list[str]:
        """Returns the modalities that the checkpoint takes, in a fixed order."""
        return [modality for modality in MODALITIES if prompter.processor.info.get_mm_limits().get(modality)]

    def mixed(self, prompter: Prompter, numbers: Sequence[int] = range(NUM_SIZES)) -> list[Item]:
        """Returns items of all modalities by turns, as many as the checkpoint takes in one prompt."""
        limits = prompter.processor.info.get_mm_limits()
        turns = [(number, modality) for number in range(len(numbers)) for modality in self.modalities(prompter)]
        return [Item(modality, numbers[turn]) for turn, modality in turns if turn < limits[modality]]

    def test_01_every_placeholder_is_as_long_as_its_plan_says_and_none_overlaps(self, prompter: Prompter) -> None:
        prompt = prompter.apply(self.mixed(prompter))
        for modality, ranges in prompt.mm_placeholders.items():
            for placeholder, plan in zip(ranges, prompt.mm_plans[modality], strict=True):
                assert (placeholder.length, placeholder.num_embeds) == (plan.num_tokens, plan.num_embeds)
                assert placeholder.is_embed == plan.is_embed, "the plan says which positions receive an embedding"
        end = 0
        for placeholder in flat_ranges(prompt):
            assert placeholder.offset >= end
            end = placeholder.end
        assert end <= len(prompt.prompt_token_ids)

    def test_02_plans_from_headers_say_what_the_items_become(self, prompter: Prompter) -> None:
        items = self.mixed(prompter)
        planned = prompter.processor.plan_prompt(prompter.make_inputs(items))
        applied = prompter.apply(items)
        for modality, plans in planned.mm_plans.items():
            for plan, final in zip(plans, applied.mm_plans[modality], strict=True):
                assert plan == final if plan.is_exact else (final.is_exact and final.num_tokens <= plan.num_tokens)
        if all(plan.is_exact for plans in planned.mm_plans.values() for plan in plans):
            assert list(planned.prompt_token_ids) == list(applied.prompt_token_ids)

    def test_03_tensors_have_the_size_that_was_planned(self, prompter: Prompter) -> None:
        prompt = prompter.apply(self.mixed(prompter))
        for modality, items in prompt.mm_kwargs.items():
            for tensors, plan in zip(items, prompt.mm_plans[modality], strict=True):
                assert tensors is not None
                assert sum(array.nbytes for array in tensors.values()) == plan.tensor_bytes <= plan.peak_bytes
                for name, array in tensors.items():
                    assert array.flags["C_CONTIGUOUS"], name
                    assert array.dtype.kind in "biuf", name

    def test_04_planning_decodes_nothing(self, prompter: Prompter, monkeypatch: pytest.MonkeyPatch) -> None:
        counter = DecodeCounter(prompter, monkeypatch)
        prompter.processor.plan_prompt(prompter.make_inputs(self.mixed(prompter)))
        assert counter.count == 0

    @pytest.mark.parametrize("cache_class", [LruCacheFront, ProcessorOnlyCacheFront])
    def test_05_a_cache_changes_nothing(
        self, bench: FamilyBench, prompter: Prompter, cache_class: type[ProcessorCacheFront], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        items = self.mixed(prompter)
        expected = prompter.apply(items)
        cache = cache_class(capacity_bytes=_CACHE_BYTES)
        cached = self.make_prompter(bench, cache=cache)
        miss = cached.apply(items, request_id="miss")
        counter = DecodeCounter(cached, monkeypatch)
        hit = cached.apply(items, request_id="hit")
        assert counter.count == 0, "a hit decodes nothing"
        if cache_class is LruCacheFront:  # its tensors travel to the engine half on their own
            miss, hit = (dataclasses.replace(prompt, mm_kwargs=expected.mm_kwargs) for prompt in (miss, hit))
        assert_same_prompt(miss, expected)
        assert_same_prompt(hit, expected)
        cache.close()

    def test_06_order_and_place_of_options_change_nothing(self, prompter: Prompter) -> None:
        for modality, options in self.options.items():
            items = [Item(modality, 0)]
            first = prompter.apply(items, mm_processor_kwargs={modality: dict(options)})
            assert_same_prompt(prompter.apply(items, mm_processor_kwargs={modality: dict(reversed(list(options.items())))}), first)
            assert_same_prompt(prompter.apply(items, mm_processor_kwargs=dict(options)), first)

    def test_07_an_option_of_the_operator_is_the_same_as_one_of_the_request(self, bench: FamilyBench, prompter: Prompter) -> None:
        for modality, options in self.options.items():
            operator = self.make_prompter(bench, mm_processor_kwargs={modality: dict(options)})
            items = [Item(modality, 0)]
            assert_same_prompt(operator.apply(items), prompter.apply(items, mm_processor_kwargs={modality: dict(options)}))

    def test_08_another_value_of_an_option_is_another_item(self, prompter: Prompter) -> None:
        for modality, options in self.options.items():
            plain = prompter.apply([Item(modality, 0)])
            for name, value in options.items():
                changed = prompter.apply([Item(modality, 0)], mm_processor_kwargs={modality: {name: value}})
                assert changed.mm_hashes != plain.mm_hashes, name

    def test_09_an_option_that_nothing_knows_is_refused(self, prompter: Prompter) -> None:
        with pytest.raises(InvalidRequestError, match="no_such_option"):
            prompter.processor.plan_prompt(prompter.make_inputs([], mm_processor_kwargs={"no_such_option": 1}))

    def test_10_an_item_is_the_same_wherever_it_stands(self, prompter: Prompter) -> None:
        items = self.mixed(prompter)
        together = prompter.apply(items)
        turned = prompter.apply(items[::-1])
        for modality in together.mm_hashes:
            assert list(together.mm_hashes[modality]) == list(turned.mm_hashes[modality])[::-1]
            for tensors, other in zip(together.mm_kwargs[modality], list(turned.mm_kwargs[modality])[::-1], strict=True):
                assert_same_tensors(tensors, other)

    def test_11_an_item_is_the_same_alone_and_among_others(self, prompter: Prompter) -> None:
        items = self.mixed(prompter)
        together = prompter.apply(items)
        counts = dict.fromkeys(MODALITIES, 0)
        for item in items:
            alone = prompter.apply([item])
            index, counts[item.modality] = counts[item.modality], counts[item.modality] + 1
            assert alone.mm_hashes[item.modality][0] == together.mm_hashes[item.modality][index]
            assert alone.mm_plans[item.modality][0] == together.mm_plans[item.modality][index]
            assert_same_tensors(alone.mm_kwargs[item.modality][0], together.mm_kwargs[item.modality][index])

    def test_12_other_content_is_another_item(self, prompter: Prompter) -> None:
        for modality in self.modalities(prompter):
            prompts = [prompter.apply([Item(modality, number)]) for number in (0, NUM_SIZES, 1)]
            assert len({prompt.mm_hashes[modality][0] for prompt in prompts}) == 3
            first, second = (prompt.mm_kwargs[modality][0] for prompt in prompts[:2])
            assert first is not None
            assert second is not None
            assert any(array.tobytes() != second[name].tobytes() for name, array in first.items())

    def test_13_a_salt_separates_and_changes_nothing_else(self, prompter: Prompter) -> None:
        items = self.mixed(prompter)
        prompts = [prompter.apply(items, cache_salt=salt) for salt in (None, "one", "two")]
        for modality in self.modalities(prompter):
            assert len({prompt.mm_hashes[modality][0] for prompt in prompts}) == 3
        for prompt in prompts[1:]:
            assert list(prompt.prompt_token_ids) == list(prompts[0].prompt_token_ids)

    def test_14_another_version_of_the_plugin_never_reads_what_this_one_cached(self, bench: FamilyBench, prompter: Prompter) -> None:
        items = self.mixed(prompter)
        expected = prompter.processor.plan_prompt(prompter.make_inputs(items))
        same, other = (self.make_prompter(bench, version=version) for version in ("1.0", "1.1"))
        assert same.processor.plan_prompt(same.make_inputs(items)).mm_hashes == expected.mm_hashes
        assert other.processor.plan_prompt(other.make_inputs(items)).mm_hashes != expected.mm_hashes

    def test_15_other_preprocessor_configs_are_another_identity(self, bench: FamilyBench, prompter: Prompter) -> None:
        for name in ("config", "preprocessor_config", "processor_config"):
            changed: dict[str, Any] = {name: {**getattr(bench.checkpoint, name), "a_field_that_nothing_reads": 1}}
            checkpoint = dataclasses.replace(bench.checkpoint, **changed)
            assert bench.build(checkpoint=checkpoint).processor.fingerprint != prompter.processor.fingerprint, name

    def test_16_encoded_bytes_and_a_reference_are_the_same_item(self, prompter: Prompter) -> None:
        for modality in self.modalities(prompter):
            item = Item(modality, 1)
            given = prompter.apply([item], mm_data={modality: [self.make_media(*item)]})
            assert_same_prompt(given, prompter.apply([item]))

    def test_17_many_threads_get_the_same(self, prompter: Prompter) -> None:
        items = self.mixed(prompter)
        expected = {item: prompter.apply([item]) for item in items}
        with ThreadPoolExecutor(8) as pool:
            work = [pool.submit(prompter.apply, [item], request_id=f"bench {n}") for n, item in enumerate(items * 4)]
            for item, future in zip(items * 4, work, strict=True):
                assert_same_prompt(future.result(_WAIT_SECONDS), expected[item])

    def test_18_planning_is_pure_and_its_details_are_json(self, prompter: Prompter) -> None:
        processor = prompter.processor
        options = processor.info.scope_processor_kwargs({})
        for item in self.mixed(prompter):
            header = prompter.make_ref(item).header
            first, second = (processor.plan(item.modality, header, options=options[item.modality]) for _ in range(2))
            assert first == second
            canonical_json(dict(first.details))

    def test_19_materialising_leaves_the_decoded_media_alone(self, prompter: Prompter) -> None:
        processor = prompter.processor
        options = processor.info.scope_processor_kwargs({})
        for modality in self.modalities(prompter):
            ref = prompter.make_ref(Item(modality, 0))
            decoded = ref.decode()
            plan = prompter.apply([Item(modality, 0)]).mm_plans[modality][0]
            arrays = [part for part in (decoded, *vars_of(decoded)) if isinstance(part, np.ndarray)]
            before = [array.tobytes() for array in arrays]
            tensors = processor.materialize(modality, decoded, plan=plan, options=options[modality])
            assert [array.tobytes() for array in arrays] == before
            assert not any(np.shares_memory(array, tensor) for array in arrays for tensor in tensors.values())

    def test_20_another_number_of_markers_than_items_is_refused(self, prompter: Prompter) -> None:
        for modality in self.modalities(prompter):
            if not prompter.processor.info.get_placeholder_text(modality, 0):
                continue
            for num_markers in (0, 2):
                prompt = prompter.make_text([Item(modality, 0)] * num_markers)
                with pytest.raises(PlaceholderError):
                    prompter.apply([Item(modality, 0)], prompt=prompt)

    def test_21_the_largest_dummy_item_is_the_largest_item(self, bench: FamilyBench) -> None:
        built = bench.build()
        info = built.processor.info
        for modality in info.get_supported_mm_limits():
            plan = built.dummy_inputs.get_largest_plan(built.processor, modality)
            assert plan.num_tokens == info.max_tokens_per_item(modality)
            assert plan.num_embeds <= plan.num_tokens

    @pytest.mark.parametrize("operator", ["plain", "options", "decode_options"])
    def test_22_no_size_and_no_number_of_frames_takes_more_tokens_than_the_largest_item(self, bench: FamilyBench, operator: str) -> None:
        given = {"options": {"mm_processor_kwargs": self.options}, "decode_options": {"media_io_kwargs": self.decode_options}}
        prompter = self.make_prompter(bench, **given.get(operator, {}))
        processor, rng = prompter.processor, random.Random(22)
        for modality in [modality for modality in self.modalities(prompter) if modality in ("image", "video")]:
            options = processor.info.scope_processor_kwargs({})[modality]
            most, header = processor.info.max_tokens_per_item(modality), prompter.make_ref(Item(modality, 0)).header
            for number in range(200):
                width, height = (rng.randint(1, high) for high in rng.choices((30, 300, 3000), k=2))
                sized = dataclasses.replace(header, width=width, height=height, decoded_bytes=3 * width * height)
                if modality == "video":
                    sized = with_frames(sized, 1 + number % self.most_frames)
                try:
                    plan = processor.plan(modality, sized, options=options)
                except InvalidRequestError:
                    continue  # a shape that the family refuses
                assert 0 < plan.num_embeds <= plan.num_tokens <= most, (modality, width, height, sized.num_frames)

    def test_23_a_prompt_without_media_is_text(self, prompter: Prompter) -> None:
        prompt = prompter.apply([])
        assert list(prompt.prompt_token_ids) == prompter.processor.info.tokenizer.encode("See?", add_special_tokens=True)
        assert not flat_ranges(prompt)

    def test_24_images_are_those_of_transformers_but_for_rounding(self, prompter: Prompter, checkpoint_folder: Path) -> None:
        """Its processors resize with Pillow where torchvision is missing, ours with torch: up to a few of 255 levels lie between them."""
        if "image" not in self.modalities(prompter):
            pytest.skip("this checkpoint takes no images")
        for width, height in ((80, 60), (47, 133), (300, 90), (56, 56)):
            encoded = encode_image(make_pixels(width, height), "PNG")
            tensors = prompter.apply([Item("image", 0)], mm_data={"image": [encoded]}).mm_kwargs["image"][0]
            assert tensors is not None
            try:
                ours = prompter.processor.to_transformers("image", [tensors])
            except ConfigError:
                pytest.skip("this family does not say what transformers takes")
            for name, expected in process_image_with_transformers(checkpoint_folder, encoded).items():
                assert tuple(ours[name].shape) == expected.shape, name
                difference = np.abs(ours[name].numpy() - expected)
                assert difference.max() <= self.image_tolerance, name
                assert difference.mean() <= self.image_tolerance / 10, name


def vars_of(decoded: object) -> list[object]:
    """The fields of a decoded item that is no array itself."""
    return [getattr(decoded, f.name) for f in dataclasses.fields(decoded)] if dataclasses.is_dataclass(decoded) else []
