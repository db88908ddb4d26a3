// The `loop` of a for loop.
#pragma once

#include <memory>
#include <string>

#include "src/jinja/run.h"

namespace sluice::jinja {

class Loop : public Instance, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Run& run, const For& statement, Value items, int depth);

  void go_to(size_t index) { index_ = index; }
  std::string type() const override { return "LoopContext"; }
  std::string shown() const override;
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return statement_.recursive; }
  Value call(const Arguments& arguments) override;

 private:
  Value neighbour(size_t index, bool there, std::string_view what) const;
  Value cycle(const Arguments& arguments);
  Value changed(const Arguments& arguments);
  Value method(const char* name, Value (Loop::*action)(const Arguments&));

  Run& run_;
  const For& statement_;
  std::shared_ptr<Changing> outer_;  // names outside of the loop
  Value items_;                      // a list
  size_t index_ = 0;
  int depth_;
  Value last_;  // of changed()
};

}  // namespace sluice::jinja
