/** A comment, a string, a regular expression, where a template begins, or a brace. */
const TOKEN =
  /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|(?<=(?:[=(,:;!&|?{}[>\n]|return)\s*)\/(?:[^\\/\n[]|\\.|\[(?:[^\\\]\n]|\\.)*\])+\/|[`{}]/g;
/** The text of a template up to its end or its next expression. */
const TEMPLATE = /(?:[^`\\$]|\\[^]|\$(?!\{))*/y;

/**
 * Only the prose of a TypeScript file, each on its line: comments, and strings and texts of templates that contain a
 * blank. Strings without one are codes and keys.
 */
export function proseOfSource(source: string): string {
  /** For each template around the position, how many braces are open in its expression. */
  const open: number[] = [];
  let prose = '';
  let at = 0;
  const keep = (text: string): void => {
    const isProse = text.startsWith('/*') || text.startsWith('//') || text.includes(' ');
    prose += isProse ? text : blank(text);
    at += text.length;
  };
  const skip = (end: number): void => {
    prose += blank(source.slice(at, end));
    at = end;
  };
  const readTemplate = (): void => {
    TEMPLATE.lastIndex = at;
    keep(TEMPLATE.exec(source)?.[0] ?? '');
    const isExpression = source.startsWith('${', at);
    if (isExpression) open.push(0);
    skip(at + (isExpression ? 2 : 1));
  };

  for (;;) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(source);
    if (found === null) break;
    const [text] = found;
    const depth = open.at(-1);
    skip(found.index);
    if (text === '`') {
      skip(at + 1);
      readTemplate();
    } else if (text === '}' && depth === 0) {
      open.pop();
      skip(at + 1);
      readTemplate();
    } else if (text === '{' || text === '}') {
      if (depth !== undefined) open[open.length - 1] = depth + (text === '{' ? 1 : -1);
      skip(at + 1);
    } else if (isRegExp(text)) {
      skip(at + text.length);
    } else {
      keep(text);
    }
  }
  skip(source.length);
  return prose;
}

function isRegExp(token: string): boolean {
  return token.startsWith('/') && !token.startsWith('//') && !token.startsWith('/*');
}

/** As many lines, with nothing in them. */
function blank(text: string): string {
  return text.replaceAll(/[^\n]/g, '');
}
