// Which recorders a thread takes part in, and what it keeps for each.
#pragma once

#include "recorder.h"

namespace dispatch_inspect::threads {

// From now on hops of every thread are recorded by it, until `deactivate`.
void activate(std::shared_ptr<Recorder> recorder);
void deactivate(Recorder& recorder);

// The calling thread's lane in a recorder, if it has one.
Lane* lane_of(const Recorder& recorder);

// The parts of the calling thread in all active recorders that record hops; nothing while muted.
// They stay valid until the thread has left `enter` for the last time.
const std::vector<ThreadPart*>& enter();
void leave();

// While one lives, parts of this thread that its calls in progress use stay, even when their
// recorders are closed.
struct Inside {
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
};

// Whether any recorder is active: one relaxed load, for threads that never record.
bool any();

// Around fork(): a child takes part in nothing.
void lock_for_fork();
void unlock_after_fork();
void forget_after_fork();

// The operator that Dispatcher::call has announced on this thread, see hops.cpp; known by where
// its name lies. Null when it has entered its kernel.
void announce(const char* name);
const char* take_announced();

} // namespace dispatch_inspect::threads
