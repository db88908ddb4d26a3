// What the server does now: memory by use, weights by tier, blocks, rates, the queue.

import { ask, get, parseMetrics } from './api.js';
import { SAMPLES, bar, colour, fill, legend, line } from './charts.js';
import { bytesText, make } from './dom.js';

const POLL_MS = 1000;
const USES = ['runtime', 'weights', 'kv_cache', 'activations', 'workspace', 'staging', 'swap'];
const TIERS = ['device', 'host', 'disk'];

const part = (id) => document.getElementById(id);
function memoryOf(place, budget, accounts) {
  const sums = USES.map((use) => [use, accounts
    .filter((a) => a.place === place && a.use === use).reduce((sum, a) => sum + a.bytes, 0)]);
  const held = sums.filter(([, bytes]) => bytes > 0);
  const all = held.reduce((sum, [, bytes]) => sum + bytes, 0);
  if (all === 0) return [];
  const words = `${bytesText(all)} of ${bytesText(budget)} in ${place} memory`;
  return [make('h3', {}, words), bar(held, Math.max(budget, all), words),
    legend(held.map(([use, bytes]) => [use, bytesText(bytes)]))];
}

function showMemory(memory) {
  const { budget, device, accounts = [] } = memory;
  const content = [
    ...(device ? memoryOf('device', device.budget, accounts) : []),
    ...memoryOf('host', budget, accounts),
  ];
  if (memory.measured_peak) {
    content.push(legend([['predicted peak', bytesText(memory.predicted_peak), true],
      ['measured peak', bytesText(memory.measured_peak), true]]));
  }
  fill('memory', ...content);
}

// The bytes of a unit by tier. What is streamed lies on disk.
const tiersOf = (unit) => ({
  device: unit.place.includes('device') ? unit.bytes : 0,
  host: (unit.place.includes('device') ? 0 : unit.bytes) + (unit.host_bytes ?? 0),
  disk: unit.streamed_bytes ?? 0,
});

function unitCell(unit) {
  const tiers = tiersOf(unit);
  const held = TIERS.filter((tier) => tiers[tier] > 0);
  const words = held.map((tier) => `${bytesText(tiers[tier])} ${tier}`).join(', ') || unit.place;
  const cell = make('div', { className: 'cell', title: `${unit.name}: ${words}` });
  for (const tier of held.length ? held : [unit.place.split('+').pop()]) {
    const piece = make('span');
    piece.style.flexGrow = tiers[tier] || 1;
    piece.style.background = colour(tier);
    cell.append(piece);
  }
  const row = [make('td', {}, unit.name), make('td', { className: 'number' }, words)];
  return [cell, make('tr', {}, ...row)];
}

function showUnits(units = []) {
  const key = JSON.stringify(units);
  if (key === showUnits.shown) return; // an opened table stays open
  showUnits.shown = key;
  if (units.length === 0) return fill('units');
  const sums = Object.fromEntries(TIERS.map((tier) =>
    [tier, units.reduce((sum, unit) => sum + tiersOf(unit)[tier], 0)]));
  const held = TIERS.filter((tier) => sums[tier] > 0);
  const parts = held.map((tier) => `${bytesText(sums[tier])} ${tier}`);
  const words = `${units.length} units: ${parts.join(', ')}`;
  const cells = units.map(unitCell);
  fill('units',
    make('div', { className: 'map', role: 'img', 'aria-label': words }, ...cells.map(([c]) => c)),
    legend(held.map((tier) => [tier, bytesText(sums[tier])])),
    make('details', {}, make('summary', {}, 'All units'),
      make('div', { className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'All units' },
        make('table', {}, make('tbody', {}, ...cells.map(([, row]) => row))))));
}

function showBlocks({ all = 0, used = 0, kept = 0, tokens } = {}) {
  if (all === 0) return fill('blocks');
  const words = `${used} of ${all} blocks in use (${tokens} tokens each), ${kept} cached`;
  fill('blocks', make('h3', {}, words), bar([['used', used], ['cached', kept]], all, words),
    legend([['used', `${used}`], ['cached', `${kept}`],
      ['free', `${all - used - kept}`, true]]));
}

const tokensText = (value) => value.toFixed(1);
const diskText = (value) => `${bytesText(value)}/s`;

// `onready(bool)`: when the server became ready, or ceased to be.
export class Monitor {
  constructor(onready) {
    this.onready = onready;
    this.series = { prefill: [], decode: [], disk: [] };
    document.addEventListener('visibilitychange', () => document.hidden || this.poll());
  }

  // Looks now, and then again and again while the page can be seen.
  async poll() {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const health = await ask('health');
      const state = await health.json().catch(() => ({}));
      this.setReady(health.ok);
      if (health.ok && part('monitor').offsetParent) await this.look();
      this.showState(health.ok ? '' : this.showLoading(state));
    } catch (error) {
      const locked = error.status === 401;
      this.showState(error.message, locked);
      this.setReady(locked);
    }
    if (!document.hidden && turn === this.turn)
      this.timer = setTimeout(() => this.poll(), POLL_MS);
  }

  setReady(ready) {
    if (this.ready !== ready) this.onready((this.ready = ready));
  }

  async look() {
    const [memory, metrics] = await Promise.all([
      get('v1/memory').then((r) => r.json()),
      get('metrics').then((r) => r.text()).then(parseMetrics),
    ]);
    const now = { at: performance.now(), prefill: metrics.prompt_tokens_total,
      decode: metrics.generation_tokens_total, disk: memory.disk?.bytes_read };
    const seconds = this.last ? (now.at - this.last.at) / 1000 : 0;
    for (const [name, values] of Object.entries(this.series)) {
      if (!(seconds > 0) || now[name] === undefined) continue;
      values.push(Math.max(0, now[name] - (this.last[name] ?? now[name])) / seconds);
      if (values.length > SAMPLES) values.shift();
    }
    this.last = now;
    this.show(memory, metrics);
  }

  show(memory, metrics) {
    const figures = [
      ['running', metrics.num_requests_running],
      ['waiting', metrics.num_requests_waiting],
      ['preempted', metrics.num_preemptions_total],
      ['generated tokens', metrics.generation_tokens_total],
    ];
    part('figures').replaceChildren(...figures.filter(([, value]) => value !== undefined)
      .map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, `${value}`))));
    const { prefill, decode, disk } = this.series;
    const lines = [
      ['Generated tokens/s', tokensText, decode],
      ['Prompt tokens/s', tokensText, prefill],
      ['Disk', diskText, disk],
    ];
    fill('speed', ...lines.filter(([, , values]) => values.length).flatMap((l) => line(...l)));
    showMemory(memory);
    showBlocks(memory.kv_blocks);
    showUnits(memory.units);
  }

  showLoading({ bytes_done: done, bytes_total: total, status }) {
    part('loading').hidden = status === 'draining';
    if (status === 'draining') return 'Shutting down';
    const known = total > 0;
    if (known) part('load-bar').value = done / total;
    part('load-text').textContent = known ? `${bytesText(done)} of ${bytesText(total)}` : '';
    return known ? `Loading, ${Math.floor((100 * done) / total)} %` : (status ?? 'Not ready');
  }

  // `fault`: '' when all is well. `ready`: the server is, though it may want another key.
  showState(fault, ready = !fault) {
    if (ready) part('loading').hidden = true;
    const state = part('state');
    const words = fault || 'Ready';
    if (state.textContent !== words) state.textContent = words;
    state.classList.toggle('error', !ready && !words.startsWith('Loading'));
  }
}
