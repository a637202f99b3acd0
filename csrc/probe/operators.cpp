#include "operators.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/jit_type.h>

#include <map>
#include <set>
#include <sstream>

#include "json.h"

namespace dispatch_inspect {

namespace {

Meaning meaning_of(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType: return Meaning::kDtype;
    case c10::TypeKind::LayoutType: return Meaning::kLayout;
    case c10::TypeKind::MemoryFormatType: return Meaning::kMemoryFormat;
    case c10::TypeKind::OptionalType: return meaning_of(type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType: return meaning_of(type->expectRef<c10::ListType>().getElementType());
    default: return Meaning::kNumber;
  }
}

std::string alias_of(const c10::Argument& argument) {
  const auto* info = argument.alias_info();
  if (!info) return "";
  std::set<std::string> sets;
  for (const auto& one : info->beforeSets()) sets.insert(one.toUnqualString());
  std::string found;
  for (const auto& one : sets) found += (found.empty() ? "" : "|") + one;
  return found + (info->isWrite() ? "!" : "");
}

void list(std::string& out, const char* name, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  out += std::string(",\"") + name + "\":[";
  for (size_t i = 0; i < texts.size(); i++) {
    if (i) out += ',';
    json::text(out, texts[i]);
  }
  out += ']';
}

} // namespace

void read_schema(Operator& found, const c10::impl::OperatorEntry& entry) {
  const auto& schema = entry.schema();
  found.argument_count = schema.arguments().size();
  found.return_count = schema.returns().size();
  found.arguments.clear();
  found.returns.clear();
  for (const auto& one : schema.arguments()) found.arguments.push_back(meaning_of(one.real_type()));
  for (const auto& one : schema.returns()) found.returns.push_back(meaning_of(one.real_type()));
  found.returns_list =
      found.return_count == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
  found.observed = entry.isObserved();
}

std::string operator_record(const c10::impl::OperatorEntry& entry) {
  const auto& schema = entry.schema();
  std::string out = "{\"kind\":\"op\",\"name\":";
  json::text(out, c10::toString(entry.operator_name()));
  std::ostringstream schema_text;
  schema_text << schema;
  out += ",\"schema_text\":";
  json::text(out, schema_text.str());
  std::vector<std::string> names, aliases, returned;
  for (const auto& one : schema.arguments()) {
    names.push_back(one.name());
    aliases.push_back(alias_of(one));
  }
  for (const auto& one : schema.returns()) returned.push_back(alias_of(one));
  list(out, "arguments", names);
  list(out, "argument_aliases", aliases);
  list(out, "return_aliases", returned);
  // text of a kernel -> the keys it answers, in the order in which PyTorch prints them
  std::vector<std::pair<std::string, std::vector<std::string>>> kernels;
  std::map<std::string, size_t> places;
  std::istringstream table(entry.dumpComputedTable());
  for (std::string line; std::getline(table, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos || colon + 2 >= line.size()) continue;
    const std::string text = line.substr(colon + 2);
    const auto [place, is_new] = places.emplace(text, kernels.size());
    if (is_new) kernels.emplace_back(text, std::vector<std::string>());
    kernels[place->second].second.push_back(line.substr(0, colon));
  }
  if (!kernels.empty()) {
    out += ",\"kernels\":{";
    for (size_t i = 0; i < kernels.size(); i++) {
      if (i) out += ',';
      json::text(out, kernels[i].first);
      out += ":[";
      for (size_t k = 0; k < kernels[i].second.size(); k++) {
        if (k) out += ',';
        json::text(out, kernels[i].second[k]);
      }
      out += ']';
    }
    out += '}';
  }
  return out + "}";
}

} // namespace dispatch_inspect
