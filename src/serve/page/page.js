// Joins the page's parts: views, the list of conversations, the composer, settings.

import { get } from './api.js';
import { Chat } from './chat.js';
import { button, make } from './dom.js';
import { Monitor } from './monitor.js';
import * as store from './store.js';

const part = (id) => document.getElementById(id);
const [prompt, send, stop, dialog] = ['prompt', 'send', 'stop', 'settings'].map(part);
const form = dialog.querySelector('form');
const isTouch = () => matchMedia('(pointer: coarse)').matches;

const chat = new Chat({
  log: part('log'),
  said: part('said'),
  onchange: showState,
  onfault: (status) => status === 401 && openSettings('key'),
  onremoved: focusPrompt,
});
const monitor = new Monitor(showReady);
let models = [];
let listed = '';

function showView(name) {
  document.body.dataset.view = name;
  for (const tab of document.querySelectorAll('nav button'))
    tab.ariaCurrent = tab.dataset.show === name;
  if (name === 'monitor') monitor.poll();
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
  if (!isTouch()) prompt.focus();
}

function showState() {
  send.hidden = chat.busy;
  stop.hidden = !chat.busy;
  const all = store.conversations();
  const isShown = ({ id }) => id === chat.conversation.id;
  const key = JSON.stringify(all.map((c) => [c.id, store.titleOf(c), isShown(c)]));
  if (key === listed) return; // who is at a button stays there
  listed = key;
  const rows = all.map((conversation) => {
    const title = store.titleOf(conversation);
    const shown = isShown(conversation);
    const choose = button(title, () => shown ? showView('chat') : open(conversation), 'title');
    choose.ariaCurrent = shown;
    const erase = button('Delete', () => forget(conversation));
    erase.ariaLabel = `Delete ${title}`;
    return make('li', {}, choose, erase);
  });
  part('conversations').replaceChildren(...rows);
}

function forget(conversation) {
  if (!confirm(`Delete "${store.titleOf(conversation)}"?`)) return;
  const shown = conversation.id === chat.conversation.id;
  if (chat.answer?.conversation.id === conversation.id) chat.stop();
  store.remove(conversation);
  if (shown) open(store.newConversation(conversation.system));
  else showState();
  part('new').focus();
}

// When the server became ready, or ceased to be.
async function showReady(ready) {
  send.disabled = !ready;
  if (!ready) return;
  try {
    models = (await (await get('v1/models')).json()).data.map((m) => m.id);
  } catch (error) {
    if (error.status === 401) openSettings('key');
    return;
  }
  const chosen = store.settings();
  if (!models.includes(chosen.model)) store.saveSettings({ ...chosen, model: models[0] });
  part('model').textContent = store.settings().model;
}

function openSettings(field) {
  if (dialog.open) return;
  const chosen = store.settings();
  form.model.replaceChildren(...models.map((id) => make('option', { value: id }, id)));
  for (const input of form.querySelectorAll('[name]')) input.value = chosen[input.name] ?? '';
  form.system.value = chat.conversation.system;
  form.mode.value = chosen.mode ?? 'chat';
  form.model.value = chosen.model;
  dialog.showModal();
  if (field) form[field].focus();
}

dialog.addEventListener('close', () => {
  if (dialog.returnValue !== 'save') return;
  const chosen = {};
  for (const input of form.querySelectorAll('[name]')) {
    const { name, type, value } = input;
    if (name === 'system') chat.conversation.system = value;
    else if (type !== 'number') chosen[name] = value;
    else if (value !== '') chosen[name] = input.valueAsNumber;
  }
  store.saveSettings(chosen);
  store.save(chat.conversation);
  showReady(!send.disabled);
  monitor.poll();
});

function submit() {
  if (chat.busy || send.disabled || !prompt.value.trim()) return;
  chat.send(prompt.value);
  prompt.value = '';
  fitPrompt();
}

function fitPrompt() {
  prompt.style.height = 'auto';
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

// Enter sends, as Shift+Enter does not; on a phone the button sends.
prompt.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || isTouch()) return;
  event.preventDefault();
  submit();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !dialog.open) chat.stop();
});
prompt.addEventListener('input', fitPrompt);
part('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  submit();
});
stop.addEventListener('click', () => chat.stop());
part('new').addEventListener('click', () => open(store.newConversation(chat.conversation.system)));
part('open-settings').addEventListener('click', () => openSettings());
for (const tab of document.querySelectorAll('nav button'))
  tab.addEventListener('click', () => showView(tab.dataset.show));
addEventListener('storage', showState); // another tab wrote
addEventListener('pagehide', () => chat.answer && store.save(chat.answer.conversation));

open(store.conversations()[0] ?? store.newConversation());
monitor.poll();
