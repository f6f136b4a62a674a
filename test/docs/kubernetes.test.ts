/** The logs that docs/reference/kubernetes.md shows are those of the program, with an API server of the tests. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { makeAuthority, type CertFiles } from '../support/certs.ts';
import { startCli, type Cli } from '../support/cli.ts';
import { withoutVarying } from '../support/run-page.ts';
import { service } from '../support/fake-api/objects.ts';
import { startFakeApi, type FakeApi } from '../support/fake-api/server.ts';
import { blocksOf } from '../support/markdown.ts';
import { shortDir } from '../support/short-dir.ts';

const page = readFileSync(join(import.meta.dirname, '../../docs/reference/kubernetes.md'), 'utf8');

/** Which of three resources is the first to fail, and where, is left to chance. */
function constant(lines: string): string[] {
  const each = lines
    .split('\n')
    .map((line) =>
      withoutVarying(line)
        .replaceAll(/https:\/\/127\.0\.0\.1:\d+|127\.0\.0\.1:\d+/g, 'SERVER')
        .replaceAll(/(?<=watch )(?:services|endpointslices|nodes)/g, 'RESOURCE')
        .replace(/config="\S*?([^/"]+)"/, 'config="$1"'),
    )
    .filter((line) => line !== '');
  return [...new Set(each)];
}

/** The lines of the page's block that has a text. */
function shownWith(text: string): string[] {
  return constant(blocksOf(page).find((block) => block.text.includes(text))?.text ?? '');
}

interface Scene {
  readonly api: FakeApi;
  readonly certs: CertFiles;
  /** Starts the program with a client certificate. */
  readonly start: (cert: { key: string; crt: string }) => Cli;
}

async function scene(t: Test): Promise<Scene> {
  const certs = await makeAuthority(t);
  const server = await certs.issue('server');
  const read = (path: string): string => readFileSync(path, 'utf8');
  const api = await startFakeApi(t, {
    tls: { key: read(server.key), cert: read(server.crt), ca: read(certs.ca) },
    auth: {},
  });
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    api.upsert('services', service(`demo/${name}`, '10.96.0.10'));
  }
  const start = ({ key, crt }: { key: string; crt: string }): Cli => {
    const path = join(shortDir(t), 'kpng.conf');
    const cluster = { server: api.url, 'certificate-authority': certs.ca };
    const user = { 'client-key': key, 'client-certificate': crt };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'c', user: 'u' } }],
      clusters: [{ name: 'c', cluster }],
      users: [{ name: 'u', user }],
    };
    writeFileSync(path, JSON.stringify(config));
    const none = ['--metrics-bind-address=', '--healthz-bind-address='];
    const words = ['kube', `--kubeconfig=${path}`, 'to-json', '--node-name=node-a'];
    return startCli(t, [...words, '--logging-format=text', ...none]);
  };
  return { api, certs, start };
}

function lineWith(cli: Cli, text: string, times = 1): Promise<void> {
  const count = (): number => cli.otherLines.filter((line) => line.includes(text)).length;
  return cli.until(() => count() >= times, text);
}

t.test('a start, and a server that is unreachable and is back', async (t) => {
  const { api, certs, start } = await scene(t);
  const cli = start(await certs.issue('kpng-node'));
  await lineWith(cli, 'Connected to the source');
  t.same(constant(cli.otherLines.join('\n')), shownWith('Connected to the Kubernetes API'));
  const before = cli.otherLines.length;
  await api.stop();
  await lineWith(cli, 'ECONNREFUSED');
  await api.start();
  await lineWith(cli, 'Connected to the source', 2);
  cli.kill('SIGTERM');
  await cli.exited;
  const lines = constant(cli.otherLines.slice(before).join('\n'));
  t.same(lines.sort(), shownWith('ECONNREFUSED').sort());
});

t.test('nodes that are forbidden', async (t) => {
  const { api, certs, start } = await scene(t);
  api.deny('nodes');
  const cli = start(await certs.issue('kpng-node'));
  await lineWith(cli, '(forbidden)');
  await lineWith(cli, 'complete state');
  const printed = constant(cli.otherLines.join('\n'));
  for (const line of shownWith('(forbidden)')) t.ok(printed.includes(line), line);
});

t.test('a client certificate that has expired', async (t) => {
  const { certs, start } = await scene(t);
  const cli = start(await certs.issueExpired('kpng-node'));
  await lineWith(cli, '(unauthorized)');
  const line = cli.otherLines.find((each) => each.includes('(unauthorized)')) ?? '';
  const first = /(?<=list )\w+/;
  t.equal(constant(line.replace(first, 'services'))[0], shownWith('(unauthorized)')[0]);
});
