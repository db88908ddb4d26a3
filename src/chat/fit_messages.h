// Messages as a chat template takes them: in its roles, with contents that it shows.
#pragma once

#include "src/chat/template_traits.h"
#include "src/jinja/template.h"

namespace sluice {

// Messages of the system where the template has a place for them, and else at the beginning of the
// next message of the user, so that nothing is lost.
jinja::Value place_system(jinja::Meter& meter, const jinja::Value& messages,
                          const TemplateTraits& traits);
// Calls of one message in messages of their own, each before its result, where the template shows
// no more than one of them.
jinja::Value part_calls(jinja::Meter& meter, const jinja::Value& messages,
                        const TemplateTraits& traits);
// Lists of texts where the template goes over them, and else one text; a text in a list where the
// template takes nothing else.
jinja::Value fit_contents(jinja::Meter& meter, const jinja::Value& messages,
                          const TemplateTraits& traits);

}  // namespace sluice
