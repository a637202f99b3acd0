#include "lane.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "recorder.h"

namespace dispatch_inspect {

namespace {

struct Column {
  const char* name;
  size_t size;
};

#define ENTRY(name, type) {#name, sizeof(type)},
constexpr Column kEventColumns[] = {DISPATCH_INSPECT_EVENT_COLUMNS(ENTRY)};
constexpr Column kOperandColumns[] = {DISPATCH_INSPECT_OPERAND_COLUMNS(ENTRY)};
#undef ENTRY

template <class Rows>
struct Group;
template <>
struct Group<EventRows> {
  static constexpr auto& columns = kEventColumns;
  static constexpr size_t count = sizeof(kEventColumns) / sizeof(Column);
};
template <>
struct Group<OperandRows> {
  static constexpr auto& columns = kOperandColumns;
  static constexpr size_t count = sizeof(kOperandColumns) / sizeof(Column);
};

enum EventColumn : size_t {
#define ENTRY(name, type) k_##name,
  DISPATCH_INSPECT_EVENT_COLUMNS(ENTRY)
#undef ENTRY
};

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Reserves disk space, filled with zeros: a full disk is an error here, never a signal later.
int allocate(int descriptor, off_t offset, off_t length) {
#ifdef __linux__
  int found;
  do {
    found = posix_fallocate(descriptor, offset, length);
  } while (found == EINTR);
  if (found != EINVAL && found != EOPNOTSUPP) return found;
#endif
  const std::string zeros(1 << 16, '\0');
  for (off_t written = 0; written < length;) {
    size_t part = std::min<off_t>(length - written, zeros.size());
    ssize_t done = ::pwrite(descriptor, zeros.data(), part, offset + written);
    if (done < 0 && errno != EINTR) return errno;
    if (done > 0) written += done;
  }
  return 0;
}

constexpr uint16_t kDeepest = 65535;

} // namespace

template <class Rows>
Columns<Rows>::Columns(std::string directory) : directory_(std::move(directory)) {}

template <class Rows>
Columns<Rows>::~Columns() {
  unmap();
}

template <class Rows>
std::string Columns<Rows>::path(size_t column) const {
  return directory_ + "/" + Group<Rows>::columns[column].name + ".bin";
}

template <class Rows>
int Columns<Rows>::map(uint64_t first) {
  void* found[Group<Rows>::count];
  size_t done = 0;
  int error = 0;
  for (; done < Group<Rows>::count && !error; done++) {
    const size_t size = Group<Rows>::columns[done].size, length = kChunk * size;
    const off_t offset = first * size;
    File file(path(done), O_RDWR | O_CREAT);
    error = file.get() < 0 ? errno : allocate(file.get(), offset, length);
    if (error) break;
    int flags = MAP_SHARED;
#ifdef MAP_POPULATE
    // a trace that has filled a chunk will fill the next: its pages at once, not fault by fault
    if (first) flags |= MAP_POPULATE;
#endif
    found[done] = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, file.get(), offset);
    if (found[done] == MAP_FAILED) {
      error = errno;
      break;
    }
  }
  if (error) {
    while (done-- > 0) ::munmap(found[done], kChunk * Group<Rows>::columns[done].size);
    return error;
  }
  unmap();
  std::memcpy(&rows, found, sizeof(rows));
  begin = first;
  mapped = true;
  return 0;
}

template <class Rows>
void Columns<Rows>::unmap() {
  if (!mapped) return;
  mapped = false;
  void* found[Group<Rows>::count];
  std::memcpy(found, &rows, sizeof(rows));
  for (size_t i = 0; i < Group<Rows>::count; i++) ::munmap(found[i], kChunk * Group<Rows>::columns[i].size);
}

template <class Rows>
void Columns<Rows>::write(size_t column, uint64_t row, uint64_t value) const {
  const size_t size = Group<Rows>::columns[column].size;
  File file(path(column), O_WRONLY);
  // little-endian: the low bytes are the number. The row was allocated, so there is room for it
  if (file.get() >= 0 && ::pwrite(file.get(), &value, size, row * size) < 0) return;
}

template <class Rows>
uint64_t Columns<Rows>::read(size_t column, uint64_t row) const {
  const size_t size = Group<Rows>::columns[column].size;
  uint64_t value = 0;
  File file(path(column), O_RDONLY);
  if (file.get() < 0 || ::pread(file.get(), &value, size, row * size) < 0) return 0;
  return value;
}

template <class Rows>
void Columns<Rows>::cut(uint64_t count) const {
  for (size_t i = 0; i < Group<Rows>::count; i++)
    if (::truncate(path(i).c_str(), count * Group<Rows>::columns[i].size) < 0) continue;
}

template class Columns<EventRows>;
template class Columns<OperandRows>;

Lane::Lane(Recorder& recorder, const std::string& directory, const std::string& description)
    : recorder_(recorder), events_(directory), operands_(directory) {
  auto refuse = [](int error) { throw std::system_error(error, std::generic_category()); };
  if (::mkdir(directory.c_str(), 0777) < 0) refuse(errno);
  {
    File file(directory + "/lane.json", O_WRONLY | O_CREAT);
    if (file.get() < 0) refuse(errno);
    if (::write(file.get(), description.data(), description.size()) !=
        static_cast<ssize_t>(description.size()))
      refuse(ENOSPC);
  }
  if (int error = events_.map(0)) refuse(error);
  if (int error = operands_.map(0)) refuse(error);
}

bool Lane::make_room() {
  if (closed_.load(std::memory_order_relaxed)) return false;
  if (count_ - events_.begin >= kChunk) {
    if (int error = events_.map(events_.begin + kChunk)) {
      recorder_.stop(error);
      return false;
    }
    limit_ = 0;
  }
  uint64_t granted = recorder_.reserve(kChunk - limit_);
  limit_ += granted;
  return granted > 0;
}

int64_t Lane::begin(const Beginning& what, const Operand* operands, size_t count) {
  if (closed_.load(std::memory_order_relaxed)) return kNoRow;
  if (count_ - events_.begin >= limit_ && !make_room()) return kNoRow;
  const int64_t row = count_++;
  const size_t at = row - events_.begin;
  const EventRows& rows = events_.rows;
  uint16_t depth = 0;
  uint32_t module = what.module;
  if (!open_.empty()) {
    const Open& parent = open_.back();
    depth = parent.depth < kDeepest ? parent.depth + 1 : kDeepest;
    rows.parent[at] = parent.row + 1;
    rows.depth[at] = depth;
    if (!module) module = parent.module;
  }
  rows.name[at] = what.name;
  rows.module[at] = module;
  rows.arguments[at] = what.arguments;
  if (count) rows.input_at[at] = write_operands(row, operands, count);
  rows.state[at] = what.state;
  rows.stack[at] = what.stack;
  rows.sequence[at] = what.sequence;
  if (what.node) {
    rows.node[at] = what.node;
    rows.node_sequence[at] = what.node_sequence;
  }
  rows.keyset[at] = what.keyset;
  rows.flags[at] = what.flags;
  rows.begin_ns[at] = what.now;
  open_.push_back({row, depth, module, false});
  // a program killed from here on leaves this event
  std::atomic_signal_fence(std::memory_order_seq_cst);
  rows.kind[at] = what.kind;
  return row;
}

void Lane::end(int64_t row, uint64_t now, uint32_t result, const Operand* operands, size_t count) {
  if (row == kNoRow) return;
  uint64_t output_at = 0;
  const bool writable = !closed_.load(std::memory_order_relaxed);
  if (count && writable) output_at = write_operands(row, operands, count);
  close_event(row, now, kReturned, 0, result, output_at, count > 0);
}

void Lane::fail(int64_t row, uint64_t now, uint32_t error) {
  if (row != kNoRow) close_event(row, now, kRaised, error, 0, 0, false);
}

void Lane::close_event(int64_t row, uint64_t now, Outcome outcome, uint32_t error, uint32_t result,
                       uint64_t output_at, bool has_output) {
  if (!closed_.load(std::memory_order_relaxed)) {
    if (is_mapped(row)) {
      const size_t at = row - events_.begin;
      const EventRows& rows = events_.rows;
      if (has_output) rows.output_at[at] = output_at;
      rows.result[at] = result;
      rows.error[at] = error;
      rows.end_ns[at] = now;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      rows.outcome[at] = outcome;
    } else {
      if (has_output) events_.write(k_output_at, row, output_at);
      if (result) events_.write(k_result, row, result);
      if (error) events_.write(k_error, row, error);
      events_.write(k_end_ns, row, now);
      events_.write(k_outcome, row, outcome);
    }
  }
  leave(row);
}

// Takes an ended event off the stack; it keeps what is still open inside it.
void Lane::leave(int64_t row) {
  size_t place = open_.size();
  while (place > 0 && open_[place - 1].row != row) place--;
  if (!place) return;
  open_[place - 1].ended = true;
  while (!open_.empty() && open_.back().ended) {
    const int64_t ended = open_.back().row;
    open_.pop_back();
    if (closed_.load(std::memory_order_relaxed)) continue;
    if (is_mapped(ended))
      events_.rows.subtree_end[ended - events_.begin] = count_;
    else
      events_.write(k_subtree_end, ended, count_);
  }
}

void Lane::note(int64_t row, uint32_t note) {
  if (row == kNoRow || closed_.load(std::memory_order_relaxed)) return;
  if (is_mapped(row))
    events_.rows.note[row - events_.begin] = note;
  else
    events_.write(k_note, row, note);
}

uint64_t Lane::read(size_t column, int64_t row) const {
  if (closed_.load(std::memory_order_relaxed) || !is_mapped(row)) return 0;
  const void* columns[Group<EventRows>::count];
  std::memcpy(columns, &events_.rows, sizeof(columns));
  const size_t size = kEventColumns[column].size;
  uint64_t value = 0;
  std::memcpy(&value, static_cast<const char*>(columns[column]) + (row - events_.begin) * size, size);
  return value;
}

void Lane::unwind(size_t mark, uint64_t now, uint32_t error) {
  while (open_.size() > mark) fail(open_.back().row, now, error);
}

void Lane::drop(size_t mark) {
  if (open_.size() > mark) open_.resize(mark);
}

uint64_t Lane::write_operands(int64_t row, const Operand* operands, size_t count) {
  const uint64_t first = operand_count_;
  for (size_t i = 0; i < count; i++, operand_count_++) {
    if (operand_count_ - operands_.begin >= kChunk) {
      if (int error = operands_.map(operands_.begin + kChunk)) {
        recorder_.stop(error);
        return first;
      }
    }
    const size_t at = operand_count_ - operands_.begin;
    const OperandRows& rows = operands_.rows;
    rows.operand_event[at] = row;
    rows.operand_descriptor[at] = operands[i].descriptor;
    rows.operand_tensor[at] = operands[i].tensor;
    rows.operand_storage[at] = operands[i].storage;
    rows.operand_version[at] = operands[i].version;
  }
  return first;
}

void Lane::close(bool cut) {
  closed_.store(true);
  if (disowned_.load()) return;
  if (cut || finished_.load()) {
    events_.cut(count_);
    operands_.cut(operand_count_);
  }
}

void Lane::finish() {
  finished_.store(true);
  if (disowned_.load()) return;
  if (closed_.load()) {
    events_.cut(count_);
    operands_.cut(operand_count_);
  }
  events_.unmap();
  operands_.unmap();
  closed_.store(true);
}

void Lane::disown() {
  disowned_.store(true);
  closed_.store(true);
}

} // namespace dispatch_inspect
