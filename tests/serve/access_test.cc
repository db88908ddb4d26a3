// Keys, pages of other origins, memory, and metrics: what a server decides without the network.
#include "src/serve/access.h"

#include <gtest/gtest.h>

#include "src/serve/metrics.h"

namespace sluice {
namespace {

int status_of(const Access& access, std::string_view path, const Requester& who) {
  try {
    access.check(*find_route(path), who);
    return 200;
  } catch (const Refusal& refusal) {
    return refusal.status;
  }
}

TEST(Access, KeysAreForAllThatCosts) {
  const Access access({.key = "secret"});
  EXPECT_EQ(status_of(access, "/v1/completions", {}), 401);
  EXPECT_EQ(status_of(access, "/v1/completions", {.authorization = "Bearer secret"}), 200);
  EXPECT_EQ(status_of(access, "/v1/completions", {.authorization = "bearer secret"}), 200);
  EXPECT_EQ(status_of(access, "/v1/completions", {.authorization = "Bearer secre"}), 401);
  EXPECT_EQ(status_of(access, "/v1/completions", {.authorization = "secret"}), 401);
  EXPECT_EQ(status_of(access, "/v1/models/m", {.api_key = "secret"}), 200);
  EXPECT_EQ(status_of(access, "/v1/models/m", {.api_key = ""}), 401);
  EXPECT_EQ(status_of(access, "/health", {}), 200);
  EXPECT_EQ(status_of(Access(AccessRules{}), "/v1/completions", {}), 200);
}

TEST(Access, OtherPagesMayNotAsk) {
  const Access none(AccessRules{}), one({.origins = {"https://a.org/"}}), all({.origins = {"*"}});
  const Requester own{.host = "localhost:8000", .origin = "http://localhost:8000"};
  const Requester other{.host = "localhost:8000", .origin = "https://a.org"};
  const Requester null{.host = "localhost:8000", .origin = "null"};
  EXPECT_EQ(status_of(none, "/v1/completions", own), 200);
  EXPECT_EQ(status_of(none, "/v1/completions", other), 403);
  EXPECT_EQ(status_of(none, "/v1/completions", null), 403);
  EXPECT_EQ(status_of(one, "/v1/completions", other), 200);
  EXPECT_EQ(status_of(one, "/v1/completions", null), 403);
  EXPECT_EQ(status_of(all, "/v1/completions", null), 200);
  EXPECT_EQ(none.cors_lines("https://a.org"), "");
  EXPECT_EQ(one.cors_lines("https://b.org"), "");
  EXPECT_NE(one.cors_lines("https://a.org").find("Allow-Origin: https://a.org\r\n"),
            std::string::npos);
  EXPECT_EQ(all.cors_lines("a\r\nSet-Cookie: x"), "");
}

int host_status(const AccessRules& rules, std::string_view host) {
  try {
    Access(rules).check_host(host);
    return 200;
  } catch (const Refusal& refusal) {
    return refusal.status;
  }
}

// A page's name can be made to point here after it was loaded; then it is "same origin".
TEST(Access, OnlyThisMachineMayCallALoopbackAddress) {
  const AccessRules local{.address = "127.0.0.1"};
  for (const char* host :
       {"localhost", "localhost:8000", "LocalHost:80", "localhost.", "a.localhost",
        "A.LOCALHOST.:1", "127.0.0.1", "127.0.0.1:8000", "127.1.2.3:8000", "127.0.0.1.", "[::1]",
        "[::1]:8000", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "0.0.0.0:8000", "[::]:8000",
        "10.0.0.1:8000", "[2001:db8::1]", ""})
    EXPECT_EQ(host_status(local, host), 200) << host;
  for (const char* host : {"evil.example", "evil.example:8000", "evil.example.",
                           "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost",
                           "notlocalhost:8000", "127.1", "2130706433", "0x7f.1", ".", ":8000"})
    EXPECT_EQ(host_status(local, host), 403) << host;
  for (const char* host : {"[::1", "::1", "[evil.example]", "localhost:x", "localhost:123456",
                           "local host", "a@localhost", "localhost/", "\xC3\xA4.example", "[::1]x"})
    EXPECT_EQ(host_status(local, host), 400) << host;
}

TEST(Access, FurtherNamesAreWhatOptionsGive) {
  const AccessRules named{.hosts = {"App.Example:8000", "box"}, .address = "::1"};
  for (const char* host : {"app.example", "APP.example:1", "app.example.", "box:8000"})
    EXPECT_EQ(host_status(named, host), 200) << host;
  for (const char* host : {"x.app.example", "app.example.evil.example", "boxes"})
    EXPECT_EQ(host_status(named, host), 403) << host;
  const AccessRules page{.origins = {"https://app.example:8443"}, .address = "localhost"};
  EXPECT_EQ(host_status(page, "app.example"), 200);
  EXPECT_EQ(host_status(page, "evil.example"), 403);
  EXPECT_EQ(host_status({.hosts = {"*"}, .address = "127.0.0.1"}, "evil.example"), 200);
  EXPECT_EQ(host_status({.origins = {"*"}, .address = "127.0.0.1"}, "evil.example"), 200);
  try {
    Access(named).check_host("evil.example:8000");
    FAIL();
  } catch (const Refusal& refusal) {
    EXPECT_STREQ(
        refusal.what(),
        "this server is not called \"evil.example\"; --allowed-host allows a further name");
  }
}

// Keys keep others out; and who lets other machines in has names for them.
TEST(Access, ServersForOthersHaveAnyName) {
  EXPECT_EQ(host_status({.key = "k", .address = "127.0.0.1"}, "evil.example"), 200);
  for (const char* address : {"0.0.0.0", "::", "192.168.1.2"})
    EXPECT_EQ(host_status({.address = address}, "box.example"), 200) << address;
  EXPECT_EQ(host_status({.address = "0.0.0.0"}, "a b"), 400);
  for (const char* address : {"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback(address)) << address;
  for (const char* address : {"0.0.0.0", "::", "127.x", "localhosts", "", "128.0.0.1"})
    EXPECT_FALSE(is_loopback(address)) << address;
}

TEST(RequestMemory, IsNeverExceeded) {
  RequestMemory memory(100);
  std::optional<RequestMemory::Share> a = memory.take(60);
  ASSERT_TRUE(a);
  EXPECT_FALSE(memory.take(41));
  std::optional<RequestMemory::Share> b = memory.take(40);
  ASSERT_TRUE(b);
  EXPECT_FALSE(b->grow(1));
  EXPECT_TRUE(a->resize(10));
  EXPECT_TRUE(b->grow(50));
  EXPECT_EQ(memory.used(), 100u);
  RequestMemory::Share moved = *std::move(b);
  b.reset();
  EXPECT_EQ(memory.used(), 100u);
  moved = {};
  EXPECT_EQ(memory.used(), 10u);
  a.reset();
  EXPECT_EQ(memory.used(), 0u);
}

TEST(Metrics, EachLineIsOnesThatPrometheusReads) {
  Metrics metrics;
  RequestResult result;
  result.finish_reason = "stop";
  result.ids = {1, 2, 3};
  result.prefill_seconds = 0.03;
  result.decode_seconds = 0.5;
  metrics.set_facts({.block_size = 16, .cache_dtype = "bf16", .version = "1", .max_model_len = 60});
  Request asked;
  asked.max_tokens = 30;
  metrics.add_result(result, 7, asked);
  metrics.add_refusal(429);
  metrics.add_response("/v1/completions", "POST", 200, 0.5);
  metrics.add_response("/v1/completions", "POST", 204, 1);
  metrics.add_response("/v1/completions", "POST", 503, 0.25);
  LoopStatus loop;
  loop.waiting = 2;
  loop.stats.prompt_tokens = 30;
  loop.stats.prefix_tokens = 16;
  loop.stats.drafted = 8;
  loop.stats.accepted = 5;
  loop.stats.steps = 3;
  loop.stats.rows = 21;
  const std::string text = metrics.text("a \"b\"\n\xFF", loop, {.sleeping = true});
  auto has = [&](const std::string& line) { return text.find(line + "\n") != std::string::npos; };
  const std::string label = "model_name=\"a \\\"b\\\" \uFFFD\",engine=\"0\"";
  EXPECT_TRUE(has("vllm:request_success_total{" + label + ",finished_reason=\"stop\"} 1")) << text;
  EXPECT_TRUE(has("sluice:requests_refused_total{" + label + ",status=\"429\"} 1"));
  EXPECT_TRUE(has("vllm:time_to_first_token_seconds_bucket{" + label + ",le=\"0.02\"} 0"));
  EXPECT_TRUE(has("vllm:time_to_first_token_seconds_bucket{" + label + ",le=\"0.04\"} 1"));
  EXPECT_TRUE(has("vllm:request_time_per_output_token_seconds_sum{" + label + "} 0.25"));
  // The panels of vLLM's board read these.
  EXPECT_TRUE(has("vllm:inter_token_latency_seconds_count{" + label + "} 2"));
  EXPECT_TRUE(has("vllm:request_prompt_tokens_bucket{" + label + ",le=\"5.0\"} 0"));
  EXPECT_TRUE(has("vllm:request_prompt_tokens_bucket{" + label + ",le=\"10.0\"} 1"));
  EXPECT_TRUE(has("vllm:request_prompt_tokens_bucket{" + label + ",le=\"50.0\"} 1"));
  EXPECT_FALSE(has("vllm:request_prompt_tokens_bucket{" + label + ",le=\"100.0\"} 1"));
  EXPECT_TRUE(has("vllm:request_generation_tokens_sum{" + label + "} 3"));
  EXPECT_TRUE(has("vllm:request_max_num_generation_tokens_sum{" + label + "} 30"));
  EXPECT_TRUE(has("sluice:build_info{" + label + ",version=\"1\"} 1"));
  EXPECT_NE(text.find("\nvllm:cache_config_info{" + label + ",block_size=\"16\""), text.npos);
  for (const char* name : {"start_time_seconds", "cpu_seconds_total", "resident_memory_bytes",
                           "virtual_memory_bytes", "open_fds", "max_fds"})
    EXPECT_NE(text.find(std::string("\nprocess_") + name + " "), text.npos) << name;
  // The boards of instances, KV caches and drafts read these.
  EXPECT_TRUE(has("vllm:prompt_tokens_by_source_total{" + label + ",source=\"local_compute\"} 14"));
  EXPECT_TRUE(
      has("vllm:prompt_tokens_by_source_total{" + label + ",source=\"local_cache_hit\"} 16"));
  EXPECT_TRUE(has("vllm:prompt_tokens_cached_total{" + label + "} 16"));
  EXPECT_TRUE(has("vllm:spec_decode_num_draft_tokens_total{" + label + "} 8"));
  EXPECT_TRUE(has("vllm:spec_decode_num_accepted_tokens_total{" + label + "} 5"));
  EXPECT_TRUE(has("vllm:iteration_tokens_total_sum{" + label + "} 21"));
  EXPECT_TRUE(has("vllm:iteration_tokens_total_count{" + label + "} 3"));
  EXPECT_TRUE(has("vllm:num_requests_waiting_by_reason{" + label + ",reason=\"capacity\"} 2"));
  EXPECT_TRUE(has("vllm:engine_sleep_state{" + label + ",sleep_state=\"awake\"} 0"));
  EXPECT_TRUE(has("vllm:engine_sleep_state{" + label + ",sleep_state=\"discard_all\"} 1"));
  const std::string handler = "handler=\"/v1/completions\"";
  EXPECT_TRUE(has("http_requests_total{" + handler + ",method=\"POST\",status=\"2xx\"} 2"));
  EXPECT_TRUE(has("http_requests_total{" + handler + ",method=\"POST\",status=\"5xx\"} 1"));
  EXPECT_TRUE(has("http_request_duration_seconds_count{" + handler + "} 3"));
  EXPECT_TRUE(has("http_request_duration_seconds_sum{" + handler + "} 1.75"));
}

}  // namespace
}  // namespace sluice
