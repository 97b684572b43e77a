#include "timeline/clocks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/status.h"

namespace tarantella::timeline {
namespace {

std::string in_words(int64_t nanoseconds) {
  const double milliseconds = std::abs(static_cast<double>(nanoseconds)) / 1e6;
  char words[64];
  const bool is_long = milliseconds >= 1000;
  std::snprintf(words, sizeof words, is_long ? "%.3f s" : "%.3f ms",
                is_long ? milliseconds / 1000 : milliseconds);
  return words;
}

}  // namespace

ClockOffset offset_of(int64_t there, int64_t sent, int64_t received) {
  const int64_t way = (received - sent + 1) / 2;
  return {received, sent + way - there, way};
}

int64_t ClockDrift::within() const { return std::max(start_.within, end_.within); }

int64_t ClockDrift::by(int64_t time) const {
  if (time <= start_.time || end_.time <= start_.time) return start_.by;
  if (time >= end_.time) return end_.by;
  const double share = static_cast<double>(time - start_.time) / static_cast<double>(end_.time - start_.time);
  return start_.by + std::llround(share * static_cast<double>(end_.by - start_.by));
}

std::string ClockDrift::words() const {
  const int64_t gained = end_.by - start_.by;
  std::string words = text("is ", in_words(start_.by), start_.by < 0 ? " behind" : " ahead",
                           ", known to within ", in_words(within()));
  if (std::abs(gained) <= start_.within + end_.within) return words;
  return text(words, ", and has ", gained > 0 ? "gained " : "lost ", in_words(gained), " by the end");
}

}  // namespace tarantella::timeline
