#include "values.h"

#include <c10/core/MemoryFormat.h>

#include "json.h"

namespace dispatch_inspect {

namespace {

// elements kept of a long list without tensors; it says how many more there were
constexpr size_t kListLimit = 64;
// bytes of a text that are kept
constexpr size_t kTextLimit = 2000;

std::string dtype_name(int64_t number) {
  if (number < 0 || number >= static_cast<int64_t>(c10::ScalarType::NumOptions)) return std::to_string(number);
  return std::string(c10::getDtypeNames(static_cast<c10::ScalarType>(number)).first);
}

const char* layout_name(int64_t number) {
  constexpr const char* names[] = {"strided", "sparse_coo", "sparse_csr", "_mkldnn",
                                   "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"};
  return number >= 0 && number < 8 ? names[number] : "?";
}

const char* memory_format_name(int64_t number) {
  constexpr const char* names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return number >= 0 && number < 4 ? names[number] : "?";
}

std::string symbol(const c10::SymNode& node) {
  try {
    return node->str();
  } catch (...) {
    // a node of a foreign kind: it has no expression to show
    return "?";
  }
}

// Walks values once to make their key, and again to write them when they are new.
class Walk {
 public:
  Walk(ThreadPart& part, uint64_t since, Operands& operands) : part_(part), since_(since), operands_(operands) {}

  void key_of(const c10::IValue& value, Meaning meaning) {
    key.add(static_cast<uint64_t>(value.isTensor() ? 1 : 2));
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      key.add(tensor.defined());
      if (tensor.defined()) operands_.push_back(read_tensor(part_, tensor, since_));
    } else if (value.isInt()) {
      key.add(3);
      key.add(value.toInt());
      key.add(static_cast<uint64_t>(meaning));
    } else if (value.isNone()) {
      key.add(4);
    } else if (value.isBool()) {
      key.add(5 + value.toBool());
    } else if (value.isDouble()) {
      const double number = value.toDouble();
      uint64_t bits;
      std::memcpy(&bits, &number, sizeof(bits));
      key.add(7);
      key.add(bits);
    } else if (value.isList()) {
      const auto list = value.toListRef();
      key.add(8);
      key.add(list.size());
      const size_t count = kept(list);
      for (size_t i = 0; i < count; i++) key_of(list[i], meaning);
    } else if (value.isTuple()) {
      const auto& elements = value.toTupleRef().elements();
      key.add(9);
      key.add(elements.size());
      for (const auto& one : elements) key_of(one, meaning);
    } else {
      std::string text;
      write(text, value, meaning);
      key.add(10);
      key.add(text);
    }
  }

  static void write(std::string& out, const c10::IValue& value, Meaning meaning) {
    auto named = [&](const char* kind, std::string_view name) {
      out += std::string("{\"") + kind + "\":";
      json::text(out, name);
      out += '}';
    };
    if (value.isTensor()) {
      out += value.toTensor().defined() ? "{\"tensor\":null}" : "null";
    } else if (value.isInt()) {
      const int64_t number = value.toInt();
      switch (meaning) {
        case Meaning::kDtype: return named("dtype", dtype_name(number));
        case Meaning::kLayout: return named("layout", layout_name(number));
        case Meaning::kMemoryFormat: return named("memory_format", memory_format_name(number));
        default: json::number(out, number);
      }
    } else if (value.isUnsigned()) {
      json::natural(out, value.toUInt());
    } else if (value.isNone()) {
      out += "null";
    } else if (value.isBool()) {
      out += value.toBool() ? "true" : "false";
    } else if (value.isDouble()) {
      const double number = value.toDouble();
      if (std::isfinite(number))
        out += json::real(number);
      else
        named("float", json::real(number));
    } else if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      out += "{\"complex\":[\"" + json::real(number.real()) + "\",\"" + json::real(number.imag()) + "\"]}";
    } else if (value.isString()) {
      const auto& text = value.toStringRef();
      if (text.size() <= kTextLimit) return json::text(out, text);
      out += "{\"text\":";
      json::text(out, std::string_view(text).substr(0, kTextLimit));
      out += ",\"length\":" + std::to_string(text.size()) + "}";
    } else if (value.isDevice()) {
      named("device", value.toDevice().str());
    } else if (value.isSymInt()) {
      named("symbol", symbol(value.toSymInt().toSymNode()));
    } else if (value.isSymFloat()) {
      named("symbol", symbol(value.toSymFloat().toSymNodeImpl()));
    } else if (value.isSymBool()) {
      named("symbol", symbol(value.toSymBool().toSymNodeImpl()));
    } else if (value.isList()) {
      const auto list = value.toListRef();
      const size_t count = kept(list);
      out += '[';
      for (size_t i = 0; i < count; i++) {
        if (i) out += ',';
        write(out, list[i], meaning);
      }
      if (count < list.size()) out += ",{\"more\":" + std::to_string(list.size() - count) + "}";
      out += ']';
    } else if (value.isTuple()) {
      const auto& elements = value.toTupleRef().elements();
      out += "{\"tuple\":[";
      for (size_t i = 0; i < elements.size(); i++) {
        if (i) out += ',';
        write(out, elements[i], meaning);
      }
      out += "]}";
    } else if (value.isGenerator()) {
      named("object", "torch._C.Generator");
    } else {
      named("object", value.tagKind());
    }
  }

  Key key;

 private:
  static size_t kept(c10::ArrayRef<c10::IValue> list) {
    if (list.size() <= kListLimit) return list.size();
    for (size_t i = 0; i < kListLimit; i++)
      if (list[i].isTensor()) return list.size();
    return kListLimit;
  }

  ThreadPart& part_;
  uint64_t since_;
  Operands& operands_;
};

} // namespace

uint32_t read_values(ThreadPart& part, const c10::IValue* values, size_t count, const Meaning* meanings,
                     uint64_t since, Operands& operands) {
  Walk walk(part, since, operands);
  walk.key.add(count);
  for (size_t i = 0; i < count; i++) walk.key_of(values[i], meanings ? meanings[i] : Meaning::kNumber);
  return part.values.intern(part.recorder->values, walk.key, [&] {
    std::string out = "{\"args\":[";
    for (size_t i = 0; i < count; i++) {
      if (i) out += ',';
      Walk::write(out, values[i], meanings ? meanings[i] : Meaning::kNumber);
    }
    return out + "]}";
  });
}

} // namespace dispatch_inspect
