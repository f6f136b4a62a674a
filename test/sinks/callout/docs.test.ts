import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { defaultText } from '../../../src/cli/flags/table.ts';
import { toCallout } from '../../../src/cli/sinks/to-callout.ts';
import { STDERR_TAIL, TERM_GRACE_MS } from '../../../src/sinks/callout/program.ts';
import { DEFAULT_BACKOFF } from '../../../src/util/backoff.ts';
import { formatBytes } from '../../../src/util/bytes.ts';
import { formatDuration } from '../../../src/util/duration.ts';
import { tableRows } from '../../support/markdown.ts';

const limits = readFileSync(join(import.meta.dirname, '../../../docs/reference/limits.md'), 'utf8');

t.test('docs/reference/limits.md has every limit of the callout, with its value', async (t) => {
  const { initialMs, maxMs } = DEFAULT_BACKOFF;
  const flagOf = (name: string): string[] => {
    const spec = toCallout.flags[name];
    return [`\`--${name}\``, (spec && defaultText(spec)) ?? ''];
  };
  t.strictSame(
    tableRows(limits, 'Callout').map(([name, value]) => [name, value]),
    [
      flagOf('callout-timeout'),
      flagOf('callout-max-output'),
      ['Programs at once', '1'],
      ['Time from TERM to KILL', formatDuration(TERM_GRACE_MS)],
      ['End of its standard error that is kept', formatBytes(STDERR_TAIL)],
      ['Waits after failures', `${formatDuration(initialMs)} to ${formatDuration(maxMs)}`],
    ],
  );
});
