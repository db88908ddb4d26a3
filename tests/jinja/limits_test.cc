// Templates that were written to do harm end soon, with a sentence that says where and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jinja/golden.h"

namespace sluice {
namespace {

using jinja::FaultKind;
using testing::HasSubstr;

struct Bomb {
  const char* name;
  std::string source;
};

std::ostream& operator<<(std::ostream& out, const Bomb& bomb) { return out << bomb.name; }

std::string repeat(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::vector<Bomb> bombs() {
  const std::string loop = "{% for x in range(100000) %}";
  const std::string end = "{% endfor %}";
  return {
      {"nested_loops", repeat(loop, 5) + "x" + repeat(end, 5)},
      {"empty_loops", repeat(loop, 5) + repeat(end, 5)},
      {"recursive_macro", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"},
      {"two_macros", "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}"},
      {"recursive_caller",
       "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}"},
      {"recursive_loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
      {"repeated_text", "{{ 'x' * 1000000000 }}"},
      {"repeated_list", "{{ ([0] * 1000000000) | length }}"},
      {"repeated_twice", "{{ ('x' * 10000000) * 10000000 }}"},
      {"doubled_text",
       "{% set ns = namespace(t='ab') %}" + loop + "{% set ns.t = ns.t + ns.t %}" + end},
      {"doubled_list",
       "{% set ns = namespace(t=[1]) %}" + loop + "{% set ns.t = ns.t + ns.t %}" + end},
      {"doubled_tree",
       "{% set ns = namespace(t=[1]) %}{% for x in range(150) %}{% set ns.t = [ns.t, ns.t] %}"
       "{% endfor %}{{ ns.t == ns.t[0] }}{{ ns.t }}"},
      {"json_of_a_tree",
       "{% set ns = namespace(t=[1]) %}{% for x in range(60) %}{% set ns.t = [ns.t, ns.t] %}"
       "{% endfor %}{{ ns.t | tojson }}"},
      {"deep_list", "{% set ns = namespace(t=[]) %}" + loop + "{% set ns.t = [ns.t] %}" + end},
      {"large_range", "{{ range(1000000000) | list }}"},
      {"many_ranges", loop + "{{ range(100000) | length }}" + end},
      {"wide_format", "{{ '%1000000000d' % 1 }}"},
      {"long_fraction", "{{ '%.1000000000f' % 1.5 }}"},
      {"wide_center", "{{ 'x' | center(1000000000000) }}"},
      {"wide_spec", "{{ '{:>1000000000}'.format(1) }}"},
      {"wide_indent", "{{ ('x\n' * 100000) | indent('y' * 100000) }}"},
      {"large_power", "{{ 10 ** 1000000000 }}"},
      {"large_product", "{% set t = 10 ** 4000 %}{{ t * t }}"},
      {"large_compared", "{% set t = 10 ** 4000 %}{% set u = t + 1 %}" + loop + loop +
                             "{% set b = t < u %}" + end + end},
      {"wrapped", "{{ ('x' * 4000000) | wordwrap(1) }}"},
      {"wrapped_words", "{{ ('a ' * 8000000) | wordwrap(1000000000) }}"},
      {"large_quotients", "{% set t = 10 ** 4000 %}" + loop + "{% set x = t // 7 %}" + end},
      {"replaced", "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}"},
      {"joined", "{{ range(100000) | join('x' * 1000000) }}"},
      {"searched", "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}" + loop +
                       "{{ a.find(b) }}{{ a.count(b) }}{{ b in a }}{{ a.rfind(b) }}" + end},
      {"tags", "{% set a = '<' * 4000000 %}" + loop + "{{ a | striptags | length }}" + end},
      {"comments", "{% set a = '<!--' * 1000000 %}" + loop + "{{ a | striptags | length }}" + end},
      {"blank",
       "{% set a = ' ' * 4000000 %}" + loop + loop + "{% set b = a.strip() %}" + end + end},
      {"windows", "{% set a = 'x' * 4000000 %}" + loop + loop +
                      "{% set b = a.startswith('y', 4000000) %}" + end + end},
      {"parted",
       "{% set a = 'x' * 4000000 %}" + loop + loop + "{% set b = a.partition('y') %}" + end + end},
      {"numbers",
       "{% set a = ' ' * 4000000 %}" + loop + loop + "{% set b = a | int %}" + end + end},
      {"arguments", "{% set a = 'x' * 4000000 %}" + loop + loop +
                        "{% set b = 'y'.removeprefix(a) %}" + end + end},
      {"cut",
       "{% set a = 'x' * 4000000 %}" + loop + loop + "{% set b = a | truncate(9) %}" + end + end},
      {"stripped", "{% set a = 'a' * 4000000 %}" + loop + "{{ a.strip(a) | length }}" + end},
      {"compared", "{% set a = 'a' * 8000000 %}{% set b = 'a' * 8000000 %}" + loop +
                       "{{ a == b }}{{ a < b }}{{ {a: 1}[b] }}" + end},
      {"sorted", loop + "{{ (range(100000) | list | sort(reverse=true))[0] }}" + end},
      {"batched", "{{ [1] | batch(1000000, 'x') | list | length }}" + repeat("{{ 1 }}", 10) + loop +
                      "{{ [1] | batch(1000000, 'x') | first | length }}" + end},
      {"sliced", loop + "{{ [1] | slice(1000000) | list | length }}" + end},
      {"loops_of_loops", "{% set ns = namespace(t=none) %}" + loop +
                             "{% for y in [ns.t] %}{% set ns.t = loop %}{% endfor %}" + end},
      {"expanded", "{{ ('\t' * 1000000).expandtabs(1000000000) }}"},
      {"characters", "{% for c in 'x' * 30000000 %}{{ c }}{% endfor %}"},
      {"long_sum", "{{ 1" + repeat(" + 1", 100000) + " }}"},
      {"long_chain", "{{ x" + repeat("|upper", 100000) + " }}"},
      {"long_path", "{{ x" + repeat(".a", 100000) + " }}"},
      {"deep_brackets", "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}"},
      {"deep_lists", "{{ " + repeat("[", 100000)},
      {"deep_minus", "{{ " + repeat("-", 100000) + "1 }}"},
      {"deep_not", "{{ " + repeat("not ", 100000) + "1 }}"},
      {"deep_if", repeat("{% if 1 %}", 100000)},
      {"deep_else", "{{ 1" + repeat(" if 0 else 1", 100000) + " }}"},
      {"long_template", repeat("x", 5'000'000)},
  };
}

class BombTest : public testing::TestWithParam<Bomb> {};

TEST_P(BombTest, EndsByALimit) {
  try {
    jinja::Context context;
    jinja::Template("bomb.jinja", GetParam().source).render(context);
    ADD_FAILURE() << "it was rendered";
  } catch (const jinja::TemplateError& e) {
    EXPECT_THAT(e.what(), HasSubstr("bomb.jinja, line "));
    EXPECT_EQ(e.fault(), FaultKind::limit) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Jinja, BombTest, testing::ValuesIn(bombs()),
                         [](const auto& bomb) { return bomb.param.name; });

// Each case: the template, the fault's kind, and the sentence.
TEST(JinjaErrors, NameTheTemplateTheLineAndWhatIsWrong) {
  const std::vector<std::tuple<std::string, FaultKind, std::string>> cases{
      {"a\nb {{ x.y }}", FaultKind::undefined, "chat, line 2: 'x' is undefined"},
      {"{{ 1 }}\n\n{% if %}", FaultKind::syntax,
       "chat, line 3: expected an expression, got 'end of statement block'"},
      {"{% set a = none %}\n{{ 'a' +\n a }}", FaultKind::value,
       "chat, line 2: can only concatenate str (not \"NoneType\") to str"},
      {"{{ raise_exception('Roles must alternate') }}", FaultKind::raised,
       "chat, line 1: Roles must alternate"},
      {"{{ [].append(1) }}", FaultKind::security,
       "chat, line 1: access to attribute 'append' of 'list' object is unsafe"},
      {"{% include 'x' %}", FaultKind::security,
       "chat, line 1: {% include %}: a chat template cannot load another"},
      {"{{ x | nope }}", FaultKind::syntax, "chat, line 1: no filter named 'nope'"},
      {"{% for x in y %}", FaultKind::syntax, "chat, line 1: {% endfor %} is missing at the end"},
  };
  for (const auto& [source, kind, message] : cases) {
    try {
      jinja::Context context;
      jinja::Template("chat", source).render(context);
      ADD_FAILURE() << source << " was rendered";
    } catch (const jinja::TemplateError& e) {
      EXPECT_EQ(e.what(), message);
      EXPECT_EQ(e.fault(), kind) << source;
    }
  }
}

// Memory is asked for before it is used, and given back.
TEST(JinjaMemory, IsAskedFor) {
  uint64_t most = 0;
  jinja::Context context({}, [&](uint64_t bytes) {
    EXPECT_GT(bytes, most);
    most = bytes;
    if (bytes > 8 * MiB) fail(ErrorKind::no_fit, "no room");
  });
  EXPECT_EQ(jinja::Template("t", "{{ ('x' * 3000000) | length }}").render(context), "3000000");
  EXPECT_GE(most, 3'000'000U);
  const uint64_t held = context.meter().bytes();
  EXPECT_THROW(jinja::Template("t", "{{ 'x' * 20000000 }}").render(context), Error);
  EXPECT_LE(context.meter().bytes(), held + 64);
}

// Values that hold each other are freed one by one, and also where they hold themselves.
TEST(JinjaMemory, IsGivenBack) {
  jinja::Context context;
  const uint64_t before = context.meter().bytes();
  const std::string chain =
      "{% set ns = namespace(t=none) %}{% for x in range(100000) %}"
      "{% set ns.t = namespace(t=ns.t) %}{% endfor %}";
  EXPECT_EQ(jinja::Template("t", chain + "{% set ns.t = none %}ok").render(context), "ok");
  EXPECT_EQ(jinja::Template("t", chain + "ok").render(context), "ok");
  const std::string knots =
      "{% set ns = namespace() %}{% set ns.a = ns %}{% macro f() %}{{ ns }}{% endmacro %}"
      "{% set ns.f = f %}{% set ns.l = [ns, f] %}ok";
  EXPECT_EQ(jinja::Template("t", knots).render(context), "ok");
  context.registry().clear();
  EXPECT_EQ(context.meter().bytes(), before);
}

TEST(JinjaTime, IsThatOfTheContext) {
  jinja::Context context;
  context.now = 1'700'000'000;
  EXPECT_EQ(jinja::Template("t", "{{ strftime_now('%Y') }}").render(context), "2023");
}

}  // namespace
}  // namespace sluice
