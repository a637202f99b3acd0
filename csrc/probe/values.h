// Arguments and results of a boxed call as records: every kind of value, a hole for each tensor.
#pragma once

#include <ATen/core/ivalue.h>

#include "recorder.h"

namespace dispatch_inspect {

// What an integer of a schema means: PyTorch passes these as numbers.
enum class Meaning : uint8_t { kNumber, kDtype, kLayout, kMemoryFormat };

// The number of `count` values in the table of values; appends their tensors to `operands`.
uint32_t read_values(ThreadPart& part, const c10::IValue* values, size_t count, const Meaning* meanings,
                     uint64_t since, Operands& operands);

} // namespace dispatch_inspect
