import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { escapeControls, escapeLines, hasControls } from '../../util/terminal-text.ts';
import type { OutputForm } from '../flags/admin.ts';

/** Prints an answer in the form that was asked for. A reader that goes away early is no error. */
export async function print(
  value: unknown,
  lines: readonly string[],
  form: OutputForm,
  out: Writable,
): Promise<void> {
  const text = await render(value, lines, form);
  const gone = new Promise<void>((resolve) => {
    out.once('error', () => resolve());
  });
  if (!out.write(text)) await Promise.race([once(out, 'drain'), gone]);
}

async function render(value: unknown, lines: readonly string[], form: OutputForm): Promise<string> {
  // In strings of JSON, and in double quotes of YAML, what is written out means the same.
  if (form === 'json') return escapeLines(`${JSON.stringify(value, undefined, 2)}\n`);
  if (form === 'table') return `${lines.map(escapeControls).join('\n')}\n`;
  const { Document, visit } = await import('yaml');
  const document = new Document(value);
  visit(document, {
    Scalar(_, node) {
      if (typeof node.value === 'string' && hasControls(node.value)) node.type = 'QUOTE_DOUBLE';
    },
  });
  return escapeLines(document.toString({ lineWidth: 0 }));
}
