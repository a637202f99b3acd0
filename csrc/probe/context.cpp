#include "context.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/node.h>

#include <typeinfo>

#include "json.h"

namespace dispatch_inspect {

std::string (*python_node_name)(void*) = nullptr;

namespace {

void write_autocast(std::string& out, c10::DispatchKeySet excluded) {
  bool first = true;
  for (int type = 0; type < static_cast<int>(c10::COMPILE_TIME_MAX_DEVICE_TYPES); type++) {
    const auto device = static_cast<c10::DeviceType>(type);
    c10::DispatchKey key;
    std::string dtype;
    try {
      key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
      if (excluded.has(key)) continue;
      dtype = c10::getDtypeNames(at::autocast::get_autocast_dtype(device)).first;
    } catch (...) {
      // no autocast for this device
      continue;
    }
    out += first ? ",\"autocast\":{" : ",";
    first = false;
    json::text(out, c10::DeviceTypeName(device, true));
    out += ':';
    json::text(out, dtype);
  }
  if (!first) out += '}';
}

} // namespace

bool autocasts(const c10::impl::LocalDispatchKeySet& local) {
  return (c10::autocast_dispatch_keyset - local.excluded_).raw_repr() != 0;
}

uint32_t read_state(ThreadPart& part, const c10::impl::LocalDispatchKeySet& local, bool own_modes) {
  static const c10::DispatchKeySet python({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});
  auto included = local.included_;
  // with no other mode on, these keys are the tracer's own doing
  if (own_modes) included = included - python;
  const uint64_t excluded = local.excluded_.raw_repr();
  const uint8_t modes = c10::GradMode::is_enabled() + 2 * c10::InferenceMode::is_enabled();
  const bool casts = autocasts(local);
  auto& last = part.state;
  if (last.id && !casts && last.included == included.raw_repr() && last.excluded == excluded && last.modes == modes)
    return last.id;
  std::string autocast;
  if (casts) write_autocast(autocast, local.excluded_);
  Key key;
  key.add(included.raw_repr());
  key.add(excluded);
  key.add(modes);
  key.add(autocast);
  const uint32_t id = part.states.intern(part.recorder->states, key, [&] {
    std::string out = std::string("{\"grad\":") + (modes & 1 ? "true" : "false");
    out += std::string(",\"inference\":") + (modes & 2 ? "true" : "false") + autocast;
    out += ",\"included\":";
    json::natural(out, included.raw_repr());
    out += ",\"excluded\":";
    json::natural(out, excluded);
    return out + "}";
  });
  last = {included.raw_repr(), excluded, modes, casts ? 0 : id};
  return id;
}

void read_autograd(ThreadPart& part, Beginning& what) {
  what.sequence = at::sequence_number::peek();
  const auto node = torch::autograd::get_current_node();
  if (!node) return;
  what.node_sequence = node->sequence_nr() + 1;
  // a class of nodes has one name, unless it stands for classes of Python
  const char* type = typeid(*node).name();
  std::string name = python_node_name ? python_node_name(node.get()) : "";
  if (name.empty()) {
    auto known = part.node_types.find(type);
    if (known != part.node_types.end()) {
      what.node = known->second;
      return;
    }
  }
  const bool has_own_name = !name.empty();
  try {
    if (!has_own_name) name = node->name();
  } catch (...) {
    return;
  }
  Key key;
  key.add(name);
  what.node = part.nodes.intern(part.recorder->nodes, key, [&] {
    std::string out = "{\"name\":";
    json::text(out, name);
    return out + "}";
  });
  if (!has_own_name && what.node) part.node_types.emplace(type, what.node);
}

} // namespace dispatch_inspect
