#include "runtime/topology/gpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/number.h"

namespace tarantella::runtime {
namespace {

namespace fs = std::filesystem;

int count_entries(const fs::path& folder) {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    ++count;
  return count;
}

bool names_a_gpu(std::string_view entry, int count) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  int index = -1;
  return to_number(entry, index) && index >= 0 && index < count;
}

std::string_view trimmed(std::string_view word) {
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  return word;
}

std::vector<std::string> narrowed(std::string_view visible, int count) {
  std::vector<std::string> ids;
  while (true) {
    const size_t comma = visible.find(',');
    const std::string id(trimmed(visible.substr(0, comma)));
    if (!names_a_gpu(id, count) || std::find(ids.begin(), ids.end(), id) != ids.end()) break;
    ids.push_back(id);
    if (comma == std::string_view::npos) break;
    visible.remove_prefix(comma + 1);
  }
  return ids;
}

}  // namespace

Gpus find_gpus(const std::string& proc_root, const std::optional<std::string>& visible) {
  Gpus gpus;
  std::error_code error;
  const fs::path driver = fs::path(proc_root) / "driver/nvidia";
  gpus.driver = fs::exists(driver / "version", error);
  if (!gpus.driver) return gpus;
  const int count = count_entries(driver / "gpus");
  if (visible) {
    if (count > 0) gpus.ids = narrowed(*visible, count);
    gpus.hidden_by_user = gpus.ids.empty();
  } else {
    for (int gpu = 0; gpu < count; ++gpu) gpus.ids.push_back(std::to_string(gpu));
  }
  return gpus;
}

}  // namespace tarantella::runtime
