// One process's part of a trace: tables of records, a lane for each thread, identities of tensors.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "hashing.h"
#include "lane.h"
#include "tensors.h"

namespace dispatch_inspect {

// One JSON Lines file. Ids are line numbers from 1; 0 says that the disk refused.
class Table {
 public:
  Table(Recorder& recorder, std::string path) : recorder_(recorder), path_(std::move(path)) {}
  uint32_t append(std::string line);
  // The id of what `key` stands for; `make` writes it at first sight.
  template <class Make>
  uint32_t intern(const Key& key, Make&& make) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = ids_.find(key);
    if (found != ids_.end()) return found->second;
    if (ids_.size() >= kMemory) ids_.clear();
    const uint32_t id = append_locked(make());
    if (id) ids_.emplace(key, id);
    return id;
  }
  void disown() { disowned_ = true; }
  std::mutex& mutex() { return mutex_; }

  // records a table remembers; then it forgets all and writes them again when they come back
  static constexpr size_t kMemory = 16384;

 private:
  uint32_t append_locked(std::string line);
  Recorder& recorder_;
  std::string path_;
  std::mutex mutex_;
  std::unordered_map<Key, uint32_t, KeyHash> ids_;
  uint32_t count_ = 0;
  std::atomic<bool> disowned_{false};
};

// What a thread remembers of a recorder's tables, so that it need not take their locks.
class Memory {
 public:
  template <class Make>
  uint32_t intern(Table& table, const Key& key, Make&& make) {
    return find_or(key, [&] { return table.intern(key, std::forward<Make>(make)); });
  }

  // Likewise for what is written elsewhere: `find` returns its number, 0 when there is none.
  template <class Find>
  uint32_t find_or(const Key& key, Find&& find) {
    Recent& recent = recent_[key.low % recent_.size()];
    if (recent.id && recent.key == key) return recent.id;
    auto known = ids_.find(key);
    const uint32_t id = known != ids_.end() ? known->second : find();
    if (!id) return 0;
    if (known == ids_.end()) {
      if (ids_.size() >= Table::kMemory) ids_.clear();
      ids_.emplace(key, id);
    }
    recent = {key, id};
    return id;
  }

 private:
  struct Recent {
    Key key;
    uint32_t id = 0;
  };
  // what was asked last, by its key: most calls are like the ones before
  std::array<Recent, 512> recent_;
  std::unordered_map<Key, uint32_t, KeyHash> ids_;
};

// What one thread needs to record: its lane and what it remembers.
struct ThreadPart {
  std::shared_ptr<Recorder> recorder;
  std::shared_ptr<Lane> lane;
  Memory descriptors, values, states, names, errors, nodes;
  // numbers of values that the Python side has read
  Memory python_values;
  Identities identities;
  // whether hops are wanted here, see Options::gated
  bool wanted = false;
  // numbers of autograd nodes by the address of their type's name
  std::unordered_map<const void*, uint32_t> node_types;
  // the last state that was read
  struct {
    uint64_t included = 0, excluded = 0;
    uint8_t modes = 0;
    uint32_t id = 0;
  } state;
};

struct Options {
  std::string directory;
  uint64_t max_events = ~0ull;
  bool hops = false;
  // whether threads other than the first are recorded
  bool threads = true;
  // whether hops are recorded only where the Python side says so: inside chosen modules
  bool gated = false;
  // glob patterns of operators; empty for all
  std::vector<std::string> names;
};

class Recorder : public std::enable_shared_from_this<Recorder> {
  std::map<std::string, std::unique_ptr<Table>> tables_;

 public:
  explicit Recorder(Options options);

  const Options options;
  const uint64_t serial;
  const std::thread::id owner = std::this_thread::get_id();
  std::atomic<bool> paused{false};
  // whether any tensor read so far was complex: from then on views may have conjugate bits
  std::atomic<bool> saw_complex{false};

  Table& table(const std::string& name) { return *tables_.at(name); }
  Table &names, &values, &descriptors, &states, &errors, &nodes;
  TensorNumbers numbers;

  // The calling thread's part, made at its first call; null when recording is over.
  ThreadPart* part();
  std::shared_ptr<Lane> open_lane(const std::string& description);

  uint64_t reserve(uint64_t rows);
  // The disk refused.
  void stop(int error);
  // 0, an errno, or kLimit
  static constexpr int kLimit = -1;
  int ended() const { return ended_.load(std::memory_order_relaxed); }
  void close();
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  void disown();
  uint64_t event_count();

  // Calls that are known not to be recorded, by cause.
  void miss(const std::string& cause, uint64_t count = 1);
  std::map<std::string, uint64_t> missed();

  // Whether a name is wanted; kept by the caller.
  bool wants(const std::string& name) const;

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::map<std::string, uint64_t> missed_;
  uint64_t free_;
  uint32_t next_lane_ = 0;
  std::atomic<int> ended_{0};
  std::atomic<bool> closed_{false};
};

// Names the calling thread for the lanes that it may get.
void name_thread(std::string name);

// While one lives, nothing that its thread dispatches is recorded: the tracer's own work.
struct Muted {
  Muted();
  ~Muted();
};

uint64_t now_ns();

} // namespace dispatch_inspect
