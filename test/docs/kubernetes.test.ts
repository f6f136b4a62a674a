/** The logs that docs/reference/kubernetes.md shows are those of the program, with an API server of the tests. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startCli, type Cli } from '../support/cli.ts';
import { withoutVarying } from '../support/run-page.ts';
import { service } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { config, place } from '../support/kube-rig.ts';
import { blocksOf } from '../support/markdown.ts';

const page = readFileSync(join(import.meta.dirname, '../../docs/reference/kubernetes.md'), 'utf8');

/** Which of three resources is the first to fail, and where, is left to chance. */
function constant(lines: string): string[] {
  const each = lines
    .split('\n')
    .map((line) =>
      withoutVarying(line)
        .replaceAll(/https:\/\/127\.0\.0\.1:\d+|127\.0\.0\.1:\d+/g, 'SERVER')
        .replaceAll(/(?<=watch )(?:services|endpointslices|nodes)/g, 'RESOURCE')
        .replace(/config="\S*?"/, 'config=FILE'),
    )
    .filter((line) => line !== '');
  return [...new Set(each)];
}

/** The lines of the page's block that has a text. */
function shownWith(text: string): string[] {
  return constant(blocksOf(page).find((block) => block.text.includes(text))?.text ?? '');
}

async function scene(t: Test) {
  const here = await place(t);
  const api = await startFakeApi(t, { tls: here.tls, auth: {} });
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    api.upsert('services', service(`demo/${name}`, '10.96.0.10'));
  }
  /** Starts the program with a client certificate. */
  const start = async ({ key, crt }: { key: string; crt: string }): Promise<Cli> => {
    const user = { 'client-key': key, 'client-certificate': crt };
    const path = await config(here, api.url, { user });
    const none = ['--metrics-bind-address=', '--healthz-bind-address='];
    const words = ['kube', `--kubeconfig=${path}`, 'to-json', '--node-name=node-a'];
    return startCli(t, [...words, '--logging-format=text', ...none]);
  };
  return { api, certs: here.certs, start };
}

function lineWith(cli: Cli, text: string, times = 1): Promise<void> {
  const count = (): number => cli.otherLines.filter((line) => line.includes(text)).length;
  return cli.until(() => count() >= times, text);
}

t.test('a start, and a server that is unreachable and is back', async (t) => {
  const { api, certs, start } = await scene(t);
  const cli = await start(await certs.issue('kpng-node'));
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
  const cli = await start(await certs.issue('kpng-node'));
  await lineWith(cli, '(forbidden)');
  await lineWith(cli, 'complete state');
  const printed = constant(cli.otherLines.join('\n'));
  for (const line of shownWith('(forbidden)')) t.ok(printed.includes(line), line);
});

t.test('a client certificate that has expired', async (t) => {
  const { certs, start } = await scene(t);
  const cli = await start(await certs.issueExpired('kpng-node'));
  await lineWith(cli, '(unauthorized)');
  const line = cli.otherLines.find((each) => each.includes('(unauthorized)')) ?? '';
  const first = /(?<=list )\w+/;
  t.equal(constant(line.replace(first, 'services'))[0], shownWith('(unauthorized)')[0]);
});
