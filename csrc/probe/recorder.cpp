#include "recorder.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <cerrno>
#include <system_error>

#include "json.h"
#include "threads.h"

namespace dispatch_inspect {

namespace {

constexpr const char* kTables[] = {"names", "values", "descriptors", "states", "frames",
                                   "stacks", "nodes", "errors", "notes"};

std::atomic<uint64_t> next_serial{1};

int write_line(const std::string& path, const std::string& line) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  int error = 0;
  const ssize_t written = ::write(file, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    // a full disk cut the line: take it back, so that ids stay line numbers
    error = written < 0 ? errno : ENOSPC;
    struct stat status;
    if (written > 0 && ::fstat(file, &status) == 0 && ::ftruncate(file, status.st_size - written) < 0)
      error = errno;
  }
  ::close(file);
  return error;
}

} // namespace

uint64_t now_ns() {
  // time.perf_counter_ns of Python is this clock
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000ull + now.tv_nsec;
}

uint32_t Table::append(std::string line) {
  std::lock_guard<std::mutex> guard(mutex_);
  return append_locked(std::move(line));
}

uint32_t Table::append_locked(std::string line) {
  if (disowned_ || recorder_.closed()) return 0;
  if (line.empty() || line.back() != '\n') line += '\n';
  if (int error = write_line(path_, line)) {
    recorder_.stop(error);
    return 0;
  }
  return ++count_;
}

Recorder::Recorder(Options chosen)
    : options(std::move(chosen)),
      serial(next_serial++),
      names(*(tables_["names"] = std::make_unique<Table>(*this, options.directory + "/names.jsonl"))),
      values(*(tables_["values"] = std::make_unique<Table>(*this, options.directory + "/values.jsonl"))),
      descriptors(*(tables_["descriptors"] = std::make_unique<Table>(*this, options.directory + "/descriptors.jsonl"))),
      states(*(tables_["states"] = std::make_unique<Table>(*this, options.directory + "/states.jsonl"))),
      errors(*(tables_["errors"] = std::make_unique<Table>(*this, options.directory + "/errors.jsonl"))),
      nodes(*(tables_["nodes"] = std::make_unique<Table>(*this, options.directory + "/nodes.jsonl"))),
      free_(options.max_events) {
  for (const char* name : kTables)
    if (!tables_.count(name))
      tables_[name] = std::make_unique<Table>(*this, options.directory + "/" + name + ".jsonl");
}

std::shared_ptr<Lane> Recorder::open_lane(const std::string& thread_name) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (closed() || ended()) return nullptr;
  char number[16];
  std::snprintf(number, sizeof(number), "/lane=%05u", next_lane_++);
  std::string description = "{\"thread\":";
  json::text(description, thread_name);
  description += ",\"ident\":";
  json::natural(description, reinterpret_cast<uintptr_t>(reinterpret_cast<void*>(::pthread_self())));
#ifdef __linux__
  description += ",\"native_id\":";
  json::natural(description, ::syscall(SYS_gettid));
#endif
  description += "}\n";
  try {
    lanes_.push_back(std::make_shared<Lane>(*this, options.directory + number, description));
    return lanes_.back();
  } catch (const std::system_error& error) {
    stop(error.code().value());
    return nullptr;
  }
}

uint64_t Recorder::reserve(uint64_t rows) {
  if (ended() || closed()) return 0;
  std::lock_guard<std::mutex> guard(mutex_);
  // small grants, so that a lane does not hold what another could use
  if (free_ < 1ull << 40) rows = std::min<uint64_t>(rows, 256);
  const uint64_t granted = std::min(rows, free_);
  free_ -= granted;
  if (!granted && rows) ended_.store(kLimit);
  return granted;
}

void Recorder::stop(int error) {
  int none = 0;
  ended_.compare_exchange_strong(none, error);
}

void Recorder::close() {
  threads::deactivate(*this);
  std::lock_guard<std::mutex> guard(mutex_);
  const Lane* mine = threads::lane_of(*this);
  // lanes before tables: no event may begin that a table refuses to name
  for (auto& lane : lanes_) lane->close(lane.get() == mine);
  closed_.store(true);
}

void Recorder::disown() {
  closed_.store(true);
  for (auto& [name, table] : tables_) table->disown();
  for (auto& lane : lanes_) lane->disown();
}

uint64_t Recorder::event_count() {
  std::lock_guard<std::mutex> guard(mutex_);
  uint64_t count = 0;
  for (auto& lane : lanes_) count += lane->count();
  return count;
}

void Recorder::miss(const std::string& cause, uint64_t count) {
  std::lock_guard<std::mutex> guard(mutex_);
  missed_[cause] += count;
}

std::map<std::string, uint64_t> Recorder::missed() {
  std::lock_guard<std::mutex> guard(mutex_);
  return missed_;
}

bool Recorder::wants(const std::string& name) const {
  if (options.names.empty()) return true;
  for (const auto& pattern : options.names)
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  return false;
}

} // namespace dispatch_inspect
