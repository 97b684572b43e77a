#pragma once
// Which NVIDIA GPUs this process may use, without loading CUDA.

#include <optional>
#include <string>
#include <vector>

namespace tarantella::runtime {

struct Gpus {
  bool driver = false;           ///< an NVIDIA driver is installed
  bool hidden_by_user = false;   ///< CUDA_VISIBLE_DEVICES was set and leaves no GPU
  std::vector<std::string> ids;  ///< one value for CUDA_VISIBLE_DEVICES per GPU
};

/// Looks below `proc_root` (normally "/proc"). `visible` is the value of CUDA_VISIBLE_DEVICES, if set; as in
/// CUDA, the first entry of it that names no GPU ends the list. Files that cannot be read count as absent.
Gpus find_gpus(const std::string& proc_root, const std::optional<std::string>& visible);

}  // namespace tarantella::runtime
