/** What the pages say of the admin API is so. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { changingOperations } from '../../src/admin/changing.ts';
import { PAGE_FILES } from '../../src/admin/page.ts';
import { standardOperations } from '../../src/admin/standard.ts';
import { failsOf, HEALTH_STATES, REASON_CODES, unreachable } from '../../src/observe/verdict.ts';
import { SERVICE_STATES } from '../../src/observe/service-state.ts';
import { ADMIN_COMMANDS } from '../../src/cli/admin/commands.ts';
import { TEXT_FILES } from '../../tools/sea/assets.ts';
import { AdminScene, sceneViews } from '../support/admin-scene.ts';
import { listItems, tableRows } from '../support/markdown.ts';

const root = join(import.meta.dirname, '../..');
const page = (name: string): string => readFileSync(join(root, 'docs', name), 'utf8');

/** The first name of each item of a section's lists. */
function firstNames(section: string): string[] {
  return listItems(page('reference/status.md'), section).map(({ names: [first = ''] }) => first);
}

t.test('docs/reference/status.md has every operation, with its method and inputs', async (t) => {
  const scene = new AdminScene([]);
  const { sampler } = sceneViews(scene, 0);
  const documented = tableRows(page('reference/status.md'), 'API').map(
    ([name, method, inputs = '']) => ({
      name: name?.replaceAll('`', ''),
      method,
      inputs: [...inputs.matchAll(/`([^`]+)`/g)].map(([, input]) => input),
    }),
  );
  const actual = [
    ...standardOperations(scene.subject, sampler),
    ...changingOperations(scene.subject),
  ].map(({ name, access, inputs }) => {
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

t.test('docs/reference/status.md has every state and reason', async (t) => {
  const rows = tableRows(page('reference/status.md'), 'Health').map((cells) =>
    cells.map((cell) => cell.replaceAll('`', '')),
  );
  const states = rows.slice(0, 3).map(([state, code]) => `${state} ${code}`);
  t.strictSame(
    states,
    HEALTH_STATES.map((state, code) => `${state} ${code}`),
  );
  const reasons = rows.slice(3).map(([code, , pages = '']) => [code, pages]);
  const [last] = unreachable('').reasons;
  t.strictSame(reasons, [
    ...REASON_CODES.map((code) => [code, failsOf(code).join(', ')]),
    [last?.code, ''],
  ]);
});

t.test('an executable and the package have the files of the page', async (t) => {
  for (const name of PAGE_FILES) {
    const inside = (TEXT_FILES as Readonly<Record<string, string>>)[`status-page/${name}`];
    t.equal(inside, `assets/status-page/${name}`);
  }
  const manifest = readFileSync(join(root, 'package.json'), 'utf8');
  const { files } = JSON.parse(manifest) as { files: string[] };
  t.ok(files.includes('assets'));
});
