/** What the pages say of the admin API is so. */
import { readFileSync } from 'node:fs';
import { maxHeaderSize } from 'node:http';
import { join } from 'node:path';
import t from 'tap';
import { MAX_ENDPOINTS } from '../../src/admin/details.ts';
import { MAX_DRAINS } from '../../src/proxier/drains.ts';
import { HISTORY_SAMPLES, SAMPLE_MS } from '../../src/admin/history.ts';
import { PAGE_FILES } from '../../src/admin/page.ts';
import { MAX_HISTORIES } from '../../src/admin/sampler.ts';
import { failsOf, HEALTH_STATES, REASON_CODES, unreachable } from '../../src/observe/verdict.ts';
import { SERVICE_STATES } from '../../src/observe/service-state.ts';
import { MAX_ROWS } from '../../src/admin/services.ts';
import { ADMIN_COMMANDS } from '../../src/cli/admin/commands.ts';
import { MAX_INSPECTED, MAX_LISTED } from '../../src/proxysocket/inspect.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import { formatDuration } from '../../src/util/duration.ts';
import * as http from '../../src/util/http-limits.ts';
import { TEXT_FILES } from '../../tools/sea/assets.ts';
import { AdminScene } from '../support/admin-scene.ts';
import { listItems, tableRows } from '../support/markdown.ts';

const root = join(import.meta.dirname, '../..');
const page = (name: string): string => readFileSync(join(root, 'docs', name), 'utf8');

/** The first name of each item of a section's lists. */
function firstNames(section: string): string[] {
  return listItems(page('reference/status.md'), section).map(({ names: [first = ''] }) => first);
}

t.test('docs/reference/status.md has every operation, with its method and inputs', async (t) => {
  const scene = await AdminScene.create([]);
  const admin = scene.start({});
  t.teardown(() => admin.close());
  const documented = tableRows(page('reference/status.md'), 'API').map(
    ([name, method, inputs = '']) => ({
      name: name?.replaceAll('`', ''),
      method,
      inputs: [...inputs.matchAll(/`([^`]+)`/g)].map(([, input]) => input),
    }),
  );
  const actual = admin.operations.map(({ name, access, inputs }) => {
    return { name, method: access === 'change' ? 'POST' : 'GET', inputs: [...inputs] };
  });
  t.same(documented, actual);
});

t.test('it has every command and every state', async (t) => {
  const words = new Set(firstNames('Commands').map((name) => name.split(' ')[0]));
  t.same(words, new Set(ADMIN_COMMANDS.map(({ word }) => word)));
  const states = firstNames('States');
  t.strictSame(states.sort(), [...SERVICE_STATES, 'ready', 'failing', 'drained', 'unused'].sort());
});

t.test(
  'docs/reference/status.md has every state and reason, and the pages that fail',
  async (t) => {
    const rows = tableRows(page('reference/status.md'), 'Health').map((cells) =>
      cells.map((cell) => cell.replaceAll('`', '')),
    );
    t.strictSame(
      rows.slice(0, 3).map(([state, code]) => [state, code]),
      HEALTH_STATES.map((state, code) => [state, String(code)]),
    );
    const reasons = rows.slice(3).map(([code, , pages = '']) => [code, pages]);
    const [last] = unreachable('').reasons;
    t.strictSame(reasons, [
      ...REASON_CODES.map((code) => [code, failsOf(code).join(', ')]),
      [last?.code, ''],
    ]);
  },
);

t.test('docs/reference/limits.md has the limits of the admin API', async (t) => {
  const values = tableRows(page('reference/limits.md'), 'Admin API and status page').map(
    ([, value]) => value,
  );
  const number = (value: number): string => value.toLocaleString('en');
  t.strictSame(values, [
    number(MAX_HISTORIES),
    `${HISTORY_SAMPLES} samples, ${formatDuration(SAMPLE_MS)} apart`,
    number(MAX_ROWS),
    number(MAX_ENDPOINTS),
    number(MAX_LISTED),
    number(MAX_INSPECTED),
    number(MAX_DRAINS),
  ]);
});

t.test('docs/reference/limits.md has the limits of HTTP servers', async (t) => {
  const values = tableRows(page('reference/limits.md'), 'HTTP servers').map(([, value]) => value);
  t.strictSame(values.slice(0, 9), [
    String(http.MAX_HTTP_CONNECTIONS),
    String(http.MAX_WAITING_REQUESTS),
    formatBytes(http.MAX_RESPONSE_BYTES),
    formatDuration(http.RESPONSE_TIMEOUT_MS),
    formatBytes(http.MAX_REQUEST_BYTES),
    formatDuration(http.HEADERS_TIMEOUT_MS),
    formatDuration(http.REQUEST_TIMEOUT_MS),
    formatDuration(http.IDLE_TIMEOUT_MS),
    formatBytes(maxHeaderSize),
  ]);
});

t.test(
  'an executable has the files of the page inside, and the package has them, too',
  async (t) => {
    for (const name of PAGE_FILES) {
      const inside = (TEXT_FILES as Readonly<Record<string, string>>)[`status-page/${name}`];
      t.equal(inside, `assets/status-page/${name}`);
    }
    const { files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      files: string[];
    };
    t.ok(files.includes('assets'));
  },
);
