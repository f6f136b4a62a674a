import { chmodSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startCli } from '../support/cli.ts';
import { isAsShown, type PageRun, testPage } from '../support/run-page.ts';
import { endpoint, service, slice } from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { blocksOf } from '../support/markdown.ts';

/** The API server that docs/reference/kpng.md talks to: one Service for its proxy, and one for others. */
async function clusterOfOne(t: Test): Promise<Omit<PageRun, 'page'>> {
  const api = await startFakeApi(t);
  const labels = { 'service.kubernetes.io/service-proxy-name': 'kpng-example' };
  const port = { name: 'all', protocol: 'TCP', port: 1 };
  const spec = { externalIPs: ['192.0.2.40'], ports: [{ ...port, targetPort: 1 }] };
  api.upsert('services', service('default/all-ip', '10.96.0.20', { labels, spec }));
  api.upsert('services', service('default/kubernetes', '10.96.0.1'));
  const pod = endpoint('10.244.1.7', { nodeName: 'n', pod: 'all-ip' });
  api.upsert('endpointslices', slice('default/all-ip-x', [pod], { ports: [port] }));
  return {
    env: { KPNG_SERVER: api.url, KPNG_NODE_NAME: 'n', KPNG_ADMIN_SOCKET: '' },
    ports: { 39827: Number(new URL(api.url).port) },
  };
}

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs/reference/kpng.md'), 'utf8');
const state = join(root, 'examples', 'state-file', 'two-nodes.yaml');

testPage('docs/reference/kpng.md', clusterOfOne);

// The sinks: one shell for the whole page would take too long.
testPage('docs/reference/kpng.md', async (t) => {
  const { env, ...cluster } = await clusterOfOne(t);
  const none = { KPNG_METRICS_BIND_ADDRESS: '', KPNG_HEALTHZ_BIND_ADDRESS: '' };
  return { ...cluster, mark: 'run apart', env: { ...env, ...none } };
});

/** The block of the page that has this text. */
function shownWith(text: string): string {
  return blocksOf(page).find((block) => block.text.includes(text))?.text ?? '';
}

t.test('the warning about an API in plaintext', async (t) => {
  const all = ['file', '-i', state, 'to-api', '--listen=tcp://:0'];
  const server = startCli(t, [...all, '--logging-format=text']);
  const warns = (line: string): boolean => line.includes('WARN');
  await server.until(() => server.otherLines.some(warns), 'the warning');
  const line = server.otherLines.find(warns) ?? '';
  t.ok(isAsShown(`${line}\n`.replace(/:\d+"/, ':12091"'), shownWith('WARN: API served')), line);
});

t.test('a callout that fails', async (t) => {
  const dir = t.testdir({ 'apply.sh': '#!/bin/sh\necho "no such chain" >&2\nexit 3\n' });
  const script = join(dir, 'apply.sh');
  chmodSync(script, 0o755);
  const callout = startCli(t, ['file', '-i', state, 'to-callout', '--callout', script]);
  await callout.line('Applying a change failed; retrying');
  const errors = callout.log.filter(({ level }) => level === 'error').slice(0, 2);
  const lines = errors.map((line) => `${JSON.stringify(line)}\n`).join('');
  const printed = lines.replaceAll(JSON.stringify(script).slice(1, -1), './apply.sh');
  t.ok(isAsShown(printed, shownWith('no such chain')), printed);
});
