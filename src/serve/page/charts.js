// Bars, lines and legends from numbers. What they show is also there in words.

import { make } from './dom.js';

export const SAMPLES = 120; // that a line shows

export const colour = (name) => `var(--${name})`;
const swatch = (name) => {
  const node = make('span', { className: 'swatch' });
  node.style.background = colour(name);
  return node;
};

// A bar of shares of `whole`; `shares`: [name, amount].
export function bar(shares, whole, label) {
  const node = make('div', { className: 'bar', role: 'img', 'aria-label': label });
  for (const [name, amount] of shares) {
    const piece = make('span', { title: name });
    piece.style.width = `${(100 * amount) / whole}%`;
    piece.style.background = colour(name);
    node.append(piece);
  }
  return node;
}

// Rows of a legend: [name, what is said of it, whether it has no colour].
export function legend(rows) {
  const row = ([name, text, colourless]) => make('tr', {},
    make('td', {}, ...(colourless ? [] : [swatch(name)]), name.replace('kv_', 'KV ')),
    make('td', { className: 'number' }, text));
  return make('table', {}, make('tbody', {}, ...rows.map(row)));
}

// The course of a rate, with a heading that says it in words.
export function line(name, unit, values) {
  const words = `${name}: ${unit(values.at(-1))}, max ${unit(Math.max(...values))}`;
  const most = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${SAMPLES - values.length + i},${39 - (38 * v) / most}`);
  const svg = (tag, attributes) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const chart = svg('svg', { class: 'line', viewBox: `0 0 ${SAMPLES - 1} 40`,
    preserveAspectRatio: 'none', 'aria-hidden': true });
  chart.append(svg('polyline', { points: points.join(' ') }));
  return [make('h3', {}, words), chart];
}

// Puts new content below the heading of a section; without any the section is not there.
export function fill(id, ...content) {
  const section = document.getElementById(id);
  section.hidden = content.length === 0;
  while (section.childNodes.length > 1) section.lastChild.remove();
  section.append(...content);
}
