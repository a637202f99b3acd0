#include "tensors.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/ScalarType.h>

#include <typeinfo>

#include "json.h"
#include "recorder.h"

namespace dispatch_inspect {

bool (*read_python_facts)(c10::TensorImpl*, PythonFacts&) = nullptr;

namespace {

// Protected members, named where standard C++ allows it: in an explicit instantiation.
struct PolicyTag {
  friend constexpr auto member(PolicyTag);
};
template <class Tag, auto Member>
struct Expose {
  friend constexpr auto member(Tag) { return Member; }
};
template struct Expose<PolicyTag, &c10::TensorImpl::matches_policy>;
struct PythonPolicyTag {
  friend constexpr auto member(PythonPolicyTag);
};
template struct Expose<PythonPolicyTag, &c10::TensorImpl::matches_python_custom>;

using Policy = c10::TensorImpl::SizesStridesPolicy;

bool has_policy(const c10::TensorImpl* tensor, Policy policy) { return (tensor->*member(PolicyTag{}))(policy); }

// Whether its class would be asked, in Python.
bool has_python_policy(const c10::TensorImpl* tensor, Policy policy) {
  return tensor->is_python_dispatch() && (tensor->*member(PythonPolicyTag{}))(policy);
}

const char* layout_name(c10::Layout layout) {
  switch (layout) {
    case c10::kStrided: return "strided";
    case c10::kSparse: return "sparse_coo";
    case c10::kSparseCsr: return "sparse_csr";
    case c10::kSparseCsc: return "sparse_csc";
    case c10::kSparseBsr: return "sparse_bsr";
    case c10::kSparseBsc: return "sparse_bsc";
    case c10::kMkldnn: return "_mkldnn";
    case c10::kJagged: return "jagged";
    default: return nullptr;
  }
}

// Everything a descriptor says, read at once.
struct Facts {
  uint64_t keys;
  c10::ScalarType dtype;
  std::optional<c10::Device> device;
  const char* layout = nullptr;
  bool has_sizes = false, has_strides = false, has_offset = false;
  c10::IntArrayRef sizes, strides;
  int64_t offset = 0;
  // symbolic sizes, strides and offset as text
  bool symbolic = false;
  std::vector<std::string> symbols[2];
  std::string symbolic_offset;
  bool requires_grad, is_leaf, is_view, is_wrapped_number;
  size_t itemsize;
  PythonFacts python;
};

// The expression of a symbolic number. Asking for its value would guard on it.
std::string symbol(const c10::SymInt& value) {
  if (auto known = value.maybe_as_int()) return std::to_string(*known);
  try {
    return value.toSymNode()->str();
  } catch (...) {
    // a node of a foreign kind: it has no expression to show
    return "?";
  }
}

void read_symbols(const c10::TensorImpl* tensor, Facts& facts) {
  facts.symbolic = true;
  for (const auto& one : tensor->sym_sizes_default()) facts.symbols[0].push_back(symbol(one));
  for (const auto& one : tensor->sym_strides_default()) facts.symbols[1].push_back(symbol(one));
  facts.symbolic_offset = symbol(tensor->sym_storage_offset_default());
}

void read_sizes(const c10::TensorImpl* tensor, Facts& facts) {
  if (has_python_policy(tensor, Policy::CustomSizes)) return;
  if (tensor->key_set().has(c10::DispatchKey::Functionalize)) {
    // what it stands for knows its sizes
    const auto* wrapper = dynamic_cast<const at::FunctionalTensorWrapper*>(tensor);
    if (wrapper) return read_sizes(wrapper->value().unsafeGetTensorImpl(), facts);
  }
  if (tensor->has_symbolic_sizes_strides()) {
    read_symbols(tensor, facts);
    return;
  }
  // nested tensors have none
  if (has_policy(tensor, Policy::CustomSizes)) return;
  facts.has_sizes = true;
  facts.sizes = tensor->sizes_default();
  if (!has_policy(tensor, Policy::CustomStrides)) {
    facts.has_strides = facts.has_offset = true;
    facts.strides = tensor->strides_default();
    facts.offset = tensor->storage_offset_default();
  } else if (!has_python_policy(tensor, Policy::CustomStrides) && facts.layout && std::string_view(facts.layout) == "strided") {
    try {
      facts.strides = tensor->strides();
      facts.offset = tensor->storage_offset();
      facts.has_strides = facts.has_offset = true;
    } catch (...) {
      // a layout of a backend's own
    }
  }
}

// Whether a weak reference to it holds nothing else: of a plain tensor that Python has seen. Wrappers
// (vmap's, functionalize's, nested ones) keep what they wrap until they are destroyed.
bool may_be_held(const c10::TensorImpl* tensor) {
  return tensor->pyobj_slot()->load_pyobj() && typeid(*tensor) == typeid(c10::TensorImpl);
}

std::string describe(const Facts& facts) {
  std::string out = "{";
  auto field = [&](const char* name) {
    if (out.size() > 1) out += ',';
    out += '"';
    out += name;
    out += "\":";
  };
  auto list = [&](c10::IntArrayRef values) {
    out += '[';
    for (size_t i = 0; i < values.size(); i++) {
      if (i) out += ',';
      json::number(out, values[i]);
    }
    out += ']';
  };
  auto size = [&](const std::string& text) {
    const bool plain = !text.empty() && text.find_first_not_of("-0123456789") == std::string::npos;
    if (plain)
      out += text;
    else
      json::text(out, text);
  };
  auto flag = [&](const char* name, bool value) {
    field(name);
    out += value ? "true" : "false";
  };
  const auto dtype = c10::getDtypeNames(facts.dtype).first;
  if (facts.dtype != c10::ScalarType::Undefined && !dtype.empty()) {
    field("dtype");
    json::text(out, dtype);
  }
  if (!facts.python.device.empty()) {
    field("device");
    json::text(out, facts.python.device);
  } else if (facts.device) {
    field("device");
    json::text(out, facts.device->str());
  }
  if (facts.symbolic) {
    for (int i = 0; i < 2; i++) {
      field(i ? "strides" : "shape");
      out += '[';
      for (size_t k = 0; k < facts.symbols[i].size(); k++) {
        if (k) out += ',';
        size(facts.symbols[i][k]);
      }
      out += ']';
    }
    field("storage_offset");
    size(facts.symbolic_offset);
  } else {
    if (facts.has_sizes) {
      field("shape");
      list(facts.sizes);
    } else if (facts.python.has_sizes) {
      field("shape");
      list(facts.python.sizes);
    }
    if (facts.has_strides) {
      field("strides");
      list(facts.strides);
      field("storage_offset");
      json::number(out, facts.offset);
    }
  }
  if (facts.layout) {
    field("layout");
    json::text(out, facts.layout);
  }
  if (facts.keys) {
    field("keys");
    json::natural(out, facts.keys);
  }
  flag("requires_grad", facts.requires_grad);
  flag("is_leaf", facts.is_leaf);
  flag("is_view", facts.is_view);
  if (facts.is_wrapped_number) flag("is_wrapped_number", true);
  if (facts.has_sizes && facts.has_strides) {
    int64_t count = 1;
    for (auto one : facts.sizes) count *= one;
    field("nbytes");
    json::number(out, count * static_cast<int64_t>(facts.itemsize));
  }
  if (!facts.python.subclass.empty()) {
    field("subclass");
    json::text(out, facts.python.subclass);
  }
  return out + "}";
}

Key key_of(const Facts& facts) {
  Key key;
  key.add(facts.keys);
  key.add(static_cast<uint64_t>(facts.dtype) | (facts.device ? static_cast<uint64_t>(static_cast<uint8_t>(facts.device->type())) << 8 | static_cast<uint64_t>(static_cast<uint8_t>(facts.device->index())) << 16 : 1ull << 32) |
          static_cast<uint64_t>(facts.requires_grad) << 40 | static_cast<uint64_t>(facts.is_leaf) << 41 |
          static_cast<uint64_t>(facts.is_view) << 42 | static_cast<uint64_t>(facts.is_wrapped_number) << 43 |
          static_cast<uint64_t>(facts.has_sizes) << 44 | static_cast<uint64_t>(facts.has_strides) << 45 |
          static_cast<uint64_t>(facts.symbolic) << 46 | static_cast<uint64_t>(facts.python.has_sizes) << 47);
  key.add(reinterpret_cast<uintptr_t>(facts.layout));
  key.add(facts.sizes.size());
  for (auto one : facts.sizes) key.add(one);
  for (auto one : facts.strides) key.add(one);
  key.add(facts.offset);
  if (facts.symbolic) {
    for (const auto& symbols : facts.symbols)
      for (const auto& one : symbols) key.add(one);
    key.add(facts.symbolic_offset);
  }
  if (!facts.python.subclass.empty()) {
    key.add(facts.python.subclass);
    key.add(facts.python.device);
    for (auto one : facts.python.sizes) key.add(one);
  }
  return key;
}

} // namespace

uint32_t TensorNumbers::tensor(const at::TensorBase& tensor, uint32_t storage, uint64_t since) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto* address = tensor.unsafeGetTensorImpl();
  const auto held = held_.find(address);
  if (held != held_.end()) return held->second.number;
  auto& seen = seen_[address];
  if (!seen.number || seen.storage != storage || seen.at < since)
    seen = {next_tensor_++, storage, 0};
  seen.at = now_.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint32_t number = seen.number;
  if (may_be_held(address)) {
    seen_.erase(address);
    if (held_.size() + storages_.size() >= sweep_at_) sweep();
    held_.emplace(address, Held{WeakTensor(tensor.getIntrusivePtr()), number});
  } else if (seen_.size() >= 65536) {
    seen_.clear();
  }
  return number;
}

uint32_t TensorNumbers::storage(const c10::Storage& storage) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto* address = storage.unsafeGetStorageImpl();
  auto found = storages_.find(address);
  if (found != storages_.end()) return found->second.number;
  if (held_.size() + storages_.size() >= sweep_at_) sweep();
  const uint32_t number = next_storage_++;
  storages_.emplace(address, HeldStorage{storage.getWeakStorageImpl(), number});
  return number;
}

void TensorNumbers::sweep() {
  for (auto one = held_.begin(); one != held_.end();)
    one = one->second.reference.expired() ? held_.erase(one) : std::next(one);
  for (auto one = storages_.begin(); one != storages_.end();)
    one = one->second.reference.expired() ? storages_.erase(one) : std::next(one);
  sweep_at_ = std::max<size_t>(4096, 2 * (held_.size() + storages_.size()));
  sweeps_.fetch_add(1, std::memory_order_release);
}

Operand read_tensor(ThreadPart& part, const at::Tensor& tensor, uint64_t since) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  auto& numbers = part.recorder->numbers;
  Operand operand;
  // numbers first: from here on the addresses cannot mean another tensor
  const uint64_t sweeps = numbers.sweeps();
  // the storage of a functional wrapper keeps what it wraps: it has no number
  if (impl->has_storage() && typeid(*impl->unsafe_storage().unsafeGetStorageImpl()) == typeid(c10::StorageImpl)) {
    const auto& storage = impl->unsafe_storage();
    operand.storage = part.identities.storages.find(storage.unsafeGetStorageImpl(), sweeps,
                                                    [&] { return numbers.storage(storage); });
  }
  if (may_be_held(impl))
    operand.tensor = part.identities.tensors.find(
        impl, sweeps, [&] { return numbers.tensor(tensor, operand.storage, since); });
  else
    operand.tensor = numbers.tensor(tensor, operand.storage, since);
  const auto& version = impl->version_counter();
  if (!impl->is_inference() && version.enabled()) operand.version = version.current_version() + 1;

  Facts facts;
  const auto keys = impl->key_set();
  facts.keys = keys.raw_repr();
  facts.dtype = c10::typeMetaToScalarType(impl->dtype());
  facts.itemsize = impl->dtype().itemsize();
  if (c10::isComplexType(facts.dtype)) part.recorder->saw_complex.store(true, std::memory_order_relaxed);
  if (impl->is_python_dispatch()) {
    // device and layout could be answered by its class, in Python
    if (read_python_facts) read_python_facts(impl, facts.python);
    facts.layout = nullptr;
    if (!facts.python.device.empty()) facts.layout = "strided";
  } else {
    facts.device = impl->device();
    facts.layout = layout_name(impl->layout());
  }
  read_sizes(impl, facts);
  facts.requires_grad = impl->requires_grad();
  facts.is_leaf = !facts.requires_grad || tensor.is_leaf();
  facts.is_view = tensor.is_view();
  facts.is_wrapped_number = impl->is_wrapped_number();
  operand.descriptor = part.descriptors.intern(part.recorder->descriptors, key_of(facts), [&] { return describe(facts); });
  return operand;
}

} // namespace dispatch_inspect
