"""The core without an engine, as someone who embeds it has it."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import inset
from inset import LLM, ChatPrompt, ContentPolicy, Core, SamplingParams
from inset.engine.prompts import read_prompt
from inset.errors import (
    ConfigError,
    InvariantError,
    ItemLimitError,
    MediaNotCachedError,
    MediaPolicyError,
    PlaceholderError,
    UnknownNameError,
)
from inset.inputs import ProcessedPrompt
from inset.testing.plugin_site import PluginSite, open_plugin_site
from inset.testing.tiny_qwen_vl import build_tiny_qwen_vl

Picture = Callable[..., Image.Image]

MEMO = """
@hookimpl
def register_media_connectors(registry):
    registry.register("memo", factory="inset_memo.connector:MemoConnector", schemes=("memo",))
"""

CONNECTOR = """
from inset.api import ByteStream, MediaConnector

class MemoConnector(MediaConnector):
    schemes = ("memo",)

    def __init__(self, *, hexadecimal):
        self._data = bytes.fromhex(hexadecimal)

    async def open(self, url, limits):
        async def chunks():
            yield self._data
        return ByteStream(chunks=chunks())
"""


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def ask(*urls: str, text: str = "What is it?") -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def data_url(picture: Image.Image) -> str:
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


@pytest.fixture
def core(checkpoints: dict[str, Path]) -> Iterator[Core]:
    with Core.open(checkpoints["llava"], plugins=["llava"]) as core:
        yield core


@pytest.fixture
def site(tmp_path: Path) -> Iterator[PluginSite]:
    with open_plugin_site(tmp_path) as site:
        yield site


def assert_same(given: ProcessedPrompt, expected: ProcessedPrompt) -> None:
    assert list(given.prompt_token_ids) == list(expected.prompt_token_ids)
    assert given.mm_hashes == expected.mm_hashes
    assert given.mm_placeholders == expected.mm_placeholders


def test_messages_become_token_ids_hashes_placeholders_and_tensors(core: Core, picture: Picture) -> None:
    prompt = core.process_sync(ask(data_url(picture(1)), data_url(picture(2))))
    first, second = prompt.mm_placeholders["image"]
    assert first.length == second.length == 16
    assert first.end <= second.offset
    assert len(set(prompt.mm_hashes["image"])) == 2
    assert all(item is not None and item["pixel_values"].shape == (56, 56, 3) for item in prompt.mm_kwargs["image"])


def test_a_plan_is_the_same_prompt_without_tensors(core: Core, picture: Picture) -> None:
    messages = ask(data_url(picture(1)))
    planned = core.plan_sync(messages)
    assert_same(planned, core.process_sync(messages))
    assert planned.mm_kwargs["image"] == [None]


@pytest.mark.parametrize(
    ("picture_text", "numbers"),
    [("", (0, 2)), ("<image><image>", (4, 2)), ("{% if loop.first %}<image>{% endif %}", (1, 2))],
    ids=["drops", "doubles", "drops one"],
)
def test_a_template_that_drops_or_doubles_a_placeholder_is_refused_with_both_numbers(
    checkpoints: dict[str, Path], picture: Picture, tmp_path: Path, picture_text: str, numbers: tuple[int, int]
) -> None:
    file = tmp_path / "template.jinja"
    part = f"{{% if p.type == 'text' %}}{{{{ p.text }}}}{{% else %}}{picture_text}{{% endif %}}"
    file.write_text(f"{{% for m in messages %}}{{% for p in m.content %}}{part}{{% endfor %}}{{% endfor %}}")
    messages = ask(data_url(picture(1)), data_url(picture(2)))
    with Core.open(checkpoints["llava"], plugins=["llava"], chat_template=file) as core:
        for call in (core.plan_sync, core.process_sync):
            with pytest.raises(PlaceholderError, match=rf"\b{numbers[0]} image placeholder.*\b{numbers[1]} image") as caught:
                call(messages)
            assert caught.value.status == 400


def test_sync_and_async_calls_give_the_same(core: Core, picture: Picture) -> None:
    messages = ask(data_url(picture(1)))

    async def both() -> tuple[ProcessedPrompt, ProcessedPrompt]:
        planned, processed = await asyncio.gather(core.plan(messages), core.process(messages))
        return planned, processed

    planned, processed = asyncio.run(both())
    assert_same(planned, core.plan_sync(messages))
    assert_same(processed, core.process_sync(messages))


def test_a_blocking_call_on_an_event_loop_is_refused(core: Core) -> None:
    async def call() -> None:
        core.plan_sync("text")

    with pytest.raises(InvariantError, match="await"):
        asyncio.run(call())


def test_every_form_of_a_prompt_gives_the_same(core: Core, picture: Picture) -> None:
    image = picture(1)
    text = core.process_sync({"prompt": "<image>What?", "multi_modal_data": {"image": [image]}})
    token_ids = core.tokenizer.encode("<image>What?", add_special_tokens=True)
    assert_same(core.process_sync({"prompt_token_ids": token_ids, "multi_modal_data": {"image": image}}), text)
    assert list(core.plan_sync(token_ids[1:]).prompt_token_ids) == token_ids[1:]


def test_media_in_memory_needs_a_policy_that_accepts_it(core: Core, picture: Picture) -> None:
    messages = [{"role": "user", "content": [{"type": "image", "image": picture(1)}]}]
    accepting = ContentPolicy(accept_objects=True)
    assert core.plan_sync(ChatPrompt(messages=messages, policy=accepting)).mm_placeholders["image"]
    local = [{"role": "user", "content": [{"type": "image", "image": "/etc/hostname"}]}]
    with pytest.raises(inset.errors.ClientError):
        core.plan_sync(local)


def test_equal_media_is_processed_once_and_has_the_same_tensors(core: Core, picture: Picture) -> None:
    url = data_url(picture(1))
    first, second = core.process_sync(ask(url)), core.process_sync(ask(url, url, text="And now?"))
    assert core.cache is not None
    assert core.cache.stats.num_inserts == 1
    tensors = [item["pixel_values"] for prompt in (first, second) for item in prompt.mm_kwargs["image"] if item is not None]
    assert len(tensors) == 3
    assert all(array.tobytes() == tensors[0].tobytes() and not array.flags.writeable for array in tensors)
    core.reset_mm_cache()
    assert core.cache.stats.num_items == 0


def test_cache_may_be_off_and_cannot_be_one_that_needs_an_engine(checkpoints: dict[str, Path], picture: Picture) -> None:
    with Core.open(checkpoints["llava"], mm_processor_cache_gb=0) as core:
        assert core.cache is None
        assert core.process_sync(ask(data_url(picture(1)))).mm_kwargs["image"][0] is not None
    with pytest.raises(ConfigError, match="processor_only"):
        Core.open(checkpoints["llava"], mm_processor_cache_type="lru")


def test_a_uuid_stands_for_media_that_was_seen(core: Core, picture: Picture) -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(picture(1))}, "uuid": "mine"}
    seen = core.process_sync([{"role": "user", "content": [image]}])
    again = core.process_sync([{"role": "user", "content": [{**image, "image_url": None}]}])
    assert again.mm_hashes == seen.mm_hashes


def test_error_of_processing_again_says_where_the_item_stood(core: Core, picture: Picture) -> None:
    """A uuid alone, whose item the engine half has lost, and the front half with it."""
    named = {"type": "image_url", "image_url": {"url": data_url(picture(1))}, "uuid": "mine"}
    core.process_sync([{"role": "user", "content": [named]}])
    other = {"type": "image_url", "image_url": {"url": data_url(picture(2))}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Which?"}, other, {**named, "image_url": None}]}]

    async def process_twice() -> None:
        prepared = await core.prepare(read_prompt(messages), SamplingParams(max_tokens=1), request_id="again")
        try:
            core.release(prepared.commit_id)
            core.reset_mm_cache()
            await core.process_again(prepared, [], lost_before=2**62)
        finally:
            prepared.close()

    with pytest.raises(MediaNotCachedError) as caught:
        asyncio.run(process_twice())
    assert (caught.value.modality, caught.value.item_index, caught.value.parameter) == ("image", 1, "messages[0].content[2]")


def test_many_threads_may_use_one_core(core: Core, picture: Picture) -> None:
    conversations = [ask(data_url(picture(number))) for number in range(8)]
    expected = [core.process_sync(messages).mm_hashes for messages in conversations]
    with ThreadPoolExecutor(8) as pool:
        given = pool.map(core.process_sync, conversations, timeout=60)
        assert [prompt.mm_hashes for prompt in given] == expected


def test_tensors_for_transformers_are_a_batch_of_one(core: Core, picture: Picture) -> None:
    prompt = core.process_sync(ask(data_url(picture(1)), data_url(picture(2))))
    given = core.to_transformers(prompt)
    assert given["input_ids"].tolist() == [list(prompt.prompt_token_ids)]
    assert given["attention_mask"].shape == given["input_ids"].shape
    assert given["pixel_values"].shape == (2, 3, 56, 56)
    assert given["pixel_values"].dtype == torch.float32


@pytest.mark.parametrize("family", ["llava", "llava_next", "qwen2_5_vl"])
def test_generate_of_transformers_answers_as_our_own_engine(
    family: str, checkpoints: dict[str, Path], tmp_path: Path, picture: Picture
) -> None:
    from transformers import AutoModelForImageTextToText

    folder = checkpoints[family] if family in checkpoints else build_tiny_qwen_vl(tmp_path, "qwen2_5_vl")
    messages = ask(data_url(picture(1)), data_url(picture(2, size=(60, 90))))
    with Core.open(folder) as core:
        inputs = core.to_transformers(core.process_sync(messages))
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=-1)
    with LLM(folder, engine_threads=1) as llm:
        (own,) = llm.chat(messages, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
    assert output[0, inputs["input_ids"].shape[1] :].tolist() == list(own.outputs[0].token_ids)
    assert ("mm_token_type_ids" in inputs) == family.startswith("qwen")


def test_options_are_those_of_the_server(checkpoints: dict[str, Path], picture: Picture) -> None:
    with Core.open(checkpoints["llava"], limit_mm_per_prompt={"image": 1}) as core:
        with pytest.raises(ItemLimitError):
            core.plan_sync(ask(data_url(picture(1)), data_url(picture(2))))
    with pytest.raises(ConfigError, match="limit_mm_per_prompt"):
        Core.open(checkpoints["llava"], limit_mm_per_promt={"image": 1})


def test_two_cores_of_one_process_do_not_see_each_others_plugins(checkpoints: dict[str, Path], site: PluginSite, picture: Picture) -> None:
    site.install("memo", code=MEMO, distribution="inset-memo")
    (site.folder / "inset_memo" / "connector.py").write_text(CONNECTOR)
    options = {name: {"memo": {"hexadecimal": png(picture(number)).hex()}} for name, number in (("one", 1), ("other", 2))}
    folder = checkpoints["llava"]
    with (
        Core.open(folder, plugins=["llava", "memo"], media_connector=["memo"], media_connector_options=options["one"]) as one,
        Core.open(folder, plugins=["llava", "memo"], media_connector=["memo"], media_connector_options=options["other"]) as other,
        Core.open(folder, plugins=["llava"]) as without,
    ):
        hashes = [core.plan_sync(ask("memo:anything")).mm_hashes["image"] for core in (one, other)]
        assert hashes == [core.plan_sync(ask(data_url(picture(n)))).mm_hashes["image"] for core, n in ((without, 1), (without, 2))]
        with pytest.raises(MediaPolicyError):
            without.plan_sync(ask("memo:anything"))
    with pytest.raises(UnknownNameError, match="llava"):
        Core.open(folder, plugins=["memo"])


def test_a_closed_core_may_be_closed_again(checkpoints: dict[str, Path]) -> None:
    core = Core.open(checkpoints["llava"])
    core.close()
    core.close()


def test_planning_imports_neither_torch_nor_transformers(checkpoints: dict[str, Path]) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from inset import Core\n"
        "with Core.open(sys.argv[1]) as core: core.plan_sync([{'role': 'user', 'content': 'Hi'}])\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code, checkpoints["llava"]], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr


def test_core_opened_by_the_name_of_a_shipped_checkpoint_tells_where_it_lies() -> None:
    with Core.open("shapes-llava", plugins=["llava", "demo"]) as core:
        assert core.checkpoint.model_type == "llava"
        assert core.checkpoint.weight_files
