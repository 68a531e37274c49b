"""Holds for the tests of every package: nothing leaves the machine."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _stay_on_this_machine(network_block_session: None) -> None:
    """Switches the network block on for the whole run."""
