// One thread's events, written as they begin and end: what store/lane_writer.py is in Python.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "layout.h"

namespace dispatch_inspect {

class Recorder;

// The numbers that describe a tensor of a call; 0 is none.
struct Operand {
  uint32_t descriptor = 0, tensor = 0, storage = 0, version = 0;
};

using Operands = std::vector<Operand>;

// What is known of an event when it begins; see the columns of the same names.
struct Beginning {
  uint8_t kind = kHop;
  uint64_t now = 0;
  uint32_t name = 0, module = 0, arguments = 0, state = 0, stack = 0, node = 0;
  uint64_t sequence = 0, node_sequence = 0, keyset = 0;
  uint8_t flags = 0;
};

// A column group's files and the chunk of them that is mapped.
template <class Rows>
class Columns {
 public:
  explicit Columns(std::string directory);
  ~Columns();
  // Allocates and maps the chunk that begins at row `begin`; returns 0 or an errno.
  int map(uint64_t begin);
  void unmap();
  // Writes one number of a row through the file.
  void write(size_t column, uint64_t row, uint64_t value) const;
  uint64_t read(size_t column, uint64_t row) const;
  void cut(uint64_t rows) const;

  Rows rows{};
  uint64_t begin = 0;
  bool mapped = false;

 private:
  std::string path(size_t column) const;
  std::string directory_;
};

struct EventRows {
#define MEMBER(name, type) type* name;
  DISPATCH_INSPECT_EVENT_COLUMNS(MEMBER)
};
struct OperandRows {
  DISPATCH_INSPECT_OPERAND_COLUMNS(MEMBER)
#undef MEMBER
};

// Only its own thread begins and ends events; any thread may close it.
class Lane {
 public:
  static constexpr int64_t kNoRow = -1;

  // Makes the directory and files. Throws std::system_error when the disk refuses.
  Lane(Recorder& recorder, const std::string& directory, const std::string& description);

  // Records that an event begins and returns its row, or kNoRow when recording is over.
  int64_t begin(const Beginning& what, const Operand* operands, size_t count);
  void end(int64_t row, uint64_t now, uint32_t result, const Operand* operands, size_t count);
  void fail(int64_t row, uint64_t now, uint32_t error);
  void note(int64_t row, uint32_t note);
  uint64_t read(size_t column, int64_t row) const;
  // Closes, as left by an exception, what is open above the `mark` outermost events.
  void unwind(size_t mark, uint64_t now, uint32_t error);
  // Forgets what is open above the `mark` outermost events; they stay open in the trace.
  void drop(size_t mark);
  size_t open() const { return open_.size(); }
  uint64_t count() const { return count_; }

  // Takes no more events; unused disk space is given back where the own thread cannot be writing.
  void close(bool cut);
  // The own thread ends.
  void finish();
  // A forked child: the mapped rows are the parent's.
  void disown();

 private:
  struct Open {
    int64_t row;
    uint16_t depth;
    uint32_t module;
    bool ended;
  };
  void close_event(int64_t row, uint64_t now, Outcome outcome, uint32_t error, uint32_t result,
                   uint64_t output_at, bool has_output);
  void leave(int64_t row);
  uint64_t write_operands(int64_t row, const Operand* operands, size_t count);
  bool make_room();
  bool is_mapped(int64_t row) const {
    return events_.mapped && row >= static_cast<int64_t>(events_.begin) &&
        row < static_cast<int64_t>(events_.begin + kChunk);
  }

  Recorder& recorder_;
  std::vector<Open> open_;
  Columns<EventRows> events_;
  Columns<OperandRows> operands_;
  uint64_t count_ = 0, operand_count_ = 0;
  // rows of the mapped chunk that may be used
  uint64_t limit_ = 0;
  std::atomic<bool> closed_{false}, finished_{false}, disowned_{false};
};

} // namespace dispatch_inspect
