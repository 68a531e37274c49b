"""Asks questions about clips, and answers them from what happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from clips import STEPS, Actor, shapes_at
from questions import Question, Shapes, describe, named, pick, vary

Actors = tuple[Actor, ...]
CLEAR = 0.1
"""Two centres at least this far apart, as a fraction of the width, have a plain order from left to right."""
Asked = tuple[str, str] | None


def ask_about_clip(rng: np.random.Generator, actors: Actors, kind: str) -> Question | None:
    """Returns a question of one kind about a clip, or None where this clip allows none."""
    found = _ASK[kind](rng, actors)
    if found is None:
        return None
    text = found[0].replace("{clip}", pick(rng, ("video", "video", "clip")))
    return Question(kind, vary(rng, text), found[1])


def _direction(rng: np.random.Generator, actors: Actors) -> Asked:
    movers = [actor for actor in actors if actor.direction is not None]
    if len(movers) != 1:
        if not movers and rng.random() < 0.3:
            return pick(rng, ("Does anything move?", "Does something move?")), "no"
        return None
    [mover] = movers
    direction, name = str(mover.direction), _name(rng, mover, actors)
    style = rng.random()
    if style < 0.1:
        return pick(rng, ("Does anything move?", "Does something move?")), "yes"
    if style < 0.25:
        return pick(rng, ("What moves?", "Which shape moves?", "What is moving?")), named(mover.at(0))
    if any(actor is not mover and (actor.kind, actor.colours[0]) == (mover.kind, mover.colours[0]) for actor in actors):
        return None
    if style < 0.4:
        words = ("left", "right") if direction in ("left", "right") else ("up", "down")
        return f"Does the {name} move {words[0]} or {words[1]}?", direction
    if style < 0.5:
        said = pick(rng, ("left", "right", "up", "down"))
        return f"Does the {name} move {said}?", "yes" if said == direction else "no"
    forms = ("Which way does the {k} move?", "Where does the {k} move?", "In which direction does the {k} move?", "Where does the {k} go?")
    return pick(rng, forms).replace("{k}", name), direction


def _order(rng: np.random.Generator, actors: Actors) -> Asked:
    found = [_appearing, _disappearing, _before][int(rng.choice(3, p=(0.5, 0.25, 0.25)))](rng, actors)
    return found or _appearing(rng, actors)


def _appearing(rng: np.random.Generator, actors: Actors) -> Asked:
    late = [actor for actor in actors if actor.appears_at > 0]
    by_time = sorted(actors, key=lambda actor: actor.appears_at)
    if len(late) == 1 and rng.random() < 0.4:
        forms = ("What appears?", "Which shape appears?", "What appears in the {clip}?", "What comes into the {clip}?")
        return pick(rng, forms), named(late[0].at(0))
    if len(actors) < 2 or by_time[0].appears_at == by_time[1].appears_at:
        return None
    if rng.random() < 0.5:
        return pick(rng, ("What comes first?", "Which shape comes first?", "What is there first?")), named(by_time[0].at(0))
    return pick(rng, ("What comes last?", "Which shape comes last?", "What comes second?")), named(by_time[-1].at(0))


def _disappearing(rng: np.random.Generator, actors: Actors) -> Asked:
    gone = [actor for actor in actors if actor.disappears_at < STEPS]
    if len(gone) != 1:
        return None
    return pick(rng, ("What disappears?", "Which shape disappears?", "What goes away?")), named(gone[0].at(0))


def _before(rng: np.random.Generator, actors: Actors) -> Asked:
    if len(actors) < 2 or actors[0].appears_at == actors[1].appears_at:
        return None
    one, other = (actors[int(i)] for i in rng.permutation(2))
    names = _name(rng, one, actors), _name(rng, other, actors)
    if names[0] == names[1]:
        return None
    early = one.appears_at < other.appears_at
    if rng.random() < 0.5:
        return f"Which comes first, the {names[0]} or the {names[1]}?", f"the {names[0] if early else names[1]}"
    return f"Does the {names[0]} come before the {names[1]}?", "yes" if early else "no"


def _change(rng: np.random.Generator, actors: Actors) -> Asked:
    turning = [actor for actor in actors if actor.turns_at < STEPS]
    style = rng.random()
    kinds = Counter(actor.kind for actor in actors)
    if not turning or style < 0.12:
        actor = actors[int(rng.integers(len(actors)))]
        if kinds[actor.kind] > 1 or (not turning and style > 0.3):
            return None
        asked = pick(rng, ("Does the {k} change its colour?", "Does the colour of the {k} change?"))
        return asked.replace("{k}", actor.kind), "yes" if actor in turning else "no"
    actor = turning[0]
    if style < 0.32:
        return pick(rng, ("Which shape changes its colour?", "What changes its colour?", "What changes colour?")), f"the {actor.kind}"
    if kinds[actor.kind] > 1:
        return None
    if style < 0.66:
        forms = ("What colour is the {k} at first?", "What colour is the {k} at the beginning?", "Which colour does the {k} have at first?")
        return pick(rng, forms).replace("{k}", actor.kind), actor.colours[0]
    forms = ("What colour is the {k} at the end?", "What colour does the {k} turn?", "Which colour does the {k} have at the end?")
    return pick(rng, forms).replace("{k}", actor.kind), actor.colours[1]


def _scene(rng: np.random.Generator, actors: Actors) -> Asked:
    first, last = shapes_at(actors, 0), shapes_at(actors, STEPS - 1)
    if not (_is_plain(first) and _is_plain(last)):
        return None
    style = rng.random()
    if describe(first) == describe(last) and style < 0.4:
        return pick(rng, ("What is in the {clip}?", "What is in this {clip}?", "What does the {clip} show?", "What do you see?")), describe(
            first
        )
    if style < 0.6:
        return _at(rng, first, ("at first", "at the beginning"))
    return _at(rng, last, ("at the end",))


def _at(rng: np.random.Generator, shapes: Shapes, when: tuple[str, ...]) -> tuple[str, str]:
    time = pick(rng, when)
    if rng.random() < 0.3:
        return pick(rng, ("How many shapes are there {t}?", "How many shapes are in the {clip} {t}?")).replace("{t}", time), str(
            len(shapes)
        )
    return pick(rng, ("What is in the {clip} {t}?", "What is there {t}?", "What do you see {t}?")).replace("{t}", time), describe(shapes)


def _is_plain(shapes: Shapes) -> bool:
    return len(shapes) < 2 or abs(shapes[0].x - shapes[1].x) >= CLEAR


def _name(rng: np.random.Generator, actor: Actor, actors: Actors) -> str:
    """Returns words that mean one actor alone; those that look alike are told apart by nothing and get the same."""
    kinds = Counter(a.kind for a in actors)
    colour = actor.colours[0]
    steady = actor.turns_at == STEPS
    if kinds[actor.kind] == 1 and (rng.random() < 0.6 or not steady):
        return actor.kind
    others = {c for a in actors if a is not actor for c in a.colours}
    return f"{colour} shape" if colour not in others and rng.random() < 0.3 else f"{colour} {actor.kind}"


_ASK: dict[str, Callable[[np.random.Generator, Actors], Asked]] = {
    "direction": _direction,
    "order": _order,
    "change": _change,
    "scene": _scene,
}
KINDS_FOR_CLIPS = tuple(_ASK)
