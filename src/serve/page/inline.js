// Markdown within a paragraph, to a list of strings (text) and elements {tag, children, href}.
//
// Every step is linear in the text: what opens is kept in a list of bounded length, and what it
// encloses is moved once.

const MOST_OPEN = 32; // marks of emphasis and brackets that wait for their end

export const element = (tag, children, more) => ({ tag, children, ...more });
const isSpace = (c) => c === '' || /\s/.test(c);
const isWord = (c) => /[\p{L}\p{N}]/u.test(c);

// Where the code span that `length` backticks open at `at` ends, or -1. `runs`: the positions of
// all runs of backticks by their length; each list is passed once.
function closingRun(runs, length, at) {
  const list = runs.get(length) ?? []; // a run after a backslash may be as long as no other
  while (list.next < list.length && list[list.next] <= at) ++list.next;
  return list.next < list.length ? list[list.next] : -1;
}

function backtickRuns(text) {
  const runs = new Map();
  for (const { 0: run, index } of text.matchAll(/`+/g)) {
    if (!runs.has(run.length)) runs.set(run.length, Object.assign([], { next: 0 }));
    runs.get(run.length).push(index);
  }
  return runs;
}

// The address in "(address)" or "(address "title")" at `at`, and where it ends; or null.
function linkTarget(text, at) {
  const match = /\(<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)?)>?(?:[ \t]+"[^"]*")?\)/y;
  match.lastIndex = at;
  const found = match.exec(text);
  return found && { address: found[1], end: match.lastIndex };
}

const isWebAddress = (address) => /^https?:\/\/[^/]/i.test(address);

class Inline {
  constructor(text) {
    this.text = text;
    this.runs = backtickRuns(text);
    this.out = [];
    this.open = []; // {mark, count, index into out}
    this.plain = ''; // text that is not in out yet
  }

  push(node) {
    if (this.plain) this.out.push(this.plain);
    this.plain = '';
    this.out.push(node);
  }

  // Makes an element of all that follows out[index].
  wrap(index, tag, more) {
    this.push('');
    const children = this.out.splice(index + 1).filter((node) => node !== '');
    this.out.push(element(tag, children, more));
  }

  begin(mark, count) {
    this.push(mark.repeat(count));
    if (this.open.length === MOST_OPEN) this.open.shift();
    this.open.push({ mark, count, index: this.out.length - 1 });
  }

  emphasis(at) {
    const { text } = this;
    const mark = text[at];
    let end = at;
    while (text[end] === mark) ++end;
    let count = end - at;
    const before = text.slice(Math.max(0, at - 1), at);
    const after = text.slice(end, end + 1);
    if (count > 3 || (mark === '~' && count !== 2)) {
      this.plain += text.slice(at, end);
      return end;
    }
    // Looser than CommonMark beside punctuation, because texts without spaces need it.
    const ends = !isSpace(before) && !(mark === '_' && isWord(after));
    const begins = !isSpace(after) && !(mark === '_' && isWord(before));
    if (ends) count = this.close(mark, count);
    if (begins && count > 0) this.begin(mark, count);
    else this.plain += mark.repeat(count);
    return end;
  }

  // Ends what marks began; returns how many of `count` are left.
  close(mark, count) {
    while (count > 0) {
      const top = this.open.findLastIndex((o) => o.mark === mark);
      if (top < 0) break;
      const opener = this.open[top];
      const used = Math.min(opener.count, count, 2);
      this.open.length = top;
      this.wrap(opener.index, mark === '~' ? 'del' : used === 2 ? 'strong' : 'em');
      opener.count -= used;
      count -= used;
      this.out[opener.index] = mark.repeat(opener.count);
      if (opener.count > 0) this.open.push(opener);
    }
    return count;
  }

  bracket(at) {
    const top = this.open.findLastIndex((o) => o.mark === '[');
    const target = top < 0 ? null : linkTarget(this.text, at + 1);
    if (!target) {
      if (top >= 0) this.open.splice(top, 1);
      this.plain += ']';
      return at + 1;
    }
    const { index } = this.open[top];
    this.open.length = top;
    if (isWebAddress(target.address)) {
      this.wrap(index, 'a', { href: target.address });
      this.out[index] = '';
      this.open = this.open.filter((o) => o.mark !== '['); // no link within a link
    } else {
      this.plain += this.text.slice(at, target.end);
    }
    return target.end;
  }

  code(at) {
    let begin = at;
    while (this.text[begin] === '`') ++begin;
    const end = closingRun(this.runs, begin - at, at);
    if (end < 0) {
      this.plain += this.text.slice(at, begin);
      return begin;
    }
    let content = this.text.slice(begin, end).replaceAll('\n', ' ');
    if (content.startsWith(' ') && content.endsWith(' ') && content.trim())
      content = content.slice(1, -1);
    this.push(element('code', [content]));
    return end + (begin - at);
  }

  // A bare address: to its last character that does not end the sentence around it.
  address(at) {
    const match = /https?:\/\/[!#-;=?-_a-z~]+/iy;
    match.lastIndex = at;
    const found = isWord(this.text.slice(Math.max(0, at - 1), at)) ? null : match.exec(this.text);
    let end = found ? match.lastIndex : at + 1;
    const tail = found && found[0].includes('(') ? '.,:;!?\'*_]' : '.,:;!?\'*_])';
    while (found && tail.includes(this.text[end - 1])) --end;
    const address = this.text.slice(at, end);
    if (found && isWebAddress(address) && !this.open.some((o) => o.mark === '['))
      this.push(element('a', [address], { href: address }));
    else this.plain += address;
    return end;
  }

  step(at) {
    const { text } = this;
    switch (text[at]) {
      case '\\':
        if (!/[!-'*-/:-@\\^-`{-~]/.test(text[at + 1] ?? '')) break; // \( and \[ begin formulas
        this.plain += text[at + 1];
        return at + 2;
      case '`':
        return this.code(at);
      case '*':
      case '_':
      case '~':
        return this.emphasis(at);
      case '!': // images are links: nothing is fetched before it is asked for
        if (text[at + 1] !== '[') break;
        this.begin('[', 1);
        this.out[this.out.length - 1] = '![';
        return at + 2;
      case '[':
        this.begin('[', 1);
        return at + 1;
      case ']':
        return this.bracket(at);
      case 'h':
        return this.address(at);
      case '\n':
        this.push(element('br', []));
        return at + 1;
    }
    this.plain += text[at];
    return at + 1;
  }

  parse() {
    const dull = /[^\\`*_~[\]!h\n]+/y;
    for (let at = 0; at < this.text.length; ) {
      dull.lastIndex = at;
      const found = dull.exec(this.text);
      if (found) {
        this.plain += found[0];
        at = dull.lastIndex;
      } else {
        at = this.step(at);
      }
    }
    this.push('');
    return this.out.filter((node) => node !== '');
  }
}

export const parseInline = (text) => new Inline(text.trim()).parse();
