#include <gtest/gtest.h>

#include "launch/output/line_filters.h"

namespace tarantella::launch {
namespace {

TEST(Tail, LeavesOutWhatFrameworksWriteAtTheirStart) {
  Tail tail;
  tail.append(
      "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
      "I0000 00:00:1795318742.1   123 port.cc:153] oneDNN custom operations are on.\n"
      "2025-11-22 03:40:10.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary is\n"
      "To enable the following instructions: AVX2 FMA, in other operations, rebuild\n"
      "2025-11-22 03:40:10.123456: E mine: to be seen\n"
      "no data in /scratch\n");
  EXPECT_EQ(tail.excerpt(), "2025-11-22 03:40:10.123456: E mine: to be seen\nno data in /scratch\n");
}

TEST(StartupLineFilter, AreLeftOut) {
  StartupLineFilter lines;
  EXPECT_EQ(lines.add("WARNING: All log messages before absl::InitializeLog() is called\nmine\nI0000 00:0"),
            "mine\n");
  EXPECT_EQ(lines.add("0:17.1 7 port.cc:153] oneDNN"), "");
  EXPECT_EQ(lines.add(" is on\n\nI0000 of mine\n"), "\nI0000 of mine\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(StartupLineFilter, DoNotDelayWhatHasNoEnd) {
  StartupLineFilter lines;
  EXPECT_EQ(lines.add("\r1/5"), "\r1/5");
  EXPECT_EQ(lines.add("I0000 00:00:\n"), "I0000 00:00:\n");  // in the middle of a line
  EXPECT_EQ(lines.add("WARN"), "");
  EXPECT_EQ(lines.finish(), "WARN");
}

TEST(Tail, GivesAllOfAShortOutput) {
  Tail tail;
  EXPECT_EQ(tail.excerpt(), "");
  tail.append("one\ntwo");
  EXPECT_EQ(tail.excerpt(), "one\ntwo\n");
}

TEST(Tail, GivesTheLastTwentyLines) {
  Tail tail;
  std::string expected;
  for (int line = 0; line < 30; ++line) {
    tail.append(std::to_string(line) + "\n");
    if (line >= 10) expected += std::to_string(line) + "\n";
  }
  EXPECT_EQ(tail.excerpt(), expected);
}

TEST(Tail, GivesTheLastTracebackThatStartsALine) {
  Tail tail;
  tail.append("noise\nTraceback (most recent call last):\n  first\nA: 1\n");
  tail.append(
      "Traceback (most recent call last):\n  second\nB: 2, not a Traceback (most recent call last):\n");
  EXPECT_EQ(tail.excerpt(),
            "Traceback (most recent call last):\n  second\nB: 2, not a Traceback (most recent call last):\n");
}

TEST(Tail, GivesTheWholeTracebackOfAnExceptionGroup) {
  Tail tail;
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n  | G: 2 errors\n  +-+---- 1 ----\n"
      "    | Traceback (most recent call last):\n    | A: 1\n";
  tail.append("noise\n" + group);
  EXPECT_EQ(tail.excerpt(), group);
}

TEST(Tail, GivesTheWholeReportOfACrash) {
  const std::string crash = "Fatal Python error: Segmentation fault\n\n" + [] {
    std::string frames;
    for (int frame = 0; frame < 40; ++frame) frames += "  File \"x.py\", line 1 in f\n";
    return frames;
  }();
  Tail after_noise, after_traceback, before_traceback;
  after_noise.append("noise\n" + crash);
  EXPECT_EQ(after_noise.excerpt(), crash);
  after_traceback.append("Traceback (most recent call last):\nA: caught\n" + crash);
  EXPECT_EQ(after_traceback.excerpt(), crash);
  before_traceback.append(crash + "Traceback (most recent call last):\nB: 1\n");
  EXPECT_EQ(before_traceback.excerpt(), "Traceback (most recent call last):\nB: 1\n");
}

TEST(Tail, KeepsNoMoreThanItsSizeAndWholeLines) {
  Tail tail;
  for (int line = 0; line < 100000; ++line) tail.append("0123456789\n");
  for (int line = 0; line < 5; ++line) tail.append(std::string(20000, 'x') + "\n");
  const std::string excerpt = tail.excerpt();
  EXPECT_LE(excerpt.size(), Tail::kBytes);
  EXPECT_EQ(excerpt, (std::string(20000, 'x') + "\n") + (std::string(20000, 'x') + "\n") +
                         (std::string(20000, 'x') + "\n"));
}

TEST(Tail, CutsALongLineAtACharacter) {
  Tail tail;
  for (int count = 0; count < 100000; ++count) tail.append("漢");
  const std::string excerpt = tail.excerpt();
  EXPECT_EQ(excerpt.size() % 3, 1u);  // the newline that was added
  EXPECT_EQ(excerpt.substr(0, 3), "漢");
}

TEST(LinePrefixer, PassesOnWholeLinesOnly) {
  LinePrefixer marker(12);
  EXPECT_EQ(marker.add("a"), "");
  EXPECT_EQ(marker.add("b\n\nc\r\nd"), "[12] ab\n[12] \n[12] c\r\n");
  EXPECT_EQ(marker.finish(), "[12] d\n");
  EXPECT_EQ(marker.finish(), "");
}

TEST(LinePrefixer, JoinsCharactersThatArriveInPieces) {
  LinePrefixer marker(0);
  std::string out;
  for (const char byte : std::string("é漢🦂\n")) out += marker.add(std::string(1, byte));
  EXPECT_EQ(out, "[0] é漢🦂\n");
}

TEST(LinePrefixer, CutsALongLineBetweenCharacters) {
  LinePrefixer marker(0);
  std::string line = "x";
  while (line.size() <= LinePrefixer::kLongestLine) line += "🦂";
  const std::string out = marker.add(line + "\n");
  const size_t cut = out.find('\n');
  EXPECT_EQ((cut - 4) % 4, 1u);
  EXPECT_EQ(out.substr(cut + 1, 5), "[0+] ");
  EXPECT_EQ(out.substr(4, cut - 4) + out.substr(cut + 6), line + "\n");
  EXPECT_EQ(marker.add("next\n"), "[0] next\n");
}

TEST(LinePrefixer, CutsALongLineOfInvalidBytes) {
  LinePrefixer marker(0);
  const std::string out = marker.add(std::string(3 * LinePrefixer::kLongestLine, '\x80'));
  EXPECT_GE(out.size(), 2 * LinePrefixer::kLongestLine);
}

}  // namespace
}  // namespace tarantella::launch
