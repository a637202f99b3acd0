// The columns of a trace: the mirror of dispatch_inspect/store/layout.py, which explains them.
// The Python side compares both when it loads the probe.
#pragma once

#include <cstdint>

namespace dispatch_inspect {

#define DISPATCH_INSPECT_EVENT_COLUMNS(_) \
  _(kind, uint8_t)                        \
  _(outcome, uint8_t)                     \
  _(depth, uint16_t)                      \
  _(parent, uint32_t)                     \
  _(subtree_end, uint32_t)                \
  _(begin_ns, uint64_t)                   \
  _(end_ns, uint64_t)                     \
  _(name, uint32_t)                       \
  _(module, uint32_t)                     \
  _(arguments, uint32_t)                  \
  _(result, uint32_t)                     \
  _(input_at, uint64_t)                   \
  _(output_at, uint64_t)                  \
  _(state, uint32_t)                      \
  _(stack, uint32_t)                      \
  _(sequence, uint64_t)                   \
  _(node, uint32_t)                       \
  _(node_sequence, uint64_t)              \
  _(error, uint32_t)                      \
  _(note, uint32_t)                       \
  _(keyset, uint64_t)                     \
  _(flags, uint8_t)

#define DISPATCH_INSPECT_OPERAND_COLUMNS(_) \
  _(operand_event, uint32_t)                \
  _(operand_descriptor, uint32_t)           \
  _(operand_tensor, uint32_t)               \
  _(operand_storage, uint32_t)              \
  _(operand_version, uint32_t)

constexpr uint64_t kChunk = 16384;
constexpr uint8_t kHop = 4;
enum Outcome : uint8_t { kOpen = 0, kReturned = 1, kRaised = 2 };
enum Flag : uint8_t { kCalled = 1, kTracers = 2, kMissing = 4 };

} // namespace dispatch_inspect
