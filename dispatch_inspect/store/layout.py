"""How a trace lies on disk: directories, files, columns and their number types.

    NAME.dtrace/
      trace.json                      the format and its version
      rank=00000/                     one process; a forked child is rank=00000,pid=4711
        process.json                  who recorded, with what (records.Process)
        end.json                      at close (records.End); missing: still recording, or died
        names.jsonl values.jsonl ...  one line a record, in the order of their ids (records.TABLES)
        lane=00000/                   one thread
          lane.json                   which thread (records.Lane)
          kind.bin depth.bin ...      EVENT_COLUMNS, one number an event
          operand_event.bin ...       OPERAND_COLUMNS, one number an operand

Numbers are little-endian. An event row is valid once its ``kind`` is not 0: the recorder writes
``kind`` last. Files are allocated ahead in chunks, so rows after the last valid one are zeros.
Columns that point into a table hold ``id + 1``; 0 says "none".
"""

from __future__ import annotations

FORMAT = "dispatch_inspect trace"
VERSION = 1

TRACE_FILE = "trace.json"
PROCESS_FILE = "process.json"
END_FILE = "end.json"
LANE_FILE = "lane.json"

#: rows by which a lane's files grow; a multiple of the page size for every column type
CHUNK = 16_384

#: event column -> numpy / struct type code
EVENT_COLUMNS: dict[str, str] = {
    "kind": "B",  # KINDS
    "outcome": "B",  # OPEN, RETURNED, RAISED
    "depth": "H",  # 0 for a root; stops counting at 65535
    "parent": "I",  # row of the parent in this lane + 1
    "subtree_end": "I",  # first row in this lane that is not below this event; 0 while open
    "begin_ns": "Q",  # time.perf_counter_ns
    "end_ns": "Q",  # likewise; 0 while open
    "name": "I",  # names
    "module": "I",  # names: the module whose forward was running
    "arguments": "I",  # values: the arguments' shape, tensors left out
    "result": "I",  # values: likewise for what was returned
    "input_at": "Q",  # row of the first input operand in this lane
    "output_at": "Q",  # row of the first output operand in this lane
    "state": "I",  # states
    "stack": "I",  # stacks: the user's line, or the whole stack
    "sequence": "Q",  # autograd's next sequence number when the event began
    "node": "I",  # nodes: the autograd node being run backward
    "node_sequence": "Q",  # that node's sequence number + 1
    "error": "I",  # errors
    "note": "I",  # notes: what the tracer changed here
    "keyset": "Q",  # hops: the raw key set the kernel was entered with
    "flags": "B",  # hops: CALLED, TRACERS, MISSING
}

#: operand column -> type code. Inputs of an event are consecutive rows, so are its outputs.
OPERAND_COLUMNS: dict[str, str] = {
    "operand_event": "I",  # row of the event in this lane
    "operand_descriptor": "I",  # descriptors
    "operand_tensor": "I",  # tensor id + 1: the same number is the same tensor
    "operand_storage": "I",  # storage id + 1: the same number is the same storage
    "operand_version": "I",  # the tensor's version counter + 1; 0 where it has none
}

KINDS = ("module", "function", "op", "hop", "region")
#: kind -> number in the ``kind`` column
KIND_CODES = {kind: code for code, kind in enumerate(KINDS, start=1)}

#: flags of a hop: entered by Dispatcher::call (else by redispatch); entered only because the
#: tracer's own modes are on; there was no kernel
CALLED, TRACERS, MISSING = 1, 2, 4

OPEN, RETURNED, RAISED = 0, 1, 2
OUTCOMES = ("open", "returned", "raised")


def process_directory(rank: int, child_pid: int | None = None) -> str:
    """The name of one process's directory inside a trace."""
    name = f"rank={rank:05d}"
    return name if child_pid is None else f"{name},pid={child_pid}"


def lane_directory(number: int) -> str:
    """The name of one thread's directory inside a process's."""
    return f"lane={number:05d}"
