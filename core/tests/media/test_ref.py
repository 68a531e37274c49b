"""The media reference: named by its bytes, decoded once, never by accident."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from inset.identity import DecodeSpec, derive_media_key
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef

TIME_LIMIT_SECONDS = 30.0
SPEC = DecodeSpec({"image_mode": "RGB"})
HEADER = MediaHeader(modality="image", width=4, height=2, decoded_bytes=24)
DATA = b"encoded bytes"


class Decoder:
    """Counts its calls, and can be held inside one."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.may_leave.set()

    def __call__(self) -> list[int]:
        self.num_calls += 1
        self.entered.set()
        assert self.may_leave.wait(TIME_LIMIT_SECONDS)
        return [1, 2, 3]


def make_ref(load: Callable[[], list[int]]) -> MediaRef[list[int]]:
    return MediaRef(derive_media_key(DATA, SPEC), SPEC, data=DATA, header=HEADER, load=load)


def pickle_and_back(ref: MediaRef[list[int]]) -> MediaRef[list[int]]:
    restored: MediaRef[list[int]] = pickle.loads(pickle.dumps(ref))  # noqa: S301 - our own bytes
    return restored


def test_decode_happens_once_and_only_when_asked() -> None:
    decoder = Decoder()
    ref = make_ref(decoder)
    assert (decoder.num_calls, ref.is_decoded) == (0, False)
    assert ref.decode() is ref.decode()
    assert (decoder.num_calls, ref.is_decoded) == (1, True)


def test_sixteen_threads_share_one_decode() -> None:
    decoder = Decoder()
    decoder.may_leave.clear()
    ref = make_ref(decoder)
    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(ref.decode) for _ in range(16)]
        assert decoder.entered.wait(TIME_LIMIT_SECONDS)
        decoder.may_leave.set()
        results = [future.result(TIME_LIMIT_SECONDS) for future in futures]
    assert decoder.num_calls == 1
    assert all(result is results[0] for result in results)


def test_errors_of_the_decoder_pass_unchanged_and_the_next_call_tries_again() -> None:
    error = ValueError("damaged")
    outcomes: list[Exception | list[int]] = [error, [7]]

    def load() -> list[int]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    ref = make_ref(load)
    with pytest.raises(ValueError, match="damaged") as caught:
        ref.decode()
    assert caught.value is error
    assert not ref.is_decoded
    assert ref.decode() == [7]


def test_key_spec_and_data_are_read_only() -> None:
    ref = make_ref(Decoder())
    for name in ("key", "spec", "data", "header", "is_decoded"):
        with pytest.raises(AttributeError):
            setattr(ref, name, b"")
    with pytest.raises(AttributeError):
        ref.shape = (1, 2)  # type: ignore[attr-defined]


def test_a_reference_forwards_nothing() -> None:
    names = set(dir(MediaRef)) - set(dir(object))
    assert not names & {"__getattr__", "__iter__", "__getitem__", "__len__", "__array__", "__array_interface__", "__buffer__"}


@pytest.mark.parametrize("copy_it", [copy.copy, copy.deepcopy])
def test_copying_forks_and_does_not_decode(copy_it: Callable[[MediaRef[list[int]]], MediaRef[list[int]]]) -> None:
    decoder = Decoder()
    ref = make_ref(decoder)
    copied = copy_it(ref)
    assert decoder.num_calls == 0
    ref.release()
    assert copied.decode() == [1, 2, 3]


def test_repr_shows_state_and_nothing_of_the_content() -> None:
    ref = make_ref(Decoder())
    assert "encoded" in repr(ref)
    assert DATA.decode() not in repr(ref)
    ref.decode()
    assert "decoded" in repr(ref)


class TestRelease:
    def test_decoded_media_stays_readable(self) -> None:
        ref = make_ref(Decoder())
        decoded = ref.decode()
        ref.release()
        assert ref.decode() is decoded
        assert ref.data == b""

    def test_undecoded_reference_refuses_everything_that_needs_the_media(self) -> None:
        decoder = Decoder()
        ref = make_ref(decoder)
        ref.release()
        for use in (ref.decode, ref.fork, lambda: ref.map(len), lambda: pickle.dumps(ref)):
            with pytest.raises(RuntimeError, match="released before it was decoded"):
                use()
        assert decoder.num_calls == 0
        assert "released" in repr(ref)

    def test_twice_is_harmless(self) -> None:
        ref = make_ref(Decoder())
        ref.release()
        ref.release()

    def test_waits_for_a_decode_in_flight_and_keeps_its_result(self) -> None:
        decoder = Decoder()
        decoder.may_leave.clear()
        ref = make_ref(decoder)
        with ThreadPoolExecutor(2) as pool:
            decoding = pool.submit(ref.decode)
            assert decoder.entered.wait(TIME_LIMIT_SECONDS)
            releasing = pool.submit(ref.release)
            assert ref.data == DATA
            assert not releasing.done()
            decoder.may_leave.set()
            decoded = decoding.result(TIME_LIMIT_SECONDS)
            releasing.result(TIME_LIMIT_SECONDS)
        assert ref.data == b""
        assert ref.decode() is decoded

    @pytest.mark.parametrize("end", [MediaRef.release, MediaRef.decode], ids=["released", "decoded"])
    def test_drops_what_the_decode_had_pinned(self, end: Callable[[MediaRef[list[int]]], object]) -> None:
        class Pinned:
            def __call__(self) -> list[int]:
                return []

        load = Pinned()
        alive = weakref.ref(load)
        ref = make_ref(load)
        del load
        end(ref)
        gc.collect()
        assert alive() is None


class TestFork:
    def test_shares_the_decode_in_both_directions(self) -> None:
        decoder = Decoder()
        ref = make_ref(decoder)
        fork = ref.fork()
        assert fork.decode() is ref.decode()
        assert decoder.num_calls == 1
        assert (fork.key, fork.spec, fork.data, fork.header) == (ref.key, ref.spec, ref.data, ref.header)

    def test_is_released_on_its_own(self) -> None:
        ref = make_ref(Decoder())
        fork = ref.fork()
        fork.release()
        assert ref.data == DATA
        assert ref.decode() == [1, 2, 3]
        with pytest.raises(RuntimeError):
            fork.decode()

    def test_survives_its_parent(self) -> None:
        ref = make_ref(Decoder())
        fork = ref.fork()
        ref.release()
        assert fork.decode() == [1, 2, 3]


class TestDecodeWithoutKeeping:
    def test_the_result_is_the_callers_alone(self) -> None:
        decoder = Decoder()
        ref = make_ref(decoder)
        assert ref.decode(keep=False) == ref.fork().decode(keep=False) == [1, 2, 3]
        assert (decoder.num_calls, ref.is_decoded, ref.data) == (2, False, DATA)

    def test_a_mapped_reference_keeps_nothing_of_its_parents(self) -> None:
        decoder = Decoder()
        ref = make_ref(decoder)
        assert ref.map(list, step=1).map(len, step=2).decode(keep=False) == 3
        assert (decoder.num_calls, ref.is_decoded) == (1, False)

    def test_what_was_kept_before_is_not_decoded_again(self) -> None:
        decoder = Decoder()
        ref = make_ref(decoder)
        mapped = ref.map(len, step=1)
        kept = ref.decode()
        assert ref.decode(keep=False) is kept
        assert mapped.decode(keep=False) == 3
        assert decoder.num_calls == 1

    def test_a_release_waits_for_it(self) -> None:
        decoder = Decoder()
        decoder.may_leave.clear()
        ref = make_ref(decoder)
        with ThreadPoolExecutor(2) as threads:
            decoded = threads.submit(ref.decode, keep=False)
            assert decoder.entered.wait(TIME_LIMIT_SECONDS)
            released = threads.submit(ref.release)
            assert ref.data == DATA
            decoder.may_leave.set()
            assert decoded.result(TIME_LIMIT_SECONDS) == [1, 2, 3]
            released.result(TIME_LIMIT_SECONDS)
        assert (ref.is_decoded, ref.data) == (False, b"")


class TestMap:
    def test_decodes_parent_and_transform_once(self) -> None:
        decoder, calls = Decoder(), []
        ref = make_ref(decoder)

        def double(values: list[int]) -> list[int]:
            calls.append(values)
            return [2 * value for value in values]

        mapped = ref.map(double, factor=2)
        assert (decoder.num_calls, calls) == (0, [])
        assert mapped.decode() is mapped.decode()
        assert mapped.decode() == [2, 4, 6]
        assert (decoder.num_calls, len(calls), ref.is_decoded) == (1, 1, True)

    def test_settings_extend_the_spec_and_derive_a_key_from_the_parent(self) -> None:
        ref = make_ref(Decoder())
        mapped = ref.map(len, rate=16_000, method="soxr")
        assert mapped.spec.settings == {"image_mode": "RGB", "rate": 16_000, "method": "soxr"}
        assert mapped.key == ref.map(len, method="soxr", rate=16_000).key
        assert len({ref.key, mapped.key, ref.map(len, rate=8_000, method="soxr").key, mapped.map(str, again=True).key}) == 4

    def test_key_of_a_map_depends_on_the_bytes_of_the_parent(self) -> None:
        other = MediaRef(derive_media_key(b"other", SPEC), SPEC, data=b"other", header=HEADER, load=Decoder())
        assert make_ref(Decoder()).map(len, step=1).key != other.map(len, step=1).key

    def test_without_settings_the_identity_stays(self) -> None:
        ref = make_ref(Decoder())
        mapped = ref.map(list)
        assert (mapped.key, mapped.spec) == (ref.key, ref.spec)

    def test_shares_the_bytes_and_keeps_them_when_the_parent_is_released(self) -> None:
        ref = make_ref(Decoder())
        mapped = ref.map(len, step=1)
        assert mapped.data is ref.data
        ref.release()
        assert mapped.data == DATA
        assert mapped.decode() == 3

    def test_releasing_it_leaves_the_parent(self) -> None:
        ref = make_ref(Decoder())
        ref.map(len, step=1).release()
        assert ref.data == DATA
        assert ref.decode() == [1, 2, 3]

    def test_says_what_it_changes_in_the_header(self) -> None:
        ref = make_ref(Decoder())
        changed = MediaHeader(modality="image", width=1, height=1)
        assert ref.map(len, header=changed, step=1).header is changed
        assert ref.map(len, step=1).header is HEADER

    def test_of_a_decoded_and_released_parent_works(self) -> None:
        ref = make_ref(Decoder())
        ref.decode()
        ref.release()
        assert ref.map(len, step=1).decode() == 3


class TestPickle:
    def test_materialises(self) -> None:
        decoder = Decoder()
        ref = make_ref(decoder)
        restored = pickle_and_back(ref)
        assert decoder.num_calls == 1
        assert restored.is_decoded
        assert restored.decode() == [1, 2, 3]
        assert (restored.key, restored.spec, restored.header, restored.data) == (ref.key, ref.spec, ref.header, b"")

    def test_restored_reference_forks_maps_and_releases(self) -> None:
        restored = pickle_and_back(make_ref(Decoder()))
        assert restored.fork().decode() == [1, 2, 3]
        assert restored.map(len, step=1).decode() == 3
        restored.release()
        assert restored.decode() == [1, 2, 3]

    def test_error_of_the_decoder_passes(self) -> None:
        def load() -> list[int]:
            raise ValueError("damaged")

        with pytest.raises(ValueError, match="damaged"):
            pickle.dumps(make_ref(load))
