#pragma once
// Encrypts texts with the job's secret, for what may hold the user's tokens. They cannot be changed without it.
//
// Encrypt, then authenticate: ChaCha20 (RFC 8439, section 2.4) and SipHash-2-4 with 128 bits (base/mac.h).
//
//   encrypted  = nonce, 16 random bytes | text XOR keystream | tag, 16 bytes
//   master     = key_of(secret)
//   keystream  = ChaCha20, from block 0 on, of key mac(master, "seal 1" nonce) mac(master, "seal 2" nonce), nonce 0
//   tag        = mac(mac(master, "seal 3" nonce), nonce and text XOR keystream)
//
// Keys are of one text only, so that a constant nonce of ChaCha20 is right. As strong as the secret, 128 bits at most.
// The secret reaches the hosts through the MPI's mpiexec or srun, whose own channel is as secret as they make it.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tarantella::launch {

std::string encrypt(std::string_view secret, std::string_view text);

/// The text; none if it was not encrypted with this secret, or was changed. Pure.
std::optional<std::string> decrypt(std::string_view secret, std::string_view bytes);

/// The block function of ChaCha20: 64 bytes of the keystream. Pure.
std::array<unsigned char, 64> chacha20_block(const std::array<uint32_t, 8>& key, uint32_t counter,
                                             const std::array<uint32_t, 3>& nonce);

}  // namespace tarantella::launch
