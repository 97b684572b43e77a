// Rows of all ranks, gathered or summed while the caller goes on.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "capi/contexts.h"
#include "capi/owner.h"
#include "collective/communicator.h"
#include "engine/compare.h"
#include "timeline/timeline.h"

using namespace tarantella;  // all of this file is its C interface
using namespace tarantella::capi;

namespace {

using collective::Communicator;

struct Part {
  std::string description;  ///< of its rows, for errors and for the comparison over ranks
  DType dtype;
  size_t row_elements;
  uint64_t rows;
  const void* input;
};

struct Rows {
  std::string name;
  std::vector<Part> parts;
  uint32_t training_step;
};

/// What ranks tell each other before their rows.
struct Header {
  uint64_t training_step;
  uint64_t length;  ///< of the description of all parts
  uint64_t hash;    ///< of that description
};
constexpr size_t kHeaderWords = sizeof(Header) / sizeof(uint64_t);

Result<Part> part_of(const tnt_tensor& tensor, uint64_t rows, const void* input) {
  const auto dtype = static_cast<DType>(tensor.dtype);
  if (!is_valid(dtype)) return invalid(text("rows of ", name_of(tensor.name), " have an unknown dtype"));
  Part part{text(name_of(tensor.name), " ", name_of(dtype), " [rows"), dtype, 1, rows, input};
  for (size_t i = 0; i < tensor.dimensions; ++i) {
    part.description += text(", ", tensor.shape[i]);
    part.row_elements *= static_cast<size_t>(tensor.shape[i]);
  }
  part.description += ']';
  return part;
}

Status differ(const std::string& name, const std::string& first, size_t rank, const std::string& other) {
  size_t line = 0;  // the one in which they differ
  for (size_t i = 0; i < std::min(first.size(), other.size()) && first[i] == other[i]; ++i)
    if (first[i] == '\n') line = i + 1;
  const auto at = [line](const std::string& lines) {
    return line < lines.size() ? lines.substr(line, lines.find('\n', line) - line) : "nothing more";
  };
  return {Code::kMismatch, text("rank 0 gathers ", at(first), " for ", name, ", rank ", rank, " ", at(other),
                                "; give the rows of all ranks one type and shape")};
}

/// Collective. The numbers of rows of the parts, rank by rank. kMismatch, on all ranks, where parts or steps differ.
Result<std::vector<uint64_t>> compare(Communicator& comm, const Rows& own) {
  std::string description;
  for (const Part& part : own.parts) description += part.description + '\n';
  const Header header{own.training_step, description.size(), hash_of(description)};
  std::vector<Header> all(static_cast<size_t>(comm.size()));
  const std::vector<uint64_t> words(all.size(), kHeaderWords);
  TNT_RETURN_IF_ERROR(comm.allgather(&header, all.data(), words, DType::kUInt64, own.name));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].training_step != all[0].training_step)
      return Status(Code::kMismatch,
                    text("rank 0 gathers the rows of ", own.name, " in training step ", all[0].training_step,
                         ", rank ", rank, " in step ", all[rank].training_step,
                         "; is it under a condition on a rank's own rows or loss?"));
    if (all[rank].hash == all[0].hash) continue;
    std::vector<uint64_t> lengths;
    for (const Header& each : all) lengths.push_back(each.length);
    const auto texts = engine::allgather_texts(comm, description, lengths, own.name);
    if (!texts.ok()) return texts.status();
    return differ(own.name, texts.value()[0], rank, texts.value()[rank]);
  }
  std::vector<uint64_t> rows;
  for (const Part& part : own.parts) rows.push_back(part.rows);
  std::vector<uint64_t> everyone(all.size() * rows.size());
  const std::vector<uint64_t> counts(all.size(), rows.size());
  TNT_RETURN_IF_ERROR(comm.allgather(rows.data(), everyone.data(), counts, DType::kUInt64, own.name));
  return everyone;
}

Status allgatherv(Communicator& comm, const Rows& own, tnt_allocate allocate, void* user) {
  const auto rows = compare(comm, own);
  if (!rows.ok()) return rows.status();
  std::vector<void*> outputs(own.parts.size());
  if (allocate(user, rows.value().data(), outputs.data()) == 0)
    return {Code::kOutOfMemory, text("no memory for the rows of all ranks of ", own.name)};
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<uint64_t> counts;
    for (size_t at = i; at < rows.value().size(); at += outputs.size())
      counts.push_back(rows.value()[at] * own.parts[i].row_elements);
    TNT_RETURN_IF_ERROR(comm.allgather(own.parts[i].input, outputs[i], counts, own.parts[i].dtype, own.name));
  }
  return {};
}

Status sum(Communicator& comm, const Rows& own, const std::vector<void*>& outputs,
           const std::shared_ptr<const void>& owner) {
  const auto rows = compare(comm, own);
  if (!rows.ok()) return rows.status();
  for (size_t i = 0; i < outputs.size(); ++i)
    TNT_RETURN_IF_ERROR(comm.allreduce(own.parts[i].input, outputs[i],
                                       own.parts[i].rows * own.parts[i].row_elements, own.parts[i].dtype,
                                       Reduction::kSum, own.name, owner));
  return {};
}

/// Has `body(comm, rows)` run on the thread of a context, and then `done`.
template <typename Body>
tnt_code start(uint64_t context_id, const char* name, const tnt_tensor* parts, const void* const* inputs,
               const uint64_t* rows, size_t count, uint32_t training_step, tnt_done done, void* user,
               Body body) noexcept {
  return guarded([&]() -> Status {
    TNT_RETURN_IF_ERROR(check_process(contexts().usable()));
    const auto inside = contexts().enter(context_id);
    if (inside == nullptr) return invalid(text("there is no context ", context_id, "; was it closed?"));
    const auto own = std::make_shared<Rows>(Rows{name_of(name), {}, training_step});
    for (size_t i = 0; i < count; ++i) {
      auto part = part_of(parts[i], rows[i], inputs[i]);
      if (!part.ok()) return part.status();
      own->parts.push_back(std::move(part).value());
    }
    // not the tnt_context, which may go while a task is stuck in a library
    const bool added =
        inside->context().worker.add([engine_context = inside->context().context, own, body, done, user] {
          const auto code = guarded([&]() -> Status {
            const timeline::Span span(timeline::Kind::kExchange, own->name);
            const Status status = engine_context->call([&](Communicator& comm) { return body(comm, *own); });
            return status.ok() ? status : engine_context->group().fail(status);
          });
          done(user, code, tnt_last_error(), nullptr);
        });
    return added ? Status() : Status(Code::kPeerLost, "this rank has closed its context");
  });
}

}  // namespace

extern "C" {

tnt_code tnt_allgather_rows(uint64_t context, const char* name, const tnt_tensor* parts,
                            const void* const* inputs, const uint64_t* rows, size_t count,
                            uint32_t training_step, tnt_allocate allocate, tnt_done done, void* user) {
  return start(context, name, parts, inputs, rows, count, training_step, done, user,
               [allocate, user](Communicator& comm, const Rows& own) {
                 return allgatherv(comm, own, allocate, user);
               });
}

tnt_code tnt_sum_rows(uint64_t context, const char* name, const tnt_tensor* parts, const void* const* inputs,
                      void* const* outputs, const uint64_t* rows, size_t count, uint32_t training_step,
                      tnt_done done, tnt_released released, void* user) {
  std::shared_ptr<const void> owner;
  if (const tnt_code code = make_owner(released, user, owner); code != TNT_OK) return code;
  std::vector<void*> all;
  const tnt_code copied = guarded([&]() -> Status {
    all.assign(outputs, outputs + count);
    return {};
  });
  if (copied != TNT_OK) return copied;
  return start(context, name, parts, inputs, rows, count, training_step, done, user,
               [all = std::move(all), kept = std::move(owner)](Communicator& comm, const Rows& own) {
                 return sum(comm, own, all, kept);
               });
}

}  // extern "C"
