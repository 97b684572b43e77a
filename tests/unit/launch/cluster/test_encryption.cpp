#include <gtest/gtest.h>

#include <algorithm>

#include "launch/cluster/encryption.h"
#include "launch/cluster/protocol.h"

namespace tarantella::launch {
namespace {

TEST(Encryption, TheBlockIsThatOfRfc8439) {
  // section 2.3.2
  const std::array<uint32_t, 8> key{0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                                    0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c};
  const std::array<unsigned char, 64> expected{
      0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3, 0x20, 0x71, 0xc4,
      0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0, 0x68, 0x03, 0x04, 0x22, 0xaa, 0x9a, 0xc3, 0xd4, 0x6c, 0x4e,
      0xd2, 0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa, 0x09, 0x14, 0xc2, 0xd7, 0x05, 0xd9, 0x8b, 0x02, 0xa2,
      0xb5, 0x12, 0x9c, 0xd1, 0xde, 0x16, 0x4e, 0xb9, 0xcb, 0xd0, 0x83, 0xe8, 0xa2, 0x50, 0x3c, 0x4e};
  EXPECT_EQ(chacha20_block(key, 1, {0x09000000, 0x4a000000, 0}), expected);
}

TEST(Encryption, OnlyTheSecretOpensIt) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}}) {
    const std::string text(size, 't');
    const std::string bytes = encrypt("secret", text);
    EXPECT_EQ(decrypt("secret", bytes), text);
    EXPECT_EQ(decrypt("secreu", bytes), std::nullopt);
  }
  EXPECT_NE(encrypt("secret", "text"), encrypt("secret", "text"));
}

TEST(Encryption, AnyChangeIsNoticed) {
  const std::string bytes = encrypt("secret", "text");
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] ^= 1;
    EXPECT_EQ(decrypt("secret", changed), std::nullopt);
    EXPECT_EQ(decrypt("secret", bytes.substr(0, at)), std::nullopt);
  }
}

TEST(Encryption, NoTokenOfTheUserIsInAJobSpec) {
  const Environment environment{{"HF_TOKEN", "hf_0123456789"}, {"HOME", "/home/user"}, {"PATH", "/bin"}};
  const Environment host{{"HOME", "/home/user"}, {"PATH", "/usr/bin"}, {"ONLY_HERE", "1"}};
  JobSpec spec{"id", "t", "/", {"p", {}}, false, false, false, {{"a", 0, 2}}, {}};
  spec.environment = changes_to(environment, variable_macs_of(host, "secret"), "secret");
  EXPECT_EQ(spec.environment.kept, std::vector<std::string>{"HOME"});
  EXPECT_EQ(spec.environment.set, (Environment{{"HF_TOKEN", "hf_0123456789"}, {"PATH", "/bin"}}));
  const std::string content = encode(spec);
  EXPECT_NE(content.find("hf_0123456789"), std::string::npos);
  EXPECT_EQ(content.find("/home/user"), std::string::npos) << "the host has it";
  const std::string bytes = encrypt("secret", content);
  for (const char* word : {"hf_0123456789", "HF_TOKEN", "PATH"}) {
    EXPECT_EQ(bytes.find(word), std::string::npos);
  }
  const auto found = decode_job_spec({Message::Kind::kJob, decrypt("secret", bytes).value_or("")});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(applied(host, found->environment), environment);
}

TEST(EnvironmentChanges, MacsTellNothingWithoutTheSecret) {
  const Environment own{{"A", "1"}};
  EXPECT_EQ(variable_macs_of(own, "secret"), variable_macs_of(own, "secret"));
  EXPECT_NE(variable_macs_of(own, "secret"), variable_macs_of(own, "other"));
  EXPECT_EQ(changes_to(own, variable_macs_of(own, "other"), "secret").set, own);
}

}  // namespace
}  // namespace tarantella::launch
