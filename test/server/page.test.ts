/** What docs/kpng.md shows is what happens. */
import { chmodSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runCli, startCli, type Cli } from '../support/cli.ts';
import { endpoint, service, slice } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';
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

/** A line of the log without what differs from run to run. */
function constant(line: object): string {
  return JSON.stringify(line).replace(/"(?:time|ms|retryInMs)":(?:"[^"]*"|\d+),/g, '');
}

/** The blocks of the page, one text. */
const shownLog = page.replace(/"(?:time|ms|retryInMs)":(?:"[^"]*"|\d+),/g, '');

t.test('in a cluster: the Services of one proxy', async (t) => {
  const api = await startFakeApi(t);
  const labels = { 'service.kubernetes.io/service-proxy-name': 'kpng-example' };
  const port = { name: 'all', protocol: 'TCP', port: 1 };
  const spec = { externalIPs: ['192.0.2.40'], ports: [{ ...port, targetPort: 1 }] };
  api.upsert('services', service('default/all-ip', '10.96.0.20', { labels, spec }));
  api.upsert('services', service('default/kubernetes', '10.96.0.1'));
  const pod = endpoint('10.244.1.7', { nodeName: 'n', pod: 'all-ip' });
  api.upsert('endpointslices', slice('default/all-ip-x', [pod], { ports: [port] }));
  const server = startCli(t, [
    'kube',
    `--server=${api.url}`,
    '--service-proxy-name=kpng-example',
    'to-api',
    '--listen=127.0.0.1:0',
  ]);
  const { address } = await server.line('Serving the API');
  await server.line('The first complete state is in place');
  for (const line of shown(server)) t.ok(page.includes(line), line);
  const target = String(address).replace('tcp://', '');
  const json = startCli(t, ['local', '--api', target, 'to-json', '--node-name', 'n']);
  await until(() => json.stdout.endsWith('\n'));
  t.ok(page.includes(`\n${json.stdout}`), json.stdout);
});

t.test('a callout that fails', async (t) => {
  const dir = t.testdir({ 'apply.sh': '#!/bin/sh\necho "no such chain" >&2\nexit 3\n' });
  const script = join(dir, 'apply.sh');
  chmodSync(script, 0o755);
  const callout = startCli(t, ['file', '-i', state, 'to-callout', '--callout', script]);
  await callout.line('A change could not be carried out; it is tried again');
  const errors = callout.log.filter(({ level }) => level === 'error').slice(0, 2);
  for (const line of errors) {
    const text = constant(line).replaceAll(JSON.stringify(script).slice(1, -1), './apply.sh');
    t.ok(shownLog.includes(text), text);
  }
  t.equal(errors.length, 2);
});

t.test('what to-extip would run', async (t) => {
  const file = join(root, 'examples', 'state-file', 'external-ip.yaml');
  const { stdout } = await runCli([
    'file',
    '--input',
    file,
    'to-extip',
    '--node-name=node-a',
    '--dry-run',
  ]);
  t.ok(page.includes(`--dry-run\n${stdout}\`\`\``), stdout);
});

t.test('health-check node ports', async (t) => {
  const port = await freePort();
  const folder = t.testdir({
    'harbour.yaml': readFileSync(join(root, 'examples/state-file/harbour.yaml'), 'utf8').replace(
      'healthchecknodeport: 32040',
      `healthchecknodeport: ${port}`,
    ),
  });
  const cli = startCli(t, [
    'file',
    `--input=${join(folder, 'harbour.yaml')}`,
    'to-healthchecks',
    '--ip=127.0.0.1',
    '--node-name=quay-1',
  ]);
  await cli.line('The first complete state is in place', { services: 3 });
  for (const line of shown(cli)) t.ok(page.includes(line), line);
  const answer = await fetch(`http://127.0.0.1:${port}/`);
  const text = `${await answer.text()}${answer.status}`;
  t.ok(page.includes(`http://127.0.0.1:32040/\n${text}\n`), text);
});
