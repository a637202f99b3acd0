"""A program run by this tool behaves as it does under python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import dispatch_inspect as di

WITHOUT_TORCH = """
import sys, os
print(sys.argv, sys.path[0] == os.path.dirname(os.path.realpath(__file__)), __name__, __file__)
print(sorted(name for name in globals() if name.startswith("__")))
"""


def python(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        input=stdin,
    )


def recorded(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return python("-m", "dispatch_inspect", "run", *arguments, cwd=cwd, stdin=stdin)


def own_words(text: str) -> str:
    """stderr without what this tool says."""
    return "\n".join(
        line for line in text.splitlines() if not line.startswith(("dispatch-inspect:", "  n"))
    )


def compare(*arguments: str, cwd: Path, stdin: str = "") -> None:
    plain = python(*arguments, cwd=cwd, stdin=stdin)
    ours = recorded(*arguments, cwd=cwd, stdin=stdin)
    assert ours.stdout == plain.stdout
    assert ours.returncode == plain.returncode
    assert own_words(ours.stderr) == own_words(plain.stderr)


def test_a_script(tmp_path: Path) -> None:
    folder = tmp_path / "some folder"
    folder.mkdir()
    (folder / "program.py").write_text(WITHOUT_TORCH)
    compare("some folder/program.py", "a", "--depth", "-o", cwd=tmp_path)


def test_a_module_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import part\nprint(__name__, __spec__.name, sys.argv[1:], part.X)\n"
    )
    (package / "part.py").write_text("X = 1\n")
    compare("-m", "package", "one", cwd=tmp_path)
    compare("-m", "package.part", cwd=tmp_path)
    compare("-m", "missing_package", cwd=tmp_path)


def test_code_and_stdin(tmp_path: Path) -> None:
    compare("-c", "import sys; print(sys.argv, sys.stdin.read())", "x", cwd=tmp_path, stdin="hello")


def test_a_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as file:
        file.writestr("__main__.py", "import sys; print(__name__, sys.argv)")
    compare("program.zip", "x", cwd=tmp_path)


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit()",
        "sys.exit(3)",
        "sys.exit('words')",
        "raise ValueError('words')",
        "os._exit(5)",
        "1 +",
        "try:\n    {}['x']\nexcept KeyError as e:\n    raise RuntimeError('outer') from e",
        "import atexit\natexit.register(print, 'at exit')",
        "import threading\nthreading.Timer(0.2, print, ('late',)).start()",
        "sys.excepthook = lambda *a: print('hooked', a[0].__name__)\nraise ValueError",
    ],
)
def test_endings(tmp_path: Path, ending: str) -> None:
    (tmp_path / "program.py").write_text(
        f"import os, sys, time\nprint('begin', flush=True)\n{ending}\n"
    )
    compare("program.py", cwd=tmp_path)


def test_a_traceback_through_torch_has_no_frames_of_ours(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "def f(x):\n"
        "    return torch.nn.functional.softmax(torch.nn.Linear(3, 3)(x), dim=7)\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
        "try:\n"
        "    net(torch.ones(1, 3))\n"
        "except RuntimeError as error:\n"
        "    raise ValueError('outer') from error\n"
    )
    compare("program.py", cwd=tmp_path)
    (tmp_path / "program.py").write_text("import torch\ntorch.nn.functional.relu(1)\n")
    compare("program.py", cwd=tmp_path)
    (tmp_path / "program.py").write_text(
        "import torch\ntorch.nn.functional.softmax(torch.ones(2, 2), dim=7)\n"
    )
    compare("program.py", cwd=tmp_path)


def test_an_interrupt_ends_the_program_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch, time\ntorch.ones(1)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "dispatch_inspect", "run", "-o", "t.dtrace", "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1
    trace = di.load(tmp_path / "t.dtrace")
    assert trace.names(kind="op") == ["aten::ones"]
    assert trace.notes == ()


def test_it_says_where_and_how_much(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nx = torch.ones(3)\nfor _ in range(200): x = x + 1\n"
    )
    done = recorded("-o", "t.dtrace", "program.py", cwd=tmp_path)
    first, *rest = done.stderr.splitlines()
    assert first == "dispatch-inspect: recording to t.dtrace"
    assert "402 events" in rest[0]
    assert "slower for it" in rest[0]
    assert rest[-1] == "  next: dispatch-inspect tree t.dtrace --depth 3"
    again = recorded("-o", "t.dtrace", "program.py", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert "Traceback" not in again.stderr
    assert recorded("--force", "-o", "t.dtrace", "program.py", cwd=tmp_path).returncode == 0
    assert os.listdir(tmp_path).count("t.dtrace") == 1


def test_options_reach_the_recorder(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch\nfor _ in range(9): torch.ones(1)\n")
    done = recorded(
        "--layers", "ops", "--max-events", "4", "-o", "t.dtrace", "program.py", cwd=tmp_path
    )
    assert "max_events" in done.stderr
    assert di.load(tmp_path / "t.dtrace").names() == ["aten::ones"] * 4
    bad = recorded("--layers", "hips", "-o", "u.dtrace", "program.py", cwd=tmp_path)
    assert bad.returncode == 2
    assert "layers are: modules, functions, ops, hops" in bad.stderr
    assert not (tmp_path / "u.dtrace").exists()
