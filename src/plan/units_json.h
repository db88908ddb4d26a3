// The places of each unit's weights, as reports show them.
#pragma once

#include "src/base/json.h"
#include "src/plan/memory_plan.h"
#include "src/plan/read_plan.h"

namespace sluice {

// A list of {name, place, bytes, host_bytes, read_bytes, streamed_bytes}: of each unit, what stays
// in `memory` ("device", "host"), where it is computed with; what stays in host memory beside that;
// what a load reads; and what each pass over the model reads anew [bytes]. `place` joins the names
// of tiers by "+".
Json units_json(const ReadPlan& read, const RunShape& shape, const char* memory);

}  // namespace sluice
