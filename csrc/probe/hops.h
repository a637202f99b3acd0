// Stands in front of every kernel of the dispatcher, so that each kernel entered is recorded.
//
// The dispatch tables of a release build are changed in place and put back. What makes that safe
// while other threads dispatch: of an entry only single words change, each with one store, and a
// reader finds a valid kernel whichever of them it sees. The kernel's functor stays where it is.
// First the unboxed functions are taken out, so that readers go the boxed way, to the kernel's own
// boxed function; then that one is replaced by ours, which calls it with the same functor. What is
// kept of kernels and operators is never freed, so a call may be inside them at any time.
//
// Registrations go on as usual: PyTorch computes tables from its list of registrations, which is
// not touched. An entry it has written anew is not ours any more and is never put back.
#pragma once

#include <string>
#include <vector>

#include "recorder.h"

namespace dispatch_inspect::hops {

// Begins to record hops; `stop` must follow.
void start(std::shared_ptr<Recorder> recorder);
void stop(Recorder& recorder);

// Looks at an operator again, or at all ("") when registrations have changed.
void rescan(const std::string& name);

// While one lives, the table of an operator, or of all (""), is as PyTorch made it: for questions
// about it. Calls that other threads make of it meanwhile are not recorded.
class Restored {
 public:
  explicit Restored(const std::string& name);
  ~Restored();

 private:
  const std::string name_;
};

struct Counts {
  uint64_t operators = 0, wrapped = 0, missing = 0, fallthrough = 0;
  // entries that cannot be called boxed: left alone
  std::vector<std::string> unboxable;
};
// Of the tables as they are now.
Counts counts();

// Asked of the Python side: what is in flight, without changing it. Set by the bindings.
struct ErrorText {
  std::string type, message;
};
extern ErrorText (*describe_exception)();

// Likewise: whether every dispatch mode of this thread is the tracer's own.
extern bool (*only_own_modes)();

} // namespace dispatch_inspect::hops
