#include "src/serve/batch/batch_index.h"

#include <algorithm>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <tuple>

#include "io/lines.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

using State = BatchEntry::State;

constexpr auto kMostLines = std::numeric_limits<uint32_t>::max();

}  // namespace

size_t count_batch_lines(const io::InputFile& file) {
  size_t lines = 0;
  io::LineReader reader(file, 0);
  while (std::optional<io::LineReader::Line> line = reader.next()) {
    ++lines;
    if (line->number >= kMostLines)
      fail(ErrorKind::refused, "{}: has more than {} lines", file.name(), kMostLines);
  }
  return lines;
}

BatchIndex::BatchIndex(const io::InputFile& file, size_t lines, const RequestLimits& limits,
                       Ledger& ledger, const BatchOutput& output,
                       const std::function<int64_t(const BatchLine&)>& look)
    : file_(file), limits_(limits), lines_(lines) {
  memory_ = Buffer(ledger, Use::runtime, "batch index", lines_ * sizeof(BatchEntry),
                   Buffer::Touch::lazily);
  auto* first = reinterpret_cast<BatchEntry*>(memory_.data());
  io::LineReader reader(file_, limits_.bytes);
  size_t count = 0;
  while (std::optional<io::LineReader::Line> line = reader.next()) {
    check(count < lines_, "a file of requests has more lines than were counted");
    new (first + count++)
        BatchEntry(look_at(line->text, line->offset, line->length, line->number, output, look));
  }
  entries_ = {first, count};
  find_repeated(output);
  sort_entries();
  done_ = std::ranges::count(entries_, State::done, &BatchEntry::state);
  remove_if([](const BatchEntry& e) { return e.state == State::done; });
}

BatchEntry BatchIndex::look_at(std::string_view text, uint64_t offset, uint64_t length,
                               uint64_t number, const BatchOutput& output,
                               const std::function<int64_t(const BatchLine&)>& look) const {
  BatchLine line = parse(text, length, number);
  BatchEntry entry{.id = digest_of(line.id),
                   .offset = offset,
                   .length = static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX)),
                   .line = static_cast<uint32_t>(number),
                   .priority = 0,
                   .state = line.fault.empty() ? State::runs : State::faulty};
  if (output.done(entry.id)) {
    entry.state = State::done;
  } else if (line.fault.empty()) {
    try {
      entry.priority = static_cast<int32_t>(look(line));
    } catch (const Error&) {
      entry.state = State::faulty;
    }
  }
  return entry;
}

// `text` is empty where the line is too long.
BatchLine BatchIndex::parse(std::string_view text, uint64_t length, uint64_t number) const {
  const uint64_t needed = parse_bytes(text);
  std::string fault;
  if (length > limits_.bytes) {
    fault = fmt::format("has {}, but a request may have {} (--max-request-bytes)",
                        format_size(length), format_size(limits_.bytes));
  } else if (needed > limits_.parse_bytes) {
    fault =
        fmt::format("to parse it takes up to {}, for which the budget has no room; raise --memory",
                    format_size(needed));
  }
  if (fault.empty()) {
    BatchLine line = parse_batch_line(text, file_.name(), number);
    line.parse_bytes = needed;
    return line;
  }
  return faulty_batch_line(file_.name(), number,
                           fmt::format("{}, line {}: {}", file_.name(), number, fault));
}

BatchLine BatchIndex::read(const BatchEntry& entry) const {
  std::string text(entry.length <= limits_.bytes ? entry.length : 0, '\0');
  file_.read(entry.offset, text);
  BatchLine line = parse(text, entry.length, entry.line);
  if (entry.state == State::repeated) make_repeated(line, entry.line);
  if (digest_of(line.id) != entry.id)
    fail(ErrorKind::runtime, "{}: has changed while the batch ran", line.where);
  return line;
}

// The first of those that have the same custom_id counts.
void BatchIndex::find_repeated(const BatchOutput& output) {
  std::ranges::sort(entries_, {}, [](const BatchEntry& e) { return std::tuple(e.id, e.line); });
  for (size_t first = 0, i = 1; i < entries_.size(); ++i) {
    if (entries_[i].id != entries_[first].id) {
      first = i;
      continue;
    }
    // The first one's id is needed as it is for those that follow.
    entries_[i].state = State::repeated;
  }
  for (BatchEntry& e : entries_) {
    if (e.state != State::repeated) continue;
    e.id = digest_of(id_of_batch_line(e.line));
    if (output.done(e.id)) e.state = State::done;
  }
}

void BatchIndex::sort_entries() {
  std::ranges::sort(entries_, {},
                    [](const BatchEntry& e) { return std::tuple(e.state, e.priority, e.line); });
}

void BatchIndex::remove_if(const std::function<bool(const BatchEntry&)>& answered) {
  auto rest = std::ranges::remove_if(entries_, answered);
  auto kept = static_cast<size_t>(rest.begin() - entries_.begin());
  memory_.give_back(kept * sizeof(BatchEntry), rest.size() * sizeof(BatchEntry));
  entries_ = entries_.first(kept);
}

}  // namespace sluice
