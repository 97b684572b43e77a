#include <gtest/gtest.h>

#include <numeric>

#include "base/mac.h"

namespace tarantella {
namespace {

TEST(Mac, IsThatOfThePaper) {
  // the vectors of the reference implementation: key 00 01 ... 0f, texts of 0, 1, 8 and 63 bytes 00 01 ...
  Tag128 key;
  std::iota(key.begin(), key.end(), 0);
  std::string text(63, 0);
  std::iota(text.begin(), text.end(), 0);
  EXPECT_EQ(hex(mac(key, text.substr(0, 0))), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(hex(mac(key, text.substr(0, 1))), "da87c1d86b99af44347659119b22fc45");
  EXPECT_EQ(hex(mac(key, text.substr(0, 63))), "5150d1772f50834a503e069a973fbd7c");
}

TEST(Mac, DependsOnKeyAndText) {
  const Tag128 one = key_of("one");
  EXPECT_FALSE(are_equal(one, key_of("two")));
  EXPECT_FALSE(are_equal(mac(one, "a"), mac(one, "b")));
  EXPECT_TRUE(are_equal(mac(one, "a"), mac(key_of("one"), "a")));
  EXPECT_FALSE(are_equal(random_tag(), random_tag()));
}

}  // namespace
}  // namespace tarantella
