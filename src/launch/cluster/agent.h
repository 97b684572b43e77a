#pragma once
// The launcher on one host of a job on several.

namespace tarantella::launch {

/// Whether the coordinator of a job has started this process, so that it should call run_agent(). Reads the
/// environment.
bool is_agent();

/// Joins the coordinator, runs the ranks of this host for it, and blocks until they have ended. Ends them within
/// five seconds if the coordinator is gone. Returns the exit code: 0 even if ranks failed, since the coordinator gets
/// their result. Call it once, on the main thread, before any descriptor is opened.
int run_agent();

}  // namespace tarantella::launch
