// Elements from data. No HTML is parsed anywhere, which the server's Content-Security-Policy holds
// the page to.

import { parseMarkdown } from './markdown.js';

// An element with properties, `data-*` and `aria-*` attributes, and children (texts or nodes).
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes('-') || name === 'role') node.setAttribute(name, value);
    else if (value !== undefined) node[name] = value;
  }
  node.append(...children);
  return node;
}

export const button = (text, onclick, className = 'plain') =>
  make('button', { type: 'button', className, onclick }, text);

// The clipboard is only there on secure origins: over plain HTTP from another machine the text is
// selected and copied as by hand.
export async function copyText(text, done) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make('textarea', { value: text, className: 'unseen' });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  const label = done.textContent;
  done.textContent = 'Copied';
  setTimeout(() => (done.textContent = label), 1500);
}

function codeBlock({ children: [text], language }) {
  const copy = button('Copy', () => copyText(text, copy));
  const head = make('div', {}, make('span', { className: 'faint' }, language || 'text'), copy);
  const code = make('pre', { tabIndex: 0 }, make('code', { translate: false }, text));
  return make('div', { className: 'code' }, head, code);
}

function toDom(node) {
  if (typeof node === 'string') return node;
  if (node.tag === 'pre') return codeBlock(node);
  const made = make(node.tag, { start: node.start, href: node.href }, ...node.children.map(toDom));
  if (node.align) made.style.textAlign = node.align;
  if (node.tag === 'a') Object.assign(made, { target: '_blank', rel: 'noopener noreferrer' });
  if (node.tag === 'table')
    return make('div', { className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Table' },
      made);
  return made;
}

// Shows a text that grows: blocks that did not change stay, so that what a reader has selected in
// them stays selected.
export function showMarkdown(target, text) {
  const blocks = parseMarkdown(text);
  const keys = blocks.map((block) => JSON.stringify(block));
  const shown = target.shownBlocks ?? [];
  let same = 0;
  while (same < keys.length && keys[same] === shown[same]) ++same;
  while (target.childNodes.length > same) target.lastChild.remove();
  target.append(...blocks.slice(same).map(toDom));
  target.shownBlocks = keys;
}

export function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 1023.5 && unit < units.length - 1; ++unit) bytes /= 1024;
  return `${bytes.toFixed(unit === 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2)} ${units[unit]}`;
}
