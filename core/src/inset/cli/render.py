"""`inset render MODEL [MEDIA ...]`: token ids, placeholders and grids, from headers alone."""

from __future__ import annotations

import argparse
import json
from typing import Any

from inset.cli.messages import LOCAL_POLICY, add_media_options, check_media, split_words, user_message
from inset.cli.options import read_options

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the media, the question, and every option."""
    add_media_options(parser)
    parser.add_argument("--text", default="What is in the picture?", help="the question")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON, token ids included")


def run(args: argparse.Namespace) -> int:
    """Prints what the prompt becomes; no picture is decoded, and no model is loaded."""
    media = split_words(args)
    configs = read_options(args)
    check_media(media)
    from inset.engine.build import open_core_from
    from inset.engine.prompts import ChatPrompt
    from inset.server.planned import describe_plan

    with open_core_from(configs) as core:
        message = user_message(args.text, media, args.modality)
        planned = core.plan_sync(ChatPrompt(messages=[message], policy=LOCAL_POLICY))
        plan = describe_plan(planned, max_model_len=core.limits.max_model_len)
    if args.json:
        print(json.dumps(plan, indent=2))
    else:
        _print(plan)
    return 0


def _print(plan: dict[str, Any]) -> None:
    print(f"{plan['usage']['prompt_tokens']} tokens of {plan['max_model_len']}")
    for item in plan["items"]:
        place = item["placeholder"]
        grid = "" if item["grid"] is None else f"  grid {'x'.join(map(str, item['grid']))}"
        print(
            f"{item['modality']} {item['index']}: positions {place['offset']} to {place['offset'] + place['length'] - 1}, "
            f"{item['num_embeds']} embeds{grid}  {item['mm_hash'][:16]}" + ("" if item["is_exact"] else "  as planned")
        )
    print(plan["prompt"])
