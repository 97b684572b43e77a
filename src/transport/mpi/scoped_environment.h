#pragma once
// The environment of this process, changed while other threads may read it.

#include <map>
#include <optional>
#include <string>

namespace tarantella::transport {

/// Values by name; nothing for a variable that is not to be set.
using Variables = std::map<std::string, std::optional<std::string>, std::less<>>;

/// Changes variables as long as it lives, then gives them the values from before. Other threads may read the
/// environment at any time, by getenv(), environ or execve(). They see it before or after all of a change, and what
/// they have read stays valid until the process ends. So TensorFlow's threads may run, and those of MPI. Not beside
/// other changes of the environment, such as setenv().
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const Variables& changes);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  Variables before_;
};

}  // namespace tarantella::transport
