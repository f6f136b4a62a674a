/** A strict reader of small XML documents: elements, attributes and text, as XML 1.0 says. */

export interface XmlElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlElement[];
  /** All text in it, as `InnerText` of .NET: white space alone between elements is left out. */
  readonly text: string;
}

const NAME = /[A-Za-z_][\w.-]*/y;
const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
};

/** Throws where the document is not well-formed. */
export function parseXml(document: string): XmlElement {
  // Line ends are one character wherever they come from.
  const reader = new Reader(document.replaceAll(/\r\n?/g, '\n'));
  reader.skip();
  const root = reader.element();
  reader.skip();
  reader.end();
  return root;
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    // oxlint-disable-next-line no-control-regex -- they are what is looked for
    if (/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/u.test(text)) {
      throw new Error('a character that XML cannot have');
    }
    this.#text = text;
  }

  element(): XmlElement {
    this.#expect('<');
    const name = this.#take(NAME, 'the name of an element');
    const attributes = new Map<string, string>();
    for (;;) {
      const spaced = this.skip();
      if (this.#if('/>')) return { name, attributes, children: [], text: '' };
      if (this.#if('>')) break;
      if (!spaced) throw this.#bad('white space before an attribute');
      const key = this.#take(NAME, 'the name of an attribute');
      if (attributes.has(key)) throw this.#bad(`one attribute ${key}`);
      this.#expect('=');
      const quote = this.#take(/["']/y, 'a quote');
      const raw = this.#take(quote === '"' ? /[^"<]*/y : /[^'<]*/y, 'a value');
      this.#expect(quote);
      // What is no reference and is white space becomes a blank.
      attributes.set(key, resolved(raw.replaceAll(/[\t\n]/g, ' ')));
    }
    return this.#content(name, attributes);
  }

  #content(name: string, attributes: ReadonlyMap<string, string>): XmlElement {
    const children: XmlElement[] = [];
    let text = '';
    while (!this.#if(`</${name}>`)) {
      const raw = this.#take(/[^<]*/y, 'text');
      if (raw.includes(']]>')) throw this.#bad('no ]]> in a text');
      const isIndent = raw.trim() === '';
      if (!isIndent) text += resolved(raw);
      if (this.#text.startsWith(`</${name}>`, this.#at)) continue;
      const child = this.element();
      children.push(child);
      text += child.text;
    }
    return { name, attributes, children, text };
  }

  /** Whether there was white space. */
  skip(): boolean {
    return this.#take(/\s*/y, '') !== '';
  }

  end(): void {
    if (this.#at < this.#text.length) throw this.#bad('the end');
  }

  #if(text: string): boolean {
    if (!this.#text.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #expect(text: string): void {
    if (!this.#if(text)) throw this.#bad(text);
  }

  #take(pattern: RegExp, what: string): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) throw this.#bad(what);
    this.#at += found.length;
    return found;
  }

  #bad(expected: string): Error {
    const rest = JSON.stringify(this.#text.slice(this.#at, this.#at + 30));
    return new Error(`at ${this.#at}, ${rest}: expected ${expected}`);
  }
}

function resolved(raw: string): string {
  return raw.replaceAll(/&([^;]*);?/g, (whole, body: string) => {
    const code = /^#(?:x([\da-fA-F]+)|(\d+))$/.exec(body);
    if (whole.endsWith(';') && code !== null) {
      return String.fromCodePoint(Number.parseInt(code[1] ?? code[2] ?? '', code[1] ? 16 : 10));
    }
    const text = whole.endsWith(';') ? ENTITIES[body] : undefined;
    if (text === undefined) throw new Error(`${whole} is no reference`);
    return text;
  });
}
