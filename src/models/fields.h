// Traversal of specs. A spec is a struct with a static function fields(spec, visit), which calls
// visit(...) with its names and with the specs inside of it.
#pragma once

#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

namespace sluice {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;

// Calls visit(T&) with each T among a spec's fields, theirs and so on.
template <class T, class Spec, class Visit>
void each(Spec& spec, Visit&& visit) {
  using Plain = std::remove_const_t<Spec>;
  if constexpr (std::is_same_v<Plain, T>) {
    visit(spec);
  } else if constexpr (is_vector<Plain>) {
    for (auto& element : spec) each<T>(element, visit);
  } else if constexpr (is_optional<Plain>) {
    if (spec) each<T>(*spec, visit);
  } else if constexpr (is_variant<Plain>) {
    std::visit([&](auto& held) { each<T>(held, visit); }, spec);
  } else if constexpr (std::is_class_v<Plain> &&
                       requires { Plain::fields(spec, [](auto&...) {}); }) {
    Plain::fields(spec, [&](auto&... fields) { (each<T>(fields, visit), ...); });
  }
}

}  // namespace sluice
