import t from 'tap';
import type { Portal } from '../../src/portal/portal.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import { sharedSocketsName } from '../../src/proxysocket/core/shared-service-ports.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { Engine } from '../../src/proxysocket/engine.ts';
import { listenerFailed, listenerOpened } from '../../src/proxysocket/events.ts';
import type { ListenerStatus, ServicePortSpec } from '../../src/proxysocket/spec.ts';
import { clusterEntry, TestView } from '../support/messages.ts';
import { until } from '../support/until.ts';

t.test('a shared socket that opens late gets the clients of all service ports', async (t) => {
  const specs = new Map<string, ServicePortSpec>();
  let isOpen = false;
  const engine: Engine = {
    kind: 'linux',
    apply: async (changes) => {
      for (const change of changes)
        if (change.kind === 'set') specs.set(change.spec.name, change.spec);
    },
    snapshot: (names = new Set(specs.keys())) =>
      [...names].map((name) => ({
        name,
        protocol: 'TCP',
        listeners: (specs.get(name)?.listen ?? []).map((listen): ListenerStatus =>
          isOpen
            ? { state: 'listening', listen, boundPort: 40_000 }
            : { state: 'failed', listen, code: 'KPNG_LISTEN_PERMISSION', cause: 'EPERM' },
        ),
        endpoints: 1,
        counters: newCounters(),
      })),
    close: async () => undefined,
    destroy: async () => undefined,
  };
  const bound: string[] = [];
  const portal: Portal = {
    kind: 'transparent',
    redirects: true,
    plan: (set) =>
      new Map(
        set.map(({ servicePort, portals }) => [
          servicePort,
          [{ address: '127.0.0.1', port: 0, traffic: 'internal', transparent: portals }],
        ]),
      ),
    problems: () => [],
    commit: async (ports) => {
      bound.push([...ports].map(([name, { length }]) => `${name} ${length}`).join());
    },
    close: async () => undefined,
  };
  const proxier = new Proxier({ engine, portal });
  t.teardown(() => proxier.close());
  const view = new TestView();
  const listen = { address: '127.0.0.1', port: 0, traffic: 'internal' } as const;
  const socket = { servicePort: sharedSocketsName('127.0.0.1'), protocol: 'TCP', listen } as const;
  const error = new Error('EPERM');
  const syncing = proxier.sync(
    view.set(
      clusterEntry('d/a', '10.0.0.1', '- TCP 80 1', ['10.1.0.1']),
      clusterEntry('d/b', '10.0.0.2', '- TCP 80 1', ['10.1.0.1']),
    ),
  );
  listenerFailed.publish({ ...socket, code: 'KPNG_LISTEN_PERMISSION', error, retryInMs: 1 });
  await syncing;
  t.same(bound, ['d/a 0,d/b 0']);
  t.match(proxier.snapshot().problems, [
    { code: 'KPNG_LISTEN_PERMISSION', message: /for all TCP service ports \(127\.0\.0\.1\)/ },
  ]);
  isOpen = true;
  listenerOpened.publish(socket);
  await until(() => bound.length > 1);
  t.equal(bound[1], 'd/a 1,d/b 1');
  await until(() => proxier.snapshot().problems.length === 0);
});
