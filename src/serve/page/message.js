// One message as the reader sees it.

import { button, bytesText, copyText, make, showMarkdown } from './dom.js';
import { textOf } from './request.js';

const fileFold = ({ name, text }) => make('details', { className: 'file' },
  make('summary', {}, `${name}, ${bytesText(new Blob([text]).size)}`),
  make('pre', { tabIndex: 0 }, text));

// `actions`: {arrives(message), regenerate(message), replace(message, text)}.
export class MessageView {
  constructor(message, actions) {
    const user = message.role === 'user';
    this.message = message;
    this.actions = actions;
    this.body = make('div', { className: 'body' });
    this.tools = make('div', { className: 'tools' });
    this.node = make('article', { className: message.role, 'aria-label': user ? 'You' : 'Answer' },
      make('h2', {}, user ? 'You' : 'Answer'), ...(message.files ?? []).map(fileFold), this.body,
      this.tools);
    this.paint();
  }

  // Makes the article look as the message is.
  paint() {
    const { message, body, tools } = this;
    const arriving = this.actions.arrives(message);
    this.node.ariaBusy = arriving; // read out when it is complete
    if (message.role === 'user') body.textContent = message.content;
    else showMarkdown(body, message.content);
    this.paintReasoning(arriving);
    tools.replaceChildren(...(arriving ? [] : this.buttons()));
    if (arriving && !message.content && !message.reasoning)
      tools.append(make('span', { className: 'faint' }, 'Reading the prompt'));
  }

  paintReasoning(arriving) {
    const { message } = this;
    if (!message.reasoning) return;
    if (!this.fold) {
      this.fold = make('details', { className: 'reasoning' }, make('summary'), make('div'));
      this.body.before(this.fold);
    }
    this.fold.firstChild.textContent = arriving && !message.content ? 'Thinking' : 'Thoughts';
    this.fold.lastChild.textContent = message.reasoning;
  }

  buttons() {
    const { message } = this;
    const answer = message.role === 'assistant';
    const copy = button('Copy', () => copyText(textOf(message), copy));
    const other = answer ? button('Regenerate', () => this.actions.regenerate(message))
                         : button('Edit', () => this.edit());
    const said = [message.note, message.unkept && 'not stored'].filter(Boolean).join(' · ');
    return [copy, other, make('span', { className: 'faint' }, said)];
  }

  edit() {
    const { message } = this;
    if (this.actions.isBusy()) return;
    const text = make('textarea', { value: message.content, 'aria-label': 'Edited message' });
    text.rows = Math.min(12, message.content.split('\n').length + 1);
    const cancel = () => this.paint();
    const send = () => this.actions.replace(message, text.value);
    text.onkeydown = (event) => event.key === 'Escape' && cancel();
    this.body.replaceChildren(make('div', { className: 'edit' }, text,
      make('p', {}, button('Send', send, 'main'), button('Cancel', cancel, ''))));
    text.focus();
  }
}
