import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { EXCHANGE_LIMIT_MS, MAX_LINE_BYTES, MAX_TAKEN_BYTES } from '../../src/handover/protocol.ts';
import { MAX_LISTED } from '../../src/proxysocket/inspect.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import { formatDuration } from '../../src/util/duration.ts';
import { tableRows } from '../support/markdown.ts';

const limits = readFileSync(join(import.meta.dirname, '../../docs/reference/limits.md'), 'utf8');

t.test('docs/reference/limits.md has the limits of a restart, with their values', async (t) => {
  t.strictSame(
    tableRows(limits, 'Restart').map(([, value]) => value),
    [
      formatDuration(EXCHANGE_LIMIT_MS),
      `${formatBytes(MAX_LINE_BYTES)}; ${formatBytes(MAX_TAKEN_BYTES)} of the last one`,
      MAX_LISTED.toLocaleString('en'),
    ],
  );
});
