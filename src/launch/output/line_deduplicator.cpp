#include "launch/output/line_deduplicator.h"

#include "launch/system/message.h"

namespace tarantella::launch {

std::vector<std::string> LineDeduplicator::lines_for(const Report& note, bool seen) {
  if (known_.size() == kMost || !known_.insert(note.text).second) return {};
  std::vector<std::string> lines;
  if (!seen) lines.push_back(text("rank ", note.rank, ": ", printable(note.text)));
  if (known_.size() == kMost) {
    lines.push_back(text("further lines like these are not shown (limit: ", kMost, ")"));
  }
  return lines;
}

}  // namespace tarantella::launch
