#pragma once
// What a launcher records about its job for --cleanup: a file in a folder of the user, while the job runs.

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "launch/system/environment.h"
#include "launch/system/procfs.h"

namespace tarantella::launch {

/// The content of a record: which processes the job has.
struct JobRecord {
  std::string job;            ///< its id, the value of kJobMarkerVariable
  std::string boot;           ///< boot_id() of the machine
  std::string pid_namespace;  ///< pid_namespace() of the launcher
  std::string script;         ///< as the user gave it
  ProcessId launcher;
  std::vector<ProcessId> ranks;  ///< in rank order
};

/// Reads a record; none if it is not one. Pure.
std::optional<JobRecord> parse_job_record(std::string_view content);

/// The folders in which records of this user may be: in $XDG_RUNTIME_DIR, and in /tmp.
std::vector<std::string> job_record_folders(const Environment& environment);

/// Opens a folder in which only this user can write; makes it if there is none and `may_make`. Invalid if there is no
/// such folder.
Fd open_private_folder(const std::string& path, bool may_make);

/// The record of a running job. Where none can be written, --cleanup will not find the job, and nothing else changes.
class JobRecordFile {
 public:
  /// Records nothing.
  JobRecordFile() = default;
  /// Writes a file for the job of this process.
  JobRecordFile(const Environment& environment, const std::string& job_id, const std::string& script);
  /// Removes the file.
  ~JobRecordFile();
  JobRecordFile(JobRecordFile&&) = delete;
  JobRecordFile& operator=(JobRecordFile&&) = delete;

  /// Adds the next rank.
  void add_rank(pid_t pid);
  /// The file; empty if there is none.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Fd file_;
};

}  // namespace tarantella::launch
