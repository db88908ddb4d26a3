// Joins the page's parts: views, the list of conversations, the composer, settings.

import { Chat } from './chat.js';
import { Composer, isTouch } from './composer.js';
import { listen } from './database.js';
import { List } from './list.js';
import { Monitor } from './monitor.js';
import { look, server } from './server.js';
import { isOpen, onSaved, openSettings } from './settings.js';
import * as store from './store.js';

const part = (id) => document.getElementById(id);
const LOST = 'What is marked "not stored" is lost when this page is closed. Delete conversations ' +
  'to make room, or export them.';

const chat = new Chat({
  log: part('log'),
  said: part('said'),
  onchange: showState,
  onfault: (status) => status === 401 && openSettings(chat.conversation, 'key'),
  onremoved: focusPrompt,
  onkept: (kept) => showRoom(kept),
});
const composer = new Composer(chat, (fault) => notify('attached', fault));
const list = new List({
  open: (head) => openHead(head),
  forget,
  shown: () => chat.conversation.id,
  showChat: () => showView('chat'),
  imported: () => chat.refresh(),
});
const monitor = new Monitor(showReady);

// What the reader has to know, until it is no longer so.
function notify(id, sentence) {
  const node = part(id);
  node.hidden = !sentence;
  if (node.textContent !== sentence) node.textContent = sentence;
}

async function showRoom(kept) {
  const waiting = chat.conversation.messages.filter((message) => message.unkept);
  const all = kept && (await store.keepRest());
  waiting.forEach((message) => chat.paint(message));
  notify('room', all ? '' : `${store.fault()} ${LOST}`);
}

function showView(name) {
  document.body.dataset.view = name;
  for (const tab of document.querySelectorAll('nav button'))
    tab.ariaCurrent = tab.dataset.show === name;
  if (name === 'monitor') monitor.poll();
}

async function openHead(head) {
  const conversation = await store.load(head.id).catch(() => null);
  open(conversation ?? store.newConversation());
}

function open(conversation) {
  const arriving = chat.answer?.conversation;
  chat.show(arriving?.id === conversation.id ? arriving : conversation);
  showView('chat');
  showState();
  focusPrompt();
}

// Not on a phone, whose keyboard would cover the messages.
function focusPrompt() {
  if (!isTouch()) composer.prompt.focus();
}

function showState() {
  part('send').hidden = chat.busy;
  part('stop').hidden = !chat.busy;
  list.show();
  composer.measureSoon();
}

async function forget({ id }) {
  const { conversation } = chat;
  if (chat.answer?.conversation.id === id) chat.stop();
  await store.remove(id);
  await showRoom(true);
  if (conversation.id === id) open(store.newConversation(conversation.system));
  else showState();
  part('new').focus();
}

// Another tab changed a conversation.
async function hear(id) {
  await store.refresh().catch(() => {});
  await showRoom(true); // there may be more now
  const { conversation } = chat;
  if (id === conversation.id && !(await chat.refresh())) {
    if (chat.answer?.conversation === conversation) chat.stop();
    open(store.newConversation(conversation.system));
  }
  showState();
}

// When the server became ready, or ceased to be.
async function showReady(ready) {
  if (ready) {
    try {
      await look();
    } catch (error) {
      if (error.status === 401) openSettings(chat.conversation, 'key');
    }
    const chosen = store.settings();
    const [first] = server.models;
    if (first && !server.models.includes(chosen.model))
      store.saveSettings({ ...chosen, model: first });
    part('model').textContent = store.settings().model ?? '';
    composer.showModel();
    chat.showEmpty();
  }
  part('send').disabled = !ready;
}

onSaved(async (system) => {
  chat.conversation.system = system;
  if (chat.conversation.messages.length > 0) await chat.keep(chat.conversation, []);
  await showReady(!part('send').disabled);
  monitor.poll();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !isOpen()) chat.stop();
});
part('stop').addEventListener('click', () => chat.stop());
part('new').addEventListener('click', () => open(store.newConversation(chat.conversation.system)));
part('open-settings').addEventListener('click', () => openSettings(chat.conversation));
for (const tab of document.querySelectorAll('nav button'))
  tab.addEventListener('click', () => showView(tab.dataset.show));
addEventListener('pagehide', () =>
  chat.answer && store.keep(chat.answer.conversation, [chat.answer.message]));

if (!(await store.begin())) await showRoom(false);
listen(hear);
const [newest] = store.conversations();
await (newest ? openHead(newest) : open(store.newConversation()));
monitor.poll();
