// The dialog of settings.

import { make } from './dom.js';
import { server } from './server.js';
import * as store from './store.js';

const dialog = document.getElementById('settings');
const form = dialog.querySelector('form');

export const isOpen = () => dialog.open;

export function openSettings(conversation, field) {
  if (dialog.open) return;
  const chosen = store.settings();
  form.model.replaceChildren(...server.models.map((id) => make('option', { value: id }, id)));
  for (const input of form.querySelectorAll('[name]')) input.value = chosen[input.name] ?? '';
  form.system.value = conversation.system;
  form.mode.value = server.hasTemplate ? (chosen.mode ?? 'chat') : 'text';
  form.mode.disabled = !server.hasTemplate;
  form.model.value = chosen.model;
  dialog.showModal();
  if (field) form[field].focus();
}

// `saved(system)`: the reader chose Save; the settings are kept already.
export function onSaved(saved) {
  dialog.addEventListener('close', () => {
    if (dialog.returnValue !== 'save') return;
    const { mode, thinking } = store.settings();
    const chosen = { mode, thinking };
    for (const { name, type, value, valueAsNumber, disabled } of form.querySelectorAll('[name]')) {
      if (name === 'system' || disabled) continue;
      if (type !== 'number') chosen[name] = value;
      else if (value !== '') chosen[name] = valueAsNumber;
    }
    store.saveSettings(chosen);
    saved(form.system.value);
  });
}
