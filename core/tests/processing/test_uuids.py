"""Tests of the clients' own names of items."""

from __future__ import annotations

from inset.processing.uuids import UuidAlias, UuidAliases


def alias(number: int) -> UuidAlias:
    return UuidAlias(bytes([number]) * 32, b"{}", bytes([number]) * 32)


def test_a_name_belongs_to_one_key_salt_modality_and_uuid() -> None:
    scopes = [
        ("a", "image", None, None),
        ("b", "image", None, None),
        ("a", "video", None, None),
        ("a", "image", "key", None),
        ("a", "image", None, "key"),
        ("a", "image", "", None),
        ("a", "image", None, ""),
    ]
    names = {UuidAliases.make_name(u, modality=m, api_key=k, cache_salt=s) for u, m, k, s in scopes}
    assert len(names) == len(scopes)


def test_the_least_recently_used_name_makes_room() -> None:
    aliases = UuidAliases(max_aliases=2)
    aliases.bind(b"1", alias(1))
    aliases.bind(b"2", alias(2))
    assert aliases.get(b"1") == alias(1)
    aliases.bind(b"3", alias(3))
    assert (aliases.get(b"1"), aliases.get(b"2"), len(aliases)) == (alias(1), None, 2)


def test_a_name_that_was_bound_again_is_not_dropped_by_who_saw_the_old_one() -> None:
    aliases = UuidAliases()
    aliases.bind(b"1", alias(1))
    aliases.bind(b"1", alias(2))
    aliases.drop(b"1", alias(1))
    assert aliases.get(b"1") == alias(2)
    aliases.drop(b"1", alias(2))
    assert aliases.get(b"1") is None
