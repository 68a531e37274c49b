"""What is done once is done once, from the download to the encoder; and what keeps tenants apart keeps them apart everywhere."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from PIL import Image

from inset import LLM, SamplingParams
from inset.engine.prompts import RequestOptions, TextPrompt
from inset.errors import ItemTooLargeError
from inset.media.image import ImageIO
from inset.testing.media_server import MediaServer, Reply
from inset.testing.waiting import wait_until_waiting

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
MODELS = ["llava", "llava_next"]
CACHE_TYPES = ["lru", "shm", "processor_only"]
Picture = Callable[..., Image.Image]


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def prompt(item: Any, *, words: str = "what?", salt: str | None = None) -> TextPrompt:
    return TextPrompt(
        prompt=f"USER: <image> {words} ASSISTANT:", multi_modal_data={"image": [item]}, options=RequestOptions(cache_salt=salt)
    )


@dataclass
class Work:
    """What an engine has done so far."""

    llm: LLM
    calls: Counter[str] = field(default_factory=Counter)

    def count(self) -> dict[str, int]:
        return {
            "decodes": self.calls["decode"],
            "materialisations": self.calls["materialize"],
            "encoder runs": int(self.llm.engine.stats.values.get("num_encoder_runs", 0)),
        }


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[LLM], Work]:
    """Counts the calls of an engine's decoder and processor; both still do their work."""

    def start(llm: LLM) -> Work:
        work = Work(llm)
        lock = threading.Lock()

        def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def count(*arguments: Any, **named: Any) -> Any:
                with lock:
                    work.calls[name] += 1
                return call(*arguments, **named)

            return count

        monkeypatch.setattr(ImageIO, "load_bytes", counted("decode", ImageIO.load_bytes))
        processor = llm.engine.core.processor
        monkeypatch.setattr(processor, "materialize", counted("materialize", processor.materialize))
        return work

    return start


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_sixteen_requests_for_one_new_url_do_everything_once_and_the_next_one_nothing(
    make_llm: Any, watch: Callable[[LLM], Work], picture: Picture, media_server: MediaServer, model: str, cache_type: str
) -> None:
    llm = make_llm(model, mm_processor_cache_type=cache_type, allow_private_media_hosts=("127.0.0.1",))
    work, gate = watch(llm), threading.Event()
    url = media_server.serve("/new.png", Reply(body=png(picture(1)), gate=gate))
    asking = threading.Thread(target=lambda: outputs.extend(llm.generate([prompt(url) for _ in range(16)], GREEDY, use_tqdm=False)))
    outputs: list[Any] = []
    asking.start()
    wait_until_waiting(llm.engine.core._fetcher, 16)
    gate.set()
    asking.join(60)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert len(outputs) == 16
    assert media_server.count("/new.png") == 1
    once = {"decodes": 1, "materialisations": 1, "encoder runs": 1}
    assert work.count() == once
    for item, words in ((url, "what?"), (png(picture(1)), "what?"), (url, "something else?")):
        llm.generate(prompt(item, words=words), GREEDY)
        assert work.count() == once
    llm.generate(prompt(png(picture(2))), GREEDY)
    assert work.count() == dict.fromkeys(once, 2)


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_a_salt_separates_processor_encoder_and_prefix(
    make_llm: Any, watch: Callable[[LLM], Work], picture: Picture, cache_type: str
) -> None:
    llm = make_llm(mm_processor_cache_type=cache_type)
    work, data = watch(llm), png(picture(1))
    answers = set()
    for number, salt in enumerate((None, "", "a", "b"), start=1):
        for is_first in (True, False):
            [output] = llm.generate(prompt(data, salt=salt), GREEDY)
            answers.add(tuple(output.outputs[0].token_ids))
            assert work.count() == {"decodes": number, "materialisations": number, "encoder runs": number}
            assert (output.usage.cached_tokens == 0) == is_first
    assert len(answers) == 1


def test_a_salt_separates_the_prefixes_of_texts(make_llm: Any) -> None:
    llm = make_llm()
    text = "one and the same long text " * 5
    for salt in ("a", "b"):
        cached = [llm.generate({"prompt": text, "cache_salt": salt}, GREEDY)[0].usage.cached_tokens for _ in range(2)]
        assert cached[0] == 0 < cached[1]


@pytest.mark.parametrize("model", MODELS)
def test_an_item_that_the_encoder_cache_cannot_hold_is_refused_with_the_numbers(
    make_llm: Any, watch: Callable[[LLM], Work], picture: Picture, model: str
) -> None:
    for option in ("encoder_cache_size", "encoder_compute_budget"):
        llm = make_llm(model, **{option: 10})
        work = watch(llm)
        with pytest.raises(ItemTooLargeError, match=r"\b10\b") as caught:
            llm.generate(prompt(png(picture(1))), GREEDY)
        assert (caught.value.status, caught.value.modality, caught.value.item_index) == (400, "image", 0)
        assert work.count()["decodes"] == 0
        assert len(llm.generate("text is still answered", GREEDY)[0].outputs[0].token_ids) == 6
