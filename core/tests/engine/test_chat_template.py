"""Chat templates render as in transformers, and say so when they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from inset.engine.chat_template import ChatTemplate
from inset.errors import ConfigError, InvalidRequestError

LIST_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<{{ p.type }}>{% endif %}{% endfor %}{% endif %}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
STRING_TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"


def template(text: str) -> ChatTemplate:
    return ChatTemplate(text, special_tokens={"eos_token": "</s>"})


def test_template_that_reads_parts_is_told_from_one_that_reads_text() -> None:
    assert template(LIST_TEMPLATE).content_format == "list"
    assert template(STRING_TEMPLATE).content_format == "string"
    assert template("{% for m in messages %}{{ m.content | trim }}{% endfor %}").content_format == "string"
    assert template("{% for m in messages %}{{ m.content + '|' }}{% endfor %}").content_format == "string"


def test_media_parts_stand_where_they_were_sent() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert template(LIST_TEMPLATE).render([{"role": "user", "content": content}]) == "user:a<image>b</s>assistant:"


def test_final_message_is_continued_without_what_would_end_it() -> None:
    conversation = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once upon"}]
    assert template(LIST_TEMPLATE).render(conversation, continue_final_message=True) == "user:hi</s>assistant:Once upon"


CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content if m.content is string else m.content[-1].text }}</s>{% endfor %}<|system|>end"
)
TRIMMING_TEMPLATE = CHAT_TEMPLATE.replace("else m.content[-1].text }}", "else m.content[-1].text | trim }}").replace(
    "{{ m.content if", "{{ m.content | trim if"
)


@pytest.mark.parametrize("last", ["The", "<", "s", "e", "end", ">", "|", "user", "</s>", "hi", "1", "two words", "a\nb"])
@pytest.mark.parametrize("text", [CHAT_TEMPLATE, TRIMMING_TEMPLATE])
@pytest.mark.parametrize("as_parts", [False, True])
def test_continued_prompt_ends_with_the_last_text_whatever_the_template_writes_behind_it(last: str, text: str, as_parts: bool) -> None:
    content: Any = [{"type": "image"}, {"type": "text", "text": last}] if as_parts else last
    conversation: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    assert template(text).render(conversation, continue_final_message=True) == f"<|user|>hi</s><|assistant|>{last}"
    assert conversation[-1]["content"] == content


@pytest.mark.parametrize(("text", "expected"), [(CHAT_TEMPLATE, "<|assistant|> The "), (TRIMMING_TEMPLATE, "<|assistant|>The")])
def test_white_space_at_the_end_of_the_last_text_is_kept_where_the_template_keeps_it(text: str, expected: str) -> None:
    assert template(text).render([{"role": "assistant", "content": " The "}], continue_final_message=True) == expected


@pytest.mark.parametrize("content", [None, "", " ", [], [{"type": "text", "text": ""}], [{"type": "text", "text": "a"}, {"type": "image"}]])
def test_last_message_that_does_not_end_with_text_cannot_be_continued(content: object) -> None:
    with pytest.raises(InvalidRequestError, match="ends with text"):
        template(LIST_TEMPLATE).render([{"role": "assistant", "content": content}], continue_final_message=True)


def test_last_text_that_the_template_leaves_out_cannot_be_continued() -> None:
    with pytest.raises(InvalidRequestError, match="a template that keeps it"):
        template("{{ messages[0].content }}").render(
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], continue_final_message=True
        )


def test_refusal_of_a_template_is_a_client_error_in_its_own_words() -> None:
    refusing = template("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidRequestError, match="roles must alternate"):
        refusing.render([{"role": "user", "content": "x"}])


def test_unreadable_template_is_found_at_start() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        template("{% for %}")


def test_template_cannot_reach_out_of_its_sandbox() -> None:
    with pytest.raises(InvalidRequestError):
        template("{{ messages.__class__.__mro__[1].__subclasses__() }}").render([{"role": "user", "content": "x"}])


def test_generation_tag_renders_what_is_inside() -> None:
    assert template("{% generation %}x{% endgeneration %}{% for m in messages %}{% endfor %}").render([]) == "x"
