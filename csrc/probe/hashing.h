// 128-bit keys of what is interned: two records alike in all 128 bits are taken as the same.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace dispatch_inspect {

struct Key {
  uint64_t low = 0x9E3779B97F4A7C15ull, high = 0xC2B2AE3D27D4EB4Full;

  void add(uint64_t value) {
    low = (low ^ value) * 0xFF51AFD7ED558CCDull;
    low ^= low >> 32;
    high = (high + value) * 0xC4CEB9FE1A85EC53ull;
    high ^= high >> 29;
  }
  void add(std::string_view text) {
    add(text.size());
    while (!text.empty()) {
      uint64_t part = 0;
      const size_t size = text.size() < 8 ? text.size() : 8;
      std::memcpy(&part, text.data(), size);
      add(part);
      text.remove_prefix(size);
    }
  }
  bool operator==(const Key& other) const { return low == other.low && high == other.high; }
};

struct KeyHash {
  size_t operator()(const Key& key) const { return key.low ^ key.high; }
};

} // namespace dispatch_inspect
