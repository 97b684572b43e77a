#pragma once
// Which transport joins the ranks of a job: the one place that names any.

#include <memory>

#include "tarantella/tarantella.h"
#include "transport/memory.h"

namespace tarantella::capi {

/// Meets the other ranks of options.job, within options.meet_timeout; this rank's part of what they share.
Result<std::unique_ptr<transport::Memory>> connect(const tnt_options& options);

}  // namespace tarantella::capi
