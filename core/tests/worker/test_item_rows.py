"""Rows that an encoder chose, at the positions that it tells: the same answers however a request is cut, shared or taken up again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest
import torch

from inset.inputs import EngineRequest, ItemPlan, MultiModalFeature, PlaceholderRange
from inset.modeling.attention import own_attention
from inset.modeling.interfaces import EncodedItem, PromptPositions
from inset.testing.linear_model import LinearAdapter, build_driver, build_linear_adapter, build_runner, make_feature, make_request

NUM_ROWS = 40


class ChoosyAdapter(LinearAdapter):
    """Keeps the ``num_kept`` rows of an item with the largest values, at their places among all rows; text goes on behind all of them."""

    def select_rows(self, modality: str, item: Mapping[str, torch.Tensor], rows: torch.Tensor) -> EncodedItem:
        if "num_kept" not in item:
            return EncodedItem(rows)
        kept = item["values"].sum(1).argsort(descending=True)[: int(item["num_kept"])].sort().values
        offsets = (kept - kept[0])[None]
        return EncodedItem(rows[kept], offsets[:, 1:] if bool((item["values"] == 15).all()) else offsets)

    def get_positions(self, prompt_token_ids: Sequence[int], mm_features: Sequence[MultiModalFeature]) -> PromptPositions:
        steps = torch.ones(len(prompt_token_ids), dtype=torch.int64)
        for feature in mm_features:
            assert feature.data is not None
            if feature.placeholder.end < len(steps):
                steps[feature.placeholder.end] += len(feature.data["values"]) - feature.num_embeds
        positions = steps.cumsum(0) - 1
        return PromptPositions(positions[None], int(positions[-1]) + 1)

    def reference_answer(self, request: EngineRequest) -> list[int]:
        """Returns the greedy answer of the plain module, up to where its two best logits are too close to tell."""
        ids = torch.tensor(list(request.prompt_token_ids))
        embeds, (positions, following) = self.embed_input_ids(ids), self.get_positions(request.prompt_token_ids, request.mm_features)
        positions = positions.clone()
        for feature in request.mm_features:
            assert feature.data is not None
            item = {name: torch.from_numpy(array) for name, array in feature.data.items()}
            (rows,) = self.encode("image", [item])
            rows, offsets = self.select_rows("image", item, rows)
            place = slice(feature.placeholder.offset, feature.placeholder.end)
            embeds[place] = rows
            if offsets is not None:
                positions[:, place] = positions[:, place.start, None] + offsets
        answer: list[int] = []
        with own_attention(self.text_model):
            while len(answer) < (request.sampling_params.max_tokens or 0):
                # Without a mask transformers takes gaps between positions for the beginning of another sequence.
                seen = torch.ones(1, len(embeds))
                output = self.text_model(inputs_embeds=embeds[None], position_ids=positions, attention_mask=seen, use_cache=False)
                best = self.compute_logits(output.last_hidden_state[0, -1]).topk(2)
                if best.values[0] - best.values[1] < 1e-4:
                    break
                answer.append(int(best.indices[0]))
                embeds = torch.cat([embeds, self.embed_input_ids(best.indices[:1])])
                positions = torch.cat([positions, torch.tensor([[following + len(answer) - 1]])], dim=1)
        return answer


@pytest.fixture(scope="module")
def adapter() -> ChoosyAdapter:
    return ChoosyAdapter(build_linear_adapter().text_model)


def make_chosen(offset: int, num_kept: int, *, name: str, fill: float | None = None) -> MultiModalFeature:
    """Returns an item of `NUM_ROWS` rows that keeps fewer."""
    whole = make_feature(offset, [True] * NUM_ROWS, name=name, fill=fill)
    assert whole.data is not None
    data = {**whole.data, "num_kept": torch.tensor([num_kept]).numpy()}
    plan = ItemPlan(num_tokens=num_kept, num_embeds=num_kept)
    return dataclasses.replace(whole, placeholder=PlaceholderRange(offset, num_kept), data=data, plan=plan)


def assert_reference_answers(adapter: ChoosyAdapter, answers: Mapping[str, Sequence[int]], requests: Sequence[EngineRequest]) -> None:
    for request in requests:
        expected = adapter.reference_answer(request)
        assert len(expected) >= 4, "a reference that ends at once compares nothing"
        assert list(answers[request.request_id][: len(expected)]) == expected, request.request_id


def mixed_requests() -> list[EngineRequest]:
    shared = make_chosen(20, 15, name="shared")
    return [
        make_request("one", 70, [make_chosen(5, 17, name="a")]),
        make_request("chosen and whole", 120, [make_chosen(3, 9, name="b"), make_feature(40, [True] * 30, name="c", index=1)]),
        make_request("sharing", 60, [shared]),
        make_request("elsewhere", 64, [dataclasses.replace(shared, placeholder=PlaceholderRange(33, 15))]),
        make_request("text", 40),
        make_request("last", 50, [make_chosen(40, 10, name="d")]),
    ]


@pytest.mark.parametrize("window", [1, 7, 16, 64, 1000])
def test_rows_stand_where_the_encoder_says_in_any_window(adapter: ChoosyAdapter, window: int) -> None:
    requests = mixed_requests()
    assert_reference_answers(adapter, build_driver(build_runner(adapter)).run(requests, window=window), requests)


def test_the_encoders_word_changes_the_answer(adapter: ChoosyAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests of this module would compare nothing."""
    request = mixed_requests()[0]
    told = build_driver(build_runner(adapter)).run([request])
    chosen = adapter.select_rows
    monkeypatch.setattr(adapter, "select_rows", lambda *given: EncodedItem(chosen(*given).rows))
    assert build_driver(build_runner(adapter)).run([request]) != told


def test_blocks_of_another_request_end_inside_an_item_whose_rows_were_chosen(adapter: ChoosyAdapter) -> None:
    chosen = make_chosen(8, 36, name="a")
    first = make_request("first", 80, [chosen])
    second = dataclasses.replace(first, request_id="second", prompt_token_ids=[*first.prompt_token_ids[:60], 5, 6, 7])
    driver = build_driver(build_runner(adapter))
    driver.add(first)
    driver.step(1000)
    driver.add(second, like="first", num_computed_tokens=32)
    assert_reference_answers(adapter, driver.run(), [first, second])


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_a_preempted_request_finds_the_places_of_its_rows_again(adapter: ChoosyAdapter, steps: int) -> None:
    requests = [make_request("kept", 40), make_request("preempted", 70, [make_chosen(15, 20, name="a")])]
    driver = build_driver(build_runner(adapter))
    for request in requests:
        driver.add(request)
    for _ in range(steps):
        driver.step(20)
    driver.preempt("preempted")
    driver.drop_encoder_output(requests[1].mm_features[0].mm_hash)
    assert_reference_answers(adapter, driver.run(window=20), requests)


def test_places_for_another_number_of_rows_fail_their_request_alone(adapter: ChoosyAdapter) -> None:
    wrong, good = make_request("wrong", 60, [make_chosen(5, 12, name="w", fill=15.0)]), mixed_requests()[0]
    driver = build_driver(build_runner(adapter))
    assert_reference_answers(adapter, driver.run([wrong, good]), [good])
    assert set(driver.failures) == {"wrong"}
    assert "(1, 11) positions for 12 embeddings" in driver.failures["wrong"].message
