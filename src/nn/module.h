// The module tree: built, printed, planned and checked before any memory exists. Building a 70B
// tree costs kilobytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/nn/param.h"

namespace sluice {

class Module {
 public:
  explicit Module(std::string path) : path_(std::move(path)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const { return path_; }

  // Depth first, in declaration order: the one traversal that compile, print, count and verify
  // share.
  template <class Visit>
  void each_param(Visit&& visit) {
    for (auto& param : params_) visit(*param);
    for (auto& child : children_) child->each_param(visit);
  }

 protected:
  Param& add_param(Param param) {
    return *params_.emplace_back(std::make_unique<Param>(std::move(param)));
  }

  template <class M, class... Args>
  M& add_child(Args&&... args) {
    return adopt(std::make_unique<M>(std::forward<Args>(args)...));
  }

  template <class M>
  M& adopt(std::unique_ptr<M> child) {
    M& made = *child;
    children_.push_back(std::move(child));
    return made;
  }

 private:
  std::string path_;
  std::vector<std::unique_ptr<Param>> params_;
  std::vector<std::unique_ptr<Module>> children_;
};

}  // namespace sluice
