// Run after the page's own parser by page_test.py: parseMarkdown against cases and hostile texts.
// check(cases) returns what is wrong, a line each.

const escape = (text) =>
  text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);

function html(node) {
  if (typeof node === 'string') return escape(node).replaceAll('&quot;', '"');
  const start = node.start > 1 ? ` start="${node.start}"` : '';
  const href = node.href === undefined ? '' : ` href="${escape(node.href)}"`;
  const end = ['br', 'hr'].includes(node.tag) ? '' : `</${node.tag}>`;
  return `<${node.tag}${start}${href}>${node.children.map(html).join('')}${end}`;
}

const TAGS = new Set(['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6',
  'hr', 'li', 'ol', 'p', 'pre', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul']);

// Faults of a tree, whatever the text was; puts what it says into `texts`.
function faultsOf(node, depth, texts) {
  if (typeof node === 'string') return texts.push(node), [];
  if (depth > 150) return ['nested too deep'];
  if (node.href) texts.push(node.href);
  if (node.language) texts.push(node.language);
  const found = node.children.flatMap((child) => faultsOf(child, depth + 1, texts));
  if (!TAGS.has(node.tag)) found.push(`a tag ${node.tag}`);
  if (node.href !== undefined && !/^https?:\/\/[^/]/i.test(node.href)) found.push(`a link to ${node.href}`);
  const known = ['tag', 'children', 'href', 'start', 'align', 'language'];
  found.push(...Object.keys(node).filter((key) => !known.includes(key)));
  return found;
}

// A generator of the same numbers each time.
function* numbers(seed) {
  for (;;) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    yield seed / 2 ** 32;
  }
}

const PIECES = ['*', '**', '***', '_', '__', '~~', '`', '``', '```', '[', '](', '](https://a.b/', ')', '!', '!['
  , '<', '>', '> ', '- ', '1. ', '10) ', '# ', '|', '\n', '\n\n', '\n|-|-|\n', '\n---\n', ' ', '   ', '\t', '\\',
  'https://', 'http://b.c', '<script>', '"', "'", '$', '~~~', '\r\n', '\u202e', '\ud83d\ude00', '。'];

// Texts of random marks and words: each word is kept, and the tree is harmless.
function randomFaults(count) {
  const next = numbers(46);
  const random = (n) => Math.floor(next.next().value * n);
  const found = [];
  for (let i = 0; i < count; ++i) {
    let text = '';
    const words = [];
    for (let n = random(60); n > 0; --n) {
      if (random(3) === 0) words.push(`w${words.length}q`);
      text += random(3) > 0 || words.length === 0 ? PIECES[random(PIECES.length)] : words.at(-1);
    }
    const texts = [];
    const faults = parseMarkdown(text).flatMap((node) => faultsOf(node, 0, texts));
    const said = texts.join(' ');
    const isInside = (word) => said.includes(word) || !text.includes(word);
    if (!text.includes('|') && !text.includes('`') && !text.includes('~') && !text.includes('"'))
      faults.push(...words.filter((word) => !isInside(word)).map((word) => `${word} is lost`));
    found.push(...faults.map((fault) => `${JSON.stringify(text)}: ${fault}`));
  }
  return found;
}

// A megabyte of one thing, and less in lines and in growing runs: linear in the text, or the test's
// time is over.
function largeFaults() {
  const found = [];
  for (const piece of [...PIECES, '[](x "', '*a ', 'a* ', '**a', '` `` ', '](a', '[a](http://b) ', 'a|b\n-|-\n',
    '  - a\n', '> > > ', '- - - ', '*_~~[', '# #', 'http://)', '"](http://a "', ' |', '!h']) {
    for (const text of [piece.repeat((1 << 20) / piece.length), `- ${piece} a\n  `.repeat(1 << 12),
      Array.from({ length: 400 }, (_, i) => piece.repeat(i)).join(' ').slice(0, 1 << 17)]) {
      const texts = [];
      const faults = parseMarkdown(text).flatMap((node) => faultsOf(node, 0, texts));
      found.push(...faults.slice(0, 3).map((fault) => `much of ${JSON.stringify(piece)}: ${fault}`));
    }
  }
  return found;
}

function check(cases) {
  const found = [];
  for (const { text, html: expected } of cases) {
    const got = parseMarkdown(text).map(html).join('');
    if (got !== expected) found.push(`${JSON.stringify(text)} became ${got}`);
    for (let end = 0; end < text.length; ++end) parseMarkdown(text.slice(0, end)); // as it arrives
  }
  return [...found, ...randomFaults(4000), ...largeFaults()];
}
