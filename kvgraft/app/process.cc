#include "kvgraft/app/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

extern char** environ;

namespace kvgraft::app {
namespace {

// Both ends of a pipe, closed on exec and at the end of scope.
struct Pipe {
  int read_end = -1, write_end = -1;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  Status Open() {
    int ends[2];
    if (pipe(ends) != 0) return Status(Code::kIo, std::string("pipe: ") + std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
    for (int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
    return Status::Ok();
  }
  void CloseRead() {
    if (int fd = std::exchange(read_end, -1); fd >= 0) close(fd);
  }
  void CloseWrite() {
    if (int fd = std::exchange(write_end, -1); fd >= 0) close(fd);
  }
};

std::vector<std::string> Environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable(*at);
    bool replaced = false;
    for (const auto& [name, value] : changes) {
      replaced |= variable.substr(0, variable.find('=')) == name;
    }
    if (!replaced) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : changes) variables.push_back(name + "=" + value);
  return variables;
}

// Feeds `input` and collects output at the same time, so that neither pipe can fill up and block.
void Exchange(std::string_view input, Pipe* in, Pipe* out, std::string* output) {
  fcntl(in->write_end, F_SETFL, O_NONBLOCK);
  char buffer[65536];
  if (input.empty()) in->CloseWrite();
  while (out->read_end >= 0) {
    pollfd fds[2] = {{out->read_end, POLLIN, 0}, {in->write_end, POLLOUT, 0}};
    if (poll(fds, in->write_end >= 0 ? 2 : 1, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (in->write_end >= 0 && fds[1].revents != 0) {
      const ssize_t n = write(in->write_end, input.data(), input.size());
      if (n > 0) input.remove_prefix(static_cast<size_t>(n));
      const bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
      if (input.empty() || (n < 0 && !again)) in->CloseWrite();
    }
    if (fds[0].revents != 0) {
      const ssize_t n = read(out->read_end, buffer, sizeof(buffer));
      if (n > 0) output->append(buffer, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR)) out->CloseRead();
    }
  }
}

}  // namespace

Result<ProcessResult> RunProcess(const std::vector<std::string>& argv,
                                 const ProcessOptions& options) {
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  const std::vector<std::string> variables = Environment(options.environment);
  std::vector<char*> envp;
  for (const std::string& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
  envp.push_back(nullptr);

  Pipe in, out;
  KVG_RETURN(in.Open());
  KVG_RETURN(out.Open());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.input) posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Status(Code::kIo, "cannot run '" + argv[0] + "': " + std::strerror(error));
  }
  in.CloseRead();
  out.CloseWrite();

  ProcessResult result;
  // A child that ends early must not end us with SIGPIPE.
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  Exchange(options.input.value_or(""), &in, &out, &result.output);
  sigaction(SIGPIPE, &before, nullptr);
  int state = 0;
  while (waitpid(pid, &state, 0) < 0) {
    if (errno != EINTR) return Status(Code::kIo, std::string("waitpid: ") + std::strerror(errno));
  }
  result.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return result;
}

}  // namespace kvgraft::app
