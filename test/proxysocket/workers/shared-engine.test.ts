import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import type { EngineChange, ListenSpec, ServicePortSpec } from '../../../src/proxysocket/spec.ts';
import { SharedEngine } from '../../../src/proxysocket/workers/shared-engine.ts';
import { FakeEngine } from '../../support/fake-engine.ts';
import { until } from '../../support/until.ts';

const AFFINITY = { kind: 'clientIP', timeoutSeconds: 60 } as const;

function spec(name: string, more: Partial<ServicePortSpec> = {}): ServicePortSpec {
  return {
    name,
    protocol: 'TCP',
    listen: [{ address: '127.0.0.1', port: 0, traffic: 'internal' }],
    endpoints: [{ address: '10.1.0.1', port: 80, internal: true, external: true }],
    affinity: { kind: 'none' },
    ...more,
  };
}

const set = (name: string, more: Partial<ServicePortSpec> = {}): EngineChange => ({
  kind: 'set',
  spec: spec(name, more),
});

const place = (port: number): ListenSpec => ({ address: '127.0.0.1', port, traffic: 'internal' });

function rig(t: Test, { count = 3, isSteered = false } = {}) {
  const engines = Array.from({ length: count }, (_, n) => new FakeEngine(40_000 + 1000 * n));
  const shared = new SharedEngine(engines, { isSteered });
  t.teardown(() => shared.close());
  /** The port of the only listener of a service port, as clients are told. */
  const portOf = (name: string): number => {
    const [listener] = shared.snapshot(new Set([name]))[0]?.listeners ?? [];
    return listener?.state === 'listening' ? listener.boundPort : 0;
  };
  /** Engines that serve a place, by their index. */
  const servers = (port: number, protocol: 'TCP' | 'UDP' = 'TCP'): number[] =>
    engines.flatMap((engine, index) =>
      engine.lands('127.0.0.1', port, protocol) === undefined ? [] : [index],
    );
  return { engines, shared, portOf, servers };
}

t.test('all engines listen on the port that one of them has chosen', async (t) => {
  const { shared, portOf, servers } = rig(t);
  await shared.apply([set('d/a'), set('d/b'), set('d/c')]);
  for (const name of ['d/a', 'd/b', 'd/c']) t.same(servers(portOf(name)), [0, 1, 2], name);
  t.equal(shared.snapshot().length, 3);
  await shared.apply([{ kind: 'remove', name: 'd/b' }]);
  t.equal(shared.snapshot().length, 2);
});

t.test(
  'the first one has the place alone until the others join, always in one order',
  async (t) => {
    const { engines, shared } = rig(t);
    const opened: string[] = [];
    for (const [index, engine] of engines.entries()) {
      const apply = engine.apply.bind(engine);
      engine.apply = async (changes) => {
        for (const change of changes) {
          if (change.kind !== 'set') continue;
          const [{ group } = place(0)] = change.spec.listen;
          opened.push(`${change.spec.name} ${index} ${group?.joins ? 'joins' : 'leads'}`);
        }
        await apply(changes);
      };
    }
    const names = ['d/a', 'd/b', 'd/c', 'd/d', 'd/e', 'd/f'];
    await shared.apply(names.map((name) => set(name)));
    const leaders = new Set<number>();
    for (const name of names) {
      const [first = '', ...others] = opened.filter((line) => line.startsWith(`${name} `));
      const leader = Number(first.split(' ')[1]);
      leaders.add(leader);
      t.equal(first, `${name} ${leader} leads`);
      t.same(
        others,
        [0, 1, 2].filter((index) => index !== leader).map((index) => `${name} ${index} joins`),
      );
    }
    t.ok(leaders.size > 1, 'not all service ports have the same leader');
  },
);

t.test('with session affinity one engine serves alone, unless clients are steered', async (t) => {
  for (const isSteered of [false, true]) {
    const { shared, portOf, servers } = rig(t, { isSteered });
    await shared.apply([set('d/web', { affinity: AFFINITY })]);
    t.equal(servers(portOf('d/web')).length, isSteered ? 3 : 1);
  }
});

t.test('affinity that is switched on and off keeps the port', async (t) => {
  const { shared, portOf, servers } = rig(t);
  await shared.apply([set('d/web')]);
  const port = portOf('d/web');
  await shared.apply([set('d/web', { affinity: AFFINITY })]);
  t.equal(portOf('d/web'), port);
  t.equal(servers(port).length, 1);
  await shared.apply([set('d/web')]);
  t.same(servers(port), [0, 1, 2]);
});

t.test('endpoints reach every engine that serves', async (t) => {
  const { engines, shared, portOf } = rig(t);
  await shared.apply([set('d/web'), set('d/kept', { affinity: AFFINITY })]);
  const endpoints = [{ address: '10.1.0.2', port: 81, internal: true, external: true }];
  await shared.apply([
    { kind: 'endpoints', name: 'd/web', endpoints },
    { kind: 'endpoints', name: 'd/kept', endpoints },
  ]);
  for (const engine of engines) {
    t.same(engine.lands('127.0.0.1', portOf('d/web'))?.endpoints, ['10.1.0.2:81']);
  }
  const alone = engines.flatMap((each) => each.lands('127.0.0.1', portOf('d/kept')) ?? []);
  t.same(
    alone.map((each) => each.endpoints),
    [['10.1.0.2:81']],
  );
});

t.test('where the first one cannot listen nobody does, until it can', async (t) => {
  const { engines, shared, servers } = rig(t);
  for (const engine of engines) engine.errors.set('127.0.0.1:80/TCP', 'EADDRINUSE');
  await shared.apply([set('d/web', { listen: [place(80)] })]);
  t.same(servers(80), []);
  t.match(shared.snapshot()[0]?.listeners, [{ state: 'failed', cause: 'EADDRINUSE' }]);
  for (const engine of engines) engine.errors.clear();
  for (const engine of engines) engine.retry();
  await until(() => servers(80).length === 3);
  t.match(shared.snapshot()[0]?.listeners, [{ state: 'listening', boundPort: 80 }]);
});

t.test('an engine that fails does not keep the others from their part', async (t) => {
  const { engines, shared, portOf, servers } = rig(t);
  await shared.apply([set('d/web')]);
  const port = portOf('d/web');
  const [, second] = engines;
  if (second !== undefined) second.failAfter = 0;
  const endpoints = [{ address: '10.1.0.9', port: 80, internal: true, external: true }];
  await t.rejects(shared.apply([{ kind: 'endpoints', name: 'd/web', endpoints }]), {
    message: 'the engine broke down',
  });
  const seen = servers(port).map((n) => engines[n]?.lands('127.0.0.1', port)?.endpoints[0]);
  t.same(seen, ['10.1.0.9:80', '10.1.0.1:80', '10.1.0.9:80']);
  await shared.apply([set('d/web', { endpoints })]);
  t.same(
    engines.map((each) => each.lands('127.0.0.1', port)?.endpoints[0]),
    ['10.1.0.9:80', '10.1.0.9:80', '10.1.0.9:80'],
  );
});

t.test('a place that moves to another service port is never closed', async (t) => {
  const { engines, shared, servers } = rig(t);
  await shared.apply([set('d/a', { listen: [place(80)] })]);
  for (const engine of engines) engine.log.length = 0;
  for (const [from, to] of [
    ['d/a', 'd/b'],
    ['d/b', 'd/c'],
    ['d/c', 'd/d'],
    ['d/d', 'd/a'],
  ] as const) {
    await shared.apply([{ kind: 'remove', name: from }, set(to, { listen: [place(80)] })]);
    t.same(servers(80), [0, 1, 2]);
    t.same(
      engines.map((each) => each.lands('127.0.0.1', 80)?.servicePort),
      [to, to, to],
    );
  }
  t.same(
    engines.map(({ log }) => log),
    [[], [], []],
  );
});

t.test('with one engine it is that engine', async (t) => {
  const { shared, portOf, servers } = rig(t, { count: 1 });
  await shared.apply([set('d/web', { affinity: AFFINITY }), set('d/api')]);
  t.same(servers(portOf('d/web')), [0]);
  t.same(servers(portOf('d/api')), [0]);
});

t.test('a batch rejects when its endpoints are for a service port that is not set', async (t) => {
  const { shared } = rig(t);
  await t.rejects(shared.apply([{ kind: 'endpoints', name: 'd/none', endpoints: [] }]), {
    message: /d\/none/,
  });
});

t.test('whatever the batches, it ends up as one engine would', async () => {
  const name = fc.constantFrom('d/a', 'd/b', 'd/c', 'd/d');
  const listen = fc.uniqueArray(fc.constantFrom(place(0), place(80), place(81)), {
    maxLength: 2,
  });
  const change = fc.oneof(
    fc.record({
      kind: fc.constant('set' as const),
      spec: fc.record({ name, listen, sticky: fc.boolean(), udp: fc.boolean() }),
    }),
    fc.record({ kind: fc.constant('remove' as const), name }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(change, { maxLength: 4 }), { maxLength: 6 }),
      async (batches) => {
        const engines = [new FakeEngine(40_000), new FakeEngine(50_000)];
        const shared = new SharedEngine(engines, { isSteered: false });
        /** As one engine would have it: who came first has a place. */
        const wanted = new Map<string, ServicePortSpec>();
        try {
          for (const batch of batches) {
            const last = new Map<string, EngineChange>();
            const taken = new Map<string, string>();
            for (const each of batch) {
              if (each.kind === 'remove') last.set(each.name, each);
              else {
                const { name, listen, sticky, udp } = each.spec;
                last.set(
                  name,
                  set(name, {
                    listen,
                    protocol: udp ? 'UDP' : 'TCP',
                    ...(sticky && { affinity: AFFINITY }),
                  }),
                );
              }
            }
            for (const [key, each] of last) {
              if (each.kind === 'set') wanted.set(key, each.spec);
              else wanted.delete(key);
            }
            // The contract of engines: no two service ports want one place.
            for (const { name, protocol, listen } of wanted.values()) {
              for (const { port } of listen) {
                const key = `${protocol} ${port}`;
                if (port !== 0 && (taken.get(key) ?? name) !== name) fc.pre(false);
                taken.set(key, name);
              }
            }
            await shared.apply([...last.values()]);
          }
          const snapshots = new Map(shared.snapshot().map((each) => [each.name, each]));
          for (const { name, listen, protocol, affinity } of wanted.values()) {
            const snapshot = snapshots.get(name);
            if (snapshot?.protocol !== protocol)
              throw new Error(`${name} is ${snapshot?.protocol}`);
            const ports = snapshot.listeners.flatMap((each) =>
              each.state === 'listening' ? [each.boundPort] : [],
            );
            if (ports.length !== listen.length)
              throw new Error(`${name} listens on ${ports.join()}`);
            for (const port of ports) {
              const serving = engines.filter(
                (engine) => engine.lands('127.0.0.1', port, protocol)?.servicePort === name,
              );
              const expected = affinity.kind === 'none' ? engines.length : 1;
              if (serving.length !== expected) {
                throw new Error(`${name}: ${serving.length} engines serve ${port}`);
              }
            }
          }
          if (snapshots.size !== wanted.size) throw new Error([...snapshots.keys()].join());
        } finally {
          await shared.close();
        }
      },
    ),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
});
