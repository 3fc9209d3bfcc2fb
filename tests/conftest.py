"""Options and settings every test shares."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run the full matrices, not only their samples")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--exhaustive"):
        return
    left_out = [item for item in items if "exhaustive" in item.keywords]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if "exhaustive" not in item.keywords]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
