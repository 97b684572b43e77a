#include "transport/mpi/library.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <string_view>

#include "transport/mpi/abort_guard.h"

namespace tarantella::transport {
namespace {

namespace fs = std::filesystem;

struct Kind {
  std::string_view name;
  std::string_view plugin;
};
constexpr std::array kKinds{Kind{"mpi-abi", "libtarantella_mpi_abi.so"},
                            Kind{"openmpi", "libtarantella_openmpi.so"}};

std::string loading_error() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error";
}

/// The file of the object that `address` is in; empty if there is none.
fs::path object_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path found = fs::canonical(info.dli_fname, ignored);
  return ignored ? fs::path(info.dli_fname) : found;
}

Result<const TntMpi*> load_plugin(const fs::path& path) {
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr)
    return Status(Code::kSystem,
                  text("cannot load the plugin for MPI: ", loading_error(), "; install Tarantella again"));
  const auto table_of = reinterpret_cast<TntMpiPlugin>(dlsym(plugin, kTntMpiSymbol));
  const TntMpi* table = table_of != nullptr ? table_of() : nullptr;
  if (table == nullptr || table->version != kTntMpiVersion)
    return Status(Code::kSystem,
                  text(path.string(), " is of another version of Tarantella; install Tarantella again"));
  return table;
}

}  // namespace

Result<const TntMpi*> load_mpi(const std::string& mpi_library) {
  const size_t colon = mpi_library.find(':');
  const std::string_view name = std::string_view(mpi_library).substr(0, colon);
  const Kind* kind = nullptr;
  for (const Kind& each : kKinds) {
    if (each.name == name) kind = &each;
  }
  if (kind == nullptr || colon == std::string::npos || colon + 1 == mpi_library.size())
    return Status(Code::kInvalidArgument,
                  text("TNT_TRANSPORT is \"", mpi_library,
                       "\", but must be mpi-abi:PATH or openmpi:PATH with the path of a library "
                       "of MPI"));
  const std::string path = mpi_library.substr(colon + 1);
  // Intel MPI loads it by this name; where it is found beside it, as in the wheel, that is the one
  const fs::path fabric = fs::path(path).parent_path() / "libfabric.so.1";
  if (std::error_code ignored; fs::exists(fabric, ignored))
    (void)dlopen(fabric.c_str(), RTLD_NOW | RTLD_LOCAL);
  // for all to see, since the plugin and the components of Open MPI look for symbols there
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return Status(Code::kSystem, text("cannot load the library of MPI: ", loading_error()));
  const void* wanted = dlsym(library, "MPI_Init_thread");
  if (wanted == nullptr)
    return Status(Code::kSystem, text(path, " is not a library of MPI: it has no MPI_Init_thread"));
  auto plugin = load_plugin(object_of(reinterpret_cast<const void*>(&load_mpi)).parent_path() / kind->plugin);
  if (!plugin.ok()) return plugin;
  if (const auto found = object_of(plugin.value()->resolved); found != object_of(wanted))
    return Status(Code::kSystem, text("this process has loaded another MPI, ", found.string(), ", before ",
                                      path, "; use the same one in both places"));
  return plugin;
}

std::string describe_error(const TntMpi& mpi, int error) {
  if (error == kAborted) return "MPI has stopped, as it does when a machine is lost";
  char text[512];
  mpi.describe(error, text, sizeof text);
  const std::string_view all = text;
  return std::string(all.substr(0, all.find(", error stack")));  // ten lines of MPICH's own functions
}

std::string name_of(const TntMpi& mpi) {
  char name[1024];
  mpi.library(name, sizeof name);
  return name;
}

}  // namespace tarantella::transport
