import { once } from 'node:events';
import type { Writable } from 'node:stream';
import type { ScalarStyleRule } from 'js-yaml';
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
  const { DEFAULT_SCALAR_STYLE_RULES, dump, SCALAR_STYLE } = await import('js-yaml');
  const scalarStyleRules: ScalarStyleRule[] = [
    ...Object.values(DEFAULT_SCALAR_STYLE_RULES),
    (layout) => {
      if (hasControls(layout.node.value)) layout.style = SCALAR_STYLE.DOUBLE_QUOTED;
    },
  ];
  return escapeLines(dump(value, { lineWidth: -1, quoteStyle: 'double', scalarStyleRules }));
}
