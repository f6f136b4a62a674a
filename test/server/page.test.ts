/** What docs/kpng.md shows is what happens. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startCli, type Cli } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';
import { until } from '../support/until.ts';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs', 'kpng.md'), 'utf8');
const state = join(root, 'examples', 'state-file', 'two-nodes.yaml');

/** The messages of a program's log. */
function shown(cli: Cli): string[] {
  return cli.log.filter(({ level }) => level === 'info').map(({ msg }) => `INFO: ${msg}`);
}

t.test('the commands of docs/kpng.md and their output', async (t) => {
  const server = startCli(t, ['file', '--input', state, 'to-api', '--listen', '127.0.0.1:0']);
  const { address } = await server.line('Serving the API');
  await server.line('The first complete state is in place');
  for (const line of shown(server)) t.ok(page.includes(line), line);
  const target = String(address).replace('tcp://', '');
  const socket = `unix://${join(shortDir(t), 'proxy.sock')}`;
  const second = startCli(t, ['api', '--api', target, 'to-api', '--listen', socket]);
  await second.line('The first complete state is in place');
  for (const line of shown(second)) t.ok(page.includes(line), line);
  const near = startCli(t, ['local', '--api', target, 'to-json', '--node-name', 'node-a']);
  await until(() => near.stdout.endsWith('\n'));
  t.ok(page.includes(`\n${near.stdout}`), near.stdout);
  const far = startCli(t, ['local', '--api', socket, 'to-json', '--node-name', 'node-b']);
  await until(() => far.stdout.endsWith('\n'));
  const { Endpoints } = JSON.parse(far.stdout) as { Endpoints: { Local?: boolean }[] };
  t.strictSame(
    Endpoints.map(({ Local }) => Local ?? null),
    [null, true],
  );
});
