#include "capi/connect.h"

#include "transport/shm/shm_memory.h"

namespace tarantella::capi {

Result<std::unique_ptr<transport::Memory>> connect(const tnt_options& options) {
  runtime::MeetingOptions meeting;
  if (options.warn_every > 0) meeting.warn_every = from_seconds(options.warn_every);
  meeting.grace = from_seconds(options.grace);
  meeting.ended = runtime::Ended::inherited(options.size);
  return transport::make_shm_memory(options.job, options.rank, options.size,
                                    Deadline::after(from_seconds(options.meet_timeout)), std::move(meeting));
}

}  // namespace tarantella::capi
