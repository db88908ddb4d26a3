// Conversations and settings, in this browser only. A conversation is
// {id, changed [ms], system, messages: [{role, content, reasoning, note}]}.

const CONVERSATION = 'sluice.conversation.';
const SETTINGS = 'sluice.settings';
const KEY = 'sluice.key';

function read(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null;
  }
}

const isMessage = (m) =>
  typeof m?.content === 'string' && (m.role === 'user' || m.role === 'assistant');

// The last one changed comes first. What another version has left is passed over.
export function conversations() {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(CONVERSATION))
    .map((key) => read(localStorage, key))
    .filter((c) => Array.isArray(c?.messages) && c.messages.every(isMessage))
    .sort((a, b) => b.changed - a.changed);
}

export function newConversation(system = '') {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16)).join('-');
  return { id, changed: Date.now(), system, messages: [] };
}

// Whether there was room. An empty conversation is not kept.
export function save(conversation) {
  if (conversation.messages.length === 0) return true;
  conversation.changed = Date.now();
  try {
    localStorage.setItem(CONVERSATION + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

export const remove = (conversation) => localStorage.removeItem(CONVERSATION + conversation.id);

export const titleOf = (conversation) =>
  conversation.messages[0]?.content.trim().slice(0, 60) || 'New conversation';

// {model, mode, key} and the sampling parameters that are set, by their names in the API.
export function settings() {
  return { ...read(localStorage, SETTINGS), key: sessionStorage.getItem(KEY) ?? '' };
}

export function saveSettings({ key, ...others }) {
  sessionStorage.setItem(KEY, key);
  localStorage.setItem(SETTINGS, JSON.stringify(others));
}
