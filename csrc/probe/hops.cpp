#include "hops.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <cxxabi.h>

#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "context.h"
#include "json.h"
#include "operators.h"
#include "threads.h"

namespace dispatch_inspect::hops {

ErrorText (*describe_exception)() = nullptr;
bool (*only_own_modes)() = nullptr;

namespace {

// Private members, named where standard C++ allows it: in an explicit instantiation.
struct DefinitionTag {
  friend constexpr auto member(DefinitionTag);
};
struct TableTag {
  friend constexpr auto member(TableTag);
};
struct OperatorsTag {
  friend constexpr auto member(OperatorsTag);
};
struct GuardTag {
  friend constexpr auto member(GuardTag);
};
template <class Tag, auto Member>
struct Expose {
  friend constexpr auto member(Tag) { return Member; }
};
template struct Expose<DefinitionTag, &c10::OperatorHandle::operatorDef_>;
template struct Expose<TableTag, &c10::impl::OperatorEntry::dispatchTable_>;
template struct Expose<OperatorsTag, &c10::Dispatcher::operators_>;
template struct Expose<GuardTag, &c10::Dispatcher::guard_>;

// An entry of the dispatch table as words. The layout is asserted when the probe is loaded.
struct Entry {
  c10::OperatorKernel* functor;
  BoxedFunction* boxed;
  void* unboxed;
  void* sym_unboxed;
  void* tokens;
};
static_assert(sizeof(Entry) == sizeof(c10::KernelFunction));

Entry& words(c10::KernelFunction& kernel) { return reinterpret_cast<Entry&>(kernel); }

template <class Word>
void put(Word*& place, Word* value) {
  __atomic_store_n(&place, value, __ATOMIC_SEQ_CST);
}

auto& table_of(c10::impl::OperatorEntry& entry) { return entry.*member(TableTag{}); }

std::mutex& dispatcher_mutex() { return (c10::Dispatcher::singleton().*member(GuardTag{}))->mutex; }

// All operators ever seen. Written under the dispatcher's mutex, read by every call.
class Operators {
 public:
  Operator* find(const void* definition) const {
    const auto* slots = slots_.load(std::memory_order_acquire);
    for (size_t at = hash(definition);; at++) {
      const Slot& slot = slots->slots[at & slots->mask];
      const void* found = slot.definition.load(std::memory_order_acquire);
      if (found == definition) return slot.found.load(std::memory_order_relaxed);
      if (!found) return nullptr;
    }
  }

  Operator& learn(const void* definition, const std::string& name) {
    if (Operator* known = find(definition)) {
      if (known->name == name) return *known;
    }
    auto& found = all_.emplace_back(std::make_unique<Operator>());
    found->name = name;
    found->definition = definition;
    insert(definition, found.get());
    return *found;
  }

 private:
  struct Slot {
    std::atomic<const void*> definition{nullptr};
    std::atomic<Operator*> found{nullptr};
  };
  struct Slots {
    explicit Slots(size_t size) : mask(size - 1), slots(new Slot[size]) {}
    size_t mask;
    Slot* slots;
    size_t used = 0;
  };
  static size_t hash(const void* definition) { return (reinterpret_cast<uintptr_t>(definition) >> 4) * 0x9E3779B97F4A7C15ull >> 20; }

  void insert(const void* definition, Operator* found) {
    Slots* slots = slots_.load();
    if (slots->used * 2 > slots->mask) {
      // the old slots stay: another thread may be reading them
      auto* larger = new Slots((slots->mask + 1) * 2);
      for (size_t i = 0; i <= slots->mask; i++)
        if (const void* one = slots->slots[i].definition.load()) place(*larger, one, slots->slots[i].found.load());
      slots_.store(larger, std::memory_order_release);
      slots = larger;
    }
    place(*slots, definition, found);
  }
  static void place(Slots& slots, const void* definition, Operator* found) {
    for (size_t at = hash(definition);; at++) {
      Slot& slot = slots.slots[at & slots.mask];
      const void* there = slot.definition.load();
      if (there && there != definition) continue;
      slot.found.store(found, std::memory_order_release);
      slot.definition.store(definition, std::memory_order_release);
      if (!there) slots.used++;
      return;
    }
  }

  std::atomic<Slots*> slots_{new Slots(16384)};
  std::deque<std::unique_ptr<Operator>> all_;
};

Operators& operators() {
  static auto* found = new Operators;
  return *found;
}

// Kernels ever seen, so that each is kept once; and by functor, for copies of entries.
struct Originals {
  struct Hash {
    size_t operator()(const Original* one) const {
      Key key;
      key.add(reinterpret_cast<uintptr_t>(one->functor));
      key.add(reinterpret_cast<uintptr_t>(one->boxed));
      key.add(reinterpret_cast<uintptr_t>(one->unboxed));
      return key.low;
    }
  };
  struct Same {
    bool operator()(const Original* a, const Original* b) const {
      return a->functor == b->functor && a->boxed == b->boxed && a->unboxed == b->unboxed && a->sym_unboxed == b->sym_unboxed;
    }
  };
  std::mutex mutex;
  std::unordered_set<const Original*, Hash, Same> all;
  std::unordered_map<const c10::OperatorKernel*, const Original*> by_functor;

  const Original* keep(const Original& one) {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = all.find(&one);
    if (found == all.end()) found = all.insert(new Original(one)).first;
    if (one.functor) by_functor[one.functor] = *found;
    return *found;
  }
  const Original* of(const c10::OperatorKernel* functor) {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = by_functor.find(functor);
    return found == by_functor.end() ? nullptr : found->second;
  }
};

Originals& originals() {
  static auto* found = new Originals;
  return *found;
}

void enter_kernel(c10::OperatorKernel*, const c10::OperatorHandle&, c10::DispatchKeySet, c10::Stack*);
void enter_missing(c10::OperatorKernel*, const c10::OperatorHandle&, c10::DispatchKeySet, c10::Stack*);

bool is_ours(const Entry& entry) { return entry.boxed == &enter_kernel || entry.boxed == &enter_missing; }

// Under the dispatcher's mutex.
void wrap(c10::impl::OperatorEntry& entry, const void* definition) {
  if (!entry.hasSchema()) return;
  Operator& known = operators().learn(definition, c10::toString(entry.operator_name()));
  if (known.reporting) return;
  bool changed = known.argument_count != entry.schema().arguments().size();
  auto& table = table_of(entry);
  for (size_t i = 0; i < table.size(); i++) {
    Entry& one = words(table[i]);
    if (is_ours(one) || table[i].isFallthrough()) continue;
    // without a boxed function it could not be called from ours
    if (!one.boxed && one.unboxed) continue;
    const Original* original = originals().keep({one.functor, one.boxed, one.unboxed, one.sym_unboxed});
    changed = changed || known.originals[i].load() != original;
    known.originals[i].store(original);
    if (one.boxed) {
      put(one.unboxed, static_cast<void*>(nullptr));
      put(one.sym_unboxed, static_cast<void*>(nullptr));
      put(one.boxed, &enter_kernel);
    } else {
      put(one.boxed, &enter_missing);
    }
  }
  if (changed) {
    read_schema(known, entry);
    known.version.fetch_add(1);
  }
}

// Under the dispatcher's mutex.
void unwrap(c10::impl::OperatorEntry& entry, const void* definition) {
  Operator* known = operators().find(definition);
  if (!known) return;
  auto& table = table_of(entry);
  for (size_t i = 0; i < table.size(); i++) {
    Entry& one = words(table[i]);
    const Original* original = known->originals[i].load();
    if (!is_ours(one) || !original) continue;
    put(one.boxed, original->boxed);
    put(one.sym_unboxed, original->sym_unboxed);
    put(one.unboxed, original->unboxed);
  }
}

template <class Act>
void for_all(Act&& act) {
  for (auto& definition : c10::Dispatcher::singleton().*member(OperatorsTag{})) act(definition.op, &definition);
}

// "" names all.
bool is_named(const c10::impl::OperatorEntry& entry, const std::string& name) {
  const auto& own = entry.operator_name();
  return name.empty() || (name.compare(0, own.name.size(), own.name) == 0 && c10::toString(own) == name);
}

// Under the dispatcher's mutex: how many recorders record.
size_t recording = 0;

const void* definition_of(const c10::OperatorHandle& op) { return op.*member(DefinitionTag{}); }

// ---- what is recorded of a hop

uint32_t name_of(ThreadPart& part, const Operator& known, const c10::OperatorHandle& op) {
  Key key;
  key.add(reinterpret_cast<uintptr_t>(&known));
  key.add(known.version.load(std::memory_order_relaxed));
  return part.names.intern(part.recorder->names, key, [&] {
    std::lock_guard<std::mutex> guard(dispatcher_mutex());
    return operator_record((op.*member(DefinitionTag{}))->op);
  });
}

uint32_t error_of(ThreadPart& part) {
  const ErrorText found = describe_exception ? describe_exception() : ErrorText{"RuntimeError", ""};
  Key key;
  key.add(found.type);
  key.add(found.message);
  return part.errors.intern(part.recorder->errors, key, [&] {
    std::string out = "{\"type\":";
    json::text(out, found.type);
    out += ",\"message\":";
    json::text(out, found.message);
    return out + "}";
  });
}

// One hop in the lanes of all recorders of this thread.
class Frame {
 public:
  Frame(const Operator& known, const c10::OperatorHandle& op, c10::DispatchKeySet keys, const c10::Stack& stack, uint8_t flags)
      : known_(known) {
    const auto& parts = threads::enter();
    if (parts.empty()) return;
    const size_t count = std::min(known.argument_count, stack.size());
    try {
      for (ThreadPart* part : parts) begin(*part, op, keys, stack.data() + stack.size() - count, count, flags);
    } catch (...) {
      // nothing of the tracer's may become the program's
      for (ThreadPart* part : parts) part->recorder->miss("fault of the tracer: a hop could not be recorded");
    }
  }
  ~Frame() { threads::leave(); }

  bool is_recorded() const { return first_.part != nullptr; }

  void end(const c10::Stack& stack) {
    if (!first_.part) return;
    const uint64_t now = now_ns();
    const size_t count = std::min(known_.return_count, stack.size());
    end(first_, now, stack.data() + stack.size() - count, count);
    for (auto& one : others_) end(one, now, stack.data() + stack.size() - count, count);
  }

  // The exception in flight leaves it.
  void fail() {
    if (!first_.part) return;
    const uint64_t now = now_ns();
    fail(first_, now);
    for (auto& one : others_) fail(one, now);
  }

 private:
  struct Row {
    ThreadPart* part = nullptr;
    int64_t row = Lane::kNoRow;
    uint64_t since = 0;
  };

  void begin(ThreadPart& part, const c10::OperatorHandle& op, c10::DispatchKeySet keys, const c10::IValue* arguments,
             size_t count, uint8_t flags) {
    auto& recorder = *part.recorder;
    if (recorder.options.gated && !part.wanted) return;
    if (recorder.paused.load(std::memory_order_relaxed) || recorder.ended() || !recorder.wants(known_.name)) return;
    Row row;
    row.part = &part;
    row.since = recorder.numbers.now();
    auto& operands = scratch();
    operands.clear();
    Beginning what;
    const auto local = c10::impl::tls_local_dispatch_key_set();
    const bool own_modes = local.included_.has(c10::DispatchKey::Python) && only_own_modes && only_own_modes();
    what.arguments = read_values(part, arguments, count, known_.arguments.data(), 0, operands);
    what.name = name_of(part, known_, op);
    what.state = read_state(part, local, own_modes);
    read_autograd(part, what);
    what.keyset = keys.raw_repr();
    what.flags = flags | (own_modes && is_tracers(keys, arguments, count) ? kTracers : 0);
    // the disk is full, or recording ends just now
    if (!what.name || !what.arguments || !what.state) return;
    what.now = now_ns();
    row.row = part.lane->begin(what, operands.data(), operands.size());
    if (row.row == Lane::kNoRow) return;
    if (first_.part)
      others_.push_back(row);
    else
      first_ = row;
  }

  // Whether it is entered only because the tracer's modes are on.
  static bool is_tracers(c10::DispatchKeySet keys, const c10::IValue* arguments, size_t count) {
    const auto key = keys.highestPriorityTypeId();
    if (key == c10::DispatchKey::PythonTLSSnapshot) return true;
    if (key != c10::DispatchKey::Python) return false;
    for (size_t i = 0; i < count; i++) {
      const auto has_python = [](const at::Tensor& one) { return one.defined() && one.key_set().has(c10::DispatchKey::Python); };
      if (arguments[i].isTensor() && has_python(arguments[i].toTensor())) return false;
      if (arguments[i].isList())
        for (const auto& one : arguments[i].toListRef())
          if (one.isTensor() && has_python(one.toTensor())) return false;
    }
    return true;
  }

  void end(Row& row, uint64_t now, const c10::IValue* returned, size_t count) {
    try {
      auto& operands = scratch();
      operands.clear();
      uint32_t result = 0;
      if (known_.returns_list && count == 1 && returned[0].isList()) {
        const auto list = returned[0].toListRef();
        const std::vector<Meaning> meanings(list.size(), known_.returns[0]);
        result = read_values(*row.part, list.data(), list.size(), meanings.data(), row.since, operands);
      } else if (count) {
        result = read_values(*row.part, returned, count, known_.returns.data(), row.since, operands);
      }
      row.part->lane->end(row.row, now, result, operands.data(), operands.size());
    } catch (...) {
      row.part->recorder->miss("fault of the tracer: a result could not be recorded");
    }
  }

  void fail(Row& row, uint64_t now) {
    try {
      row.part->lane->fail(row.row, now, error_of(*row.part));
    } catch (...) {
      row.part->recorder->miss("fault of the tracer: an error could not be recorded");
    }
  }

  static Operands& scratch() {
    static thread_local Operands found;
    return found;
  }

  const Operator& known_;
  Row first_;
  std::vector<Row> others_;
};

// Whether Dispatcher::call enters the kernel, not redispatch. Kernels announce names of their own,
// too (RECORD_FUNCTION), but none that lies where the schema's does.
bool was_called(const Operator& known, const c10::OperatorHandle& op) {
  return threads::take_announced() == op.schema().name().c_str() || !known.observed;
}

// Stands in for the boxed function of every kernel.
void enter_kernel(c10::OperatorKernel* functor, const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const Operator* known = operators().find(definition_of(op));
  const Original* original =
      known ? known->originals[keys.getDispatchTableIndexForDispatchKeySet()].load(std::memory_order_acquire) : nullptr;
  if (!original || original->functor != functor || !original->boxed) {
    // a copy of an entry, called with keys of the caller's choice or after the table has changed
    original = originals().of(functor);
    TORCH_CHECK(original, "dispatch_inspect: a kernel of ", op.operator_name(), " was called that was never registered");
  }
  if (!known || !threads::any()) return original->boxed(functor, op, keys, stack);
  const uint8_t flags = was_called(*known, op) ? kCalled : 0;
  Frame frame(*known, op, keys, *stack, flags);
  if (!frame.is_recorded()) return original->boxed(functor, op, keys, stack);
  try {
    original->boxed(functor, op, keys, stack);
#ifdef __GLIBC__
  } catch (abi::__forced_unwind&) {
    // the thread is being ended inside the kernel: no exception, and nothing may catch it
    throw;
#endif
  } catch (...) {
    frame.fail();
    throw;
  }
  frame.end(*stack);
}

// Under the dispatcher's mutex: the table of an operator is PyTorch's own while `by` are more than 0.
void restore(c10::impl::OperatorEntry& entry, const void* definition, int by) {
  Operator* known = operators().find(definition);
  if (!known) return;
  const bool was = known->reporting > 0;
  known->reporting += by;
  if (!was && known->reporting) unwrap(entry, definition);
  if (was && !known->reporting && recording) wrap(entry, definition);
}

// While one lives, an operator's table is as PyTorch made it. The mutex is not held meanwhile:
// the report may run Python.
struct Reporting {
  Reporting(c10::impl::OperatorEntry& entry, const void* definition) : entry_(entry), definition_(definition) {
    std::lock_guard<std::mutex> guard(dispatcher_mutex());
    restore(entry_, definition_, 1);
  }
  ~Reporting() {
    std::lock_guard<std::mutex> guard(dispatcher_mutex());
    restore(entry_, definition_, -1);
  }

 private:
  c10::impl::OperatorEntry& entry_;
  const void* definition_;
};

// Stands in where there is no kernel: the dispatcher itself raises what it would have raised.
void enter_missing(c10::OperatorKernel*, const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const Operator* known = operators().find(definition_of(op));
  auto raise = [&] {
    // the message lists the kernels that the table holds, after comparing it with the registrations
    Reporting reporting((op.*member(DefinitionTag{}))->op, definition_of(op));
    (op.*member(DefinitionTag{}))->op.lookup(keys);
  };
  if (!known || !threads::any()) {
    raise();
  } else {
    const uint8_t flags = (was_called(*known, op) ? kCalled : 0) | kMissing;
    Frame frame(*known, op, keys, *stack, flags);
    try {
      raise();
    } catch (...) {
      frame.fail();
      throw;
    }
  }
  // registered by another thread just now
  op.redispatchBoxed(keys, stack);
}

// Dispatcher::call tells observers before it enters the kernel; redispatch does not.
std::unique_ptr<at::ObserverContext> call_begins(const at::RecordFunction& call) {
  threads::announce(call.name());
  return nullptr;
}

void call_ends(const at::RecordFunction&, at::ObserverContext*) { threads::announce(nullptr); }

at::CallbackHandle observer = at::INVALID_CALLBACK_HANDLE;

} // namespace

void start(std::shared_ptr<Recorder> recorder) {
  threads::activate(std::move(recorder));
  std::lock_guard<std::mutex> guard(dispatcher_mutex());
  if (recording++) return;
  observer = at::addGlobalCallback(
      at::RecordFunctionCallback(call_begins, call_ends).scopes({at::RecordScope::FUNCTION}));
  for_all(wrap);
}

void stop(Recorder& recorder) {
  threads::deactivate(recorder);
  std::lock_guard<std::mutex> guard(dispatcher_mutex());
  if (!recording || --recording) return;
  at::removeCallback(observer);
  for_all(unwrap);
}

void rescan(const std::string& name) {
  std::lock_guard<std::mutex> guard(dispatcher_mutex());
  if (!recording) return;
  for_all([&](c10::impl::OperatorEntry& entry, const void* definition) {
    if (is_named(entry, name)) wrap(entry, definition);
  });
}

namespace {

void restore_named(const std::string& name, int by) {
  std::lock_guard<std::mutex> guard(dispatcher_mutex());
  for_all([&](c10::impl::OperatorEntry& entry, const void* definition) {
    if (is_named(entry, name)) restore(entry, definition, by);
  });
}

} // namespace

Restored::Restored(const std::string& name) : name_(name) { restore_named(name_, 1); }

Restored::~Restored() { restore_named(name_, -1); }

Counts counts() {
  Counts found;
  std::lock_guard<std::mutex> guard(dispatcher_mutex());
  for_all([&](c10::impl::OperatorEntry& entry, const void*) {
    if (!entry.hasSchema()) return;
    found.operators++;
    for (auto& kernel : table_of(entry)) {
      const Entry& one = words(kernel);
      if (kernel.isFallthrough())
        found.fallthrough++;
      else if (!one.boxed && one.unboxed)
        found.unboxable.push_back(c10::toString(entry.operator_name()));
      else if (!one.boxed || one.boxed == &enter_missing)
        found.missing++;
      else
        found.wrapped++;
    }
  });
  return found;
}

} // namespace dispatch_inspect::hops
