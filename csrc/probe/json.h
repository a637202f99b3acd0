// Text of JSON records: the few pieces that the records need.
#pragma once

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

namespace dispatch_inspect::json {

// A text in quotes. Bytes that are not UTF-8 become question marks, as a record must be readable.
inline void text(std::string& out, std::string_view value) {
  out += '"';
  for (size_t i = 0; i < value.size(); i++) {
    const unsigned char c = value[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else if (c < 0x80) {
      out += c;
    } else {
      const size_t length = c >= 0xF0 && c < 0xF5 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 0;
      bool valid = length && c < 0xF5 && i + length <= value.size();
      for (size_t k = 1; valid && k < length; k++) valid = (value[i + k] & 0xC0) == 0x80;
      // neither surrogates nor overlong forms
      if (valid && length == 3) {
        const unsigned char next = value[i + 1];
        valid = !(c == 0xED && next >= 0xA0) && !(c == 0xE0 && next < 0xA0);
      }
      if (valid && length == 4) {
        const unsigned char next = value[i + 1];
        valid = !(c == 0xF0 && next < 0x90) && !(c == 0xF4 && next >= 0x90);
      }
      if (valid) {
        out.append(value.substr(i, length));
        i += length - 1;
      } else {
        out += '?';
      }
    }
  }
  out += '"';
}

inline void number(std::string& out, int64_t value) { out += std::to_string(value); }
inline void natural(std::string& out, uint64_t value) { out += std::to_string(value); }

// A float as Python writes it back: the shortest of 17 digits that is the same number.
inline std::string real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[40];
  for (int precision = 15; precision <= 17; precision++) {
    std::snprintf(digits, sizeof(digits), "%.*g", precision, value);
    if (std::strtod(digits, nullptr) == value) break;
  }
  std::string found = digits;
  if (found.find_first_of(".en") == std::string::npos) found += ".0";
  return found;
}

} // namespace dispatch_inspect::json
