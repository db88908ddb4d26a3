// Markdown to a tree of plain data: a string is text, {tag, children, ...} an element.
//
// Why a tree: nothing is ever put together as HTML, so that a model's answer cannot become script.
// Elements are those made here, and links go to http(s) only. Every step is linear in the text and
// nesting is bounded, because an answer may be anything. What is read is what models write:
// GitHub's dialect without HTML, where a line break in a paragraph stays one.

import { element, parseInline } from './inline.js';

const MOST_NESTED = 10; // lists and quotes within each other; deeper ones are text

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() === '';
const fenceOf = (line) => /^(`{3,}|~{3,})([^`]*)$/.exec(line.trimStart());
const markerOf = (line) => /^([-*+]|\d{1,9}[.)])(?: |$)/.exec(line.trimStart());
const isQuote = (line) => line.trimStart().startsWith('>');
const headingOf = (line) => /^(#{1,6})(?= |$)/.exec(line.trimStart());

function isRule(line) {
  return /^[ ]*[-*_]/.test(line) && /^(-{3,}|\*{3,}|_{3,})$/.test(line.replaceAll(' ', ''));
}

function cellsOf(line) {
  let row = line.trim();
  if (row.startsWith('|')) row = row.slice(1);
  if (row.endsWith('|') && !row.endsWith('\\|')) row = row.slice(0, -1);
  const cells = [''];
  for (const part of row.split(/(\\\||\|)/)) {
    if (part === '|') cells.push('');
    else cells[cells.length - 1] += part === '\\|' ? '|' : part;
  }
  return cells.map((cell) => cell.trim());
}

function isTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes('|') || !/^[ |:-]+$/.test(lines[at + 1]))
    return false;
  const rule = cellsOf(lines[at + 1]);
  return rule.length === cellsOf(lines[at]).length && rule.every((cell) => /^:?-+:?$/.test(cell));
}

const beginsBlock = (line) =>
  fenceOf(line) || headingOf(line) || isQuote(line) || isRule(line) || markerOf(line);

class Blocks {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.at = 0;
    this.out = [];
  }

  parse() {
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (isBlank(line)) ++this.at;
      else if (fenceOf(line)) this.fence(line);
      else if (headingOf(line)) this.heading(line);
      else if (isRule(line)) this.rule();
      else if (isQuote(line) && this.depth < MOST_NESTED) this.quote();
      else if (markerOf(line) && this.depth < MOST_NESTED) this.list(line);
      else if (isTable(this.lines, this.at)) this.table();
      else this.paragraph();
    }
    return this.out;
  }

  fence(line) {
    const [, mark, info] = fenceOf(line);
    const indent = indentOf(line);
    const code = [];
    for (++this.at; this.at < this.lines.length; ++this.at) {
      const inner = this.lines[this.at];
      const end = inner.trim();
      if (end.length >= mark.length && end === mark[0].repeat(end.length)) break;
      code.push(inner.slice(Math.min(indent, indentOf(inner))));
    }
    ++this.at;
    const language = info.trim().split(/[\s{]/, 1)[0].slice(0, 40);
    this.out.push(element('pre', [code.join('\n')], { language }));
  }

  heading(line) {
    const level = headingOf(line)[1].length;
    const text = line.trim().slice(level).trim();
    let end = text.length;
    while (end > 0 && text[end - 1] === '#') --end;
    const kept = end === 0 || text[end - 1] === ' ' ? text.slice(0, end) : text;
    this.out.push(element(`h${level}`, parseInline(kept)));
    ++this.at;
  }

  rule() {
    this.out.push(element('hr', []));
    ++this.at;
  }

  quote() {
    const inner = [];
    for (; this.at < this.lines.length && isQuote(this.lines[this.at]); ++this.at)
      inner.push(this.lines[this.at].trimStart().slice(1).replace(/^ /, ''));
    this.out.push(element('blockquote', new Blocks(inner, this.depth + 1).parse()));
  }

  list(first) {
    const numbered = /\d/.test(markerOf(first)[1]);
    const indent = indentOf(first);
    const items = [];
    let loose = false;
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      const marker = markerOf(line);
      if (!marker || /\d/.test(marker[1]) !== numbered || isRule(line)) break;
      if (indentOf(line) < indent || indentOf(line) > indent + 1) break;
      const item = this.item(indentOf(line), marker);
      items.push(item.lines);
      loose ||= item.loose;
    }
    const children = items.map((lines) => {
      const blocks = new Blocks(lines, this.depth + 1).parse();
      const bare = (block) => (block.tag === 'p' ? block.children : [block]);
      return element('li', loose ? blocks : blocks.flatMap(bare));
    });
    const start = numbered ? parseInt(markerOf(first)[1], 10) : undefined;
    this.out.push(element(numbered ? 'ol' : 'ul', children, { start }));
  }

  // The lines of one item, without their indentation. Models indent what belongs to "1." by two or
  // by three, so two are enough. Blank lines after the item's last line belong to nobody.
  item(indent, marker) {
    const width = marker[0].length;
    const lines = [this.lines[this.at++].trimStart().slice(width)];
    let blank = 0;
    let loose = false;
    for (; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at];
      if (isBlank(line)) {
        ++blank;
        continue;
      }
      const inside = indentOf(line) >= indent + 2;
      if (!inside && (blank > 0 || beginsBlock(line))) {
        loose ||= blank > 0 && markerOf(line) !== null && indentOf(line) >= indent;
        break;
      }
      loose ||= blank > 0 && !markerOf(line);
      for (; blank > 0; --blank) lines.push('');
      lines.push(line.slice(Math.min(indent + width, indentOf(line))));
    }
    return { lines, loose };
  }

  table() {
    const align = cellsOf(this.lines[this.at + 1]).map((cell) =>
      cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left');
    const row = (tag, line) =>
      element('tr', cellsOf(line).slice(0, align.length)
        .map((cell, i) => element(tag, parseInline(cell), { align: align[i] })));
    const head = element('thead', [row('th', this.lines[this.at])]);
    const body = [];
    for (this.at += 2; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at];
      if (isBlank(line) || beginsBlock(line)) break;
      body.push(row('td', line));
    }
    this.out.push(element('table', [head, element('tbody', body)]));
  }

  paragraph() {
    const text = [];
    do {
      text.push(this.lines[this.at++].trim());
    } while (this.at < this.lines.length && !this.endsParagraph());
    this.out.push(element('p', parseInline(text.join('\n'))));
  }

  endsParagraph() {
    const line = this.lines[this.at];
    return isBlank(line) || beginsBlock(line) || isTable(this.lines, this.at);
  }
}

// The blocks of a text, as a list of elements. A text that is cut anywhere is a text, too, so that
// an answer can be shown while it arrives.
export function parseMarkdown(text) {
  const lines = text.replaceAll('\t', '    ').split(/\r\n?|\n/);
  return new Blocks(lines, 0).parse();
}
