// The messages of one conversation, and the answer that arrives.

import { stream } from './api.js';
import { button, copyText, make, showMarkdown } from './dom.js';
import { save, settings } from './store.js';

const PAINT_MS = 80; // between two looks of an answer that arrives
const SAVE_MS = 2000;
const SAMPLING =
  ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed'];

// The body of the request for the next answer, and where to.
function requestFor({ messages, system }) {
  const chosen = settings();
  const body = { stream: true, stream_options: { include_usage: true } };
  if (chosen.model) body.model = chosen.model; // else it is not known yet: the server's first one
  for (const name of SAMPLING) if (typeof chosen[name] === 'number') body[name] = chosen[name];
  if (chosen.mode === 'text') {
    body.prompt = messages.map((m) => m.content).join('');
    return ['v1/completions', body];
  }
  body.messages = messages.map(({ role, content }) => ({ role, content }));
  if (system) body.messages.unshift({ role: 'system', content: system });
  return ['v1/chat/completions', body];
}

// What is said below an answer: its size, its speed, and what was not computed again.
function noteOf({ begun, first, usage, reason }) {
  const parts = [];
  if (usage) {
    const { prompt_tokens, completion_tokens, prompt_tokens_details } = usage;
    const seconds = (performance.now() - first) / 1000;
    parts.push(`${completion_tokens} tokens`);
    if (completion_tokens > 1 && seconds > 0)
      parts.push(`${((completion_tokens - 1) / seconds).toFixed(1)} tokens/s`);
    const cached = prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${prompt_tokens}${cached ? `, ${cached} of them reused` : ''}`);
  }
  if (first) parts.push(`first after ${((first - begun) / 1000).toFixed(2)} s`);
  if (reason) parts.push(reason);
  return parts.join(' · ');
}

// `view`: {log, said (a status for screen readers), onchange (after each change of state), onfault
// (with the status of HTTP, where there is one), onremoved (where the focus was is no more)}.
export class Chat {
  constructor(view) {
    this.view = view;
    this.answer = null; // {conversation, message, controller} while one arrives
    this.nodes = new Map(); // message to its article
  }

  get busy() {
    return this.answer !== null;
  }

  show(conversation) {
    const { log } = this.view;
    this.conversation = conversation;
    log.ariaLive = 'off'; // what was said before is not news
    this.nodes.clear();
    log.replaceChildren();
    if (conversation.messages.length === 0)
      log.append(make('p', { className: 'empty' }, 'Messages stay in this browser.'));
    conversation.messages.forEach((message) => this.add(message));
    if (conversation.messages.at(-1)?.role === 'user' && this.answer?.conversation !== conversation)
      this.fail('This message has no answer.');
    log.scrollTop = log.scrollHeight;
    setTimeout(() => (log.ariaLive = 'polite'), 500);
  }

  add(message) {
    const user = message.role === 'user';
    const body = make('div', { className: 'body' });
    const tools = make('div', { className: 'tools' });
    const node = make('article', { className: message.role, 'aria-label': user ? 'You' : 'Answer' },
      make('h2', {}, user ? 'You' : 'Answer'), body, tools);
    this.nodes.set(message, node);
    this.view.log.append(node);
    this.paint(message);
  }

  // Makes the article look as the message is.
  paint(message) {
    const node = this.nodes.get(message);
    if (!node) return; // of a conversation that is not shown
    const { log } = this.view;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const [body, tools] = [node.querySelector('.body'), node.querySelector('.tools')];
    const arriving = this.answer?.message === message;
    node.ariaBusy = arriving; // read out when it is complete
    if (message.role === 'user') body.textContent = message.content;
    else showMarkdown(body, message.content);
    this.paintReasoning(node, body, message, arriving);
    tools.replaceChildren(...(arriving ? [] : this.toolsOf(message)));
    if (arriving && !message.content && !message.reasoning)
      tools.append(make('span', { className: 'faint' }, 'Reading the prompt'));
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  paintReasoning(node, body, message, arriving) {
    if (!message.reasoning) return;
    let fold = node.querySelector('.reasoning');
    if (!fold) {
      fold = make('details', { className: 'reasoning' }, make('summary'), make('div'));
      body.before(fold);
    }
    fold.firstChild.textContent = arriving && !message.content ? 'Thinking' : 'Thoughts';
    fold.lastChild.textContent = message.reasoning;
  }

  toolsOf(message) {
    const copy = button('Copy', () => copyText(message.content, copy));
    const change = message.role === 'user' ? button('Edit', () => this.edit(message))
                                           : button('Regenerate', () => this.regenerate(message));
    return [copy, change, make('span', { className: 'faint' }, message.note ?? '')];
  }

  edit(message) {
    if (this.busy) return;
    const body = this.nodes.get(message).querySelector('.body');
    const text = make('textarea', { value: message.content, 'aria-label': 'Edited message' });
    text.rows = Math.min(12, message.content.split('\n').length + 1);
    const cancel = () => this.paint(message);
    const send = () => {
      this.cut(message);
      this.send(text.value);
    };
    text.onkeydown = (event) => event.key === 'Escape' && cancel();
    body.replaceChildren(make('div', { className: 'edit' }, text,
      make('p', {}, button('Send', send, 'main'), button('Cancel', cancel, ''))));
    text.focus();
  }

  // Takes back `message` and what came after it.
  cut(message) {
    const { messages } = this.conversation;
    messages.splice(messages.indexOf(message));
    this.show(this.conversation);
    this.view.onremoved();
  }

  // Another answer instead of `message`, which is one, or of the last one that is there.
  regenerate(message) {
    if (this.busy) return;
    const last = this.conversation.messages.at(-1);
    const old = message ?? (last.role === 'assistant' ? last : null);
    if (old) this.cut(old);
    this.generate();
  }

  send(text) {
    if (this.busy || !text.trim()) return;
    const message = { role: 'user', content: text };
    this.conversation.messages.push(message);
    this.view.log.querySelector('.empty')?.remove();
    this.add(message);
    this.view.log.scrollTop = this.view.log.scrollHeight;
    this.generate();
  }

  stop() {
    this.answer?.controller.abort();
  }

  fail(sentence, status) {
    const again = button('Send again', () => this.regenerate(), '');
    this.view.log.append(make('p', { className: 'fault', role: 'alert' },
      make('span', { className: 'error' }, sentence), ' ', again));
    this.view.log.scrollTop = this.view.log.scrollHeight;
    this.view.onfault(status);
  }

  keep(conversation) {
    if (!save(conversation))
      this.view.said.textContent = 'The browser has no room left: delete conversations.';
    this.view.onchange();
  }

  async generate() {
    const { conversation } = this;
    const [path, body] = requestFor(conversation);
    const message = { role: 'assistant', content: '' };
    const controller = new AbortController();
    const answer = { conversation, message, controller, begun: performance.now() };
    this.view.log.querySelectorAll('.fault').forEach((node) => node.remove());
    this.answer = answer;
    conversation.messages.push(message);
    this.add(message);
    this.keep(conversation);
    this.view.said.textContent = 'The answer begins.';
    let fault = null;
    try {
      for await (const event of stream(path, body, controller.signal)) this.take(event);
    } catch (error) {
      if (error.name === 'AbortError') answer.reason = 'stopped';
      else fault = error;
    }
    this.finish(fault);
  }

  take({ choices, usage }) {
    const { answer } = this;
    const choice = choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? '';
    const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? '';
    if (text || thought) answer.first ??= performance.now();
    answer.message.content += text;
    if (thought) answer.message.reasoning = (answer.message.reasoning ?? '') + thought;
    if (choice?.finish_reason === 'length') answer.reason = 'cut at its longest';
    answer.usage = usage ?? answer.usage;
    answer.painting ??= setTimeout(() => {
      answer.painting = null;
      this.paint(answer.message);
    }, PAINT_MS);
    answer.saving ??= setTimeout(() => {
      answer.saving = null;
      this.keep(answer.conversation);
    }, SAVE_MS);
  }

  finish(fault) {
    const { answer } = this;
    const { conversation, message } = answer;
    clearTimeout(answer.painting);
    clearTimeout(answer.saving);
    this.answer = null;
    message.note = noteOf(answer);
    if (!message.content && !message.reasoning) {
      conversation.messages.splice(conversation.messages.indexOf(message), 1);
      this.nodes.get(message)?.remove();
    }
    this.paint(message);
    this.keep(conversation);
    this.view.said.textContent = fault ? '' : 'The answer is complete.';
    if (fault && conversation === this.conversation) this.fail(fault.message, fault.status);
  }
}
