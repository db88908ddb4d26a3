// The messages of one conversation, and the answer that arrives.

import { stream } from './api.js';
import { button, make } from './dom.js';
import { MessageView } from './message.js';
import { isCompletion, noteOf, requestFor } from './request.js';
import * as store from './store.js';

const PAINT_MS = 80; // between two looks of an answer that arrives
const SAVE_MS = 2000;

// `view`: {log, said (a status for screen readers), onchange (after each change of state), onfault
// (with the status of HTTP, where there is one), onremoved (where the focus was is no more), onkept
// (with whether the browser had room)}.
export class Chat {
  constructor(view) {
    this.view = view;
    this.answer = null; // {conversation, message, controller} while one arrives
    this.views = new Map(); // message to its view
    this.conversation = store.newConversation();
    this.actions = {
      arrives: (message) => this.answer?.message === message,
      isBusy: () => this.busy,
      regenerate: (message) => this.regenerate(message),
      replace: (message, text) => {
        this.cut(message);
        this.send(text, message.files);
      },
    };
  }

  get busy() {
    return this.answer !== null;
  }

  show(conversation) {
    const { log } = this.view;
    this.conversation = conversation;
    log.ariaLive = 'off'; // what was said before is not news
    this.views.clear();
    log.replaceChildren();
    conversation.messages.forEach((message) => this.insert(message, null));
    this.showEmpty();
    if (conversation.messages.at(-1)?.role === 'user' && this.answer?.conversation !== conversation)
      this.fail('This message has no answer yet.');
    log.scrollTop = log.scrollHeight;
    setTimeout(() => (log.ariaLive = 'polite'), 500);
  }

  // What an empty conversation says.
  showEmpty() {
    const { log } = this.view;
    log.querySelector('.empty')?.remove();
    if (this.conversation.messages.length > 0) return;
    const words = isCompletion() ? 'Enter a text: the model continues it.' : 'Enter a message.';
    log.append(make('p', { className: 'empty' },
      `${words} Conversations are stored in this browser only.`));
  }

  // Shows a message before the view that comes next, or at the end.
  insert(message, next) {
    const view = new MessageView(message, this.actions);
    this.views.set(message, view);
    this.view.log.insertBefore(view.node, next);
    return view;
  }

  paint(message) {
    const { log } = this.view;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    this.views.get(message)?.paint(); // none where the conversation is not shown
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  // Takes over what another tab has made of the conversation that is shown.
  async refresh() {
    const { conversation } = this;
    const stored = await store.load(conversation.id).catch(() => conversation);
    if (stored === conversation || this.conversation !== conversation) return true;
    if (!stored) return conversation.messages.length === 0;
    const known = new Map(conversation.messages.map((message) => [message.key, message]));
    const own = (message) => !message.key || this.actions.arrives(message);
    const messages = stored.messages.map((message) => {
      const old = known.get(message.key);
      if (!old || own(old)) return old ?? message;
      const changed = old.content !== message.content || old.note !== message.note;
      Object.assign(old, message);
      if (changed) this.paint(old);
      return old;
    });
    messages.push(...conversation.messages.filter((m) => own(m) && !messages.includes(m)));
    Object.assign(conversation, stored, { messages });
    this.arrange();
    return true;
  }

  // Makes the log have the messages that there are.
  arrange() {
    const { messages } = this.conversation;
    for (const [message, view] of this.views) {
      if (messages.includes(message)) continue;
      view.node.remove();
      this.views.delete(message);
    }
    let next = this.view.log.querySelector('.fault');
    for (const message of messages.toReversed())
      next = (this.views.get(message) ?? this.insert(message, next)).node;
    if (messages.at(-1)?.role !== 'user') this.clearFaults();
    this.showEmpty();
  }

  // Takes back `message` and what came after it.
  cut(message) {
    const { messages } = this.conversation;
    store.removeMessages(this.conversation, messages.splice(messages.indexOf(message)));
    this.show(this.conversation);
    this.view.onremoved();
  }

  // Another answer instead of `message`, which is one, or of the last one that is there.
  regenerate(message) {
    if (this.busy) return;
    const last = this.conversation.messages.at(-1);
    const old = message ?? (last?.role === 'assistant' ? last : null);
    if (old) this.cut(old);
    this.generate();
  }

  send(content, files = []) {
    if (this.busy || (!content.trim() && files.length === 0)) return;
    this.generate({ role: 'user', content, ...(files.length > 0 && { files }) });
  }

  stop() {
    this.answer?.controller.abort();
  }

  clearFaults() {
    this.view.log.querySelectorAll('.fault').forEach((node) => node.remove());
  }

  fail(sentence, status) {
    const again = button('Send again', () => this.regenerate(), '');
    this.view.log.append(make('p', { className: 'fault', role: 'alert' },
      make('span', { className: 'error' }, sentence), ' ', again));
    this.view.log.scrollTop = this.view.log.scrollHeight;
    this.view.onfault(status);
  }

  async keep(conversation, messages) {
    const waiting = conversation.messages.filter((message) => message.unkept);
    this.view.onkept(await store.keep(conversation, messages));
    for (const message of new Set([...waiting, ...messages]))
      if (message.unkept || waiting.includes(message)) this.paint(message);
    this.view.onchange();
  }

  // The answer to `question`, or to what is said already.
  async generate(question) {
    const { conversation } = this;
    const message = { role: 'assistant', content: '', note: 'not complete' };
    const controller = new AbortController();
    const answer = { conversation, message, controller, begun: performance.now() };
    this.answer = answer;
    this.clearFaults();
    this.view.onchange();
    await this.refresh(); // what another tab has added comes first
    const added = question ? [question, message] : [message];
    conversation.messages.push(...added);
    if (this.conversation === conversation) added.forEach((each) => this.insert(each, null));
    this.showEmpty();
    this.view.log.scrollTop = this.view.log.scrollHeight;
    await this.keep(conversation, added);
    this.view.said.textContent = 'Answer started.';
    let fault = null;
    try {
      const { path, body, left } = await requestFor(conversation);
      answer.left = left;
      for await (const event of stream(path, body, controller.signal)) this.take(event);
    } catch (error) {
      if (error.name === 'AbortError') answer.reason = 'stopped';
      else [fault, answer.reason] = [error, 'not complete'];
    }
    await this.finish(fault);
  }

  take({ choices, usage }) {
    const { answer } = this;
    const choice = choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? '';
    const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? '';
    if (text || thought) answer.first ??= performance.now();
    answer.message.content += text;
    if (thought) answer.message.reasoning = (answer.message.reasoning ?? '') + thought;
    if (choice?.finish_reason === 'length') answer.reason = 'stopped at max tokens';
    answer.usage = usage ?? answer.usage;
    answer.painting ??= setTimeout(() => {
      answer.painting = null;
      this.paint(answer.message);
    }, PAINT_MS);
    answer.saving ??= setTimeout(() => {
      answer.saving = null;
      this.keep(answer.conversation, [answer.message]);
    }, SAVE_MS);
  }

  async finish(fault) {
    const { answer } = this;
    const { conversation, message, usage } = answer;
    clearTimeout(answer.painting);
    clearTimeout(answer.saving);
    message.note = noteOf(answer);
    if (usage) message.used = usage.prompt_tokens + usage.completion_tokens;
    this.answer = null;
    if (message.content || message.reasoning) {
      this.paint(message);
      await this.keep(conversation, [message]);
    } else {
      conversation.messages = conversation.messages.filter((m) => m !== message);
      this.views.get(message)?.node.remove();
      this.views.delete(message);
      await store.removeMessages(conversation, [message]);
      this.view.onchange();
    }
    this.view.said.textContent = fault ? '' : 'Answer complete.';
    if (fault && conversation === this.conversation) this.fail(fault.message, fault.status);
  }
}
