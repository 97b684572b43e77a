#include "collective/members.h"

namespace tarantella::collective {

Result<std::shared_ptr<Members>> Members::create(std::shared_ptr<transport::Memory> memory) {
  auto table = memory->map(sizeof(Row) * static_cast<size_t>(memory->size()));
  if (!table.ok()) return table.status();
  return std::shared_ptr<Members>(new Members(std::move(memory), std::move(table).value()));
}

}  // namespace tarantella::collective
