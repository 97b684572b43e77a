#pragma once
// The launcher on one host of a job on several.

namespace tarantella::launch {

/// Whether the head of a job has started this process, so that it should call run_node(). Reads the environment.
bool is_node_launcher();

/// Joins the head, runs the ranks of this host as it says, and blocks until they have ended. Ends them within five
/// seconds if the head is gone. Returns the exit code: 0 even if ranks failed, since the head has been told. Call it
/// once, on the main thread, before any descriptor is opened.
int run_node();

}  // namespace tarantella::launch
