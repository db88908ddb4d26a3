// Text files that go with the next message.

import { button, bytesText, make } from './dom.js';

const MOST_BYTES = 1 << 20; // of all files of a message: more fills any context

// Reads a file as {name, text}; an Error says why it cannot be attached.
async function readText(file, room) {
  if (file.size > room)
    throw new Error(`${file.name} is too large: attach at most ${bytesText(MOST_BYTES)} of text.`);
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    if (!text.includes('\0')) return { name: file.name, text };
  } catch {
    // Not UTF-8: said below.
  }
  throw new Error(`${file.name} is not a text file: attach text in UTF-8.`);
}

// `list`: where files are shown; `onchange(fault)` after each change, with a sentence or ''.
export class Attachments {
  constructor(list, onchange) {
    this.list = list;
    this.onchange = onchange;
    this.files = [];
  }

  async add(files) {
    let fault = '';
    for (const file of files) {
      const taken = this.files.reduce((sum, { text }) => sum + new Blob([text]).size, 0);
      try {
        this.files.push(await readText(file, MOST_BYTES - taken));
      } catch (error) {
        fault = error.message;
      }
    }
    this.show(fault);
  }

  // Takes all files away, and returns them.
  take() {
    const taken = this.files;
    this.files = [];
    this.show('');
    return taken;
  }

  show(fault) {
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(...this.files.map((file) => {
      const away = button('Remove', () => {
        this.files = this.files.filter((f) => f !== file);
        this.show('');
      });
      away.ariaLabel = `Remove ${file.name}`;
      return make('li', {}, `${file.name}, ${bytesText(new Blob([file.text]).size)}`, away);
    }));
    this.onchange(fault);
  }
}
