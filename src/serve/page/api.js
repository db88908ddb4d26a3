// Calls to the server that the page came from. Every failure is an Error with a sentence.

import { settings } from './store.js';

const SENTENCES = {
  401: 'The server requires an API key: enter it in Settings.',
  429: 'The server is busy. Try again in a moment.',
  503: 'The server is not ready. Try again in a moment.',
};

async function sentenceOf(response) {
  if (response.status === 401) return SENTENCES[401];
  try {
    const { error } = await response.json();
    const message = error?.message ?? error;
    if (typeof message === 'string' && message) return message;
  } catch {
    // Not ours, as from a proxy: the status must do.
  }
  return SENTENCES[response.status] ?? `The server answered with HTTP status ${response.status}.`;
}

// The response, whatever its status; addresses are relative, so that a proxy may put us anywhere.
export async function ask(path, options = {}) {
  const { key } = settings();
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  try {
    return await fetch(path, { ...options, headers, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('The server cannot be reached. Check that sluice serve is running.');
  }
}

export async function get(path) {
  const response = await ask(path);
  if (!response.ok)
    throw Object.assign(new Error(await sentenceOf(response)), { status: response.status });
  return response;
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    yield* lines;
  }
}

// The events of a streamed answer. One that does not end as it should is an error.
export async function* stream(path, body, signal) {
  const response = await ask(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok)
    throw Object.assign(new Error(await sentenceOf(response)), { status: response.status });
  try {
    for await (const line of linesOf(response.body)) {
      if (!line.startsWith('data:')) continue; // an empty line or a comment
      const data = line.slice(5).trim();
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error)
        throw new Error(event.error.message ?? 'The server stopped this answer after an error.');
      yield event;
    }
  } catch (error) {
    // A TypeError is how browsers say "cut off"; half an event is no JSON.
    if (!(error instanceof TypeError || error instanceof SyntaxError)) throw error;
  }
  throw new Error('The connection ended before the answer was complete.');
}

// The sums over labels of Prometheus counters and gauges, by name without its prefix.
export function parseMetrics(text) {
  const sums = {};
  for (const line of text.split('\n')) {
    const found = /^(?:\w+:|sluice_)?(\w+)(?:\{.*\})? ([-+.\deE]+)(?: \d+)?$/.exec(line.trim());
    if (found) sums[found[1]] = (sums[found[1]] ?? 0) + Number(found[2]);
  }
  return sums;
}
