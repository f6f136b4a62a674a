import { once } from 'node:events';
import type { Writable } from 'node:stream';
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
  if (form === 'json') return `${JSON.stringify(value, undefined, 2)}\n`;
  if (form === 'table') return `${lines.join('\n')}\n`;
  const { stringify } = await import('yaml');
  return stringify(value, { lineWidth: 0 });
}
