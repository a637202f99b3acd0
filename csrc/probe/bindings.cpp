// The probe's Python face, and what it asks of Python.
#include <torch/csrc/python_headers.h>

#include <torch/csrc/Device.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <pthread.h>

#include <string_view>
#include <typeinfo>

#include "bindings.h"
#include "calls.h"
#include "context.h"
#include "hops.h"
#include "recorder.h"
#include "threads.h"
#include "values.h"

namespace dispatch_inspect {

namespace {

// A C++ exception of ours as a Python one.
template <class Act>
PyObject* guarded(Act&& act) {
  try {
    return act();
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

uint64_t natural(PyObject* value) {
  const uint64_t found = PyLong_AsUnsignedLongLongMask(value);
  if (found == ~0ull && PyErr_Occurred()) throw std::runtime_error("expected a number");
  return found;
}

PyObject* number(uint64_t value) { return PyLong_FromUnsignedLongLong(value); }

void read_operands(PyObject* list, Operands& operands) {
  operands.clear();
  PyObject* items = PySequence_Fast(list, "operands must be a sequence");
  if (!items) throw std::runtime_error("operands");
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* one = PySequence_Fast_GET_ITEM(items, i);
    if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 4) {
      Py_DECREF(items);
      throw std::runtime_error("an operand is a tuple of four numbers");
    }
    auto part = [&](Py_ssize_t k) { return static_cast<uint32_t>(PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(one, k))); };
    operands.push_back({part(0), part(1), part(2), part(3)});
  }
  Py_DECREF(items);
}

Operands& scratch() {
  static thread_local Operands found;
  return found;
}

// ---- Lane

struct PyLane {
  PyObject_HEAD
  std::shared_ptr<Lane>* lane;
  std::shared_ptr<Recorder>* recorder;
};

Lane& lane_of(PyObject* self) { return **reinterpret_cast<PyLane*>(self)->lane; }

void lane_dealloc(PyObject* self) {
  auto* lane = reinterpret_cast<PyLane*>(self);
  delete lane->lane;
  delete lane->recorder;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// kind, now, name, arguments, operands, state, stack, sequence[, module, node, node_sequence]
PyObject* lane_begin(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count < 8) throw std::runtime_error("begin takes eight numbers or more");
    Beginning what;
    what.kind = natural(args[0]);
    what.now = natural(args[1]);
    what.name = natural(args[2]);
    what.arguments = natural(args[3]);
    auto& operands = scratch();
    read_operands(args[4], operands);
    what.state = natural(args[5]);
    what.stack = natural(args[6]);
    what.sequence = natural(args[7]);
    if (count > 8) what.module = natural(args[8]);
    if (count > 9) what.node = natural(args[9]);
    if (count > 10) what.node_sequence = natural(args[10]);
    return PyLong_FromLongLong(lane_of(self).begin(what, operands.data(), operands.size()));
  });
}

PyObject* lane_end(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 4) throw std::runtime_error("end takes row, now, result, operands");
    auto& operands = scratch();
    read_operands(args[3], operands);
    lane_of(self).end(PyLong_AsLongLong(args[0]), natural(args[1]), natural(args[2]), operands.data(), operands.size());
    Py_RETURN_NONE;
  });
}

PyObject* lane_fail(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 3) throw std::runtime_error("fail takes row, now, error");
    lane_of(self).fail(PyLong_AsLongLong(args[0]), natural(args[1]), natural(args[2]));
    Py_RETURN_NONE;
  });
}

PyObject* lane_note(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 2) throw std::runtime_error("note takes row, note");
    lane_of(self).note(PyLong_AsLongLong(args[0]), natural(args[1]));
    Py_RETURN_NONE;
  });
}

PyObject* lane_unwind(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 3) throw std::runtime_error("unwind takes depth, now, error");
    lane_of(self).unwind(natural(args[0]), natural(args[1]), natural(args[2]));
    Py_RETURN_NONE;
  });
}

PyObject* lane_read(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 2) throw std::runtime_error("read takes column, row");
    return number(lane_of(self).read(natural(args[0]), PyLong_AsLongLong(args[1])));
  });
}

PyObject* lane_drop(PyObject* self, PyObject* mark) {
  return guarded([&]() -> PyObject* {
    lane_of(self).drop(natural(mark));
    Py_RETURN_NONE;
  });
}

PyObject* lane_count(PyObject* self, void*) { return number(lane_of(self).count()); }

Py_ssize_t lane_open(PyObject* self) { return lane_of(self).open(); }

PyMethodDef lane_methods[] = {
    {"begin", reinterpret_cast<PyCFunction>(lane_begin), METH_FASTCALL, "Records that an event begins; returns its row."},
    {"end", reinterpret_cast<PyCFunction>(lane_end), METH_FASTCALL, "Records that an event returned."},
    {"fail", reinterpret_cast<PyCFunction>(lane_fail), METH_FASTCALL, "Records that an exception left an event."},
    {"note", reinterpret_cast<PyCFunction>(lane_note), METH_FASTCALL, "Attaches a note to an event."},
    {"unwind", reinterpret_cast<PyCFunction>(lane_unwind), METH_FASTCALL, "Closes what is open above a depth."},
    {"read", reinterpret_cast<PyCFunction>(lane_read), METH_FASTCALL, "What a column holds of an event."},
    {"drop", lane_drop, METH_O, "Forgets what is open above a depth."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef lane_members[] = {
    {"count", lane_count, nullptr, "Events begun.", nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot lane_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(lane_dealloc)},
    {Py_tp_methods, lane_methods},
    {Py_tp_getset, lane_members},
    // its length is how many events are open
    {Py_sq_length, reinterpret_cast<void*>(lane_open)},
    {0, nullptr}};
PyType_Spec lane_spec = {"dispatch_inspect_probe.Lane", sizeof(PyLane), 0, Py_TPFLAGS_DEFAULT, lane_slots};
PyTypeObject* lane_type = nullptr;

// ---- Recorder

struct PyRecorder {
  PyObject_HEAD
  std::shared_ptr<Recorder>* recorder;
  bool hops;
};

std::shared_ptr<Recorder>& recorder_of(PyObject* self) { return *reinterpret_cast<PyRecorder*>(self)->recorder; }

void release(PyRecorder* self) {
  if (!self->recorder) return;
  if (self->hops) hops::stop(**self->recorder);
  delete self->recorder;
  self->recorder = nullptr;
}

void recorder_dealloc(PyObject* self) {
  release(reinterpret_cast<PyRecorder*>(self));
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

std::mutex all_mutex;
std::vector<std::weak_ptr<Recorder>>& all_recorders() {
  static auto* found = new std::vector<std::weak_ptr<Recorder>>;
  return *found;
}

PyObject* recorder_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"directory", "max_events", "threads", "names", "gated", nullptr};
  const char* directory;
  unsigned long long max_events;
  int threads, gated;
  PyObject* names;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sKpOp", const_cast<char**>(keywords), &directory, &max_events, &threads, &names, &gated))
    return nullptr;
  return guarded([&]() -> PyObject* {
    Options options;
    options.directory = directory;
    options.max_events = max_events;
    options.threads = threads;
    options.gated = gated;
    if (names != Py_None) {
      PyObject* items = PySequence_Fast(names, "names must be a sequence");
      if (!items) return nullptr;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        const char* text = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items, i));
        if (!text) {
          Py_DECREF(items);
          return nullptr;
        }
        options.names.push_back(text);
      }
      Py_DECREF(items);
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    auto recorder = std::make_shared<Recorder>(std::move(options));
    {
      std::lock_guard<std::mutex> guard(all_mutex);
      auto& all = all_recorders();
      all.erase(std::remove_if(all.begin(), all.end(), [](auto& one) { return one.expired(); }), all.end());
      all.push_back(recorder);
    }
    reinterpret_cast<PyRecorder*>(self)->recorder = new std::shared_ptr<Recorder>(std::move(recorder));
    reinterpret_cast<PyRecorder*>(self)->hops = false;
    return self;
  });
}

PyObject* recorder_lane(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    ThreadPart* part = recorder_of(self)->part();
    if (!part) Py_RETURN_NONE;
    auto* made = reinterpret_cast<PyLane*>(lane_type->tp_alloc(lane_type, 0));
    if (!made) return nullptr;
    made->lane = new std::shared_ptr<Lane>(part->lane);
    made->recorder = new std::shared_ptr<Recorder>(recorder_of(self));
    return reinterpret_cast<PyObject*>(made);
  });
}

PyObject* recorder_append(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    Py_ssize_t size;
    const char* table = count == 2 ? PyUnicode_AsUTF8(args[0]) : nullptr;
    char* line;
    if (!table || PyBytes_AsStringAndSize(args[1], &line, &size) < 0) throw std::runtime_error("append takes table, line");
    return number(recorder_of(self)->table(table).append(std::string(line, size)));
  });
}

// The numbers of a tensor: (descriptor, tensor, storage, version).
PyObject* recorder_read(PyObject* self, PyObject* tensor) {
  return guarded([&]() -> PyObject* {
    ThreadPart* part = recorder_of(self)->part();
    if (!part || !THPVariable_Check(tensor)) return Py_BuildValue("(IIII)", 0, 0, 0, 0);
    const Operand found = read_tensor(*part, THPVariable_Unpack(tensor));
    return Py_BuildValue("(IIII)", found.descriptor, found.tensor, found.storage, found.version);
  });
}

PyObject* recorder_want(PyObject* self, PyObject* wanted) {
  return guarded([&]() -> PyObject* {
    if (ThreadPart* part = recorder_of(self)->part()) part->wanted = wanted == Py_True;
    Py_RETURN_NONE;
  });
}

PyObject* recorder_start_hops(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    auto* recorder = reinterpret_cast<PyRecorder*>(self);
    if (!recorder->hops) hops::start(recorder_of(self));
    recorder->hops = true;
    Py_RETURN_NONE;
  });
}

PyObject* recorder_close(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    auto* recorder = reinterpret_cast<PyRecorder*>(self);
    if (recorder->hops) hops::stop(*recorder_of(self));
    recorder->hops = false;
    recorder_of(self)->close();
    Py_RETURN_NONE;
  });
}

PyObject* recorder_disown(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    auto* recorder = reinterpret_cast<PyRecorder*>(self);
    if (recorder->hops) hops::stop(*recorder_of(self));
    recorder->hops = false;
    recorder_of(self)->disown();
    Py_RETURN_NONE;
  });
}

PyObject* recorder_missed(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* found = PyDict_New();
    for (const auto& [cause, count] : recorder_of(self)->missed()) {
      PyObject* value = number(count);
      PyDict_SetItemString(found, cause.c_str(), value);
      Py_DECREF(value);
    }
    return found;
  });
}

PyObject* recorder_ended(PyObject* self, void*) { return PyLong_FromLong(recorder_of(self)->ended()); }
PyObject* recorder_count(PyObject* self, void*) { return number(recorder_of(self)->event_count()); }
PyObject* recorder_saw_complex(PyObject* self, void*) { return PyBool_FromLong(recorder_of(self)->saw_complex); }
PyObject* recorder_paused(PyObject* self, void*) { return PyBool_FromLong(recorder_of(self)->paused); }
int recorder_set_paused(PyObject* self, PyObject* value, void*) {
  recorder_of(self)->paused = value == Py_True;
  return 0;
}

PyMethodDef recorder_methods[] = {
    {"lane", recorder_lane, METH_NOARGS, "The calling thread's lane, or None when recording is over."},
    {"append", reinterpret_cast<PyCFunction>(recorder_append), METH_FASTCALL, "Appends a record; returns its id + 1."},
    {"read", recorder_read, METH_O, "The numbers of a tensor."},
    {"want", recorder_want, METH_O, "Whether hops of this thread are wanted now, of a gated recorder."},
    {"start_hops", recorder_start_hops, METH_NOARGS, "Records hops from now on."},
    {"close", recorder_close, METH_NOARGS, "Ends recording."},
    {"disown", recorder_disown, METH_NOARGS, "Lets go of everything: a forked child."},
    {"missed", recorder_missed, METH_NOARGS, "Calls that are known not to be recorded, by cause."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef recorder_members[] = {
    {"ended", recorder_ended, nullptr, "0, an errno, or -1 for the limit.", nullptr},
    {"event_count", recorder_count, nullptr, "Events recorded so far.", nullptr},
    {"saw_complex", recorder_saw_complex, nullptr, "Whether any tensor read so far was complex.", nullptr},
    {"paused", recorder_paused, recorder_set_paused, "Whether hops are not recorded now.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot recorder_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(recorder_dealloc)},
    {Py_tp_new, reinterpret_cast<void*>(recorder_new)},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_members},
    {0, nullptr}};
PyType_Spec recorder_spec = {"dispatch_inspect_probe.Recorder", sizeof(PyRecorder), 0, Py_TPFLAGS_DEFAULT, recorder_slots};

} // namespace

std::shared_ptr<Recorder> recorder_of_object(PyObject* object) { return recorder_of(object); }

namespace {

// ---- what the recorder asks of Python

bool can_ask_python() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// The interpreter's lock, and the thread's error indicator kept as it was.
class Asking {
 public:
  Asking() : state_(PyGILState_Ensure()) { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~Asking() {
    PyErr_Restore(type_, value_, traceback_);
    PyGILState_Release(state_);
  }
  PyObject* error() const { return value_; }
  PyObject* error_type() const { return type_; }

 private:
  PyGILState_STATE state_;
  PyObject *type_, *value_, *traceback_;
};

// "package.Class", read from the class itself: no metaclass is asked.
std::string qualified_name(PyTypeObject* type, bool builtins) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    const std::string name = type->tp_name;
    return !builtins && name.rfind("builtins.", 0) == 0 ? name.substr(9) : name;
  }
  const char* name = PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
  PyObject* module = type->tp_dict ? PyDict_GetItemString(type->tp_dict, "__module__") : nullptr;
  const char* place = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  PyErr_Clear();
  if (!name) return type->tp_name;
  if (!place || (!builtins && (std::string_view(place) == "builtins" || std::string_view(place) == "__main__"))) return name;
  return std::string(place) + "." + name;
}

// The class of a tensor, and attributes that fake tensors and wrappers keep in their own
// dictionary: read there, so that nobody's Python runs.
bool python_facts(c10::TensorImpl* tensor, PythonFacts& facts) {
  PyObject* object = tensor->pyobj_slot()->load_pyobj();
  if (!object || !can_ask_python()) return false;
  Asking asking;
  facts.subclass = qualified_name(Py_TYPE(object), true);
  PyObject* attributes = PyObject_GenericGetDict(object, nullptr);
  if (!attributes) {
    PyErr_Clear();
    return true;
  }
  PyObject* device = PyDict_GetItemString(attributes, "_fake_device");
  if (!device) device = PyDict_GetItemString(attributes, "fake_device");
  if (device && THPDevice_Check(device)) facts.device = reinterpret_cast<THPDevice*>(device)->device.str();
  PyObject* sizes = PyDict_GetItemString(attributes, "_size");
  if (sizes && PyTuple_Check(sizes)) {
    facts.has_sizes = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes) && facts.has_sizes; i++) {
      PyObject* one = PyTuple_GET_ITEM(sizes, i);
      facts.has_sizes = PyLong_CheckExact(one);
      if (facts.has_sizes) facts.sizes.push_back(PyLong_AsLongLong(one));
    }
    if (!facts.has_sizes) facts.sizes.clear();
  }
  Py_DECREF(attributes);
  return true;
}

// An exception of Python: its type, and its message when that is plain text. The error is either
// in the C++ exception or still where Python left it, in the thread's indicator.
hops::ErrorText describe_python_error(PyObject* type, PyObject* value) {
  if (!can_ask_python()) return {"Exception", ""};
  Asking asking;
  if (!type) {
    type = asking.error_type();
    value = asking.error();
  }
  hops::ErrorText found{"Exception", ""};
  if (type && PyType_Check(type)) found.type = qualified_name(reinterpret_cast<PyTypeObject*>(type), false);
  PyObject* text = value;
  if (value && PyExceptionInstance_Check(value)) {
    PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(value)->args;
    text = args && PyTuple_Check(args) && PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : nullptr;
  }
  if (text && PyUnicode_CheckExact(text))
    if (const char* utf8 = PyUnicode_AsUTF8(text)) found.message = std::string(utf8).substr(0, 2000);
  PyErr_Clear();
  return found;
}

hops::ErrorText describe_exception() {
  auto cut = [](const char* text) { return std::string(text).substr(0, 2000); };
  try {
    throw;
  } catch (const python_error& error) {
    return describe_python_error(error.type, error.value);
  } catch (const c10::IndexError& error) {
    return {"IndexError", cut(error.what_without_backtrace())};
  } catch (const c10::ValueError& error) {
    return {"ValueError", cut(error.what_without_backtrace())};
  } catch (const c10::TypeError& error) {
    return {"TypeError", cut(error.what_without_backtrace())};
  } catch (const c10::NotImplementedError& error) {
    return {"NotImplementedError", cut(error.what_without_backtrace())};
  } catch (const c10::LinAlgError& error) {
    return {"torch._C._LinAlgError", cut(error.what_without_backtrace())};
  } catch (const c10::OutOfMemoryError& error) {
    return {"torch.OutOfMemoryError", cut(error.what_without_backtrace())};
  } catch (const c10::Error& error) {
    return {"RuntimeError", cut(error.what_without_backtrace())};
  } catch (const pybind11::error_already_set& error) {
    pybind11::gil_scoped_acquire lock;
    return describe_python_error(error.type().ptr(), error.value().ptr());
  } catch (const std::exception& error) {
    return {"RuntimeError", cut(error.what())};
  } catch (...) {
    return {"an exception that is not a std::exception", ""};
  }
}

PyObject* own_mode_type = nullptr;

bool only_own_modes() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  const int64_t count = Modes::stack_len();
  if (!count || !own_mode_type) return false;
  for (int64_t i = 0; i < count; i++) {
    const auto& mode = Modes::get_stack_at(i);
    if (!mode || reinterpret_cast<PyObject*>(Py_TYPE(mode->ptr(getPyInterpreter()))) != own_mode_type) return false;
  }
  return true;
}

// A node written in Python is named after its class; asking the node would take the interpreter's
// lock. PyTorch does not export the class, so it is known by its name.
std::string python_node_name_of(void* found) {
  auto* node = static_cast<torch::autograd::Node*>(found);
  if (std::string_view(typeid(*node).name()) != "N5torch8autograd6PyNodeE") return "";
  PyObject* object = static_cast<torch::autograd::PyNode*>(node)->pyobj();
  return object ? Py_TYPE(object)->tp_name : "";
}

// ---- the module

PyObject* set_own_mode(PyObject*, PyObject* type) {
  Py_INCREF(type);
  Py_XDECREF(own_mode_type);
  own_mode_type = type;
  Py_RETURN_NONE;
}

PyObject* rescan(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) return nullptr;
    hops::rescan(text);
    Py_RETURN_NONE;
  });
}

// restored(operator, function, *arguments): of one operator, or of all ("").
PyObject* restored(PyObject*, PyObject* const* args, Py_ssize_t count) {
  const char* name = count < 2 ? nullptr : PyUnicode_AsUTF8(args[0]);
  if (!name) return PyErr_Format(PyExc_TypeError, "restored takes an operator, a function and its arguments");
  return guarded([&]() -> PyObject* {
    hops::Restored tables(name);
    return PyObject_Vectorcall(args[1], args + 2, count - 2, nullptr);
  });
}

PyObject* name_this_thread(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  name_thread(text);
  Py_RETURN_NONE;
}

PyObject* counts(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    const auto found = hops::counts();
    PyObject* names = PyList_New(0);
    for (const auto& one : found.unboxable) {
      PyObject* text = PyUnicode_FromString(one.c_str());
      PyList_Append(names, text);
      Py_DECREF(text);
    }
    return Py_BuildValue("{sKsKsKsKsN}", "operators", found.operators, "kernels", found.wrapped, "missing", found.missing,
                         "fallthrough", found.fallthrough, "unboxable", names);
  });
}

thread_local Muted* muted = nullptr;
thread_local int muted_depth = 0;

PyObject* mute(PyObject*, PyObject*) {
  if (!muted_depth++) muted = new Muted;
  Py_RETURN_NONE;
}
PyObject* unmute(PyObject*, PyObject*) {
  if (muted_depth && !--muted_depth) {
    delete muted;
    muted = nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_own_mode", set_own_mode, METH_O, "Says which class of dispatch modes is the tracer's own."},
    {"rescan", rescan, METH_O, "Looks again at an operator whose registrations changed, or at all (\"\")."},
    {"restored", reinterpret_cast<PyCFunction>(restored), METH_FASTCALL, "Calls a function while the tables are PyTorch's own."},
    {"name_thread", name_this_thread, METH_O, "Names the calling thread for its lanes."},
    {"counts", counts, METH_NOARGS, "Entries of the dispatch tables by kind."},
    {"mute", mute, METH_NOARGS, "Hops of this thread are the tracer's own until unmute."},
    {"unmute", unmute, METH_NOARGS, "Ends what mute began."},
    {nullptr, nullptr, 0, nullptr}};

struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "dispatch_inspect_probe", "The native recorder.", -1, functions,
                             nullptr, nullptr, nullptr, nullptr};

void before_fork() {
  all_mutex.lock();
  threads::lock_for_fork();
}
void in_parent() {
  threads::unlock_after_fork();
  all_mutex.unlock();
}
void in_child() {
  for (auto& one : all_recorders())
    if (auto recorder = one.lock()) recorder->disown();
  threads::forget_after_fork();
  threads::unlock_after_fork();
  all_mutex.unlock();
}

PyObject* column_table(bool operands) {
  struct Column {
    const char* name;
    size_t size;
  };
#define ENTRY(name, type) {#name, sizeof(type)},
  static constexpr Column events[] = {DISPATCH_INSPECT_EVENT_COLUMNS(ENTRY)};
  static constexpr Column others[] = {DISPATCH_INSPECT_OPERAND_COLUMNS(ENTRY)};
#undef ENTRY
  PyObject* found = PyDict_New();
  auto add = [&](const Column& one) {
    PyObject* size = PyLong_FromSize_t(one.size);
    PyDict_SetItemString(found, one.name, size);
    Py_DECREF(size);
  };
  if (operands)
    for (const auto& one : others) add(one);
  else
    for (const auto& one : events) add(one);
  return found;
}

} // namespace

} // namespace dispatch_inspect

PyMODINIT_FUNC PyInit_dispatch_inspect_probe() {
  using namespace dispatch_inspect;
  PyObject* found = PyModule_Create(&module);
  if (!found) return nullptr;
  lane_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&lane_spec));
  PyObject* recorder_type = PyType_FromSpec(&recorder_spec);
  if (!lane_type || !recorder_type) return nullptr;
  PyModule_AddObject(found, "Lane", reinterpret_cast<PyObject*>(lane_type));
  PyModule_AddObject(found, "Recorder", recorder_type);
  if (!calls::add_types(found)) return nullptr;
  PyModule_AddObject(found, "EVENT_COLUMNS", column_table(false));
  PyModule_AddObject(found, "OPERAND_COLUMNS", column_table(true));
  PyModule_AddIntConstant(found, "CHUNK", kChunk);
  read_python_facts = python_facts;
  hops::describe_exception = describe_exception;
  hops::only_own_modes = only_own_modes;
  dispatch_inspect::python_node_name = python_node_name_of;
  ::pthread_atfork(before_fork, in_parent, in_child);
  return found;
}
