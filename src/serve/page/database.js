// The browser's database (IndexedDB), and word of what changed between tabs.
//
// "conversations" has the heads {id, changed [ms], system, title}; "messages" has a record for each
// message, whose keys count up in the order of their making. A tab adds, replaces and removes
// single messages, never a whole conversation: two tabs cannot overwrite what the other one added.

const channel = new BroadcastChannel('sluice');

// The value of a request.
export const valueOf = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function open() {
  const request = indexedDB.open('sluice', 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore('conversations', { keyPath: 'id' });
    request.result.createObjectStore('messages', { keyPath: 'key', autoIncrement: true })
      .createIndex('conversation', 'conversation');
  };
  const database = await valueOf(request);
  database.onversionchange = () => database.close(); // a newer page is in another tab
  return database;
}

let opened = null;

// What `work(conversations, messages)` returns, once all that it wrote is kept. Nothing of it is
// kept where this throws, as where the browser has no room.
export async function transact(mode, work) {
  opened ??= open();
  const transaction = (await opened).transaction(['conversations', 'messages'], mode);
  const ended = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error('The browser stopped it.'));
  });
  const stores = ['conversations', 'messages'].map((name) => transaction.objectStore(name));
  const [value] = await Promise.all([work(...stores), ended]);
  return value;
}

export const messagesOf = (messages, id) => valueOf(messages.index('conversation').getAll(id));

// Tells the other tabs that a conversation changed.
export const tell = (id) => channel.postMessage(id);

// `hear(id)`: another tab changed this conversation.
export const listen = (hear) => channel.addEventListener('message', ({ data }) => hear(data));
