#include "capi/stacks.h"

#include <unistd.h>

#include <csignal>
#include <string>

#include "base/host.h"
#include "base/log.h"
#include "runtime/report.h"

namespace tarantella::capi {
namespace {

constexpr size_t kLongest = 32 * 1024;

std::string content_of(int descriptor) {
  std::string content(kLongest, '\0');
  const ssize_t bytes = ::pread(descriptor, content.data(), content.size(), 0);
  content.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  while (content.ends_with('\n')) content.pop_back();
  return content;
}

}  // namespace

Stacks::Stacks(engine::Context& context, int signal, int descriptor)
    : context_(context), signal_(signal), descriptor_(descriptor) {
  context_.progress_thread()->add(*this);
}

Stacks::~Stacks() { context_.progress_thread()->remove(*this); }

engine::Progressable::PollHint Stacks::advance() {
  if (shown_ || !context_.group().rank_table().wants_stacks()) return {};
  shown_ = true;
  (void)::raise(signal_);  // returns when its handler has
  const int rank = context_.job_rank(context_.rank());
  const std::string said = text("stacks of rank ", rank, " (pid ", ::getpid(), " on ", host_name(), "):\n",
                                content_of(descriptor_));
  if (!runtime::report(rank, runtime::ReportKind::kStacks, said)) log_line(said);
  return {};
}

}  // namespace tarantella::capi
