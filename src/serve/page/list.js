// The list of conversations, with their export and import.

import { button, make } from './dom.js';
import * as store from './store.js';
import { exportAll, importFrom } from './transfer.js';

const part = (id) => document.getElementById(id);
const titleOf = ({ title }) => title || 'New conversation';

// `actions`: {open(head), forget(head), shown() (an id), showChat(), imported()}.
export class List {
  constructor(actions) {
    this.actions = actions;
    part('export').addEventListener('click', () => this.report(exportAll()));
    part('import').addEventListener('click', () => part('import-file').click());
    part('import-file').addEventListener('change', async ({ target }) => {
      await this.report(importFrom(target.files[0]));
      await this.actions.imported();
      target.value = '';
    });
  }

  async report(work) {
    const node = part('transferred');
    node.classList.remove('error');
    try {
      node.textContent = (await work) ?? '';
    } catch (error) {
      node.textContent = error.message;
      node.classList.add('error');
    }
    this.show();
  }

  show() {
    const { actions } = this;
    const all = store.conversations();
    const shown = actions.shown();
    part('export').disabled = all.length === 0;
    const key = JSON.stringify(all.map((head) => [head.id, titleOf(head), head.id === shown]));
    if (key === this.listed) return; // who is at a button stays there
    this.listed = key;
    part('conversations').replaceChildren(...all.map((head) => {
      const title = titleOf(head);
      const here = head.id === shown;
      const choose = button(title, () => here ? actions.showChat() : actions.open(head), 'title');
      choose.ariaCurrent = here;
      const erase = button('Delete', () =>
        confirm(`Delete "${title}"?`) && actions.forget(head));
      erase.ariaLabel = `Delete ${title}`;
      return make('li', {}, choose, erase);
    }));
  }
}
