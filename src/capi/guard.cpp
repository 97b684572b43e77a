#include "capi/guard.h"

namespace tarantella::capi {
namespace {

thread_local std::string last_error;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

tnt_code report(const Status& status) {
  last_error = status.message();
  return static_cast<tnt_code>(status.code());
}

}  // namespace tarantella::capi

extern "C" {

const char* tnt_last_error(void) { return tarantella::capi::last_error.c_str(); }

const char* tnt_version(void) { return TARANTELLA_VERSION; }

}  // extern "C"
