import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { configz } from '../../src/cli/configz.ts';
import { configFields } from '../../src/cli/config-file.ts';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { resolveConfig } from '../../src/config/resolve.ts';
import { startCli } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';

const FIELDS = configFields(REGISTRY);

t.test('both documents are valid files, and set what is in force', async (t) => {
  const line =
    'kube to-userspace --v=3 --port-range=1-2 --kubeconfig=/k --nodeport-addresses=primary';
  const invocation = parse(line.replace('to-user', 'to-local to-user').split(' '));
  if (invocation.kind !== 'run') throw new Error(invocation.kind);
  const told = configz(invocation, 3);
  t.match(told['kubeproxy.config.k8s.io'], {
    mode: 'userspace',
    bindAddress: '0.0.0.0',
    clientConnection: { kubeconfig: '/k' },
    healthzBindAddress: '0.0.0.0:10256',
    logging: { verbosity: 3, format: null },
    metricsBindAddress: '127.0.0.1:10249',
    nodePortAddresses: ['primary'],
    portRange: '1-2',
    udpIdleTimeout: '30s',
  });
  t.match(told['kpng-userspace'], {
    command: 'kube to-userspace',
    maxConnections: 100_000,
    cleanupOnExit: false,
  });
  for (const document of Object.values(told)) {
    const resolved = resolveConfig('configz', JSON.stringify(document), FIELDS);
    t.match(resolved, { ok: true, config: { warnings: [] } });
    if (!resolved.ok) continue;
    const again = parse([], {}, REGISTRY, resolved.config);
    if (again.kind !== 'run') throw new Error(again.kind);
    t.same(configz(again, 3)['kubeproxy.config.k8s.io'], told['kubeproxy.config.k8s.io']);
  }
});

t.test('the verbosity is that of the log, whoever has changed it', (t) => {
  const invocation = parse(['local', 'to-json', '-v=1']);
  if (invocation.kind !== 'run') throw new Error(invocation.kind);
  const told = configz(invocation, 4);
  t.match(told['kubeproxy.config.k8s.io'], { logging: { verbosity: 4 } });
  t.match(told['kpng-userspace'], { v: 4 });
  t.end();
});

t.test('beside the metrics: /configz and /proxyMode', async (t) => {
  const state = join(shortDir(t), 'state.yaml');
  writeFileSync(state, 'nodes: []\nservices: []\n');
  const cli = startCli(t, [
    'file',
    '--input',
    state,
    'to-json',
    '--metrics-bind-address=127.0.0.1:0',
  ]);
  const { url } = await cli.line('Serving metrics');
  const page = await (await fetch(`${String(url)}/configz`)).json();
  t.match(page, { 'kpng-userspace': { command: 'file to-json', drainTimeout: '5s' } });
  t.equal(await (await fetch(`${String(url)}/proxyMode`)).text(), 'userspace');
});
