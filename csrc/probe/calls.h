// The handlers of the two modes, for the usual call; whatever is unusual goes to the Python ones.
//
// A handler in C makes no Python frame, and its arguments are not packed anew. It records what the
// Python handler would have recorded (record/thread.py), in the same lane.
#pragma once

#include <torch/csrc/python_headers.h>

namespace dispatch_inspect::calls {

// The types FunctionHandler and OperatorHandler: bases of modes. Adds them to the module; returns
// false with a Python error set.
bool add_types(PyObject* module);

} // namespace dispatch_inspect::calls
