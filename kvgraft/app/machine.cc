// What the operating system says about this process: its cores and its own path.
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "kvgraft/app/config.h"

#ifdef __linux__
#include <sched.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace kvgraft::app {
namespace {

#ifdef __linux__
// Cores among the processors that the affinity mask allows; 0 when unknown.
uint32_t AffinityCores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 0;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = "cpu" + std::to_string(cpu);
    cores.insert(siblings);
  }
  return static_cast<uint32_t>(cores.size());
}

// Whole cores of the control group's quota, at least 1; 0: no limit.
uint32_t QuotaCores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // "max 100000" or "200000 100000"
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return quota < period ? 1 : static_cast<uint32_t>(quota / period);
}
#endif

}  // namespace

uint32_t UsableCores() {
  uint32_t cores = 0;
#ifdef __linux__
  cores = AffinityCores();
  if (const uint32_t quota = QuotaCores(); quota > 0 && (cores == 0 || quota < cores))
    cores = quota;
#endif
  if (cores == 0) cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : cores;
}

std::string ProgramPath() {
  char path[PATH_MAX + 1] = {};
#ifdef __APPLE__
  uint32_t size = PATH_MAX;
  char raw[PATH_MAX + 1] = {};
  if (_NSGetExecutablePath(raw, &size) != 0 || realpath(raw, path) == nullptr) return "";
  return path;
#else
  const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
  return n <= 0 ? "" : std::string(path, static_cast<size_t>(n));
#endif
}

}  // namespace kvgraft::app
