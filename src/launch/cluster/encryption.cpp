#include "launch/cluster/encryption.h"

#include <bit>

#include "base/mac.h"

namespace tarantella::launch {
namespace {

constexpr size_t kTag = std::tuple_size_v<Tag128>;

std::string bytes_of(const Tag128& tag) { return {tag.begin(), tag.end()}; }

/// The keys of the text with this nonce.
class Keys {
 public:
  Keys(std::string_view secret, std::string_view nonce) : master_(key_of(secret)), nonce_(nonce) {}

  std::string with_keystream(std::string_view text) const {
    std::array<uint32_t, 8> key{};
    const std::string bytes = bytes_of(derived("seal 1")) + bytes_of(derived("seal 2"));
    for (size_t at = 0; at < bytes.size(); ++at) {
      key[at / 4] |= uint32_t{static_cast<unsigned char>(bytes[at])} << (8 * (at % 4));
    }
    std::string changed(text);
    std::array<unsigned char, 64> block{};
    for (size_t at = 0; at < changed.size(); ++at) {
      if (at % block.size() == 0) block = chacha20_block(key, static_cast<uint32_t>(at / block.size()), {});
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ block[at % block.size()]);
    }
    return changed;
  }

  Tag128 tag(std::string_view hidden) const {
    return mac(derived("seal 3"), std::string(nonce_).append(hidden));
  }

 private:
  Tag128 derived(std::string_view use) const { return mac(master_, std::string(use).append(nonce_)); }

  const Tag128 master_;
  const std::string nonce_;
};

void quarter_round(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  a += b;
  d = std::rotl(d ^ a, 16);
  c += d;
  b = std::rotl(b ^ c, 12);
  a += b;
  d = std::rotl(d ^ a, 8);
  c += d;
  b = std::rotl(b ^ c, 7);
}

}  // namespace

std::array<unsigned char, 64> chacha20_block(const std::array<uint32_t, 8>& key, uint32_t counter,
                                             const std::array<uint32_t, 3>& nonce) {
  const std::array<uint32_t, 16> start{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1],
                                       key[2],     key[3],     key[4],     key[5],     key[6], key[7],
                                       counter,    nonce[0],   nonce[1],   nonce[2]};
  std::array<uint32_t, 16> s = start;
  for (int round = 0; round < 20; round += 2) {
    for (size_t k = 0; k < 4; ++k) quarter_round(s[k], s[4 + k], s[8 + k], s[12 + k]);
    for (size_t k = 0; k < 4; ++k) {
      quarter_round(s[k], s[4 + (k + 1) % 4], s[8 + (k + 2) % 4], s[12 + (k + 3) % 4]);
    }
  }
  std::array<unsigned char, 64> bytes{};
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = static_cast<unsigned char>((s[at / 4] + start[at / 4]) >> (8 * (at % 4)));
  }
  return bytes;
}

std::string encrypt(std::string_view secret, std::string_view text) {
  const std::string nonce = bytes_of(random_tag());
  const Keys keys(secret, nonce);
  const std::string hidden = keys.with_keystream(text);
  return nonce + hidden + bytes_of(keys.tag(hidden));
}

std::optional<std::string> decrypt(std::string_view secret, std::string_view bytes) {
  if (bytes.size() < 2 * kTag) return std::nullopt;
  const std::string_view hidden = bytes.substr(kTag, bytes.size() - 2 * kTag);
  const Keys keys(secret, bytes.substr(0, kTag));
  Tag128 tag{};
  for (size_t k = 0; k < kTag; ++k) tag[k] = static_cast<unsigned char>(bytes[bytes.size() - kTag + k]);
  if (!are_equal(tag, keys.tag(hidden))) return std::nullopt;
  return keys.with_keystream(hidden);
}

}  // namespace tarantella::launch
