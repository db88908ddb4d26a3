// The request for the next answer, and what is said below that answer.

import { countTokens, server } from './server.js';
import { settings } from './store.js';

const SAMPLING =
  ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];

// Whether texts are continued, rather than turns of a chat answered.
export const isCompletion = () => !server.hasTemplate || settings().mode === 'text';

// What is sent of a message: its files in fences that do not occur in them, then its text.
export function textOf({ content, files = [] }) {
  const parts = files.map(({ name, text }) => {
    const ticks = [...text.matchAll(/`+/g)].reduce((most, [run]) => Math.max(most, run.length), 2);
    const fence = '`'.repeat(ticks + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
  });
  return [...parts, ...(content || parts.length === 0 ? [content] : [])].join('\n\n');
}

// The body of what the conversation says.
export function bodyOf({ messages, system }) {
  const said = messages.filter((m) => m.role === 'user' || m.content);
  if (isCompletion()) return { prompt: said.map(textOf).join('') };
  const turns = said.map((m) => ({ role: m.role, content: textOf(m) }));
  return { messages: system ? [{ role: 'system', content: system }, ...turns] : turns };
}

function thinkingFields({ thinking }) {
  const choice = server.thinking;
  if (isCompletion() || !choice?.values.includes(thinking)) return {};
  if (choice.name === 'reasoning_effort') return { reasoning_effort: thinking };
  return { chat_template_kwargs: { [choice.name]: thinking === 'on' } };
}

// Leaves out the oldest turns where the context has no room for an answer: the newest half of a
// context is kept. Returns how many messages were left out.
async function fit(body, most) {
  const { messages } = body;
  const starts = messages.flatMap((m, i) => (m.role === 'user' ? [i] : []));
  const [head, turns] = [messages.slice(0, starts[0]), messages.slice(starts[0])];
  const bytes = messages.reduce((sum, m) => sum + new Blob([m.content]).size, 0);
  if (starts.length < 2 || bytes < most) return 0; // a token has a byte at least
  const since = (turn) => ({ messages: [...head, ...messages.slice(starts[turn])] });
  const count = await countTokens(body);
  if (count === null || count <= most) return 0;
  let [low, high] = [1, starts.length - 1]; // the first turn that is kept
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((await countTokens(since(middle))) <= server.length / 2) high = middle;
    else low = middle + 1;
  }
  body.messages = since(low).messages;
  return turns.length - (messages.length - starts[low]);
}

// {path, body, left: messages that are left out} of the next answer.
export async function requestFor(conversation) {
  const chosen = settings();
  const body = { stream: true, stream_options: { include_usage: true }, ...thinkingFields(chosen),
    ...bodyOf(conversation) };
  if (chosen.model) body.model = chosen.model; // else it is not known yet: the server's first one
  for (const name of SAMPLING) if (typeof chosen[name] === 'number') body[name] = chosen[name];
  if (body.prompt !== undefined) return { path: 'v1/completions', body, left: 0 };
  const { length } = server;
  const room = Math.min(body.max_tokens ?? Infinity, length / 4);
  const left = length ? await fit(body, length - room) : 0;
  return { path: 'v1/chat/completions', body, left };
}

// Size and speed of an answer, and what was not computed again.
export function noteOf({ begun, first, usage, reason, left }) {
  const parts = [];
  if (usage) {
    const { prompt_tokens, completion_tokens, prompt_tokens_details } = usage;
    const seconds = (performance.now() - first) / 1000;
    parts.push(`${completion_tokens} tokens`);
    if (completion_tokens > 1 && seconds > 0)
      parts.push(`${((completion_tokens - 1) / seconds).toFixed(1)} tokens/s`);
    const cached = prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${prompt_tokens} tokens${cached ? `, ${cached} cached` : ''}`);
  }
  if (first) parts.push(`first token ${((first - begun) / 1000).toFixed(2)} s`);
  if (reason) parts.push(reason);
  if (left) parts.push(`context full: ${left} oldest messages left out`);
  return parts.join(' · ');
}
