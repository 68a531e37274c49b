"""Asks questions about scenes, and answers them from what was drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scenes import COLOURS, KINDS, Shape

Shapes = tuple[Shape, ...]
MOST = 3
"""Questions are asked about pictures of at most so many objects."""
CLEAR = 0.1
"""Two centres at least this far apart, as a fraction of the picture, are plainly above or below one another."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its only right answer.

    Attributes:
        kind: What it tests; one of `KINDS_OF_QUESTION` or `KINDS_FOR_TWO`, or of `KINDS_FOR_CLIPS` in clip_questions.py.
        text: The question.
        answer: The answer.
    """

    kind: str
    text: str
    answer: str


CHAT: tuple[tuple[str, str], ...] = (
    ("Hello", "Hello! Show me a picture and ask about its shapes."),
    ("Hi", "Hello! Show me a picture and ask about its shapes."),
    ("Hello!", "Hello! Show me a picture and ask about its shapes."),
    ("Hi there", "Hello! Show me a picture and ask about its shapes."),
    ("Good morning", "Hello! Show me a picture and ask about its shapes."),
    ("What can you do?", "I name, count and compare coloured shapes in pictures."),
    ("Who are you?", "I am a tiny model that knows coloured shapes."),
    ("What are you?", "I am a tiny model that knows coloured shapes."),
    ("Help", "I name, count and compare coloured shapes in pictures."),
    ("Which shapes do you know?", "I know the circle, square, triangle, star, cross, ring and heart."),
    ("Which colours do you know?", "I know red, orange, yellow, green, blue, purple, black and white."),
    ("Thank you", "You are welcome."),
    ("Thanks!", "You are welcome."),
    ("Goodbye", "Goodbye!"),
    ("Tell me a story.", "I only know coloured shapes in pictures."),
    ("What is the capital of France?", "I only know coloured shapes in pictures."),
    ("How are you?", "I am well. Show me a picture."),
)
"""What people say before they show a picture."""

SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer in one word.", "You answer questions about pictures.", "Be brief.")

WHOLE = (
    "What is in the {image}?",
    "What is in this {image}?",
    "What do you see?",
    "What do you see in the {image}?",
    "Describe the {image}.",
    "Describe this {image}.",
    "What does the {image} show?",
    "Which shapes are in the {image}?",
    "What can you see in this {image}?",
    "What is shown here?",
    "What is this?",
    "What's in this {image}?",
)


def describe(shapes: Shapes) -> str:
    """Returns the shapes in words, from left to right: "a red circle and an orange star", or "nothing"."""
    names = [named(shape) for shape in shapes]
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def named(shape: Shape) -> str:
    """Returns one shape in words: "an orange star"."""
    return f"{'an' if shape.colour == 'orange' else 'a'} {shape.colour} {shape.kind}"


def ask(rng: np.random.Generator, shapes: Shapes, kind: str) -> Question | None:
    """Returns a question of one kind about one picture, or None where this picture allows none."""
    found = _ASK[kind](rng, shapes)
    return None if found is None else Question(kind, vary(rng, found[0]), found[1])


def ask_two(rng: np.random.Generator, first: Shapes, second: Shapes, kind: str) -> Question | None:
    """Returns a question of one kind about two pictures, or None where these allow none."""
    found = _ASK_TWO[kind](rng, first, second)
    return None if found is None else Question(kind, vary(rng, found[0]), found[1])


def pick(rng: np.random.Generator, options: tuple[str, ...] | list[str]) -> str:
    """Returns one of some words."""
    return options[int(rng.integers(len(options)))]


def vary(rng: np.random.Generator, text: str) -> str:
    """Spells a question as different people would."""
    text = text.format(image=pick(rng, ("picture", "picture", "image", "photo")))
    if rng.random() < 0.3:
        text = text.replace("colour", "color")
    if rng.random() < 0.25:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15:
        text = text.rstrip("?.")
    return text


def _unique(shapes: Shapes, field: str) -> list[Shape]:
    counts = Counter(getattr(shape, field) for shape in shapes)
    return [shape for shape in shapes if counts[getattr(shape, field)] == 1]


def _absent(rng: np.random.Generator, shapes: Shapes, field: str) -> str:
    there = {getattr(shape, field) for shape in shapes}
    return pick(rng, [value for value in (KINDS if field == "kind" else COLOURS) if value not in there])


def _choose(rng: np.random.Generator, shapes: list[Shape]) -> Shape:
    return shapes[int(rng.integers(len(shapes)))]


def _naming(rng: np.random.Generator, shapes: Shapes) -> tuple[str, str] | None:
    unique = _unique(shapes, "colour")
    if unique and rng.random() < 0.35:
        shape = _choose(rng, unique)
        if len(shapes) == 1 and rng.random() < 0.5:
            return pick(rng, ("What shape is this?", "Which shape is in the {image}?", "Name the shape.")), shape.kind
        forms = ("Which shape is {c}?", "What shape is {c}?", "What shape is the {c} one?", "What is the {c} shape?")
        return pick(rng, forms).replace("{c}", shape.colour), shape.kind
    return pick(rng, WHOLE), describe(shapes)


def _colour(rng: np.random.Generator, shapes: Shapes) -> tuple[str, str] | None:
    forms = ("What colour is the {k}?", "Which colour is the {k}?", "What is the colour of the {k}?", "What colour does the {k} have?")
    if not shapes or rng.random() < 0.06:
        kind = _absent(rng, shapes, "kind")
        return pick(rng, forms).replace("{k}", kind), f"there is no {kind}"
    if len(shapes) == 1 and rng.random() < 0.3:
        return pick(rng, ("What colour is the shape?", "What colour is it?", "Which colour do you see?")), shapes[0].colour
    if len(shapes) > 1 and rng.random() < 0.2:
        side = int(rng.integers(2))
        form = pick(rng, ("What colour is the {s}most shape?", "What colour is the shape on the {s}?"))
        return form.replace("{s}", ("left", "right")[side]), shapes[-side].colour
    unique = _unique(shapes, "kind")
    if not unique:
        return None
    shape = _choose(rng, unique)
    return pick(rng, forms).replace("{k}", shape.kind), shape.colour


def _counting(rng: np.random.Generator, shapes: Shapes) -> tuple[str, str] | None:
    style = rng.random()
    if style < 0.45:
        forms = ("How many shapes are there?", "How many shapes are in the {image}?", "How many objects are there?", "Count the shapes.")
        return pick(rng, forms), str(len(shapes))
    field = "kind" if style < 0.8 else "colour"
    there = [getattr(shape, field) for shape in shapes]
    value = pick(rng, there) if there and rng.random() < 0.75 else _absent(rng, shapes, field)
    thing = ("crosses" if value == "cross" else value + "s") if field == "kind" else value + " shapes"
    forms = ("How many {t} are there?", "How many {t} are in the {image}?", "How many {t} do you see?", "Count the {t}.")
    return pick(rng, forms).replace("{t}", thing), str(there.count(value))


def _relation(rng: np.random.Generator, shapes: Shapes) -> tuple[str, str] | None:
    if len(shapes) < 2:
        return None
    vertical = rng.random() < 0.5
    words = ("above", "below") if vertical else ("left", "right")
    if rng.random() < 0.25:
        return _outermost(rng, shapes, vertical)
    names = _references(rng, shapes)
    i, j = (int(n) for n in rng.choice(len(shapes), 2, replace=False))
    a, b = shapes[i], shapes[j]
    gap = (a.y - b.y) if vertical else (a.x - b.x)
    if names[i] is None or names[j] is None or abs(gap) < CLEAR * (1 if vertical else 0.75):
        return None
    true = words[0] if gap < 0 else words[1]
    place = {
        "left": ("left of", "to the left of"),
        "right": ("right of", "to the right of"),
        "above": ("above",),
        "below": ("below", "under"),
    }
    if rng.random() < 0.55:
        form = pick(rng, ("Is the {a} above or below the {b}?",) if vertical else ("Is the {a} left or right of the {b}?", _TO_THE))
        return form.replace("{a}", str(names[i])).replace("{b}", str(names[j])), true
    said = pick(rng, words)
    return f"Is the {names[i]} {pick(rng, place[said])} the {names[j]}?", "yes" if said == true else "no"


_TO_THE = "Is the {a} to the left or to the right of the {b}?"


def _outermost(rng: np.random.Generator, shapes: Shapes, vertical: bool) -> tuple[str, str] | None:
    if not vertical:
        side = int(rng.integers(2))
        forms = ("What is on the {s}?", "Which shape is on the {s}?", "What is the {s}most shape?")
        return pick(rng, forms).replace("{s}", ("left", "right")[side]), named(shapes[-side])
    ordered = sorted(shapes, key=lambda shape: shape.y)
    bottom = bool(rng.integers(2))
    ends = ordered[::-1] if bottom else ordered
    if abs(ends[0].y - ends[1].y) < CLEAR:
        return None
    side_name = "bottom" if bottom else "top"
    return pick(rng, ("What is at the {s}?", "Which shape is at the {s}?")).replace("{s}", side_name), named(ends[0])


def _references(rng: np.random.Generator, shapes: Shapes) -> list[str | None]:
    """Returns for each shape words that mean it alone, or None."""
    kinds, both = Counter(s.kind for s in shapes), Counter((s.kind, s.colour) for s in shapes)
    result: list[str | None] = []
    for shape in shapes:
        full = f"{shape.colour} {shape.kind}" if both[shape.kind, shape.colour] == 1 else None
        result.append(shape.kind if kinds[shape.kind] == 1 and (full is None or rng.random() < 0.6) else full)
    return result


def _existence(rng: np.random.Generator, shapes: Shapes) -> tuple[str, str] | None:
    thing, answer = _thing(rng, shapes, wanted=bool(rng.integers(2)))
    return pick(rng, ("Is there {t}?", "Is there {t} in the {image}?", "Can you see {t}?", "Do you see {t}?")).replace("{t}", thing), answer


def _thing(rng: np.random.Generator, shapes: Shapes, *, wanted: bool) -> tuple[str, str]:
    """Returns something that is there if wanted and possible, or something close that is not, and "yes" or "no"."""
    style = int(rng.integers(3))
    shape = _choose(rng, list(shapes)) if shapes else Shape(pick(rng, KINDS), pick(rng, COLOURS), 0, 0)
    kind, colour = shape.kind, shape.colour
    if not (wanted and shapes):
        crossed = _crossed(shapes) if style == 2 else []
        if crossed and rng.random() < 0.5:
            kind, colour = crossed[int(rng.integers(len(crossed)))]
        elif style == 0 or (style == 2 and rng.random() < 0.5):
            kind = _absent(rng, shapes, "kind")
        else:
            colour = _absent(rng, shapes, "colour")
    words = (kind, f"{colour} shape", f"{colour} {kind}")[style]
    there = any((shape.kind == kind or style == 1) and (shape.colour == colour or style == 0) for shape in shapes)
    return f"{'an' if words.startswith('orange') else 'a'} {words}", "yes" if there else "no"


def _crossed(shapes: Shapes) -> list[tuple[str, str]]:
    """Returns a kind of one object with the colour of another, wherever no object has both."""
    there = {(shape.kind, shape.colour) for shape in shapes}
    return sorted({(kind, colour) for kind, _ in there for _, colour in there} - there)


def _which(rng: np.random.Generator, first: Shapes, second: Shapes) -> tuple[str, str] | None:
    if len(first) != len(second) and rng.random() < 0.2:
        more = bool(rng.integers(2))
        form = f"Which {{image}} shows {'more' if more else 'fewer'} shapes?"
        return form, "the first" if (len(first) > len(second)) == more else "the second"
    swapped = bool(rng.integers(2))
    one, other = (second, first) if swapped else (first, second)
    for _ in range(6):
        thing, there = _thing(rng, one, wanted=True)
        kind, colour = thing.split()[-1], thing.split()[1]
        also = any((s.kind == kind or kind == "shape") and (s.colour == colour or colour not in COLOURS) for s in other)
        if there == "yes" and not also:
            forms = ("Which {image} has {t}?", "Which {image} contains {t}?", "In which {image} is {t}?", "Which {image} shows {t}?")
            return pick(rng, forms).replace("{t}", thing), "the second" if swapped else "the first"
    return None


def _same(rng: np.random.Generator, first: Shapes, second: Shapes) -> tuple[str, str] | None:
    same = Counter((s.kind, s.colour) for s in first) == Counter((s.kind, s.colour) for s in second)
    if rng.random() < 0.5:
        forms = ("Do both pictures show the same shapes?", "Are the same shapes in both pictures?", "Do the two pictures show the same?")
        return pick(rng, forms), "yes" if same else "no"
    forms = ("Same or different?", "Are the two pictures the same or different?", "Do the pictures show the same or different shapes?")
    return pick(rng, forms), "same" if same else "different"


def _one_of_two(rng: np.random.Generator, first: Shapes, second: Shapes) -> tuple[str, str] | None:
    word, shapes = (("first", first), ("second", second))[int(rng.integers(2))]
    style = int(rng.integers(3))
    if style == 0:
        return pick(rng, ("What is in the {w} {image}?", "Describe the {w} {image}.")).replace("{w}", word), describe(shapes)
    if style == 1:
        return f"How many shapes are in the {word} {{image}}?", str(len(shapes))
    unique = _unique(shapes, "kind")
    if not unique:
        return None
    shape = _choose(rng, unique)
    return f"What colour is the {shape.kind} in the {word} {{image}}?", shape.colour


_ASK: dict[str, Callable[[np.random.Generator, Shapes], tuple[str, str] | None]] = {
    "naming": _naming,
    "colour": _colour,
    "counting": _counting,
    "relation": _relation,
    "existence": _existence,
}
_ASK_TWO: dict[str, Callable[[np.random.Generator, Shapes, Shapes], tuple[str, str] | None]] = {
    "which picture": _which,
    "same or different": _same,
    "one of two": _one_of_two,
}
KINDS_OF_QUESTION = tuple(_ASK)
KINDS_FOR_TWO = tuple(_ASK_TWO)
