// What the reader writes next: text, attached files, thinking, and the context that is left.

import { Attachments } from './attach.js';
import { make } from './dom.js';
import { bodyOf, isCompletion, textOf } from './request.js';
import { countTokens, server } from './server.js';
import { saveSettings, settings } from './store.js';

const COUNT_MS = 400; // without a key pressed, before tokens are counted

const part = (id) => document.getElementById(id);
export const isTouch = () => matchMedia('(pointer: coarse)').matches;

export class Composer {
  // `notify(sentence)` shows a fault, or '' none.
  constructor(chat, notify) {
    this.chat = chat;
    this.prompt = part('prompt');
    this.send = part('send');
    this.files = new Attachments(part('files'), (fault) => {
      notify(fault);
      this.measureSoon();
    });
    this.prompt.addEventListener('keydown', (event) => this.onKey(event));
    this.prompt.addEventListener('input', () => this.fit());
    this.prompt.addEventListener('paste', (event) => this.takeFiles(event, event.clipboardData));
    const chatPart = part('chat');
    chatPart.addEventListener('dragover', (event) =>
      event.dataTransfer.types.includes('Files') && event.preventDefault());
    chatPart.addEventListener('drop', (event) => this.takeFiles(event, event.dataTransfer));
    part('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    part('attach').addEventListener('click', () => part('file').click());
    part('file').addEventListener('change', async ({ target }) => {
      await this.files.add([...target.files]);
      target.value = '';
    });
    part('thinking').addEventListener('change', ({ target }) =>
      saveSettings({ ...settings(), thinking: target.value }));
  }

  // Cells of a spreadsheet come as a text and a picture of it: the text is meant.
  takeFiles(event, { files, types }) {
    if (files.length === 0 || types.includes('text/plain')) return;
    event.preventDefault();
    this.files.add([...files]);
  }

  // Enter sends, as Shift+Enter does not; on a phone the button sends.
  onKey(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || isTouch()) return;
    event.preventDefault();
    this.submit();
  }

  submit() {
    const text = this.prompt.value;
    if (this.chat.busy || this.send.disabled) return;
    if (!text.trim() && this.files.files.length === 0) return;
    this.chat.send(text, this.files.take());
    this.prompt.value = '';
    this.fit();
  }

  fit() {
    this.prompt.style.height = 'auto';
    this.prompt.style.height = `${this.prompt.scrollHeight + 2}px`;
    this.measureSoon();
  }

  // Shows what the server and the settings allow.
  showModel() {
    const completion = isCompletion();
    this.prompt.placeholder = completion ? 'Text to continue' : 'Message';
    part('mode').textContent = !completion ? ''
      : server.hasTemplate ? 'Completion: the model continues your text.'
        : 'This model has no chat template: it continues your text.';
    const choice = completion ? null : server.thinking;
    part('thinking-choice').hidden = !choice;
    const values = ['', ...(choice?.values ?? [])];
    part('thinking').replaceChildren(...values.map((value) =>
      make('option', { value }, value || 'default')));
    const { thinking } = settings();
    part('thinking').value = values.includes(thinking) ? thinking : '';
    this.measureSoon();
  }

  measureSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.measure(), COUNT_MS);
  }

  // Shows the tokens of the context that the conversation and what is written here take.
  async measure() {
    const { chat, prompt, files: { files } } = this;
    if (chat.busy || !server.length) return;
    const { conversation } = chat;
    const draft = textOf({ content: prompt.value, files });
    const last = conversation.messages.at(-1);
    if (last) last.used ??= (await countTokens(bodyOf(conversation))) ?? undefined;
    const used = last ? (last.used ?? null) : 0;
    const more = draft ? await countTokens({ prompt: draft, add_special_tokens: false }) : 0;
    if (chat.conversation !== conversation || chat.busy) return;
    const node = part('context');
    node.hidden = used === null || more === null;
    node.textContent = `Context: ${used}${more ? ` + ${more}` : ''} of ${server.length} tokens`;
    node.classList.toggle('error', used + more >= server.length);
  }
}
