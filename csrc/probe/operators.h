// What the probe keeps of an operator: the kernels it stands in front of, and its name record.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "values.h"

namespace dispatch_inspect {

using BoxedFunction = c10::KernelFunction::InternalBoxedKernelFunction;

// A kernel as the dispatch table held it. Kept for good: a call may be inside it at any time.
struct Original {
  c10::OperatorKernel* functor;
  BoxedFunction* boxed;
  void* unboxed;
  void* sym_unboxed;
};

// One operator. Kept for good, for the same reason.
struct Operator {
  std::string name;
  // what its definition was when it was last looked at
  std::atomic<const void*> definition{nullptr};
  // by index in the dispatch table; null where nothing stands in front
  std::array<std::atomic<const Original*>, c10::num_runtime_entries> originals{};
  size_t argument_count = 0, return_count = 0;
  std::vector<Meaning> arguments, returns;
  bool returns_list = false;
  // whether Dispatcher::call tells observers of it
  bool observed = true;
  // threads that report a missing kernel; guarded by the dispatcher's mutex
  int reporting = 0;
  // changes with its registrations
  std::atomic<uint64_t> version{1};
};

// The record of an operator and its dispatch table as they are now; see store/records.py.
std::string operator_record(const c10::impl::OperatorEntry& entry);

// Reads what the schema says.
void read_schema(Operator& found, const c10::impl::OperatorEntry& entry);

} // namespace dispatch_inspect
