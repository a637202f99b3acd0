"""Compiling the C++ parts: once, by several processes at once, and when it cannot be done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dispatch_inspect import building
from dispatch_inspect.errors import UsageError

SOURCE = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny_part", "", -1, nullptr};
PyMODINIT_FUNC PyInit_tiny_part() { return PyModule_Create(&module); }
"""
BUILD = """
import sys
from pathlib import Path
from dispatch_inspect import building
building._SOURCES = Path(sys.argv[1])
print(building.load("tiny", "tiny_part").__name__)
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "csrc" / "tiny").mkdir(parents=True)
    (tmp_path / "csrc" / "tiny" / "tiny.cpp").write_text(SOURCE)
    monkeypatch.setenv("DISPATCH_INSPECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "_SOURCES", tmp_path / "csrc")
    building._folder_name.cache_clear()
    yield tmp_path / "csrc"
    building._folder_name.cache_clear()


def test_two_processes_build_at_once(sources: Path, tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD, str(sources)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in both:
        out, said = one.communicate(timeout=300)
        assert out == "tiny_part\n", said
        assert "compiling tiny once" in said
    (kept,) = (tmp_path / "cache").iterdir()
    assert [path.name for path in kept.iterdir()] == ["tiny_part.so"]
    again = subprocess.run(
        [sys.executable, "-c", BUILD, str(sources)], capture_output=True, text=True, check=True
    )
    assert again.stderr == ""


def test_a_changed_source_is_compiled_anew(sources: Path) -> None:
    first = building._target("tiny", "tiny_part", ())
    (sources / "tiny" / "tiny.cpp").write_text(SOURCE + "// changed\n")
    building._folder_name.cache_clear()
    assert building._target("tiny", "tiny_part", ()) != first


def test_what_the_compiler_says_is_said(sources: Path, tmp_path: Path) -> None:
    (sources / "tiny" / "tiny.cpp").write_text("int answer = ;\n")
    with pytest.raises(UsageError, match=r"tiny\.cpp:1:14: error: "):
        building.build("tiny", "tiny_part", quiet=True)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_is_a_file(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(UsageError, match="DISPATCH_INSPECT_CACHE"):
        building.build("tiny", "tiny_part", quiet=True)
