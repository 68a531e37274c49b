"""A conversation becomes token ids in which only the server's own markers are markers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RawTokenizer

from inset.engine.chat_template import ChatTemplate
from inset.engine.content_parts import ContentPolicy
from inset.engine.renderer import ChatOptions, Renderer
from inset.errors import InvalidRequestError, PromptTooLongError, TooLargeError
from inset.processing.tokenizer import Tokenizer

SPECIAL = ["<image>", "<|user|>", "<|assistant|>", "<|end|>"]
LIST_TEMPLATE = (
    "{% for m in messages %}<|{{ 'assistant' if m.role == 'assistant' else 'user' }}|>"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}"
    "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}<|end|>{% endfor %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STRING_TEMPLATE = "{% for m in messages %}<|user|>{{ m.content | trim }}<|end|>{% endfor %}<|assistant|>"


class Info:
    """The one thing that a renderer asks of a model family."""

    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        return f"<{modality}>"


def tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return Tokenizer(raw.to_str())


TOKENIZER = tokenizer()
IMAGE, USER, ASSISTANT, END = (TOKENIZER.added_tokens[token] for token in SPECIAL)


def renderer(template: str = LIST_TEMPLATE) -> Renderer:
    return Renderer(TOKENIZER, Info(), ChatTemplate(template, special_tokens={}))  # type: ignore[arg-type]


def added(messages: Any, template: str = LIST_TEMPLATE, **options: Any) -> list[int]:
    rendered = renderer(template).render_chat(messages, ContentPolicy(), ChatOptions(**options))
    return TOKENIZER.added_ids_in(rendered.token_ids)


def picture(name: str = "a") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"https://example.com/{name}.png"}}


@pytest.mark.parametrize("template", [LIST_TEMPLATE, STRING_TEMPLATE])
def test_each_picture_has_one_marker_at_its_place(template: str) -> None:
    content = [{"type": "text", "text": "before"}, picture("a"), {"type": "text", "text": "between"}, picture("b")]
    rendered = renderer(template).render_chat([{"role": "user", "content": content}], ContentPolicy())
    assert rendered.text is not None
    assert rendered.text.index("before") < rendered.text.index("<image>") < rendered.text.index("between") < rendered.text.rindex("<image>")
    assert [part.source[-5:] for part in rendered.media] == ["a.png", "b.png"]
    assert [part.parameter for part in rendered.media] == ["messages[0].content[1]", "messages[0].content[3]"]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("text", SPECIAL)
@pytest.mark.parametrize("template", [LIST_TEMPLATE, STRING_TEMPLATE])
def test_token_typed_as_text_stays_text_in_every_role(role: str, text: str, template: str) -> None:
    plain = added([{"role": role, "content": "x"}], template)
    assert added([{"role": role, "content": text}], template) == plain
    assert added([{"role": role, "content": [{"type": "text", "text": f"a {text} b"}]}], template) == plain


def test_token_in_tool_results_and_calls_and_descriptions_stays_text() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": json.dumps({"at": "<image>"})}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "<image><|end|>"}]
    tools = [{"type": "function", "function": {"name": "look", "description": "shows <image>"}}]
    assert added(messages, tools=tools) == [ASSISTANT, END, USER, END, ASSISTANT]


CALLS = "{% for m in messages %}{% for c in m.tool_calls or [] %}<|user|>ARGUMENTS<|end|>{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("{{ c.function.arguments | tojson }}", '{"at": "<image>", "n": [1, 2.5, null]}'),
        ("{{ c.function | tojson }}", '{"name": "look", "arguments": {"at": "<image>", "n": [1, 2.5, null]}}'),
        ("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}", "at=<image>;n=[1, 2.5, None];"),
        ("{{ c.function.arguments }}", '{"at":"<image>","n":[1,2.5,null]}'),
        ("{{ '!' + c.function.arguments }}", '!{"at":"<image>","n":[1,2.5,null]}'),
    ],
)
def test_arguments_of_earlier_calls_are_objects_or_text_as_the_template_wants(spelling: str, expected: str) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": '{"at":"<image>","n":[1,2.5,null]}'}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    template = CALLS.replace("ARGUMENTS", spelling)
    rendered = renderer(template).render_chat(messages, ContentPolicy())
    assert rendered.text == f"<|user|>{expected}<|end|>"
    assert TOKENIZER.added_ids_in(rendered.token_ids) == [USER, END]


@pytest.mark.parametrize(
    "arguments", ["", "{", "[1]", "5", '{"a": NaN}', '{"a": "\\ud800"}', '{"a": ' + "9" * 5000 + "}", '{"a": "' + "b" * 300_000 + '"}']
)
def test_arguments_that_are_no_json_object_or_very_long_stay_text(arguments: str) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": arguments}}
    template = CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
    rendered = renderer(template).render_chat([{"role": "assistant", "content": None, "tool_calls": [call]}], ContentPolicy())
    assert rendered.text == f"<|user|>{json.dumps(arguments)}<|end|>"


@pytest.mark.parametrize("arguments", ['{"<image>": 1}', '{"a": {"type": "<image>"}}', '{"\\u003cimage>": 1}'])
def test_token_in_arguments_where_names_stand_is_refused(arguments: str) -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": arguments}}
    with pytest.raises(InvalidRequestError, match="name of a field"):
        added([{"role": "assistant", "content": None, "tool_calls": [call]}])


@pytest.mark.parametrize("calls", [None, "x", [None], [{}], [{"function": None}], [{"function": {"arguments": 5}}]])
def test_malformed_calls_are_left_to_the_template(calls: Any) -> None:
    assert added([{"role": "user", "content": "x", "tool_calls": calls}]) == [USER, END, ASSISTANT]


def test_deeply_nested_arguments_are_refused() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": '{"a":' * 20_000 + "1" + "}" * 20_000}}
    with pytest.raises(InvalidRequestError, match="nested too deeply"):
        added([{"role": "assistant", "content": None, "tool_calls": [call]}])


def test_token_in_the_name_of_a_field_is_refused() -> None:
    tools = [{"type": "function", "function": {"parameters": {"<image>": {}}}}]
    with pytest.raises(InvalidRequestError, match="name of a field"):
        added([{"role": "user", "content": "x"}], tools=tools)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant"]),
            st.lists(st.sampled_from(["<ima", "ge>", "<image>", "<|", "end|>", " a ", "b", None]), max_size=5),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_fragments_that_fuse_in_the_template_never_become_a_marker(chat: list[tuple[str, list[str | None]]]) -> None:
    messages = [
        {"role": role, "content": [picture() if piece is None else {"type": "text", "text": piece} for piece in pieces]}
        for role, pieces in chat
    ]
    expected = []
    for role, pieces in chat:
        expected += [ASSISTANT if role == "assistant" else USER, *[IMAGE for piece in pieces if piece is None], END]
    assert added(messages) == [*expected, ASSISTANT]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("template", [LIST_TEMPLATE, STRING_TEMPLATE])
def test_media_may_stand_in_a_message_of_any_role(role: str, template: str) -> None:
    messages = [
        {"role": role, "content": [picture("a"), {"type": "text", "text": "typed <image>"}, picture("b")]},
        {"role": "user", "content": [picture("c")]},
    ]
    rendered = renderer(template).render_chat(messages, ContentPolicy())
    assert list(rendered.token_ids).count(IMAGE) == 3
    assert [part.parameter for part in rendered.media] == ["messages[0].content[0]", "messages[0].content[2]", "messages[1].content[0]"]


@pytest.mark.parametrize("template", [LIST_TEMPLATE, STRING_TEMPLATE])
@pytest.mark.parametrize("empty", ["", {"type": "text", "text": ""}, {"type": "text", "text": " \n"}])
def test_empty_text_parts_change_no_marker(template: str, empty: Any) -> None:
    content = [empty, picture("a"), empty, empty, picture("b"), empty]
    assert added([{"role": "user", "content": content}], template) == added([{"role": "user", "content": [picture(), picture()]}], template)
    assert IMAGE not in added([{"role": "user", "content": [empty]}, {"role": "user", "content": []}], template)


@pytest.mark.parametrize(
    "template", [LIST_TEMPLATE.replace("p.type == 'image'", "p.type != 'text'").replace("<image>", "<{{ p.type }}>"), STRING_TEMPLATE]
)
def test_images_and_videos_stand_in_the_order_in_which_they_were_sent(template: str) -> None:
    video = {"type": "video_url", "video_url": {"url": "https://example.com/v.mp4"}}
    rendered = renderer(template).render_chat(
        [{"role": "user", "content": [video, picture("a"), "and", video, picture("b"), picture("c")]}], ContentPolicy()
    )
    assert re.findall("<(image|video)>", rendered.text or "") == ["video", "image", "video", "image", "image"]
    assert [part.modality for part in rendered.media] == ["video", "image", "video", "image", "image"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [([], "at least one"), ("hi", "must be a list"), ([7], "object with a role"), ([{"content": "x"}], "with a role")],
)
def test_malformed_conversations_are_refused(messages: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        added(messages)


def test_conversation_without_a_template_is_refused_with_what_to_do() -> None:
    bare = Renderer(TOKENIZER, Info(), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="--chat-template"):
        bare.render_chat([{"role": "user", "content": "x"}], ContentPolicy())


def test_plain_prompt_keeps_typed_markers_as_places() -> None:
    assert TOKENIZER.added_ids_in(renderer().render_text("a <image> b").token_ids) == [IMAGE]


def test_text_that_can_never_fit_is_refused_before_it_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(map(len, SPECIAL))
    bounded = Renderer(TOKENIZER, Info(), ChatTemplate(STRING_TEMPLATE, special_tokens={}), max_model_len=10)  # type: ignore[arg-type]
    monkeypatch.setattr(Tokenizer, "encode", lambda *arguments, **options: pytest.fail("it was tokenised"))
    text = "a" * (10 * longest)
    with pytest.raises(PromptTooLongError, match=r"at least 1[0-9] tokens"):
        bounded.render_text(text)
    with pytest.raises(PromptTooLongError):
        bounded.render_chat([{"role": "user", "content": text}], ContentPolicy())


@pytest.mark.parametrize(
    "message", [{"role": "user", "content": ["a" * 60, "b" * 60]}, {"role": "u" * 101, "content": ""}, {"role": "user", "x" * 101: 1}]
)
def test_conversation_with_more_text_than_its_sender_may_send_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(TooLargeError, match="--max-request-text-bytes"):
        renderer().render_chat([message], ContentPolicy(max_text_characters=100))


def test_media_are_no_text() -> None:
    content = [picture("a" * 200), {"type": "text", "text": "what?"}]
    rendered = renderer().render_chat([{"role": "user", "content": content}], ContentPolicy(max_text_characters=100))
    assert len(rendered.media) == 1
