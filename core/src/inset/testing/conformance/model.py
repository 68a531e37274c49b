"""What every model adapter must show: inherit `ModelConformance`, name the plugin module, and give a checkpoint with weights.

The cases are numbered; ``docs/reference/conformance.md`` lists them under the same numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch

from inset.engine.prepared import make_engine_request
from inset.errors import ConfigError
from inset.identity import JSON
from inset.inputs import EngineRequest, ItemTensors
from inset.modeling.interfaces import ModelAdapter
from inset.sampling_params import SamplingParams
from inset.testing.family import NUM_SIZES, FamilyBench, Item, Prompter, make_sample_media
from inset.testing.golden import GreedyAnswer, assert_same_answer, generate_with_transformers
from inset.testing.step_driver import StepDriver
from inset.worker.attention_check import check_paged_attention
from inset.worker.model_runner import ModelRunner

__all__ = ["ModelConformance"]

_CPU = torch.device("cpu")
_BLOCK_SIZE = 16
_NUM_BLOCKS = 1024
_NUM_ANSWER_TOKENS = 8


class _Case(NamedTuple):
    """The adapter under test, and what makes its inputs."""

    adapter: ModelAdapter
    prompter: Prompter


class ModelConformance:
    """Inherited tests of a model family's `ModelAdapter`, with the processor of the same plugin.

    A subclass names `plugin`, and has a fixture ``checkpoint_folder`` that returns the folder of a tiny checkpoint with weights; a large
    `initializer_range` makes answers differ, so that a wrong picture shows.

    Attributes:
        plugin: The plugin module, whose hooks are called.
        options: Modality -> processor options under which every case runs, for what a family does only when it is asked.
        tolerance: Largest difference of embeddings and logits that counts as equal, relative to the largest value.
    """

    plugin: ModuleType
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {}
    tolerance: ClassVar[float] = 1e-4

    def make_media(self, modality: str, number: int) -> bytes:
        """Returns encoded media; override it where the family needs other media than `make_sample_media` makes."""
        return make_sample_media(modality, number)

    @pytest.fixture
    def case(self, checkpoint_folder: Path) -> Iterator[_Case]:
        """The adapter under test in float32 on the CPU, in one thread."""
        torch.set_num_threads(1)
        with FamilyBench(self.plugin, checkpoint_folder) as bench, torch.inference_mode():
            processor = bench.build(mm_processor_kwargs={modality: dict(options) for modality, options in self.options.items()}).processor
            yield _Case(bench.load_adapter(), Prompter(processor, self.make_media))

    def modalities(self, case: _Case) -> list[str]:
        """Returns the modalities that the checkpoint takes."""
        return [modality for modality, limit in case.prompter.processor.info.get_mm_limits().items() if limit]

    def tensors_of(self, case: _Case, modality: str, numbers: Sequence[int]) -> list[ItemTensors]:
        """Returns processed items."""
        given = [case.prompter.apply([Item(modality, number)]).mm_kwargs[modality][0] for number in numbers]
        return [tensors for tensors in given if tensors is not None]

    def encode(self, case: _Case, modality: str, items: Sequence[ItemTensors]) -> list[torch.Tensor]:
        """Returns the embeddings that stay of processed items that run in one batch."""
        on_device = [{name: torch.from_numpy(np.array(array)) for name, array in item.items()} for item in items]
        encoded = case.adapter.encode(modality, on_device)
        return [case.adapter.select_rows(modality, *pair).rows for pair in zip(on_device, encoded, strict=True)]

    def assert_close(self, given: torch.Tensor, expected: torch.Tensor) -> None:
        """Compares within `tolerance` of the largest value."""
        assert given.shape == expected.shape
        assert float((given - expected).abs().max()) <= self.tolerance * float(expected.abs().max())

    def make_request(self, case: _Case, items: Sequence[Item], request_id: str = "r") -> EngineRequest:
        """Returns a greedy request with these items."""
        params = SamplingParams(temperature=0, max_tokens=_NUM_ANSWER_TOKENS, logprobs=2)
        return make_engine_request(request_id, case.prompter.apply(items), prompt_parts=(), params=params, eos_token_ids=()).request

    def answer(self, case: _Case, requests: Sequence[EngineRequest], *, window: int = 100_000) -> list[GreedyAnswer]:
        """Returns the answers of requests that run together, `window` positions of each per step."""
        max_model_len = max(len(request.prompt_token_ids) for request in requests) + _NUM_ANSWER_TOKENS
        runner = ModelRunner(
            case.adapter,
            device=_CPU,
            dtype=torch.float32,
            block_size=_BLOCK_SIZE,
            num_blocks=_NUM_BLOCKS,
            max_num_seqs=len(requests),
            max_model_len=max_model_len,
        )
        driver = StepDriver(runner, block_size=_BLOCK_SIZE, num_blocks=_NUM_BLOCKS)
        answers = {request.request_id: GreedyAnswer([], []) for request in requests}
        for request in requests:
            driver.add(request)
        while any(len(answer.token_ids) < _NUM_ANSWER_TOKENS for answer in answers.values()):
            output = driver.step(window)
            assert not output.failures, output.failures
            for request_id, token_id in output.sampled_token_ids.items():
                (_, best), (_, second) = output.logprobs[request_id].top
                answers[request_id].token_ids.append(token_id)
                answers[request_id].gaps.append(best - second)
        return list(answers.values())

    def test_01_each_item_gives_the_rows_that_were_planned(self, case: _Case) -> None:
        for modality in self.modalities(case):
            for number in range(NUM_SIZES):
                prompt = case.prompter.apply([Item(modality, number)])
                (rows,) = self.encode(case, modality, self.tensors_of(case, modality, [number]))
                assert tuple(rows.shape) == (prompt.mm_plans[modality][0].num_embeds, case.adapter.embed_size)
                assert rows.dtype == torch.float32
                assert bool(torch.isfinite(rows).all())

    def test_02_a_batch_gives_what_each_item_gives_alone(self, case: _Case) -> None:
        for modality in self.modalities(case):
            items = self.tensors_of(case, modality, range(2 * NUM_SIZES))
            batches: dict[object, list[ItemTensors]] = {}
            for item in items:
                batches.setdefault(case.adapter.encoder_batch_key(modality, item), []).append(item)
            assert any(len(batch) > 1 for batch in batches.values()), "media of one size share a batch"
            for batch in batches.values():
                for rows, item in zip(self.encode(case, modality, batch), batch, strict=True):
                    self.assert_close(rows, self.encode(case, modality, [item])[0])

    def test_03_other_content_gives_other_rows(self, case: _Case) -> None:
        for modality in self.modalities(case):
            first, second = self.tensors_of(case, modality, [0, NUM_SIZES])
            (one,), (other,) = self.encode(case, modality, [first]), self.encode(case, modality, [second])
            assert float((one - other).abs().max()) > 100 * self.tolerance * float(one.abs().max())

    def test_04_encoding_remembers_nothing(self, case: _Case) -> None:
        for modality in self.modalities(case):
            first, second = self.tensors_of(case, modality, [0, 1])
            (before,) = self.encode(case, modality, [first])
            kept = before.clone()
            self.encode(case, modality, [second])
            assert torch.equal(before, kept), "what was given out is never written again"
            self.assert_close(self.encode(case, modality, [first])[0], kept)

    def test_05_paged_attention_gives_what_the_module_itself_gives(self, case: _Case) -> None:
        check_paged_attention(case.adapter, device=_CPU, dtype=torch.float32)

    def test_06_an_embedding_for_every_token_and_a_logit_for_every_row(self, case: _Case) -> None:
        embeds = case.adapter.embed_input_ids(torch.tensor([1, 2, 3, 1]))
        assert tuple(embeds.shape) == (4, case.adapter.hidden_size)
        assert torch.equal(embeds[0], embeds[3])
        assert case.adapter.hidden_size == case.prompter.processor.info.hidden_size
        assert case.adapter.embed_size == case.prompter.processor.info.embed_size
        assert len(case.adapter.compute_logits(torch.zeros(2, case.adapter.hidden_size))) == 2

    def test_07_positions_cover_the_prompt_and_the_answer_goes_on_behind_its_last_token(self, case: _Case) -> None:
        """The prompt ends in text. An item before it may reach further than that text, as long videos do along time."""
        for items in ([], *([Item(modality, 1)] for modality in self.modalities(case))):
            request = self.make_request(case, items)
            positions, following = case.adapter.get_positions(request.prompt_token_ids, request.mm_features)
            assert positions.dtype == torch.int64
            assert tuple(positions.shape) == (case.adapter.num_position_axes, len(request.prompt_token_ids))
            assert int(positions.min()) == 0
            assert positions[:, -1].tolist() == [following - 1] * case.adapter.num_position_axes

    @pytest.mark.parametrize("window", [7, 16, 33])
    def test_08_chunks_of_a_prompt_give_the_same_answer_as_the_whole(self, case: _Case, window: int) -> None:
        for modality in self.modalities(case):
            request = self.make_request(case, [Item(modality, 1), Item(modality, 2)])
            (whole,) = self.answer(case, [request])
            (chunked,) = self.answer(case, [request], window=window)
            assert_same_answer(chunked, whole)

    def test_09_requests_of_one_batch_get_the_answers_that_they_get_alone(self, case: _Case) -> None:
        modalities = self.modalities(case)
        wanted = [[Item(modalities[n % len(modalities)], number) for number in range(n, n + n % 3)] for n in range(6)]
        requests = [self.make_request(case, items, f"r{n}") for n, items in enumerate(wanted)]
        for request, together in zip(requests, self.answer(case, requests, window=20), strict=True):
            (alone,) = self.answer(case, [request])
            assert_same_answer(together, alone)

    def test_10_another_picture_gives_another_answer(self, case: _Case) -> None:
        """Same text and same number of tokens; that one answer is the same by chance is possible, that all are is not."""
        for modality in self.modalities(case):
            requests = [self.make_request(case, [Item(modality, number)]) for number in (0, NUM_SIZES)]
            assert len(requests[0].prompt_token_ids) == len(requests[1].prompt_token_ids)
            (one,), (other,) = (self.answer(case, [request]) for request in requests)
            assert one.token_ids != other.token_ids or one.gaps != other.gaps

    def test_11_missing_and_unknown_weights_are_named(self, checkpoint_folder: Path, tmp_path: Path) -> None:
        from safetensors.torch import load_file, save_file

        folder = tmp_path / "changed"
        shutil.copytree(checkpoint_folder, folder)
        file = next(folder.glob("*.safetensors"))
        tensors = load_file(file)
        name = max(tensors, key=lambda name: tensors[name].numel())
        for changed, word in (
            ({key: tensor for key, tensor in tensors.items() if key != name}, name.rsplit(".", 2)[-2]),
            ({**tensors, "a_stranger.weight": torch.zeros(2)}, "a_stranger"),
        ):
            save_file(changed, file)
            with FamilyBench(self.plugin, folder) as bench, pytest.raises(ConfigError, match=word):
                bench.load_adapter()

    def test_12_answers_equal_those_of_transformers(self, case: _Case, checkpoint_folder: Path) -> None:
        for modality in self.modalities(case):
            items = [Item(modality, number) for number in range(2)]
            prompt = case.prompter.apply(items)
            tensors = [tensors for tensors in prompt.mm_kwargs[modality] if tensors is not None]
            try:
                inputs = case.prompter.processor.to_transformers(modality, tensors)
            except ConfigError as error:
                pytest.skip(str(error))
            (own,) = self.answer(case, [self.make_request(case, items)])
            expected = generate_with_transformers(checkpoint_folder, prompt.prompt_token_ids, inputs, max_tokens=_NUM_ANSWER_TOKENS)
            assert_same_answer(own, expected)
