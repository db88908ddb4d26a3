#include "src/models/own_tensors.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

int64_t first_output(const Piece& piece) {
  return piece.stored_output(piece.vector ? piece.cut.col : piece.cut.row);
}

}  // namespace

void read_own_tensors(CausalLM& root) {
  std::map<std::pair<std::string, int64_t>, std::vector<Piece*>> matrices;  // by tensor, in a stack
  root.each_param([&](Param& param) {
    for (Piece& piece : param.pieces)
      matrices[{piece.source, piece.view.index.value_or(-1)}].push_back(&piece);
  });
  for (auto& [name, pieces] : matrices) {
    std::ranges::stable_sort(pieces, {}, [](const Piece* piece) { return first_output(*piece); });
    int64_t first = 0;
    for (Piece* piece : pieces) {
      const int64_t outputs = piece->vector ? piece->cut.cols : piece->cut.rows;
      piece->view.first = first;
      piece->view.stored = 0;
      piece->view.again = false;
      piece->view.group = piece->view.stride = std::max<int64_t>(outputs, 1);
      piece->rows = piece->cut.rows;
      piece->cols = piece->cut.cols;
      piece->cut = {0, piece->rows, 0, piece->cols};
      piece->shard = Shard::whole();
      first += outputs;
    }
  }
}

}  // namespace sluice
