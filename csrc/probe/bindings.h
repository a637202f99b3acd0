// What the files that know Python share.
#pragma once

#include <torch/csrc/python_headers.h>

#include "recorder.h"

namespace dispatch_inspect {

// The recorder of a Python object of type Recorder.
std::shared_ptr<Recorder> recorder_of_object(PyObject* object);

} // namespace dispatch_inspect
