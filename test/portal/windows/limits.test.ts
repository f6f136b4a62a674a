import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import * as bounds from '../../../src/portal/windows/netsh.ts';
import { formatBytes } from '../../../src/util/bytes.ts';
import { formatDuration } from '../../../src/util/duration.ts';
import { tableRows } from '../../support/markdown.ts';

const limits = readFileSync(join(import.meta.dirname, '../../../docs/reference/limits.md'), 'utf8');

t.test(
  'docs/reference/limits.md has every limit of addresses on Windows, with its value',
  async (t) => {
    const waits = [bounds.USABLE_FIRST_WAIT_MS, bounds.USABLE_MAX_WAIT_MS];
    const values = tableRows(limits, 'Addresses on Windows').map(([, value]) => value);
    t.strictSame(values, [
      formatDuration(bounds.NETSH_TIMEOUT_MS),
      formatDuration(bounds.USABLE_TIMEOUT_MS),
      waits.map(formatDuration).join(' to '),
      String(bounds.PROBES_AT_ONCE),
      String(bounds.MAX_SINGLE_FAILURES),
      formatBytes(bounds.MAX_OUTPUT),
      formatDuration(bounds.BOOT_TOLERANCE_MS),
    ]);
    // The waits are two of them.
    t.equal(values.length + 1, Object.keys(bounds).length);
  },
);
