#include "src/jinja/run.h"

#include "src/jinja/functions.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

// Bytes of a name beside its value's object.
uint64_t bytes_of(std::string_view name) { return sizeof(Names::value_type) + 64 + name.size(); }

}  // namespace

Changing::Changing(Registry& registry) : registry_(registry), next_(registry.first_) {
  constexpr uint64_t kOwn = sizeof(Changing) + 48;
  registry.meter().take(kOwn);
  charged_ = kOwn;
  if (next_ != nullptr) next_->previous_ = this;
  registry.first_ = this;
}

Changing::~Changing() {
  (previous_ != nullptr ? previous_->next_ : registry_.first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  clear();
  registry_.meter().give(charged_);
}

void Changing::set(std::string_view name, Value value) {
  if (auto at = names.find(name); at != names.end()) {
    std::swap(at->second, value);  // the old one goes when the name has the new one
    return;
  }
  registry_.meter().take(bytes_of(name));
  charged_ += bytes_of(name);
  names.emplace(name, std::move(value));
}

const Value* Changing::find(std::string_view name) const {
  auto at = names.find(name);
  return at == names.end() ? nullptr : &at->second;
}

void Changing::clear() {
  if (!names.empty() || outer) registry_.bury({std::exchange(names, {}), std::move(outer)});
}

void Registry::bury(Contents contents) {
  graves_.push_back(std::move(contents));
  if (digging_) return;
  digging_ = true;
  while (!graves_.empty()) {
    const Contents last = std::move(graves_.back());  // its contents are buried meanwhile
    graves_.pop_back();
  }
  digging_ = false;
}

void Registry::clear() {
  digging_ = true;  // nothing is freed before all are empty
  for (Changing* each = first_; each != nullptr; each = each->next_) each->clear();
  digging_ = false;
  bury({});
}

Value Run::look_up(std::string_view name) {
  for (const Changing* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    meter_.step();
    if (const Value* found = scope->find(name)) return *found;
  }
  if (auto at = variables_.find(name); at != variables_.end()) return at->second;
  if (std::optional<Value> function = find_function(*this, name)) return *std::move(function);
  return make_missing(meter_, fmt::format("'{}' is undefined", name));
}

void Run::assign(const Target& target, Value value) {
  if (target.tuple) return unpack(target, value);
  if (target.attribute.empty()) return define(target.name, std::move(value));
  const Value owner = look_up(target.name);
  Changing* names = owner.is(Kind::object) ? owner.instance().names() : nullptr;
  if (names == nullptr)
    refuse(FaultKind::value, "cannot assign attribute '{}' of '{}', which is not a namespace",
           target.attribute, target.name);
  if (target.attribute.starts_with('_'))
    refuse(FaultKind::security, "a namespace takes no attribute that begins with '_': '{}'",
           target.attribute);
  names->set(target.attribute, std::move(value));
}

void Run::unpack(const Target& target, const Value& value) {
  Level level(meter_);
  need_defined(value);
  Values items = iterate(meter_, value);
  if (items.size() != target.parts.size()) {
    refuse(FaultKind::value, "{} values to unpack, expected {}",
           items.size() < target.parts.size() ? "not enough" : "too many", target.parts.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], std::move(items[i]));
}

Flow Run::execute(const Body& body) {
  for (const auto& statement : body) {
    if (const Flow flow = statement->execute(*this); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Value Run::capture(const Body& body) {
  Buffer text(meter_);
  {
    Scope scope(*this);
    Redirect redirect(*this, text);
    execute(body);
  }
  return make_text(meter_, text.take());
}

Run::Scope::Scope(Run& run, std::shared_ptr<Changing> outer) : run_(run), before_(run.scope_) {
  auto scope = std::make_shared<Changing>(run.registry_);
  scope->outer = std::move(outer);
  run.scope_ = std::move(scope);
}

}  // namespace sluice::jinja
