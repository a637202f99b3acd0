"""One recording, from the moment its modes are entered to the moment they leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch._C import _push_on_torch_dispatch_stack, _push_on_torch_function_stack

from dispatch_inspect.record import active, forks, handlers, modestacks, patches
from dispatch_inspect.record.calls import FunctionMode, OperatorMode
from dispatch_inspect.record.probe import ProbeWriter
from dispatch_inspect.record.recorder import Recorder
from dispatch_inspect.record.thread import ThreadRecorder


class Session:
    """What the modes and patches of one recording share.

    ``make_recorder(parent_pid)`` makes the recorder of this process: once at the start, and again
    in each forked child that is followed.
    """

    def __init__(
        self,
        make_recorder: Callable[[int | None], Recorder],
        layers: tuple[str, ...],
        *,
        every: int = 1,
        follows_threads: bool = True,
        follows_forks: bool = True,
    ) -> None:
        self._make_recorder = make_recorder
        self.recorder = make_recorder(None)
        self.layers = layers
        self.follows_threads = follows_threads
        self.follows_forks = follows_forks
        self._every = every
        self._step = 0
        self._user_paused = False
        self._over = False
        #: read at every call
        self.paused = False
        #: ``thread`` is what records on the calling thread; read at every call
        self.local = threading.local()
        function_mode, operator_mode = self._mode_classes()
        self._functions = function_mode(self)
        self._operators = operator_mode(self)
        self._attach_probe()

    def start(self) -> None:
        """Begins to record on this thread."""
        patches.install()
        forks.follow(self)
        others = threading.active_count() - 1
        if others and self.layers != ("hops",):
            missed = self.recorder.writer.missed
            missed["threads that were running before the recording: their calls are not seen"] = (
                others
            )
        # makes this thread's files now: not in the middle of a call that may be interrupted
        self.thread()
        self.enter_modes()
        self._follow_hops()

    def _mode_classes(self) -> tuple[type[FunctionMode], type[OperatorMode]]:
        writer = self.recorder.writer
        if isinstance(writer, ProbeWriter):
            return handlers.modes(writer.probe)
        return FunctionMode, OperatorMode

    def _attach_probe(self) -> None:
        """Lets the probe's handlers record the usual calls into this process's part."""
        recorder = self.recorder
        writer = recorder.writer
        if isinstance(writer, ProbeWriter):
            writer.probe.set_own_mode(type(self._operators))
            # filters and whole stacks are Python's
            usual = recorder.filters is None and not recorder.sources.whole and not self._over
            answers = handlers.Answers(self, recorder) if usual else None
            modes: tuple[Any, ...] = (self._functions, self._operators)
            for mode in modes:
                mode.attach(writer.native if usual else None, answers)

    def forget_operators(self) -> None:
        """Asks anew what there is to know of operators: registrations have changed."""
        self.recorder.names.forget_tables()
        if isinstance(self.recorder.writer, ProbeWriter):
            self._operators.forget()  # type: ignore[attr-defined]

    def _follow_hops(self) -> None:
        """Lets the probe record, or not, as it is wanted now."""
        writer = self.recorder.writer
        if isinstance(writer, ProbeWriter):
            writer.native.paused = self.paused
            if not self._over and "hops" in self.layers:
                writer.native.start_hops()

    def stop(self, reason: str = "closed", message: str = "") -> None:
        """Ends the recording for all threads and leaves the modes of this one."""
        if self._over:
            return
        self._over = True
        # an interrupt in one step must not keep the next from being made
        with ExitStack() as steps:
            steps.callback(self.recorder.writer.close, reason, message)
            steps.callback(self._attach_probe)
            steps.callback(patches.uninstall)
            steps.callback(forks.forget, self)
            steps.callback(self.leave_modes)
            steps.callback(self._update)

    @property
    def is_over(self) -> bool:
        """Whether the recording has ended."""
        return self._over

    def thread(self) -> ThreadRecorder | None:
        """What records on this thread, or None when nothing is to be recorded now."""
        if self.paused:
            return None
        try:
            return self.local.thread  # type: ignore[no-any-return]
        except AttributeError:
            thread = self.local.thread = self.recorder.open_thread()
            return thread

    def enter_modes(self) -> bool:
        """Enters the modes on this thread; says whether it did."""
        if self._over:
            return False
        active.enter(self)
        if "functions" in self.layers:
            _push_on_torch_function_stack(self._functions)
        if "ops" in self.layers:
            # not through __enter__, which tells the compiler that a foreign mode is on
            _push_on_torch_dispatch_stack(self._operators)
        return True

    def leave_modes(self) -> None:
        """Takes the modes off this thread, wherever in the stacks other modes have put them."""
        active.leave(self)
        modestacks.functions.take_out(lambda mode: mode is self._functions)
        modestacks.operators.take_out(lambda mode: mode is self._operators)

    def pause(self) -> None:
        """Records nothing until ``resume``."""
        self._user_paused = True
        self._update()

    def resume(self) -> None:
        """Records again after ``pause``."""
        self._user_paused = False
        self._update()

    def step(self) -> None:
        """Ends a step of the program: with ``every=n``, only each n-th is recorded."""
        self._step += 1
        self._update()

    def _update(self) -> None:
        self.paused = self._over or self._user_paused or self._step % self._every != 0
        self._follow_hops()

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child, lets go of the parent's trace and goes on in a part of its own."""
        self.recorder.writer.disown()
        self.local = threading.local()
        if not self.follows_forks or self._over:
            self._over = True
            self._update()
            return
        self.recorder = self._make_recorder(parent_pid)
        self._attach_probe()
        self._follow_hops()
