#include "src/cli/input.h"

#include <utility>

#include "src/base/units.h"
#include "src/cli/output.h"
namespace sluice::cli {

io::InputStream open_input(const std::string& path, const std::string& option,
                           const std::stop_token& stop) {
  return {path, fmt::format("{} {}", option, path == "-" ? "standard input" : path), stop};
}

void each_line(const std::string& path, const std::stop_token& stop,
               const std::function<Json(const std::string&, const std::string&)>& answer) {
  constexpr size_t kLongestLine = 16 * MiB;
  io::LineStream lines(open_input(path, "--jsonl", stop), kLongestLine);
  std::string line;
  for (int64_t number = 1;; ++number) {
    const std::string where = fmt::format("{}, line {}", path, number);
    if (!lines.next(line, where)) return;
    if (line.empty()) continue;
    print(answer(line, where).dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
  }
}

TextIds::TextIds(Planner& planner, io::InputStream input, bool whole)
    : input_(std::move(input)),
      stream_(planner.checkpoint().need_tokenizer(), true,
              [&planner](uint64_t bytes) {
                planner.machine().hold_input("a word of the text that cannot be cut", bytes);
              }),
      whole_(whole) {}

bool TextIds::read(size_t count) {
  while (ids_.size() < count && !ended_) {
    std::string_view piece = input_.read();
    ended_ = piece.empty();
    if (!whole_ && !ended_) {
      if (line_ended_) stream_.add("\n", ids_);
      line_ended_ = piece.ends_with('\n');
      if (line_ended_) piece.remove_suffix(1);
    }
    empty_ = empty_ && piece.empty();
    ended_ ? stream_.finish({}, ids_) : stream_.add(piece, ids_);
  }
  return ids_.size() >= count;
}

void TextIds::drop(size_t count) {
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(count));
}

// The vector grows by doubling; no byte becomes more than three ids, those of U+FFFD.
uint64_t TextIds::bytes(size_t count) {
  return TokenStream::kBytes + 2 * sizeof(int32_t) * (count + 3 * io::InputStream::kPiece);
}

}  // namespace sluice::cli
