#include "collective/call_signature.h"

#include "base/fixed_text.h"

namespace tarantella::collective {
namespace {

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::kAllreduce:
      return "allreduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllgather:
      return "allgather";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAlltoall:
      return "alltoall";
    case Operation::kGroup:
      return "group";
    case Operation::kPlan:
      return "plan";
  }
  return "unknown";
}

bool reduces(Operation operation) {
  return operation == Operation::kAllreduce || operation == Operation::kReduceScatter;
}

}  // namespace

void Name::write(const CallSignature& call, const Header& header) {
  write_text(call.name, text);
  hash = header.hash;
}

std::string describe(const Header& header, const Name& name) {
  const Operation operation = header.operation;
  std::string said = name_of(operation);
  if (name.text[0] != '\0') said += text(" \"", name.text.data(), "\"");
  if (operation == Operation::kBarrier || operation == Operation::kPlan) return said;
  if (operation == Operation::kAlltoall) return said + text(" of ", tarantella::name_of(header.dtype));
  if (operation == Operation::kGroup) return said + text(" of ", header.count, " ranks");
  said += text(" of ", header.count, " x ", tarantella::name_of(header.dtype));
  if (reduces(operation)) said += text(" (", tarantella::name_of(header.reduction), ")");
  if (operation == Operation::kBroadcast) said += text(" from rank ", header.root);
  return said;
}

Status difference(int before, const std::string& first, int rank, const std::string& second) {
  return {Code::kMismatch, text("rank ", rank, " called ", second, " while rank ", before, " called ", first,
                                first == second ? ", with other sizes or ranks" : "",
                                "; make the same calls in the same order on every rank")};
}

Status fail_for_difference(NodeGroup& group, const std::string& first, int rank, const std::string& second) {
  return group.fail(difference(group.job_rank(0), first, group.job_rank(rank), second));
}

}  // namespace tarantella::collective
