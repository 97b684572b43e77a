#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

#include "transport/mpi/pmi_server.h"

namespace tarantella::transport {
namespace {

/// The words of a process of MPI.
class Client {
 public:
  explicit Client(Fd socket) : socket_(std::move(socket)) {}

  void say(const std::string& line) {
    EXPECT_GE(::send(socket_.get(), (line + "\n").data(), line.size() + 1, MSG_NOSIGNAL), 0);
  }
  std::string hear() {
    std::string line;
    for (char letter = 0; ::recv(socket_.get(), &letter, 1, 0) == 1 && letter != '\n';) line += letter;
    return line;
  }
  std::string ask(const std::string& line) { return say(line), hear(); }
  int socket() const { return socket_.get(); }
  void end() { socket_ = Fd(); }

 private:
  Fd socket_;
};

struct Started {
  std::vector<Client> clients;
  Status served;
  std::thread manager;

  explicit Started(size_t processes, Duration limit = 20s) {
    std::vector<Fd> ours;
    for (size_t k = 0; k < processes; ++k) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      ours.emplace_back(ends[0]);
      clients.emplace_back(Fd(ends[1]));
    }
    manager = std::thread([this, limit, all = std::move(ours)]() mutable {
      served = PmiServer(std::move(all)).serve(Deadline::after(limit));
    });
  }
};

TEST(PmiServer, TellsEachWhatTheOthersPut) {
  Started job(2);
  Client &a = job.clients[0], &b = job.clients[1];
  EXPECT_EQ(a.ask("cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
  EXPECT_EQ(a.ask("cmd=get_my_kvsname"), "cmd=my_kvsname rc=0 kvsname=tarantella");
  EXPECT_EQ(a.ask("cmd=get kvsname=tarantella key=PMI_process_mapping"),
            "cmd=get_result rc=0 value=(vector,(0,2,1))");
  EXPECT_EQ(a.ask("cmd=put kvsname=tarantella key=a value=02 00#8"), "cmd=put_result rc=0");
  a.say("cmd=barrier_in");
  b.say("cmd=barrier_in");
  EXPECT_EQ(a.hear(), "cmd=barrier_out rc=0");
  EXPECT_EQ(b.hear(), "cmd=barrier_out rc=0");
  EXPECT_EQ(b.ask("cmd=get kvsname=tarantella key=a"), "cmd=get_result rc=0 value=02 00#8");
  EXPECT_EQ(b.ask("cmd=get kvsname=tarantella key=b"), "cmd=get_result rc=-1 msg=key_not_found");
  for (const Client& each : job.clients)
    EXPECT_TRUE(PmiServer::finalize_pmi(each.socket(), Deadline::after(5s)).ok());
  job.manager.join();
  EXPECT_TRUE(job.served.ok());
}

TEST(PmiServer, EndsAllWithOne) {
  for (const std::string last : {"", "cmd=abort exitcode=1", "cmd=what", "what"}) {
    Started job(2);
    last.empty() ? job.clients[1].end() : job.clients[1].say(last);
    EXPECT_EQ(job.clients[0].hear(), "");  // the end
    EXPECT_EQ(PmiServer::finalize_pmi(job.clients[0].socket(), Deadline::after(5s)).code(), Code::kPeerLost);
    job.manager.join();
    EXPECT_EQ(job.served.code(), Code::kPeerLost);
    EXPECT_NE(job.served.message().find("machine 1 ended"), std::string::npos);
  }
}

TEST(PmiServer, GivesUpInTime) {
  Started job(1, 10ms);
  job.manager.join();
  EXPECT_EQ(job.served.code(), Code::kTimeout);
}

TEST(ProcessVariables, ReplaceThoseOfAnotherStarter) {
  (void)setenv("PMI_RANK", "7", 1);
  (void)setenv("PMIX_NAMESPACE", "x", 1);
  (void)setenv("OMPI_MCA_btl", "self", 1);
  const Variables variables = process_variables(9, 1, 2);
  for (const char* each : {"PMI_RANK", "PMIX_NAMESPACE", "OMPI_MCA_btl"}) (void)unsetenv(each);
  EXPECT_EQ(variables.at("PMI_RANK"), "1");
  EXPECT_EQ(variables.at("PMI_SIZE"), "2");
  EXPECT_EQ(variables.at("PMI_FD"), "9");
  EXPECT_EQ(variables.at("PMIX_NAMESPACE"), std::nullopt);
  EXPECT_FALSE(variables.contains("OMPI_MCA_btl"));
}

}  // namespace
}  // namespace tarantella::transport
