#include <gtest/gtest.h>

#include "launch/hosts/hostfile.h"
#include "launch/hosts/hostlist.h"

namespace tarantella::launch {
namespace {

using Names = std::vector<std::string>;

Names expanded(const std::string& list) {
  Names names;
  EXPECT_TRUE(expand_hostlist(list, 1, names).ok()) << list;
  return names;
}

std::string refused(const std::string& list) {
  Names names;
  return expand_hostlist(list, 1, names).message();
}

TEST(HostNames, RangesAreAsWideAsTheirFirstNumber) {
  EXPECT_EQ(expanded("node[01-03,7]"), (Names{"node01", "node02", "node03", "node7"}));
  EXPECT_EQ(expanded("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expanded("n[098-101]-ib"), (Names{"n098-ib", "n099-ib", "n100-ib", "n101-ib"}));
  EXPECT_EQ(expanded("r[1-2]n[3-4]"), (Names{"r1n3", "r1n4", "r2n3", "r2n4"}));
  EXPECT_EQ(expanded("a,b[1,2].c,10.0.0.1"), (Names{"a", "b1.c", "b2.c", "10.0.0.1"}));
}

TEST(HostNames, MistakesHaveAColumn) {
  EXPECT_EQ(refused("n[9-1]"), "column 3: the range 9-1 runs backwards");
  EXPECT_EQ(refused("n[1-2"), "column 2: this '[' is not closed");
  EXPECT_EQ(refused("n[]"), "column 3: ']' stands where a number belongs");
  EXPECT_EQ(refused("n[1-]"), "column 5: ']' stands where a number belongs");
  EXPECT_EQ(refused("n[1;2]"), "column 4: ';' stands where ',', '-' or ']' belongs");
  EXPECT_EQ(refused("n]"), "column 2: ']' stands where a name belongs");
  EXPECT_EQ(refused("a,,b"), "column 3: ',' stands where a name belongs");
  EXPECT_EQ(refused("a,"), "column 3: a name is missing");
  EXPECT_EQ(refused(""), "column 1: a name is missing");
  EXPECT_EQ(refused("-oProxyCommand=x"), "column 15: '=' stands where a name belongs");
  EXPECT_EQ(refused("-v"), "column 1: a name begins with a letter or a digit");
  EXPECT_EQ(refused("n\x01"), "column 2: '?' stands where a name belongs");
  EXPECT_EQ(refused("n[1-70000]"), "column 3: more than 65536 hosts");
  EXPECT_EQ(refused("n[1-40000,1-40000]"), "column 11: more than 65536 hosts");
  EXPECT_EQ(refused("n[1-300][1-300]"), "column 9: more than 65536 hosts");
  EXPECT_EQ(refused("n[1234567890]"), "column 3: a number of a host has at most 9 digits");
  EXPECT_EQ(refused(std::string(254, 'a')), "column 1: a name has at most 253 characters");
}

using Hosts = std::vector<Host>;

std::string mistake(const std::string& content) {
  return parse_hostfile(content, "hosts").status().message();
}

TEST(Hostfile, HasANamePerLine) {
  EXPECT_EQ(parse_hostfile("name_of_node_1\nname_of_node_2", "f").value(),
            (Hosts{{"name_of_node_1", {}}, {"name_of_node_2", {}}}));
  EXPECT_EQ(parse_hostfile("# all\n\n a slots=4 # four\r\n\tn[1-2]\tslots=4\n", "f").value(),
            (Hosts{{"a", 4}, {"n1", 4}, {"n2", 4}}));
}

TEST(Hostfile, MistakesHaveLineAndColumn) {
  EXPECT_EQ(mistake(""), "hostfile 'hosts' names no host; write one name per line");
  EXPECT_EQ(mistake("# a\n \n"), "hostfile 'hosts' names no host; write one name per line");
  EXPECT_EQ(mistake("a\n\n b/c\n"), "hostfile 'hosts', line 3, column 3: '/' stands where a name belongs");
  EXPECT_EQ(mistake("a\nb\na"), "hostfile 'hosts', line 3, column 1: host 'a' is already in line 1");
  EXPECT_EQ(mistake("n[1-3]\n n2"), "hostfile 'hosts', line 2, column 2: host 'n2' is already in line 1");
  EXPECT_EQ(mistake("a, b"),
            "hostfile 'hosts', line 1, column 2: name one host per line, or write node[1,2]");
  EXPECT_EQ(mistake("a:4"), "hostfile 'hosts', line 1, column 2: write 'host slots=4' for four ranks");
  EXPECT_EQ(mistake("a b"), "hostfile 'hosts', line 1, column 3: only slots=N may follow a name, not 'b'");
  EXPECT_EQ(mistake("a slots=0"),
            "hostfile 'hosts', line 1, column 3: slots are a whole number from 1 to 4096, not 'slots=0'");
  EXPECT_EQ(mistake("a slots=2 slots=2"), "hostfile 'hosts', line 1, column 11: slots are given twice");
}

TEST(Hostfile, WhatOtherProgramsWriteIsReadOrNamed) {
  EXPECT_EQ(parse_hostfile("\xEF\xBB\xBF"
                           "a\r\nb\r\n",
                           "f")
                .value(),
            (Hosts{{"a", {}}, {"b", {}}}));
  EXPECT_EQ(
      mistake("a\nme@b"),
      "hostfile 'hosts', line 2, column 3: name the host alone; name the user in ~/.ssh/config (Host …, "
      "User …)");
  for (const char* address : {"fe80::1", "::1", "[2001:db8::2]", "2001:db8:0:0:0:0:0:2 slots=2"}) {
    EXPECT_EQ(
        mistake(address),
        "hostfile 'hosts', line 1, column 1: an IPv6 address cannot name a host here; give it a name in "
        "/etc/hosts");
  }
}

TEST(Hostfile, HostsAreAlike) {
  EXPECT_EQ(
      mistake("a slots=2\nb slots=4"),
      "hostfile 'hosts', line 2, column 3: slots=4 here, but slots=2 in line 1: all hosts of a job must be "
      "alike");
  EXPECT_EQ(
      mistake("\na\nb slots=4"),
      "hostfile 'hosts', line 3, column 3: slots=4 here, but no slots in line 2: all hosts of a job must be "
      "alike");
}

TEST(Hostfile, ThatCannotBeReadIsNamed) {
  EXPECT_EQ(read_hostfile("/no/file").status().message(),
            "cannot read hostfile '/no/file': No such file or directory");
  EXPECT_EQ(read_hostfile("/").status().message(), "cannot read hostfile '/': Is a directory");
  EXPECT_EQ(read_hostfile("/dev/zero").status().message(),
            "hostfile '/dev/zero' has more than 16 MiB: it is not a list of hosts");
}

}  // namespace
}  // namespace tarantella::launch
