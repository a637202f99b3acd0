// What is kept of a tensor: a descriptor and three identities, never the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "lane.h"

namespace dispatch_inspect {

struct ThreadPart;

// Numbers of tensors and storages: the same number is the same one.
//
// An address alone does not tell, as memory is used again. So storages, and tensors that Python
// has seen, are held by weak references: their data is freed when it would have been, and the
// address means nothing else before it is swept from here. Kernels may delete a tensor that they
// alone own without asking for weak references (c10::ExclusivelyOwned), but never one with a
// Python object. Other tensors, and wrappers, are known by address and storage, from one hop to the
// next.
class TensorNumbers {
 public:
  // `storage` is the number of its storage. What a hop returns is new unless it was seen since
  // `since`, when the hop began; 0 for arguments.
  uint32_t tensor(const at::TensorBase& tensor, uint32_t storage, uint64_t since);
  uint32_t storage(const c10::Storage& storage);
  // the time as tensors are seen
  uint64_t now() const { return now_.load(std::memory_order_relaxed) + 1; }
  // changes when numbers that threads remember may be of the dead
  uint64_t sweeps() const { return sweeps_.load(std::memory_order_acquire); }
  std::mutex& mutex() { return mutex_; }

 private:
  void sweep();
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Held {
    WeakTensor reference;
    uint32_t number;
  };
  struct Seen {
    uint32_t number, storage;
    uint64_t at;
  };
  struct HeldStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> reference;
    uint32_t number;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Held> held_;
  std::unordered_map<const void*, Seen> seen_;
  std::unordered_map<const void*, HeldStorage> storages_;
  uint32_t next_tensor_ = 1, next_storage_ = 1;
  std::atomic<uint64_t> now_{1};
  size_t sweep_at_ = 4096;
  std::atomic<uint64_t> sweeps_{1};
};

// A thread's memory of them, for what is held by weak references.
class RememberedNumbers {
 public:
  template <class Find>
  uint32_t find(const void* address, uint64_t sweeps, Find&& number) {
    auto& slot = slots_[(reinterpret_cast<uintptr_t>(address) >> 4) % slots_.size()];
    if (slot.address != address || slot.sweeps != sweeps) slot = {address, sweeps, number()};
    return slot.number;
  }

 private:
  struct Slot {
    const void* address = nullptr;
    uint64_t sweeps = 0;
    uint32_t number = 0;
  };
  std::array<Slot, 256> slots_;
};

struct Identities {
  RememberedNumbers tensors, storages;
};

// The numbers of a tensor for the operand columns; dispatches nothing and runs no Python.
// `since` as for TensorNumbers::tensor.
Operand read_tensor(ThreadPart& part, const at::Tensor& tensor, uint64_t since = 0);

// Asked of the Python side about a tensor whose class has a handler: its class, and attributes
// that such classes keep in plain sight.
struct PythonFacts {
  std::string subclass;
  std::string device;
  bool has_sizes = false;
  std::vector<int64_t> sizes;
};
// Set by the bindings. Takes the interpreter's lock, as the dispatcher does for such tensors.
extern bool (*read_python_facts)(c10::TensorImpl* tensor, PythonFacts& facts);

} // namespace dispatch_inspect
