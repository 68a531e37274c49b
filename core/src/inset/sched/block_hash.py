"""What a KV block is called: a digest of everything that its keys and values depend on."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from inset.identity import framed_sha256
from inset.inputs import MultiModalFeature

__all__ = ["hash_block", "hash_root"]


def hash_root(cache_salt: str | None, prompt_embeds_hash: bytes | None) -> bytes:
    """Returns the parent of a request's first block, 32 bytes: what separates tenants, and prompts of embeddings, in all blocks."""
    salt = b"" if cache_salt is None else b"salt:" + cache_salt.encode("utf-8", "surrogatepass")
    return framed_sha256(b"inset-block-1", salt, prompt_embeds_hash or b"")


def hash_block(parent: bytes, token_ids: Sequence[int], block_start: int, items: Sequence[MultiModalFeature]) -> bytes:
    """Returns the name of one full block, 32 bytes.

    It covers the parent, the tokens of the block, and for every item that overlaps the block its `mm_hash` and where the item begins,
    relative to the block: the same picture shifted by one position inside the block is other content behind equal tokens.

    Args:
        parent: Name of the block before, or `hash_root`.
        token_ids: Tokens of the block.
        block_start: Its first position, in tokens from the start of the prompt.
        items: All items of the request, ascending and disjoint.
    """
    parts = [parent, array("q", token_ids).tobytes()]
    stop = block_start + len(token_ids)
    for index in range(bisect_right(items, block_start, key=lambda item: item.placeholder.end), len(items)):
        item = items[index]
        if item.placeholder.offset >= stop:
            break
        parts += [item.mm_hash, (item.placeholder.offset - block_start).to_bytes(8, "big", signed=True)]
    return framed_sha256(*parts)
