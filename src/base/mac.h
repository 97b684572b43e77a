#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tarantella {

using Tag128 = std::array<unsigned char, 16>;

/// SipHash-2-4 with 128 bits (Aumasson and Bernstein, https://www.aumasson.jp/siphash/siphash.pdf): a tag of `text`
/// that only who knows `key` can make, and that tells nothing about it. Not for long texts.
Tag128 mac(const Tag128& key, std::string_view text);

/// A key made of a secret text of any length; as secret as that.
Tag128 key_of(std::string_view secret);

/// The 32 hexadecimal digits.
std::string hex(const Tag128& tag);

/// Whether both are the same, in a time that does not tell where they differ.
bool are_equal(const Tag128& one, const Tag128& other);

/// Bytes that nobody can foresee.
Tag128 random_tag();

}  // namespace tarantella
