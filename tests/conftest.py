"""Faults of the tracer, which a program never sees, must be seen by tests. Both recorders are."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ["DISPATCH_INSPECT_RAISE_FAULTS"] = "1"

#: folders whose tests run once with the recorder in Python and once with the probe
BOTH = (
    "tests/record/",
    "tests/cases/",
    "tests/proofs/test_truth",
    "tests/proofs/test_nothing_lost",
)


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the probe before the tests, once for all workers."""
    if not hasattr(config, "workerinput"):
        from dispatch_inspect import building
        from dispatch_inspect.record import probe

        building.build(probe.PART, probe.MODULE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    path = metafunc.definition.nodeid
    if path.startswith(BOTH):
        metafunc.fixturenames.append("recorder")
        metafunc.parametrize("recorder", ["in_python", "native"], indirect=True)


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which recorder is used, here and in programs that the test starts."""
    before = os.environ.get("DISPATCH_INSPECT_PROBE")
    os.environ["DISPATCH_INSPECT_PROBE"] = "never" if request.param == "in_python" else "auto"
    yield request.param
    if before is None:
        del os.environ["DISPATCH_INSPECT_PROBE"]
    else:
        os.environ["DISPATCH_INSPECT_PROBE"] = before
