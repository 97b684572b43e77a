#include "base/mac.h"

#include <sys/random.h>

#include <bit>
#include <cstdlib>
#include <cstring>

namespace tarantella {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void rounds(int count) {
    while (count-- > 0) round();
  }
  void take(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  uint64_t all() const { return v0 ^ v1 ^ v2 ^ v3; }
};

/// Up to eight bytes as a little-endian number.
uint64_t word_at(const unsigned char* bytes, size_t count = 8) {
  uint64_t word = 0;
  for (size_t k = 0; k < count; ++k) word |= uint64_t{bytes[k]} << (8 * k);
  return word;
}

void put(uint64_t word, unsigned char* bytes) {
  for (size_t k = 0; k < 8; ++k) bytes[k] = static_cast<unsigned char>(word >> (8 * k));
}

}  // namespace

Tag128 mac(const Tag128& key, std::string_view text) {
  const uint64_t k0 = word_at(key.data()), k1 = word_at(key.data() + 8);
  State state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
              k1 ^ 0x7465646279746573};
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) state.take(word_at(bytes + at));
  state.take(word_at(bytes + at, text.size() - at) | uint64_t{text.size() & 0xff} << 56);
  Tag128 tag;
  state.v2 ^= 0xee;
  state.rounds(4);
  put(state.all(), tag.data());
  state.v1 ^= 0xdd;
  state.rounds(4);
  put(state.all(), tag.data() + 8);
  return tag;
}

Tag128 key_of(std::string_view secret) {
  constexpr Tag128 kNone{};
  return mac(kNone, secret);
}

std::string hex(const Tag128& tag) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : tag) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool are_equal(const Tag128& one, const Tag128& other) {
  unsigned differ = 0;
  for (size_t k = 0; k < one.size(); ++k) differ |= static_cast<unsigned>(one[k] ^ other[k]);
  return differ == 0;
}

Tag128 random_tag() {
  Tag128 tag;
  if (::getrandom(tag.data(), tag.size(), 0) != static_cast<ssize_t>(tag.size())) std::abort();
  return tag;
}

}  // namespace tarantella
