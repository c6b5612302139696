#include "drivers/data/unpacker.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "execution/error.hpp"

extern char** environ;  // POSIX asks for this declaration

namespace stowage::drivers {
namespace {

constexpr std::string_view kFromStandardInput = " -dc";

ssize_t read_some(int from, char* to, std::size_t bytes) {
  ssize_t got = 0;
  do got = ::read(from, to, bytes);
  while (got < 0 && errno == EINTR);
  return got;
}

std::string all_of(int from) {
  std::string all;
  char block[256];
  for (ssize_t got = 0; (got = read_some(from, block, sizeof(block))) > 0;)
    all.append(block, static_cast<std::size_t>(got));
  while (all.ends_with('\n')) all.pop_back();
  std::ranges::replace(all, '\n', ' ');
  return all;
}

}  // namespace

bool Unpacker::knows(const inputs::FileForm& form) {
  return form.unpack.ends_with(kFromStandardInput);
}

Unpacker::Unpacker(const std::string& path, const inputs::FileForm& form)
    : path_(path),
      program_(form.unpack.substr(0, form.unpack.size() - kFromStandardInput.size())),
      form_(form) {
  const int in = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int out[2] = {-1, -1}, said[2] = {-1, -1};
  if (in < 0) execution::throw_usage("'{}' cannot be read: {}", path, std::strerror(errno));
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(said, O_CLOEXEC) != 0)
    throw execution::Error(execution::Exit::runtime,
                           fmt::format("'{}': no pipe: {}", path, std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, said[1], STDERR_FILENO);
  std::string option = "-dc";
  char* const arguments[] = {program_.data(), option.data(), nullptr};
  const int fault =
      ::posix_spawnp(&child_, program_.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  for (const int end : {in, out[1], said[1]}) ::close(end);
  out_ = out[0];
  said_ = said[0];
  if (fault == 0) return;
  child_ = -1;
  for (const int end : {out_, said_}) ::close(end);
  throw execution::Error(
      execution::Exit::environment,
      fmt::format("'{}': {} data, which the program {} unpacks: it cannot be run: {}", path,
                  form.name, program_, std::strerror(fault)));
}

Unpacker::~Unpacker() {
  for (const int end : {out_, said_}) ::close(end);  // one that still writes ends by that
  if (child_ > 0) ::waitpid(child_, nullptr, 0);
}

std::size_t Unpacker::read(std::span<char> to) {
  std::size_t filled = 0;
  while (filled < to.size()) {
    const ssize_t got = read_some(out_, to.data() + filled, to.size() - filled);
    if (got < 0)
      throw execution::Error(execution::Exit::runtime, fmt::format("'{}': cannot be read on: {}",
                                                                   path_, std::strerror(errno)));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  if (filled < to.size()) require_whole();
  return filled;
}

void Unpacker::require_whole() {
  if (child_ < 0) return;
  const std::string said = all_of(said_);
  int status = 0;
  pid_t ended = 0;
  do ended = ::waitpid(child_, &status, 0);
  while (ended < 0 && errno == EINTR);
  child_ = -1;
  if (ended < 0)  // where whoever began this program ignores what becomes of children
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("'{}': how {} ended is not known: {}", path_, program_, std::strerror(errno)));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  execution::throw_usage("'{}': {} data that cannot be unpacked to its end; {} says: {}", path_,
                         form_.name, program_, said.empty() ? "nothing" : said);
}

}  // namespace stowage::drivers
