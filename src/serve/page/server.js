// What the server says of itself: its models, the length of a context, what the template offers.

import { ask, get } from './api.js';

export const server = {
  models: [], // by name
  length: null, // of the context [tokens]
  hasTemplate: true,
  thinking: null, // {name, values}: the variable of the template, and what it may be
};

// How a chat template lets thoughts be switched. Only what it tests is offered: texts in it and
// members of messages may have the same names.
export function thinkingOf(template) {
  if (/\benable_thinking\b/.test(template))
    return { name: 'enable_thinking', values: ['on', 'off'] };
  if (/\{%[^%]*\b(?:if|elif|and|or|not)\s+\(*\s*thinking\b/.test(template))
    return { name: 'thinking', values: ['on', 'off'] };
  if (/\breasoning_effort\b/.test(template)) {
    const none = /reasoning_effort\b[^%}]*['"]none['"]/.test(template) ? ['none'] : [];
    return { name: 'reasoning_effort', values: [...none, 'low', 'medium', 'high'] };
  }
  return null;
}

// Asks again, as another model may have been loaded.
export async function look() {
  const [models, info] = await Promise.all(
    ['v1/models', 'tokenizer_info'].map((path) => get(path).then((r) => r.json())));
  const template = info.chat_template ?? null;
  server.models = models.data.map((m) => m.id);
  server.length = models.data[0]?.max_model_len ?? null;
  server.hasTemplate = template !== null;
  server.thinking = template && thinkingOf(template);
}

// The tokens of {messages} or {prompt}, or null where the server does not say.
export async function countTokens(body) {
  const response = await ask('tokenize', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  }).catch(() => null);
  return response?.ok ? (await response.json()).count : null;
}
