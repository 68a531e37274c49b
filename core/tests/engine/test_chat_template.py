"""Chat templates render as in transformers, and say so when they refuse."""

from __future__ import annotations

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


def test_media_parts_stand_where_they_were_sent() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert template(LIST_TEMPLATE).render([{"role": "user", "content": content}]) == "user:a<image>b</s>assistant:"


def test_final_message_is_continued_without_what_would_end_it() -> None:
    conversation = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once upon"}]
    assert template(LIST_TEMPLATE).render(conversation, continue_final_message=True) == "user:hi</s>assistant:Once upon"


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
