// Conversations to a file and back: JSON, {"format", "version", "conversations": [...]}.

import { make } from './dom.js';
import * as store from './store.js';

const FORMAT = 'sluice-conversations';
const VERSION = 1;

export async function exportAll() {
  const heads = store.conversations();
  const all = (await Promise.all(heads.map(({ id }) => store.load(id)))).filter(Boolean);
  const conversations = all.map(({ id, changed, system, messages }) => ({ id, changed, system,
    messages: messages.map(({ role, content, files, reasoning, note, used }) =>
      ({ role, content, files, reasoning, note, used })) }));
  const text = JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1);
  const href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const day = new Date().toISOString().slice(0, 10);
  make('a', { href, download: `sluice-conversations-${day}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

// Adds what the file has and this browser has not; returns a sentence.
export async function importFrom(file) {
  const refused = new Error(
    `${file.name} holds no conversations: choose a file that Export all has written.`);
  let read;
  try {
    read = JSON.parse(await file.text());
  } catch {
    throw refused;
  }
  const { format, version, conversations } = read ?? {};
  if (format !== FORMAT || !Array.isArray(conversations)) throw refused;
  if (version !== VERSION)
    throw new Error(`${file.name} has format version ${version}: this page reads ${VERSION}.`);
  if (!conversations.every(store.isConversation))
    throw new Error(`${file.name} is damaged: a conversation in it has no valid messages.`);
  let added = 0;
  try {
    for (const conversation of conversations) added += await store.add(conversation);
  } catch {
    throw new Error(`The browser has no room left: ${added} of ${conversations.length} ` +
      'conversations were imported.');
  } finally {
    await store.refresh().catch(() => {});
  }
  const present = conversations.length - added;
  return `${added} imported${present ? `, ${present} already present` : ''}.`;
}
