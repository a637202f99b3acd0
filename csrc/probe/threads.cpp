#include "threads.h"

#include <pthread.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <fstream>
#include <utility>

namespace dispatch_inspect {

namespace {

// The recorders that record hops. A thread copies the list when its version has changed.
struct Active {
  std::mutex mutex;
  std::vector<std::shared_ptr<Recorder>> recorders;
  std::atomic<uint64_t> version{1};
  std::atomic<bool> any{false};
};

Active& active() {
  // never destroyed: threads of the autograd engine outlive static objects
  static Active* found = new Active;
  return *found;
}

struct Thread {
  // parts by recorder; a part stays until its recorder is closed and no hop is in progress
  std::vector<std::unique_ptr<ThreadPart>> parts, retired;
  std::vector<ThreadPart*> recording;
  uint64_t version = 0;
  size_t depth = 0, muted = 0;
  const char* announced = nullptr;
  std::string name;

  ~Thread() {
    for (auto& part : parts) part->lane->finish();
    for (auto& part : retired) part->lane->finish();
    gone() = true;
  }
  // whether the thread's own has been destroyed already: other destructors may still dispatch
  static bool& gone() {
    static thread_local bool found = false;
    return found;
  }
  ThreadPart* part(Recorder& recorder);
  void refresh();
  // Lets go of parts of closed recorders, at once or when no call is in progress.
  void retire();
};

Thread* current() {
  if (Thread::gone()) return nullptr;
  static thread_local Thread found;
  return &found;
}

// What the thread was named; one that was not has the name of the program.
std::string native_name() {
  char name[64] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof(name));
  std::string program;
  std::getline(std::ifstream("/proc/self/comm"), program);
  if (*name && program != name) return name;
#ifdef __linux__
  return "native thread " + std::to_string(::syscall(SYS_gettid));
#else
  return "native thread";
#endif
}

ThreadPart* Thread::part(Recorder& recorder) {
  for (auto& part : parts)
    if (part->recorder.get() == &recorder) return part.get();
  retire();
  auto lane = recorder.open_lane(name.empty() ? native_name() : name);
  if (!lane) return nullptr;
  auto made = std::make_unique<ThreadPart>();
  made->recorder = recorder.shared_from_this();
  made->lane = std::move(lane);
  parts.push_back(std::move(made));
  return parts.back().get();
}

void Thread::retire() {
  auto closed = std::stable_partition(parts.begin(), parts.end(), [](auto& part) { return !part->recorder->closed(); });
  std::move(closed, parts.end(), std::back_inserter(retired));
  parts.erase(closed, parts.end());
  if (!depth) retired.clear();
}

void Thread::refresh() {
  auto& shared = active();
  std::vector<std::shared_ptr<Recorder>> recorders;
  {
    std::lock_guard<std::mutex> guard(shared.mutex);
    recorders = shared.recorders;
    version = shared.version.load();
  }
  recording.clear();
  retire();
  for (auto& recorder : recorders)
    if (recorder->options.threads || recorder->owner == std::this_thread::get_id())
      if (auto* found = part(*recorder)) recording.push_back(found);
}

} // namespace

ThreadPart* Recorder::part() {
  Thread* thread = current();
  return thread && !closed() ? thread->part(*this) : nullptr;
}

void name_thread(std::string name) {
  if (Thread* thread = current()) thread->name = std::move(name);
}

Muted::Muted() {
  if (Thread* thread = current()) thread->muted++;
}
Muted::~Muted() {
  if (Thread* thread = current()) thread->muted--;
}

namespace threads {

void activate(std::shared_ptr<Recorder> recorder) {
  auto& shared = active();
  std::lock_guard<std::mutex> guard(shared.mutex);
  shared.recorders.push_back(std::move(recorder));
  shared.any.store(true);
  shared.version.fetch_add(1);
}

void deactivate(Recorder& recorder) {
  auto& shared = active();
  std::lock_guard<std::mutex> guard(shared.mutex);
  auto& all = shared.recorders;
  all.erase(std::remove_if(all.begin(), all.end(), [&](auto& one) { return one.get() == &recorder; }), all.end());
  shared.any.store(!all.empty());
  shared.version.fetch_add(1);
}

Lane* lane_of(const Recorder& recorder) {
  Thread* thread = current();
  if (thread)
    for (auto& part : thread->parts)
      if (part->recorder.get() == &recorder) return part->lane.get();
  return nullptr;
}

Inside::Inside() {
  if (Thread* thread = current()) thread->depth++;
}

Inside::~Inside() { leave(); }

bool any() { return active().any.load(std::memory_order_relaxed); }

const std::vector<ThreadPart*>& enter() {
  static const std::vector<ThreadPart*> nothing;
  Thread* thread = current();
  if (!thread) return nothing;
  thread->depth++;
  if (thread->muted) return nothing;
  if (thread->version != active().version.load(std::memory_order_acquire)) thread->refresh();
  return thread->recording;
}

void leave() {
  Thread* thread = current();
  if (thread && --thread->depth == 0 && !thread->retired.empty()) thread->retired.clear();
}

void lock_for_fork() { active().mutex.lock(); }

void unlock_after_fork() { active().mutex.unlock(); }

void forget_after_fork() {
  active().recorders.clear();
  active().any.store(false);
  active().version.fetch_add(1);
}

void announce(const char* name) {
  if (Thread* thread = current()) thread->announced = name;
}

const char* take_announced() {
  Thread* thread = current();
  return thread ? std::exchange(thread->announced, nullptr) : nullptr;
}

} // namespace threads

} // namespace dispatch_inspect
