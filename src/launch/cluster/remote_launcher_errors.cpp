#include "launch/cluster/remote_launcher_errors.h"

#include <algorithm>

#include "base/status.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

constexpr std::string_view kDashes = "-----";

/// Takes the first line off `rest`; `finished`: it has come to an end.
std::string_view next_line(std::string_view& rest, bool& finished) {
  const size_t end = rest.find('\n');
  finished = end != std::string_view::npos;
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(finished ? end + 1 : rest.size());
  return line;
}

std::string_view trimmed(std::string_view line) {
  constexpr char kBlanks[] = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  return line.substr(0, line.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
}

/// Open MPI warns that a remote shell was quicker than its setpgid().
bool is_error_line(std::string_view line) {
  const auto lacks = [line](std::string_view part) { return line.find(part) == std::string_view::npos; };
  return !line.empty() && lacks("[mpiexec@") && lacks("[proxy:") && lacks(" Warning: setpgid(");
}

/// The value of a field, such as "   Node: node2", in the rest of a message of Open MPI's mpiexec; empty without it,
/// and while its line is unfinished.
std::string_view field(std::string_view message, std::string_view name) {
  for (bool finished = true; !message.empty();) {
    const std::string_view line = next_line(message, finished), content = trimmed(line);
    if (!finished || line.starts_with(kDashes)) break;
    if (content.starts_with(name)) return trimmed(content.substr(name.size()));
  }
  return "";
}

/// The first sentence of a message of Open MPI's mpiexec.
std::string sentence(std::string_view message) {
  std::string first(message.substr(0, std::min(message.find("\n\n"), message.find(". "))));
  std::replace(first.begin(), first.end(), '\n', ' ');
  return printable(first);
}

std::string cannot_run(std::string_view host, std::string_view program) {
  if (program.starts_with("ssh ") || program == "ssh")
    return text("there is no ssh in PATH of host '", host,
                "'; install an ssh client (Debian: openssh-client)");
  return printable(text("host '", host, "' cannot run ", program,
                        "; install the same version of tarantella at this place on all hosts"));
}

}  // namespace

std::string error_in(std::string_view output) {
  std::string first, lost;
  bool in_message = false, finished = false;
  while (!output.empty()) {
    const std::string_view from_here = output, line = next_line(output, finished);
    if (line.starts_with(kDashes)) {
      in_message = !in_message;
    } else if (!is_error_line(line)) {
      if (first.empty()) first = line;
    } else if (!in_message) {
      return printable(std::string(line));
    } else if (lost.empty()) {
      const std::string_view host = field(from_here, "Remote host:");
      if (host.empty()) return sentence(from_here);
      lost = text(sentence(from_here), " (", printable(std::string(host)), "): try ssh to this host");
    }
  }
  if (!lost.empty()) return lost;
  return first.empty() ? ""
                       : printable(first) +
                             "; try ssh to each of these hosts, whose names need addresses of IPv4, and see "
                             "the limits (ulimit -a)";
}

std::string termination_notices(std::string_view output) {
  std::string lines;
  for (bool finished = true; !output.empty();) {
    const std::string_view line = next_line(output, finished);
    const bool tells = line.starts_with("slurmstepd: ") || line.find("TIMED OUT") != std::string_view::npos;
    if (tells) lines += printable(std::string(line)) + "\n";
  }
  return lines;
}

std::string missing_program(std::string_view output) {
  constexpr std::string_view kExecError = "execvp error on file ";
  for (bool finished = true; !output.empty();) {
    const std::string_view line = next_line(output, finished);
    if (!finished) break;
    if (const size_t position = line.find(kExecError); position != std::string_view::npos) {
      const size_t at = line.find('@'), bracket = line.find(']');
      const bool names_host = at < bracket && bracket < position;
      return cannot_run(names_host ? line.substr(at + 1, bracket - at - 1) : "?",
                        trimmed(line.substr(position + kExecError.size())));
    }
    if (!line.starts_with(kDashes)) continue;
    const std::string_view program = field(output, "Executable:"), host = field(output, "Node:");
    if (!program.empty() && !host.empty()) return cannot_run(host, program);
  }
  return "";
}

}  // namespace tarantella::launch
