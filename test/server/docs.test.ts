import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { toApi } from '../../src/cli/sinks/to-api.ts';
import { DEFAULT_INTERVAL_MS } from '../../src/file/sink.ts';
import {
  DEFAULT_SERVER_LIMITS,
  HANDSHAKE_MS,
  MAX_REQUESTS_AHEAD,
} from '../../src/server/limits.ts';
import { DEFAULT_MAX_HISTORY } from '../../src/store/global-store.ts';
import { defaultText } from '../../src/cli/flags/table.ts';
import { formatDuration } from '../../src/util/duration.ts';
import { tableRows } from '../support/markdown.ts';

const limits = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'limits.md'), 'utf8');

t.test('docs/limits.md has every limit of the API server, with its value', async (t) => {
  const rows = tableRows(limits, 'API server');
  const flags = ['max-watchers', 'max-api-connections', 'max-streams', 'max-request-size'];
  t.strictSame(
    rows.slice(0, flags.length).map(([name, value]) => [name, value]),
    flags.map((name) => {
      const spec = toApi.flags[name];
      return [`\`--${name}\``, spec && defaultText(spec)];
    }),
  );
  const { keepAliveMs, keepAliveTimeoutMs, idleMs } = DEFAULT_SERVER_LIMITS;
  t.strictSame(
    rows.slice(flags.length).map(([, value]) => value),
    [
      DEFAULT_MAX_HISTORY.toLocaleString('en'),
      String(MAX_REQUESTS_AHEAD),
      ...[keepAliveMs, keepAliveTimeoutMs, idleMs, HANDSHAKE_MS, DEFAULT_INTERVAL_MS].map(
        formatDuration,
      ),
    ],
  );
});
