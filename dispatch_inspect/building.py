"""Compiles the C++ parts against the installed PyTorch, once, and keeps what it made.

What is kept is known by everything it depends on: PyTorch, Python, the sources, the flags. Two
processes that build at once each build in a folder of their own; the first to finish is kept.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from dispatch_inspect.errors import UsageError

_SOURCES = Path(__file__).parent / "csrc"
if not _SOURCES.is_dir():
    # not installed but run from its repository
    _SOURCES = Path(__file__).parent.parent / "csrc"

#: DISPATCH_INSPECT_CXXFLAGS stands in for them: sanitizers, debugging
_FLAGS = tuple(
    (os.environ.get("DISPATCH_INSPECT_CXXFLAGS") or "-O2 -g0 -fvisibility=hidden").split()
)

#: runs in a process of its own: a compiler that fails or hangs is not in the program
_BUILD = """
import sys
from torch.utils.cpp_extension import load
name, folder, flags, sources = sys.argv[1], sys.argv[2], sys.argv[3].split(), sys.argv[4:]
load(name, sources, extra_cflags=flags, build_directory=folder, verbose=False,
     extra_ldflags=[one for one in flags if one.startswith("-fsanitize")])
"""


def load(part: str, name: str, flags: Sequence[str] = _FLAGS, quiet: bool = False) -> ModuleType:
    """Imports the module ``name`` compiled from ``csrc/part``; compiles it at first use.

    Raises UsageError when it cannot be compiled, with the reason and what to install.
    """
    found = sys.modules.get(name)
    if found is None:
        found = _import(name, build(part, name, flags, quiet=quiet))
    return found


def build(part: str, name: str, flags: Sequence[str] = _FLAGS, quiet: bool = False) -> Path:
    """The compiled module's file, compiled now if it was not before."""
    target = _target(part, name, flags)
    if target.exists():
        return target
    if not quiet:
        print(
            f"dispatch-inspect: compiling {part} once, about 30 s ...", file=sys.stderr, flush=True
        )
    try:
        target.parent.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="building-", dir=target.parent.parent))
    except OSError as error:
        raise UsageError(
            f"cannot compile into {target.parent.parent}: {error.strerror or error}",
            "name a folder you may write to in DISPATCH_INSPECT_CACHE",
        ) from None
    try:
        _compile(part, name, flags, folder)
        _keep(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def is_built(part: str, name: str, flags: Sequence[str] = _FLAGS) -> bool:
    """Whether it has been compiled for this PyTorch already."""
    return _target(part, name, flags).exists()


def _compile(part: str, name: str, flags: Sequence[str], folder: Path) -> None:
    sources = [str(path) for path in sorted((_SOURCES / part).glob("*.cpp"))]
    command = [sys.executable, "-c", _BUILD, name, str(folder), " ".join(flags), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (folder / f"{name}.so").exists():
        # it is linked; whether it loads is for those to say who load it
        return
    said = (done.stdout + done.stderr).strip()
    raise UsageError(f"cannot compile {part}: {_reason(said)}", _remedy(said))


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in lines:
        if " error: " in line or line.startswith(("error:", "fatal error:")):
            return line
    return lines[-1] if lines else "the compiler said nothing"


def _remedy(said: str) -> str:
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None and shutil.which("g++") is None:
        return "install a C++ compiler: the package g++ (Debian, Ubuntu), gcc-c++ (Fedora) or Xcode"
    if "Python.h" in said:
        return "install the headers of Python: the package python3-dev (Debian, Ubuntu)"
    if "Ninja" in said or "ninja" in said.splitlines()[-1:]:
        return "pip install ninja"
    return "`dispatch-inspect doctor` shows the compiler; without hops everything else works"


def _keep(folder: Path, target: Path) -> None:
    """Puts what was built in its place; a build that finished earlier stays."""
    for one in folder.iterdir():
        if one.suffix != ".so":
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    try:
        folder.rename(target.parent)
    except OSError:
        if not target.exists():
            raise


def _target(part: str, name: str, flags: Sequence[str]) -> Path:
    return _cache() / _folder_name(part, tuple(flags), os.environ.get("CXX", "")) / f"{name}.so"


@cache
def _folder_name(part: str, flags: tuple[str, ...], compiler: str) -> str:
    import torch

    digest = hashlib.sha256()
    for path in sorted((_SOURCES / part).iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update("\0".join((*flags, compiler, sys.version)).encode())
    digest.update(str(torch._C._GLIBCXX_USE_CXX11_ABI).encode())
    tag = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    return f"{part}-torch{torch.__version__}-{tag}-{digest.hexdigest()[:16]}"


def _cache() -> Path:
    chosen = os.environ.get("DISPATCH_INSPECT_CACHE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "dispatch_inspect"


def _import(name: str, path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UsageError(f"cannot load {path}", "remove it, and it is compiled again")
    try:
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    except ImportError as error:
        raise UsageError(
            f"cannot load {path}: {error}", "remove it, and it is compiled again"
        ) from None
    sys.modules[name] = module
    return module
