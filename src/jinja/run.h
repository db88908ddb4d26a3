// One rendering: names, output, and where it is.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/buffer.h"
#include "src/jinja/nodes.h"

namespace sluice::jinja {

using Names = std::map<std::string, Value, std::less<>>;

class Registry;

// Names whose values change: of a scope, or of namespace(). They may come to hold each other, so
// the registry empties them at the end; and what one held, which may be the head of a long chain,
// is freed one after the other instead of one within the other.
class Changing {
 public:
  explicit Changing(Registry& registry);
  ~Changing();
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
  void clear();

  Names names;
  std::shared_ptr<Changing> outer;  // of a scope: where other names are looked up

 private:
  friend class Registry;
  Registry& registry_;
  Changing* previous_ = nullptr;
  Changing* next_ = nullptr;
  uint64_t charged_ = 0;
};

class Registry {
 public:
  explicit Registry(Meter& meter) : meter_(meter) {}
  ~Registry() { clear(); }
  void clear();
  Meter& meter() const { return meter_; }

 private:
  friend class Changing;
  struct Contents {
    Names names;
    std::shared_ptr<Changing> outer;
  };
  void bury(Contents contents);

  Meter& meter_;
  Changing* first_ = nullptr;
  std::vector<Contents> graves_;
  bool digging_ = false;
};

class Run {
 public:
  Run(Meter& meter, Registry& registry, const Names& variables, std::time_t now)
      : meter_(meter),
        registry_(registry),
        variables_(variables),
        scope_(std::make_shared<Changing>(registry)),
        now_(now) {}

  Meter& meter() const { return meter_; }
  Registry& registry() const { return registry_; }
  std::time_t now() const { return now_; }
  int line = 1;  // of what is being evaluated

  Value look_up(std::string_view name);
  void assign(const Target& target, Value value);
  void define(std::string_view name, Value value) { scope_->set(name, std::move(value)); }
  const std::shared_ptr<Changing>& scope() const { return scope_; }

  Flow execute(const Body& body);
  // The text that `body` prints in a scope of its own.
  Value capture(const Body& body);
  void print(std::string_view text) { out_->add(text); }
  Buffer& out() { return *out_; }

  // Names that are set from here on are those of a new scope, within `outer`.
  class Scope {
   public:
    Scope(Run& run, std::shared_ptr<Changing> outer);
    explicit Scope(Run& run) : Scope(run, run.scope_) {}
    ~Scope() { run_.scope_ = std::move(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Run& run_;
    std::shared_ptr<Changing> before_;
  };
  // Prints to `out` from here on, until it ends.
  class Redirect {
   public:
    Redirect(Run& run, Buffer& out) : run_(run), before_(std::exchange(run.out_, &out)) {}
    ~Redirect() { run_.out_ = before_; }
    Redirect(const Redirect&) = delete;
    Redirect& operator=(const Redirect&) = delete;

   private:
    Run& run_;
    Buffer* before_;
  };

 private:
  void unpack(const Target& target, const Value& value);

  Meter& meter_;
  Registry& registry_;
  const Names& variables_;
  std::shared_ptr<Changing> scope_;
  Buffer* out_ = nullptr;
  std::time_t now_;
};

// A macro, or the body of a call block.
Value make_macro(Run& run, const Callable& callable);
Value make_namespace(Run& run, Names names);

}  // namespace sluice::jinja
