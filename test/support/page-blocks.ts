/** The blocks of a page that people copy from: code between fences, and what is indented like code. */

export interface Block {
  /** What stands behind the fence: `console`, `sh`, `yaml` and so on. `indented` where there is no fence. */
  readonly language: string;
  /** The comment in the line before: `<!-- MARK -->`. */
  readonly mark: string;
  readonly text: string;
  /** Number of its first line, the fence, from 1. */
  readonly line: number;
}

export function blocksOf(page: string): Block[] {
  const blocks: Block[] = [];
  const lines = page.split('\n');
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    const [, indent, language = ''] = /^( *)```(\S*)/.exec(line) ?? [];
    if (indent === undefined) {
      const startsBlock = /^ {4}\S/.test(line) && lines[at - 1] === '';
      if (startsBlock) {
        blocks.push({ language: 'indented', mark: '', text: `${line.trim()}\n`, line: at + 1 });
      }
      continue;
    }
    const end = lines.indexOf(`${indent}\`\`\``, at + 1);
    if (end < 0) throw new Error(`line ${at + 1}: the fence is not closed`);
    const inside = lines.slice(at + 1, end).map((each) => `${each.slice(indent.length)}\n`);
    const mark = /^ *<!-- (.*) -->$/.exec(lines[at - 1] ?? '')?.[1] ?? '';
    blocks.push({ language, mark, text: inside.join(''), line: at + 1 });
    at = end;
  }
  return blocks;
}

/** A page without its blocks. */
export function proseOf(page: string): string {
  return page.replaceAll(/^( *)```[^]*?^ *```$/gm, '');
}
