"""Names of media: the same everywhere for the same content and configuration, and never the same for anything else."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inset.errors import InvalidRequestError
from inset.identity import JSON, DecodeSpec, canonical_json, derive_media_key, derive_mm_hash, framed_sha256

SETTINGS: dict[str, JSON] = {"image_mode": "RGB", "size": {"height": 3, "width": [1, 2.5, None]}, "é": True}


def mm_hash(**changes: object) -> bytes:
    parts: dict[str, object] = {
        "modality": "image",
        "media_key": b"k" * 32,
        "processor_fingerprint": b"f" * 32,
        "mm_processor_kwargs": {"a": 1, "b": 2},
        "cache_salt": None,
    }
    return derive_mm_hash(**{**parts, **changes})  # type: ignore[arg-type]


def test_spec_does_not_depend_on_key_order_at_any_depth() -> None:
    turned: dict[str, JSON] = {"é": True, "size": {"width": [1, 2.5, None], "height": 3}, "image_mode": "RGB"}
    assert DecodeSpec(SETTINGS) == DecodeSpec(turned)
    assert hash(DecodeSpec(SETTINGS)) == hash(DecodeSpec(turned))


def test_spec_is_a_snapshot_and_gives_fresh_copies() -> None:
    settings: dict[str, JSON] = {"size": [1, 2]}
    spec = DecodeSpec(settings)
    settings["size"] = [3]
    spec.settings["size"] = 9
    assert spec.settings == {"size": [1, 2]}


def test_spec_extends_without_changing_itself() -> None:
    spec = DecodeSpec({"a": 1})
    assert spec.extend({"a": 2, "b": 3}).settings == {"a": 2, "b": 3}
    assert spec.settings == {"a": 1}


def test_spec_survives_pickling() -> None:
    spec = DecodeSpec(SETTINGS)
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - our own bytes


def nested(depth: int) -> JSON:
    value: JSON = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        object(),
        b"bytes",
        {1, 2},
        {1: 2},
        {"a": [float("nan")]},
        ["a", {"b": object()}],
        2**2000,
        nested(5000),
    ],
)
def test_values_that_are_not_finite_json_are_refused(value: JSON) -> None:
    with pytest.raises(InvalidRequestError, match=r"\$"):
        DecodeSpec({"option": value})


def test_numbers_and_switches_of_equal_value_stay_different() -> None:
    assert len({canonical_json(value) for value in (1, 1.0, True, "1", [1], {"1": 1}, None)}) == 7


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_json_round_trips_and_ignores_order(options: dict[str, JSON]) -> None:
    spec = DecodeSpec(options)
    assert DecodeSpec(spec.settings) == spec
    assert DecodeSpec(dict(reversed(list(options.items())))) == spec


@settings(deadline=None)
@given(st.lists(st.binary(max_size=8), max_size=5), st.lists(st.binary(max_size=8), max_size=5))
def test_parts_of_a_frame_cannot_be_shifted(first: list[bytes], second: list[bytes]) -> None:
    assert (framed_sha256(*first) == framed_sha256(*second)) == (first == second)


def test_frame_is_length_and_content() -> None:
    assert framed_sha256(b"ab", b"") == hashlib.sha256(b"\0" * 7 + b"\2ab" + b"\0" * 8).digest()


def test_media_key_covers_bytes_and_spec() -> None:
    spec, other = DecodeSpec({"image_mode": "RGB"}), DecodeSpec({"image_mode": "L"})
    keys = {derive_media_key(data, s) for data in (b"", b"a", b"ab", b"a" * 10_000, b"a" * 9_999 + b"b") for s in (spec, other)}
    assert len(keys) == 10
    assert all(len(key) == 32 for key in keys)


def test_media_key_takes_every_kind_of_buffer() -> None:
    spec = DecodeSpec({})
    assert derive_media_key(b"abc", spec) == derive_media_key(bytearray(b"abc"), spec) == derive_media_key(memoryview(b"abc"), spec)


@pytest.mark.parametrize(
    "change",
    [
        {"modality": "video"},
        {"media_key": b"x" * 32},
        {"processor_fingerprint": b"g" * 32},
        {"mm_processor_kwargs": {"a": 1}},
        {"mm_processor_kwargs": {"a": 1, "b": 2.0}},
        {"cache_salt": ""},
        {"cache_salt": "tenant"},
    ],
    ids=str,
)
def test_every_part_of_mm_hash_counts(change: Mapping[str, object]) -> None:
    assert mm_hash(**change) != mm_hash()


def test_mm_hash_is_32_bytes_and_ignores_the_order_of_options() -> None:
    assert len(mm_hash()) == 32
    assert mm_hash(mm_processor_kwargs={"b": 2, "a": 1}) == mm_hash()


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_names_are_the_same_in_another_process_with_another_hash_seed(hash_seed: str) -> None:
    code = f"""
from inset.identity import DecodeSpec, derive_media_key, derive_mm_hash
spec = DecodeSpec({SETTINGS!r})
key = derive_media_key(b"content", spec)
name = derive_mm_hash(modality="image", media_key=key, processor_fingerprint=b"f", mm_processor_kwargs={{"z": 1, "a": 2}}, cache_salt="s")
print(key.hex(), name.hex())
"""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True)
    key = derive_media_key(b"content", DecodeSpec(SETTINGS))
    name = derive_mm_hash(modality="image", media_key=key, processor_fingerprint=b"f", mm_processor_kwargs={"a": 2, "z": 1}, cache_salt="s")
    assert done.stdout.split() == [key.hex(), name.hex()]


def test_names_do_not_depend_on_installed_hash_packages() -> None:
    code = "import sys; from inset.identity import *; print(sorted(m for m in ('blake3', 'xxhash', 'numpy', 'torch') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
