// What surrounds an event when it begins: the thread's modes and key sets, and autograd.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "recorder.h"

namespace dispatch_inspect {

// The number of the thread's state. `own_modes` says that no dispatch mode but the tracer's is on:
// its keys are left out.
uint32_t read_state(ThreadPart& part, const c10::impl::LocalDispatchKeySet& local, bool own_modes);

// Whether autocast is on for any device.
bool autocasts(const c10::impl::LocalDispatchKeySet& local);

// Autograd's next sequence number and the node that is being run backward, if any.
void read_autograd(ThreadPart& part, Beginning& what);

// Asked of the Python side: the name of a node that is written in Python. Set by the bindings.
extern std::string (*python_node_name)(void* node);

} // namespace dispatch_inspect
