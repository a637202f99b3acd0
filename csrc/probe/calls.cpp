#include "calls.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/PythonFallbackKernel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/python_variable.h>

#include <unordered_map>

#include "bindings.h"
#include "context.h"
#include "recorder.h"
#include "threads.h"

namespace dispatch_inspect::calls {

namespace {

constexpr uint8_t kFunction = 2, kOperator = 3;
// things that are remembered, before all are forgotten
constexpr size_t kMemory = 16384;

struct Owned {
  PyObject* object = nullptr;
  Owned() = default;
  // takes over a reference
  explicit Owned(PyObject* given) : object(given) {}
  Owned(Owned&& other) noexcept : object(std::exchange(other.object, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object, other.object);
    return *this;
  }
  ~Owned() { Py_XDECREF(object); }
  explicit operator bool() const { return object; }
  static Owned borrow(PyObject* given) {
    Py_XINCREF(given);
    return Owned(given);
  }
};

// A function or operator that has been called before.
struct Known {
  Owned self;
  uint32_t number = 0;
  // what calls it, and what follows a call, and when; see record/names.py
  Owned call, follow;
  int when = 0;
};

// When something follows a call; the numbers of record/notes.py.
enum When { kAlways = 0, kOfNonContiguous = 1, kInBackward = 2 };

// A code object: whether it is torch's or the tracer's, and the lines it has called from.
struct Code {
  Owned self;
  bool foreign = false;
  std::unordered_map<int, uint32_t> sites;
};

struct State {
  std::shared_ptr<Recorder> recorder;
  // the Python side of this recording, see record/calls.py
  Owned python;
  std::unordered_map<PyObject*, Known> known;
  std::unordered_map<PyObject*, Code> codes;
  // descriptors of attributes -> what gets, sets and deletes them
  std::unordered_map<PyObject*, std::array<Owned, 3>> attributes;
  std::unordered_map<uint32_t, uint32_t> node_notes;
  uint32_t plain_states[4] = {0, 0, 0, 0};
  uint32_t one_tensor = 0;
  size_t sites = 0;
};

struct Handler {
  PyObject_HEAD
  State* state;
};

State* state_of(PyObject* self) { return reinterpret_cast<Handler*>(self)->state; }

PyObject* handler_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<Handler*>(self)->state = new State;
  return self;
}

int handler_traverse(PyObject* self, visitproc visit, void* arg) {
  if (State* state = state_of(self)) Py_VISIT(state->python.object);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int handler_clear(PyObject* self) {
  if (State* state = state_of(self)) {
    state->python = Owned();
    state->known.clear();
    state->codes.clear();
    state->attributes.clear();
  }
  return 0;
}

void handler_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete std::exchange(reinterpret_cast<Handler*>(self)->state, nullptr);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// attach(recorder, python): records into `recorder` from now on; None for nothing.
PyObject* handler_attach(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) return PyErr_Format(PyExc_TypeError, "attach takes a recorder and its Python side");
  State& state = *state_of(self);
  State fresh;
  if (args[0] != Py_None) {
    fresh.recorder = recorder_of_object(args[0]);
    fresh.python = Owned::borrow(args[1]);
  }
  std::swap(state, fresh);
  Py_RETURN_NONE;
}

// know(function, number, call, follow, when): what the usual call of it needs.
PyObject* handler_know(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 5) return PyErr_Format(PyExc_TypeError, "know takes function, number, call, follow, when");
  State& state = *state_of(self);
  if (state.known.size() >= kMemory) state.known.clear();
  Known known;
  known.self = Owned::borrow(args[0]);
  known.number = PyLong_AsUnsignedLongMask(args[1]);
  known.call = Owned::borrow(args[2]);
  if (args[3] != Py_None) known.follow = Owned::borrow(args[3]);
  known.when = PyLong_AsLong(args[4]);
  state.known[args[0]] = std::move(known);
  Py_RETURN_NONE;
}

PyObject* handler_forget(PyObject* self, PyObject*) {
  state_of(self)->known.clear();
  Py_RETURN_NONE;
}

// A number that Python has to find; 0 with the error swallowed when it cannot.
template <class... Objects>
uint32_t ask(PyObject* python, const char* question, Objects... objects) {
  PyObject* answer = PyObject_CallMethodObjArgs(python, Owned(PyUnicode_InternFromString(question)).object, objects..., nullptr);
  if (!answer) {
    PyErr_Clear();
    return 0;
  }
  const uint32_t found = PyLong_AsUnsignedLongMask(answer);
  Py_DECREF(answer);
  return found;
}

bool is_plain(PyObject* value) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  return type == THPVariableClass || type == ParameterClass;
}

// Reads values of a call: a key for what they are, and the tensors among them.
class Reading {
 public:
  Reading(ThreadPart& part, Operands& operands) : part_(part), operands_(operands) {}

  // false when a value is unusual: Python must read it
  bool read(PyObject* value) {
    if (is_plain(value)) {
      key.add(1);
      operands_.push_back(read_tensor(part_, THPVariable_Unpack(value)));
      return true;
    }
    if (value == Py_None || value == Py_True || value == Py_False) {
      key.add(value == Py_None ? 2 : value == Py_True ? 3 : 4);
      return true;
    }
    if (PyLong_CheckExact(value)) {
      int overflow;
      const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
      key.add(5);
      key.add(static_cast<uint64_t>(number));
      return !overflow;
    }
    if (PyFloat_CheckExact(value)) {
      const double number = PyFloat_AS_DOUBLE(value);
      uint64_t bits;
      std::memcpy(&bits, &number, sizeof(bits));
      key.add(6);
      key.add(bits);
      return true;
    }
    if (PyTuple_CheckExact(value) || THPSize_Check(value)) return read_items(7, value);
    if (PyList_CheckExact(value)) return read_items(8, value);
    if (PyUnicode_CheckExact(value)) {
      Py_ssize_t size;
      const char* text = PyUnicode_AsUTF8AndSize(value, &size);
      if (!text) {
        PyErr_Clear();
        return false;
      }
      key.add(9);
      key.add(std::string_view(text, size));
      return true;
    }
    if (THPDtype_Check(value) || THPLayout_Check(value) || THPMemoryFormat_Check(value)) {
      // there is one object of each, and it stays
      key.add(10);
      key.add(reinterpret_cast<uintptr_t>(value));
      return true;
    }
    if (THPDevice_Check(value)) {
      const auto& device = reinterpret_cast<THPDevice*>(value)->device;
      key.add(11);
      key.add(static_cast<uint64_t>(device.type()) << 16 | static_cast<uint16_t>(device.index()));
      return true;
    }
    if (PySlice_Check(value)) {
      auto* slice = reinterpret_cast<PySliceObject*>(value);
      key.add(12);
      return read(slice->start) && read(slice->stop) && read(slice->step);
    }
    return false;
  }

  bool read_items(uint64_t kind, PyObject* sequence) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    key.add(kind);
    key.add(count);
    if (count > 64) return false;
    for (Py_ssize_t i = 0; i < count; i++)
      if (!read(PySequence_Fast_GET_ITEM(sequence, i))) return false;
    return true;
  }

  bool read_call(PyObject* args, PyObject* kwargs) {
    if (!PyTuple_CheckExact(args) || !read_items(7, args)) return false;
    if (!kwargs) return true;
    if (!PyDict_CheckExact(kwargs)) return false;
    PyObject *name, *value;
    for (Py_ssize_t place = 0; PyDict_Next(kwargs, &place, &name, &value);)
      if (!read(name) || !read(value)) return false;
    return true;
  }

  Key key;

 private:
  ThreadPart& part_;
  Operands& operands_;
};

// The number of the user's line, 0 for none: the innermost that is neither torch's nor ours.
uint32_t read_site(State& state) {
  PyThreadState* thread = PyThreadState_Get();
  Owned frame(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(thread)));
  while (frame) {
    auto* here = reinterpret_cast<PyFrameObject*>(frame.object);
    Owned code(reinterpret_cast<PyObject*>(PyFrame_GetCode(here)));
    auto found = state.codes.find(code.object);
    if (found == state.codes.end()) {
      if (state.codes.size() + state.sites >= kMemory) {
        state.codes.clear();
        state.sites = 0;
      }
      Code known;
      known.self = Owned::borrow(code.object);
      known.foreign = ask(state.python.object, "is_foreign", code.object);
      found = state.codes.emplace(code.object, std::move(known)).first;
    }
    if (!found->second.foreign) {
#if PY_VERSION_HEX >= 0x030B0000
      const int instruction = PyFrame_GetLasti(here);
#else
      const int instruction = here->f_lasti;
#endif
      auto site = found->second.sites.find(instruction);
      if (site != found->second.sites.end()) return site->second;
      const uint32_t number = ask(state.python.object, "site", frame.object);
      // asking may have forgotten it
      found = state.codes.find(code.object);
      if (number && found != state.codes.end()) {
        found->second.sites[instruction] = number;
        state.sites++;
      }
      return number;
    }
    frame = Owned(reinterpret_cast<PyObject*>(PyFrame_GetBack(here)));
  }
  return 0;
}

// One call: from its arguments to its result.
class Call {
 public:
  Call(State& state, PyObject* args, PyObject* kwargs) : state_(state), args_(args), kwargs_(kwargs) {}

  // Reads all that an event needs; false when Python must handle it.
  bool prepare() {
    part_ = state_.recorder->part();
    if (!part_) return false;
    operands_.clear();
    Reading reading(*part_, operands_);
    if (!reading.read_call(args_, kwargs_)) return false;
    if (state_.recorder->saw_complex.load(std::memory_order_relaxed)) return false;
    what.arguments = part_->python_values.find_or(reading.key, [&] {
      return ask(state_.python.object, "arguments", args_, kwargs_ ? kwargs_ : Py_None);
    });
    what.stack = read_site(state_);
    return what.arguments;
  }

  void read_autograd_of_operator() {
    read_autograd(*part_, what);
    if (!what.node) return;
    auto known = state_.node_notes.find(what.node);
    if (known == state_.node_notes.end()) {
      Owned number(PyLong_FromUnsignedLong(what.node));
      Owned name(PyUnicode_FromString(torch::autograd::get_current_node()->name().c_str()));
      if (!number || !name) PyErr_Clear();
      const uint32_t note = number && name ? ask(state_.python.object, "node", number.object, name.object) : 0;
      known = state_.node_notes.emplace(what.node, note).first;
    }
    note_ = known->second;
  }

  ThreadPart& part() { return *part_; }

  PyObject* make(const Known& known) {
    Lane& lane = *part_->lane;
    mark_ = lane.open();
    what.name = known.number;
    what.now = now_ns();
    row_ = lane.begin(what, operands_.data(), operands_.size());
    if (note_) lane.note(row_, note_);
    PyObject* result = PyObject_Call(known.call.object, args_, kwargs_);
    return result ? returned(known, result) : raised();
  }

  Beginning what;

 private:
  PyObject* returned(const Known& known, PyObject* result) {
    const uint64_t now = now_ns();
    Lane& lane = *part_->lane;
    if (row_ != Lane::kNoRow) {
      operands_.clear();
      uint32_t number = 0;
      if (is_plain(result)) {
        operands_.push_back(read_tensor(*part_, THPVariable_Unpack(result)));
        number = state_.one_tensor ? state_.one_tensor : state_.one_tensor = ask(state_.python.object, "result", result);
      } else {
        Reading reading(*part_, operands_);
        reading.key.add(99);
        if (reading.read(result)) {
          number = part_->python_values.find_or(reading.key, [&] { return ask(state_.python.object, "result", result); });
        } else {
          Owned row(PyLong_FromLongLong(row_));
          ask(state_.python.object, "end", row.object, result);
          return follow(known, result);
        }
      }
      lane.end(row_, now, number, operands_.data(), operands_.size());
    }
    return follow(known, result);
  }

  PyObject* follow(const Known& known, PyObject* result) {
    if (!known.follow || !is_wanted(known.when)) return result;
    Owned row(PyLong_FromLongLong(row_));
    ask(state_.python.object, "follow", known.follow.object, row.object, args_);
    return result;
  }

  bool is_wanted(int when) const {
    if (when == kInBackward) return what.node && !c10::GradMode::is_enabled();
    if (when != kOfNonContiguous) return true;
    PyObject* first = PyTuple_GET_SIZE(args_) ? PyTuple_GET_ITEM(args_, 0) : nullptr;
    return first && is_plain(first) && !THPVariable_Unpack(first).is_contiguous();
  }

  PyObject* raised() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Owned mark(PyLong_FromSize_t(mark_));
    ask(state_.python.object, "fail", mark.object, value);
    part_->lane->drop(mark_);
    PyErr_Restore(type, value, traceback);
    return nullptr;
  }

  threads::Inside inside_;
  State& state_;
  PyObject *args_, *kwargs_;
  ThreadPart* part_ = nullptr;
  Operands operands_;
  size_t mark_ = 0;
  int64_t row_ = Lane::kNoRow;
  uint32_t note_ = 0;
};

// func, types, args, kwargs as PyTorch passes them.
struct Arguments {
  PyObject *func, *types, *args, *kwargs;
  bool read(PyObject* const* given, Py_ssize_t count) {
    if (count < 3 || count > 4) return false;
    func = given[0];
    types = given[1];
    args = given[2];
    kwargs = count == 4 && given[3] != Py_None ? given[3] : nullptr;
    if (kwargs && PyDict_CheckExact(kwargs) && !PyDict_GET_SIZE(kwargs)) kwargs = nullptr;
    return PyTuple_CheckExact(args);
  }
};

// The same object for each call of an attribute (x.grad): Python makes a new one every time.
PyObject* canonical(State& state, PyObject* func) {
  static PyTypeObject* const wrapper = [] {
    Owned one(PyObject_GetAttrString(Py_None, "__repr__"));
    return one ? Py_TYPE(one.object) : nullptr;
  }();
  if (Py_TYPE(func) != wrapper) return func;
  Owned descriptor(PyObject_GetAttrString(func, "__self__")), name(PyObject_GetAttrString(func, "__name__"));
  const char* text = name && PyUnicode_Check(name.object) ? PyUnicode_AsUTF8(name.object) : nullptr;
  if (!descriptor || !text) {
    PyErr_Clear();
    return func;
  }
  const std::string_view kind = text;
  const size_t place = kind == "__get__" ? 0 : kind == "__set__" ? 1 : kind == "__delete__" ? 2 : 3;
  if (place == 3 || Py_TYPE(descriptor.object) != &PyGetSetDescr_Type) return func;
  if (state.attributes.size() >= kMemory) state.attributes.clear();
  Owned& kept = state.attributes[descriptor.object][place];
  // it keeps its descriptor alive, so that the address stays its own
  if (!kept) kept = Owned::borrow(func);
  return kept.object;
}

// What Python's handler of the same name would do: the next one in the order of classes.
PyObject* in_python(PyObject* self, const char* name, PyObject* const* args, Py_ssize_t count) {
  Owned method(PyObject_GetAttrString(self, name));
  return method ? PyObject_Vectorcall(method.object, args, count, nullptr) : nullptr;
}

bool only_plain(PyObject* types) {
  if (!PyTuple_CheckExact(types)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++) {
    PyObject* one = PyTuple_GET_ITEM(types, i);
    if (one != THPVariableClass && one != ParameterClass) return false;
  }
  return true;
}

bool records(const State& state) {
  return state.recorder && !state.recorder->paused.load(std::memory_order_relaxed) && !state.recorder->closed() &&
      !at::impl::PythonTorchFunctionTLS::stack_len();
}

bool is_usual_function(State& state, const Arguments& given, Call& call, const Known*& known) {
  if (!records(state)) return false;
  const auto local = c10::impl::tls_local_dispatch_key_set();
  if (autocasts(local)) return false;
  auto found = state.known.find(given.func);
  if (found == state.known.end() || !call.prepare()) return false;
  const int modes = c10::GradMode::is_enabled() + 2 * c10::InferenceMode::is_enabled();
  uint32_t& plain = state.plain_states[modes];
  if (!plain) plain = ask(state.python.object, "python_state");
  // asking may have learned, and forgotten, functions
  found = state.known.find(given.func);
  if (found == state.known.end()) return false;
  known = &found->second;
  call.what.kind = kFunction;
  call.what.state = plain;
  return plain;
}

PyObject* function_handler(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  State& state = *state_of(self);
  Arguments given;
  if (given.read(args, count)) {
    given.func = canonical(state, given.func);
    Call call(state, given.args, given.kwargs);
    const Known* known = nullptr;
    try {
      if (!is_usual_function(state, given, call, known)) known = nullptr;
    } catch (...) {
      // Python's handler finds out what is wrong
      known = nullptr;
    }
    if (known) {
      // what is known may be forgotten while it is called
      Known kept{Owned::borrow(known->self.object), known->number, Owned::borrow(known->call.object), Owned(), 0};
      return call.make(kept);
    }
  }
  if (count != 4 && count != 3) return in_python(self, "handle_function", args, count);
  // under the name by which it is learned
  PyObject* same[4] = {count >= 3 && state.recorder ? canonical(state, args[0]) : args[0], args[1], args[2], count == 4 ? args[3] : nullptr};
  return in_python(self, "handle_function", same, count);
}

bool is_usual_operator(State& state, const Arguments& given, Call& call, const Known*& known) {
  if (!records(state) || !only_plain(given.types)) return false;
  auto found = state.known.find(given.func);
  if (found == state.known.end()) return false;
  c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  {
    // the key sets with which the dispatcher was entered
    at::impl::RestorePythonTLSSnapshot entry;
    local = c10::impl::tls_local_dispatch_key_set();
  }
  if (autocasts(local) || !call.prepare()) return false;
  const bool own_modes = !c10::impl::TorchDispatchModeTLS::stack_len();
  call.what.kind = kOperator;
  call.what.state = read_state(call.part(), local, own_modes);
  call.read_autograd_of_operator();
  found = state.known.find(given.func);
  if (found == state.known.end()) return false;
  known = &found->second;
  return call.what.state;
}

PyObject* operator_handler(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  State& state = *state_of(self);
  Arguments given;
  if (given.read(args, count)) {
    Call call(state, given.args, given.kwargs);
    const Known* known = nullptr;
    try {
      if (!is_usual_operator(state, given, call, known)) known = nullptr;
    } catch (...) {
      // a higher-order operator, for one: Python called the mode, not the dispatcher
      known = nullptr;
    }
    if (known) {
      Known kept{Owned::borrow(known->self.object), known->number, Owned::borrow(known->call.object),
                 Owned::borrow(known->follow.object), known->when};
      return call.make(kept);
    }
  }
  return in_python(self, "handle_operator", args, count);
}

#define SHARED_METHODS                                                                                     \
  {"attach", reinterpret_cast<PyCFunction>(handler_attach), METH_FASTCALL, "Says what to record into."},    \
      {"know", reinterpret_cast<PyCFunction>(handler_know), METH_FASTCALL, "Learns a function."},           \
      {"forget", handler_forget, METH_NOARGS, "Forgets all functions."}, {                                  \
    nullptr, nullptr, 0, nullptr                                                                           \
  }

PyMethodDef function_methods[] = {
    {"__torch_function__", reinterpret_cast<PyCFunction>(function_handler), METH_FASTCALL, "Records a Python-level call."},
    SHARED_METHODS};
PyMethodDef operator_methods[] = {
    {"__torch_dispatch__", reinterpret_cast<PyCFunction>(operator_handler), METH_FASTCALL, "Records an operator call."},
    SHARED_METHODS};
#undef SHARED_METHODS

PyType_Slot function_slots[] = {{Py_tp_new, reinterpret_cast<void*>(handler_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(handler_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(handler_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(handler_clear)},
                                {Py_tp_methods, function_methods},
                                {0, nullptr}};
PyType_Slot operator_slots[] = {{Py_tp_new, reinterpret_cast<void*>(handler_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(handler_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(handler_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(handler_clear)},
                                {Py_tp_methods, operator_methods},
                                {0, nullptr}};
constexpr unsigned kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
PyType_Spec function_spec = {"dispatch_inspect_probe.FunctionHandler", sizeof(Handler), 0, kFlags, function_slots};
PyType_Spec operator_spec = {"dispatch_inspect_probe.OperatorHandler", sizeof(Handler), 0, kFlags, operator_slots};

} // namespace

bool add_types(PyObject* module) {
  PyObject* functions = PyType_FromSpec(&function_spec);
  PyObject* operators = PyType_FromSpec(&operator_spec);
  return functions && operators && PyModule_AddObject(module, "FunctionHandler", functions) == 0 &&
      PyModule_AddObject(module, "OperatorHandler", operators) == 0;
}

} // namespace dispatch_inspect::calls
