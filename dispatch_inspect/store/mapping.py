"""Files in memory without a descriptor kept open for each, as ``mmap.mmap`` would."""

from __future__ import annotations

import ctypes
import mmap
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_ssize_t,
)
#: the same on Linux and macOS
_MAP_FIXED = 0x10


def map_file(descriptor: int, offset: int, length: int, *, writable: bool) -> mmap.mmap:
    """Maps a part of a file; raises OSError when it cannot be.

    The file is laid over an anonymous mapping, which unmaps it when it is freed: in C, so that
    no interrupt of the program is ever raised, and lost, in a finalizer. ``length`` is not 0.
    """
    mapped = mmap.mmap(-1, length)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    found = _libc.mmap(
        address,
        length,
        mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0),
        (mmap.MAP_SHARED if writable else mmap.MAP_PRIVATE) | _MAP_FIXED,
        descriptor,
        offset,
    )
    if found != address:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return mapped


def map_for_reading(path: str | os.PathLike[str], length: int) -> mmap.mmap:
    """Maps the first ``length`` bytes of a file that may not be written through."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return map_file(descriptor, 0, length, writable=False)
    finally:
        os.close(descriptor)
