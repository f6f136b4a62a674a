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
import { defaultText } from '../../src/cli/flags/table.ts';
import { formatDuration } from '../../src/util/duration.ts';
import { TLS_POLL_MS } from '../../src/util/tls-follow.ts';
import { tableRows } from '../support/markdown.ts';

const limits = readFileSync(
  join(import.meta.dirname, '..', '..', 'docs/reference/limits.md'),
  'utf8',
);

t.test('docs/reference/limits.md has every limit of the API server, with its value', async (t) => {
  const rows = tableRows(limits, 'API server');
  const flags = [
    'max-watchers',
    'max-api-connections',
    'max-streams',
    'max-request-size',
    'max-history',
  ];
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
      String(MAX_REQUESTS_AHEAD),
      ...[keepAliveMs, keepAliveTimeoutMs, idleMs, HANDSHAKE_MS].map(formatDuration),
      ...[TLS_POLL_MS, DEFAULT_INTERVAL_MS].map(formatDuration),
    ],
  );
});
