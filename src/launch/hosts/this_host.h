#pragma once

#include <string>

namespace tarantella::launch {

/// Whether `name` means this machine: its name, with or without domain, localhost, or a name or address of one of its
/// network interfaces. Blocks while the name is looked up.
bool is_this_host(const std::string& name);

}  // namespace tarantella::launch
