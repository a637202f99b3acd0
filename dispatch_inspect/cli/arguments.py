"""The verbs and their options. Imports nothing heavy, so that --help answers at once."""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dispatch_inspect._version import __version__
from dispatch_inspect.errors import UsageError

#: verb -> the module that carries it out; its docstring is the verb's help
VERBS = {
    "run": "record a program while it runs",
    "tree": "print a trace, call by call",
    "stats": "sum a trace up: calls and times by name, key, module, dtype or file",
    "build": "compile the probe that records hops, ahead of its first use",
    "doctor": "say what this installation is and can do",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(message, f"see {self.prog} --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; ``verb`` is what carries it out. Raises UsageError."""
    parser = _Parser(
        prog="dispatch-inspect",
        description="See what PyTorch's dispatcher really did.",
        epilog="example:\n  dispatch-inspect run train.py\n  dispatch-inspect tree train.dtrace",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dispatch-inspect {__version__}")
    verbs = parser.add_subparsers(dest="name", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=_description(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _ADD[name](verb)
        verb.set_defaults(verb=_lazy(name))
    _check_verb(arguments)
    if arguments and arguments[0] == "run":
        return _parse_run(parser, arguments)
    return parser.parse_args(arguments)


def _check_verb(arguments: Sequence[str]) -> None:
    """Answers a first word that is no verb better than argparse does."""
    if not arguments or arguments[0].startswith("-") or arguments[0] in VERBS:
        return
    word = arguments[0]
    if word.rstrip("/").endswith(".dtrace"):
        raise UsageError(
            f"what to do with {word}?",
            f"print it: dispatch-inspect tree {word}\nsum it up: dispatch-inspect stats {word}",
        )
    near = difflib.get_close_matches(word, VERBS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"verbs: {', '.join(VERBS)}"
    raise UsageError(f"unknown verb {word!r}", hint)


def _parse_run(parser: _Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """``run`` as python reads it: what follows the script, -m or -c belongs to the program."""
    valued = {"-o", "--output", "--layers", "--max-events", "--children"}
    own, rest = ["run"], list(arguments[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-", "--"):
        own.append(rest.pop(0))
        if own[-1] in valued and rest:
            own.append(rest.pop(0))
    options = parser.parse_args(own)
    if rest[:1] == ["--"]:
        rest.pop(0)
    if rest[:1] in (["-m"], ["-c"]):
        how = rest.pop(0)
        if not rest:
            raise UsageError(f"nothing after {how}", "see dispatch-inspect run --help")
        options.how, options.program = how, rest.pop(0)
    elif rest:
        options.how, options.program = "", rest.pop(0)
    else:
        raise UsageError("no program to run", "for example: dispatch-inspect run train.py")
    options.arguments = rest
    return options


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.usage = (
        "dispatch-inspect run [options] SCRIPT [args...]\n"
        "       dispatch-inspect run [options] -m MODULE [args...]\n"
        "       dispatch-inspect run [options] -c CODE [args...]"
    )
    verb.add_argument(
        "-o", "--output", metavar="TRACE", help="where to record (default: NAME.PID.dtrace)"
    )
    verb.add_argument(
        "--layers",
        default="modules,functions,ops",
        metavar="L,L",
        help="what to record: modules, functions, ops, hops (default: all but hops)",
    )
    verb.add_argument("--stacks", action="store_true", help="keep whole Python stacks")
    verb.add_argument("--max-events", type=int, metavar="N", help="end recording after N events")
    verb.add_argument(
        "--children",
        choices=("record", "ignore"),
        default="record",
        help="forked processes: record them too (default), or not",
    )
    verb.add_argument("--force", action="store_true", help="overwrite the trace if it exists")


def _add_tree(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("trace", metavar="TRACE")
    verb.add_argument("--where", metavar="FILTER", help="only what matches, with what is around it")
    verb.add_argument("--depth", type=int, metavar="N", help="show N levels")
    verb.add_argument("--no-fold", action="store_true", help="show each of a run of equal calls")
    verb.add_argument(
        "--tracers", action="store_true", help="show hops, too, that only recording caused"
    )
    verb.add_argument("--json", action="store_true", help="one JSON object an event")


def _add_stats(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("trace", metavar="TRACE")
    verb.add_argument(
        "--by", default="name", metavar="WHAT", help="name, key, module, dtype or file"
    )
    verb.add_argument(
        "--sort", default="self", metavar="COLUMN", help="self, total, calls, share, errors, name"
    )
    verb.add_argument("--where", metavar="FILTER", help="only events that match")
    verb.add_argument(
        "--tracers", action="store_true", help="count hops, too, that only recording caused"
    )
    verb.add_argument("--blind", action="store_true", help="calls that no dispatch mode saw")
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON list")
    form.add_argument("--csv", action="store_true", help="comma-separated, with a header")


def _add_build(verb: argparse.ArgumentParser) -> None:
    del verb


def _add_doctor(verb: argparse.ArgumentParser) -> None:
    del verb


_ADD: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "run": _add_run,
    "tree": _add_tree,
    "stats": _add_stats,
    "build": _add_build,
    "doctor": _add_doctor,
}


def _module(name: str) -> Any:
    return importlib.import_module(f"dispatch_inspect.cli.{name}")


def _description(name: str) -> str:
    return inspect.cleandoc(_module(name).__doc__ or "")


def _lazy(name: str) -> Callable[[argparse.Namespace], int]:
    return lambda options: int(_module(name).carry_out(options))
