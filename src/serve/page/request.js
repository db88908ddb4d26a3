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

const bytesOf = (text) => new Blob([text]).size;

// Leaves out the beginning of a text of `count` tokens: about half a context is kept.
function fitText(body, count) {
  const kept = Math.floor((body.prompt.length * server.length) / 2 / count);
  body.prompt = body.prompt.slice(-kept);
  return 'the beginning of the text left out';
}

// Leaves out the oldest turns: as many are kept as half a context takes, and the last one.
async function fitTurns(body) {
  const { messages } = body;
  const starts = messages.flatMap((m, i) => (m.role === 'user' ? [i] : []));
  if (starts.length < 2) return '';
  const since = (turn) => [...messages.slice(0, starts[0]), ...messages.slice(starts[turn])];
  let [low, high] = [1, starts.length - 1]; // the first turn that is kept
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((await countTokens({ messages: since(middle) })) <= server.length / 2) high = middle;
    else low = middle + 1;
  }
  body.messages = since(low);
  return `${messages.length - body.messages.length} oldest messages left out`;
}

// Makes room for an answer where the context has less than a quarter left, or than was asked for.
// Returns what was left out, as words.
async function fit(said, body) {
  const { length } = server;
  if (!length) return '';
  const most = length - Math.min(body.max_tokens ?? Infinity, length / 4);
  const texts = said.prompt !== undefined ? [said.prompt] : said.messages.map((m) => m.content);
  if (texts.reduce((sum, text) => sum + bytesOf(text), 0) < most) return ''; // a token has a byte
  const count = await countTokens(said);
  if (count === null || count <= most) return '';
  return said.prompt !== undefined ? fitText(body, count) : fitTurns(body);
}

// {path, body, left: what is left out} of the next answer.
export async function requestFor(conversation) {
  const chosen = settings();
  const said = bodyOf(conversation);
  const body = { stream: true, stream_options: { include_usage: true }, ...thinkingFields(chosen),
    ...said };
  if (chosen.model) body.model = chosen.model; // else it is not known yet: the server's first one
  for (const name of SAMPLING) if (typeof chosen[name] === 'number') body[name] = chosen[name];
  const path = said.prompt !== undefined ? 'v1/completions' : 'v1/chat/completions';
  return { path, body, left: await fit(said, body) };
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
  if (left) parts.push(`context full: ${left}`);
  return parts.join(' · ');
}
