// Conversations and settings, in this browser only. A conversation is
// {id, changed [ms], system, title, messages}, a message
// {key, role, content, files, reasoning, note, used}: `files` [{name, text}] belong to what the
// user wrote, `used` is the context in tokens behind an answer. A message without `key` is not kept
// yet, one that is `unkept` could not be.

import { messagesOf, tell, transact, valueOf } from './database.js';

const OLD = 'sluice.conversation.'; // keys of localStorage, where conversations were kept once
const SETTINGS = 'sluice.settings';
const KEY = 'sluice.key';

let heads = [];
let lastFault = null;
let unkeptSettings = null;
let writing = Promise.resolve(); // one write after the other: none adds a message twice
const unkept = new Map(); // id to conversation, of those that are not kept as they are

function read(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null;
  }
}

const isFile = (file) => typeof file?.name === 'string' && typeof file.text === 'string';
const isMessage = (m) =>
  typeof m?.content === 'string' && (m.role === 'user' || m.role === 'assistant') &&
  (m.files === undefined || (Array.isArray(m.files) && m.files.every(isFile)));

// Whether this may be shown, whoever wrote it.
export const isConversation = (c) =>
  typeof c?.id === 'string' && Array.isArray(c.messages) && c.messages.every(isMessage);

export function newConversation(system = '') {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16)).join('-');
  return { id, changed: Date.now(), system, title: '', messages: [] };
}

const titleOf = ({ content = '', files = [] } = {}) =>
  (content.trim() || files[0]?.name || '').slice(0, 60);

function recordOf(message, id) {
  const { key, role, content, files, reasoning, note, used } = message;
  return { ...(key && { key }), conversation: id, role, content, files, reasoning, note, used };
}

// The heads of all conversations; the last one changed comes first.
export function conversations() {
  const all = new Map(heads.map((head) => [head.id, head]));
  for (const [id, each] of unkept)
    all.set(id, { ...each, title: each.title || titleOf(each.messages[0]) });
  return [...all.values()].sort((a, b) => b.changed - a.changed);
}

// Reads the heads again.
export async function refresh() {
  heads = await transact('readonly', (all) => valueOf(all.getAll()));
}

// A conversation with its messages, or null.
export async function load(id) {
  await writing; // what this tab has just said is there
  if (unkept.has(id)) return unkept.get(id);
  return transact('readonly', async (all, messages) => {
    const head = await valueOf(all.get(id));
    return head ? { ...head, messages: await messagesOf(messages, id) } : null;
  });
}

function change(work) {
  const done = writing.then(work);
  writing = done.catch(() => {});
  return done;
}

async function write(conversation, changed) {
  const { id } = conversation;
  const written = await transact('readwrite', async (all, messages) => {
    const old = await valueOf(all.get(id));
    if (!old && changed.every((message) => message.key)) return null; // removed in another tab
    const shown = { id, changed: Date.now(), system: conversation.system,
      title: old?.title || titleOf(conversation.messages[0]) };
    await valueOf(all.put(shown));
    const keys = [];
    for (const message of changed) {
      // What another tab has removed stays removed.
      const gone = message.key && !(await valueOf(messages.get(message.key)));
      keys.push(gone ? message.key : await valueOf(messages.put(recordOf(message, id))));
    }
    return [shown, keys];
  });
  unkept.delete(id);
  if (!written) return;
  const [head, keys] = written;
  changed.forEach((message, i) => Object.assign(message, { key: keys[i], unkept: false }));
  Object.assign(conversation, { changed: head.changed, title: head.title });
  heads = [head, ...heads.filter((h) => h.id !== id)];
  tell(id);
}

// Keeps new and changed messages, and whatever was not kept before. False where there is no room.
export function keep(conversation, messages = []) {
  return change(async () => {
    const isLeft = (message) => !message.key || message.unkept;
    const all = new Set([...messages, ...conversation.messages.filter(isLeft)]);
    if (all.size === 0 && !heads.some((h) => h.id === conversation.id)) return true; // empty
    try {
      await write(conversation, [...all]);
      return true;
    } catch (error) {
      lastFault = error;
      for (const message of all) message.unkept = true;
      unkept.set(conversation.id, Object.assign(conversation, { changed: Date.now() }));
      return false;
    }
  });
}

// Removes messages; the next one that comes first gives the title.
export function removeMessages({ id }, gone) {
  return change(async () => {
    await transact('readwrite', async (all, messages) => {
      for (const { key } of gone) if (key) messages.delete(key);
      const head = await valueOf(all.get(id));
      const first = (await messagesOf(messages, id))[0];
      if (head) all.put({ ...head, title: titleOf(first) });
    });
    await refresh();
    tell(id);
  }).catch(() => {});
}

// Removes a conversation, which may make room for others.
export async function remove(id) {
  unkept.delete(id);
  heads = heads.filter((head) => head.id !== id);
  await change(async () => {
    await transact('readwrite', async (all, messages) => {
      all.delete(id);
      for (const key of await valueOf(messages.index('conversation').getAllKeys(id)))
        messages.delete(key);
    });
    tell(id);
  }).catch(() => {});
  await keepRest();
}

// Whether everything is kept now.
export async function keepRest() {
  for (const conversation of [...unkept.values()]) await keep(conversation);
  return unkept.size === 0;
}

// Adds a conversation from elsewhere: what goes on where one of its id ends is put behind that one,
// what differs from it becomes another one. False where all of it is there.
export function add({ id, changed, system, messages: own }) {
  return change(async () => {
    const added = await transact('readwrite', async (all, messages) => {
      const there = (await valueOf(all.get(id))) ? await messagesOf(messages, id) : [];
      const differs = (m, i) => m.role !== own[i]?.role || m.content !== own[i].content;
      const first = there.findIndex(differs);
      const shared = first < 0 ? there.length : first;
      if (own.length === shared) return null;
      const name = first < 0 ? id : newConversation().id;
      all.put({ id: name, changed: Number.isFinite(changed) ? changed : Date.now(),
        system: `${system ?? ''}`, title: titleOf(own[0]) });
      for (const message of own.slice(first < 0 ? shared : 0))
        messages.put(recordOf({ ...message, key: undefined }, name));
      return name;
    });
    if (added) tell(added);
    return added !== null;
  });
}

// Moves conversations out of localStorage. What another version has left is passed over, and what
// there is no room for stays.
async function migrate() {
  for (const key of Object.keys(localStorage).filter((k) => k.startsWith(OLD))) {
    const conversation = read(localStorage, key);
    if (!isConversation(conversation)) continue;
    if (conversation.messages.length > 0) await add(conversation);
    localStorage.removeItem(key);
  }
}

// False where this browser lets the page keep nothing, or not all of it.
export async function begin() {
  try {
    await migrate();
    await refresh();
    return true;
  } catch (error) {
    lastFault = error;
    await refresh().catch(() => {});
    return false;
  }
}

// Why something could not be kept.
export const fault = () => lastFault?.name === 'QuotaExceededError'
  ? 'The browser has no room left.' : 'This browser cannot store conversations.';

// {model, mode, thinking, key} and the sampling parameters that are set, by their names in the API.
export function settings() {
  const chosen = unkeptSettings ?? read(localStorage, SETTINGS);
  return { ...chosen, key: sessionStorage.getItem(KEY) ?? '' };
}

export function saveSettings({ key, ...others }) {
  sessionStorage.setItem(KEY, key);
  unkeptSettings = others;
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(others));
    unkeptSettings = null;
  } catch {
    // No room: they last until the page is closed.
  }
}
