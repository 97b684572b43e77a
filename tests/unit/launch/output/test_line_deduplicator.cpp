#include <gtest/gtest.h>

#include "launch/output/line_deduplicator.h"

namespace tarantella::launch {
namespace {

using Lines = std::vector<std::string>;

Report note(int rank, const std::string& text) { return {Report::Kind::kNote, rank, 0, text, ""}; }

TEST(LineDeduplicator, EachIsShownOnce) {
  LineDeduplicator notes;
  EXPECT_EQ(notes.lines_for(note(1, "slow\n"), false), Lines{"rank 1: slow?"});
  EXPECT_EQ(notes.lines_for(note(2, "slow\n"), false), Lines{});
  EXPECT_EQ(notes.lines_for(note(0, "other"), true), Lines{});
  EXPECT_EQ(notes.lines_for(note(1, "other"), false), Lines{}) << "the user has seen it";
}

TEST(LineDeduplicator, AreLimited) {
  LineDeduplicator notes;
  Lines last;
  for (size_t number = 0; number < LineDeduplicator::kMost; ++number) {
    last = notes.lines_for(note(1, std::to_string(number)), false);
  }
  EXPECT_EQ(last, (Lines{"rank 1: 99", "further lines like these are not shown (limit: 100)"}));
  EXPECT_EQ(notes.lines_for(note(1, "more"), false), Lines{});
}

}  // namespace
}  // namespace tarantella::launch
