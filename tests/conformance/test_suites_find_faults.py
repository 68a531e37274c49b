"""The suites of processors and models find what they are there to find: each fault here is one that an author can make."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from inset import hookimpl
from inset.errors import InsetError
from inset.inputs import ItemPlan
from inset.modeling.interfaces import PromptPositions
from inset.testing.conformance import model, processor
from inset.testing.family import FamilyBench, Prompter
from inset_llava.model import LlavaAdapter
from inset_llava.processing import LlavaProcessingInfo, LlavaProcessor

FOUND = (AssertionError, InsetError, RuntimeError)


class StridedTensors(LlavaProcessor):
    def materialize(self, *given: Any, **options: Any) -> Mapping[str, Any]:
        return {name: array[::-1] for name, array in super().materialize(*given, **options).items()}


class WrongSize(LlavaProcessor):
    def plan(self, *given: Any, **options: Any) -> ItemPlan:
        return replace(super().plan(*given, **options), tensor_bytes=7)


class ForgetfulPlan(LlavaProcessor):
    num_plans = 0

    def plan(self, *given: Any, **options: Any) -> ItemPlan:
        self.num_plans += 1
        return replace(super().plan(*given, **options), details={"call": self.num_plans})


class PaintsOnItsInput(LlavaProcessor):
    def materialize(self, modality: str, decoded: Any, **options: Any) -> Mapping[str, Any]:
        decoded[0, 0] = decoded[0, 0] + 1
        return super().materialize(modality, decoded, **options)


class RemembersTheLastItem(LlavaProcessor):
    last: Any = 0

    def materialize(self, *given: Any, **options: Any) -> Mapping[str, Any]:
        tensors = super().materialize(*given, **options)
        mixed = tensors["pixel_values"] ^ np.uint8(np.asarray(self.last).sum() % 251)
        self.last = tensors["pixel_values"]
        return {"pixel_values": mixed}


class SameForAll(LlavaProcessor):
    def materialize(self, *given: Any, **options: Any) -> Mapping[str, Any]:
        return {name: np.zeros_like(array) for name, array in super().materialize(*given, **options).items()}


class ReadsMoreThanItSays(LlavaProcessingInfo):
    def fingerprint_configs(self) -> Mapping[str, object]:
        return {"config": self.checkpoint.config}


class UnderestimatesItself(LlavaProcessingInfo):
    def max_tokens_per_item(self, modality: str) -> int:
        return super().max_tokens_per_item(modality) - 1


class OneRowForAll(LlavaAdapter):
    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        rows = super().encode(modality, items)
        return [rows[0]] * len(rows)


class OneRowTooFew(LlavaAdapter):
    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        return [rows[1:] for rows in super().encode(modality, items)]


class BlindEncoder(LlavaAdapter):
    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        return [torch.ones_like(rows) for rows in super().encode(modality, items)]


class WritesOverWhatItGave(LlavaAdapter):
    kept: Any = None

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        rows = super().encode(modality, items)
        self.kept = torch.zeros_like(rows[0]) if self.kept is None else self.kept
        self.kept.copy_(rows[0])
        return [self.kept, *rows[1:]]


class PositionsFromOne(LlavaAdapter):
    def get_positions(self, *given: Any) -> PromptPositions:
        positions, following = super().get_positions(*given)
        return PromptPositions(positions + 1, following + 1)


class ChunksForgetThePast(LlavaAdapter):
    def forward(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, **others: Any) -> torch.Tensor:
        return super().forward(inputs_embeds, position_ids - position_ids[:, :1], **others)


class MixesTheBatch(LlavaAdapter):
    def forward(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, **others: Any) -> torch.Tensor:
        return super().forward(inputs_embeds + inputs_embeds.mean(dim=1, keepdim=True), position_ids, **others)


class SwapsColours(LlavaProcessor):
    def materialize(self, *given: Any, **options: Any) -> Mapping[str, Any]:
        return {name: array[..., ::-1].copy() for name, array in super().materialize(*given, **options).items()}


class CropsElsewhere(LlavaProcessor):
    def materialize(self, *given: Any, **options: Any) -> Mapping[str, Any]:
        return {name: np.roll(array, 2, axis=1) for name, array in super().materialize(*given, **options).items()}


PROCESSORS = [
    (SwapsColours, "test_24_images_are_those_of_transformers_but_for_rounding"),
    (CropsElsewhere, "test_24_images_are_those_of_transformers_but_for_rounding"),
    (StridedTensors, "test_03_tensors_have_the_size_that_was_planned"),
    (WrongSize, "test_03_tensors_have_the_size_that_was_planned"),
    (ForgetfulPlan, "test_18_planning_is_pure_and_its_details_are_json"),
    (PaintsOnItsInput, "test_19_materialising_leaves_the_decoded_media_alone"),
    (RemembersTheLastItem, "test_10_an_item_is_the_same_wherever_it_stands"),
    (RemembersTheLastItem, "test_11_an_item_is_the_same_alone_and_among_others"),
    (SameForAll, "test_12_other_content_is_another_item"),
]
INFOS = [
    (ReadsMoreThanItSays, "test_15_other_preprocessor_configs_are_another_identity"),
    (UnderestimatesItself, "test_21_the_largest_dummy_item_is_the_largest_item"),
]
ADAPTERS = [
    (OneRowTooFew, "test_01_each_item_gives_the_rows_that_were_planned"),
    (OneRowForAll, "test_02_a_batch_gives_what_each_item_gives_alone"),
    (BlindEncoder, "test_03_other_content_gives_other_rows"),
    (WritesOverWhatItGave, "test_04_encoding_remembers_nothing"),
    (ChunksForgetThePast, "test_05_paged_attention_gives_what_the_module_itself_gives"),
    (PositionsFromOne, "test_07_positions_cover_the_prompt_and_the_answer_goes_on_behind_its_last_token"),
    (ChunksForgetThePast, "test_08_chunks_of_a_prompt_give_the_same_answer_as_the_whole"),
    (MixesTheBatch, "test_09_requests_of_one_batch_get_the_answers_that_they_get_alone"),
    (BlindEncoder, "test_10_another_picture_gives_another_answer"),
]


@pytest.fixture
def open_bench(tiny_llava_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FamilyBench]]:
    """Puts one faulty class in place of LLaVA's own."""
    opened = []

    def make(**faulty: type[Any]) -> FamilyBench:
        home = ModuleType("faulty_llava")
        vars(home).update({"info": LlavaProcessingInfo, "processor": LlavaProcessor, "adapter": LlavaAdapter, **faulty})
        monkeypatch.setitem(sys.modules, "faulty_llava", home)

        @hookimpl
        def register_processors(registry: Any) -> None:
            registry.register(
                "llava",
                processor="faulty_llava:processor",
                info="faulty_llava:info",
                dummy_inputs="inset_llava.processing:LlavaDummyInputs",
            )

        @hookimpl
        def register_models(registry: Any) -> None:
            registry.register("LlavaForConditionalGeneration", adapter="faulty_llava:adapter")

        plugin = ModuleType("faulty_plugin")
        vars(plugin).update(register_processors=register_processors, register_models=register_models)
        opened.append(FamilyBench(plugin, tiny_llava_folder))
        return opened[-1]

    yield make
    for bench in opened:
        bench.pool.close()


@pytest.mark.parametrize(
    ("part", "faulty", "case"),
    [*(("processor", *row) for row in PROCESSORS), *(("info", *row) for row in INFOS)],
)
def test_faulty_processing_is_found(
    open_bench: Callable[..., FamilyBench], tiny_llava_folder: Path, part: str, faulty: type[Any], case: str
) -> None:
    suite = processor.ProcessorConformance()
    bench = open_bench(**{part: faulty})
    given = {"bench": bench, "prompter": suite.make_prompter(bench), "checkpoint_folder": tiny_llava_folder}
    method = getattr(suite, case)
    with pytest.raises(FOUND):
        method(**{name: given[name] for name in method.__annotations__ if name in given})


@pytest.mark.parametrize(("faulty", "case"), ADAPTERS)
def test_a_faulty_adapter_is_found(open_bench: Callable[..., FamilyBench], faulty: type[Any], case: str) -> None:
    torch.set_num_threads(1)
    suite = model.ModelConformance()
    bench = open_bench(adapter=faulty)
    with torch.inference_mode():
        made = model._Case(bench.load_adapter(), Prompter(bench.build().processor, suite.make_media))
        with pytest.raises(FOUND):
            getattr(suite, case)(made, **({"window": 7} if "chunks" in case else {}))
