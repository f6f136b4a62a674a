import t from 'tap';
import { endpoint, service, clusterEntry, entry, ports } from '../support/messages.ts';
import { addressRig } from '../support/proxier-rig.ts';

t.test('a service is reachable on its addresses, in both families', async (t) => {
  const { proxier, engine, view } = addressRig(t);
  const web = entry(
    'd/web',
    {
      ips: {
        clusterIPs: { v4: ['10.0.0.1'], v6: ['::1'] },
        externalIPs: { v4: ['192.0.2.1'] },
      },
      ports: ports('http TCP 80 8080@30080', 'dns UDP 53 5353'),
      externalTrafficToLocal: true,
    },
    {
      here: endpoint('10.1.0.1', { ips: { v4: ['10.1.0.1'], v6: ['fd01::1'] } }),
      there: endpoint('10.1.0.2', { scopes: { internal: true, external: false } }),
    },
  );
  await proxier.sync(view.set(web));
  const all = ['10.1.0.1:8080', '[fd01::1]:8080', '10.1.0.2:8080'];
  const here = all.slice(0, 2);
  t.same(engine.lands('10.0.0.1', 80), {
    servicePort: 'd/web:http',
    traffic: 'internal',
    endpoints: all,
  });
  t.same(engine.lands('::1', 80)?.endpoints, all);
  t.same(engine.lands('192.0.2.1', 80), {
    servicePort: 'd/web:http',
    traffic: 'external',
    endpoints: here,
  });
  t.same(engine.lands('127.0.0.1', 30_080)?.endpoints, here, 'on every address of the host');
  t.same(engine.lands('10.0.0.1', 53, 'UDP')?.endpoints, [
    '10.1.0.1:5353',
    '[fd01::1]:5353',
    '10.1.0.2:5353',
  ]);
  t.equal(engine.lands('10.0.0.1', 53), undefined);
  t.match(proxier.snapshot(), { services: 1, endpoints: 6, problems: [] });
  t.equal(proxier.snapshot().servicePorts.length, 2);
});

t.test('a change of endpoints goes to the engine alone', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, view } = rig;
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', ['10.1.0.1'])));
  t.equal(rig.plans, 1);
  for (const endpoints of [['10.1.0.2'], ['10.1.0.2', '10.1.0.3'], [], ['10.1.0.4']]) {
    await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', endpoints)));
    t.same(rig.lastBatch, ['endpoints d/web']);
    t.same(
      engine.lands('10.0.0.1', 80)?.endpoints,
      endpoints.map((each) => `${each}:8080`),
    );
  }
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 8081', ['10.1.0.4'])));
  t.same(rig.lastBatch, ['endpoints d/web'], 'a new target port is a change of endpoints');
  t.equal(rig.plans, 1);
  t.same(engine.log, ['+10.0.0.1:80/TCP']);
});

t.test('a change set without differences gives the engine nothing to do', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, view } = rig;
  const web = clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', ['10.1.0.1']);
  await proxier.sync(view.set(web));
  await proxier.sync(view.again());
  await proxier.sync(view.again('d/web', 'd/unknown'));
  await proxier.sync(view.set({ ...web, service: { ...web.service, labels: { a: 'b' } } }));
  t.equal(engine.batches.length, 1);
  t.equal(rig.plans, 1);
});

t.test('G3: a different port is a different listener; labels do not matter', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, view } = rig;
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 99 8080', ['10.1.0.1'])));
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 100 8080', ['10.1.0.1'])));
  t.same(rig.lastBatch, ['set d/web'], 'not removed: what was accepted lives on');
  t.equal(engine.lands('10.0.0.1', 99), undefined);
  t.same(engine.lands('10.0.0.1', 100)?.endpoints, ['10.1.0.1:8080']);
});

t.test(
  'G3 (different): an edited affinity timeout reaches the engine, and no listener is touched',
  async (t) => {
    const rig = addressRig(t);
    const { proxier, engine, view } = rig;
    const withTimeout = (timeoutSeconds: number) =>
      entry('d/web', {
        ips: { clusterIPs: { v4: ['10.0.0.1'] } },
        ports: ports('- TCP 80 8080'),
        sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds } },
      });
    await proxier.sync(view.set(withTimeout(10)));
    await proxier.sync(view.set(withTimeout(20)));
    t.match(engine.batches.at(-1), [
      { kind: 'set', spec: { affinity: { kind: 'clientIP', timeoutSeconds: 20 } } },
    ]);
    t.same(engine.log, ['+10.0.0.1:80/TCP']);
    t.equal(rig.plans, 1);
  },
);

t.test('G4: a cluster IP that is removed, becomes None and returns', async (t) => {
  const { proxier, engine, view } = addressRig(t);
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', ['10.1.0.1'])));
  await proxier.sync(view.set(clusterEntry('d/web', '', '- TCP 80 8080', ['10.1.0.1'])));
  t.equal(engine.lands('10.0.0.1', 80), undefined);
  await proxier.sync(
    view.set(entry('d/web', { ips: { headless: true }, ports: ports('- TCP 80 8080') })),
  );
  t.equal(engine.lands('10.0.0.1', 80), undefined);
  t.same(proxier.snapshot(), { services: 0, endpoints: 0, servicePorts: [], problems: [] });
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', ['10.1.0.1'])));
  t.same(engine.lands('10.0.0.1', 80)?.endpoints, ['10.1.0.1:8080']);
});

t.test(
  'G5 (different): a service that is removed and returns has its endpoints at once',
  async (t) => {
    const rig = addressRig(t);
    const { proxier, engine, view } = rig;
    const web = clusterEntry('d/web', '10.0.0.1', '- TCP 80 8080', ['10.1.0.1']);
    await proxier.sync(view.set(web));
    await proxier.sync(view.remove('d/web'));
    t.same(rig.lastBatch, ['remove d/web']);
    t.equal(engine.lands('10.0.0.1', 80), undefined);
    await proxier.sync(view.set(web));
    t.same(engine.lands('10.0.0.1', 80)?.endpoints, ['10.1.0.1:8080']);
  },
);

t.test('a node port moves between services in one sync, and its socket stays open', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, view } = rig;
  const a = (port: string) => clusterEntry('d/a', '10.0.0.1', port, ['10.1.0.1']);
  const b = (port: string) => clusterEntry('d/b', '10.0.0.2', port, ['10.1.0.2']);
  await proxier.sync(view.set(a('- TCP 80 80@30080'), b('- TCP 80 80')));
  t.equal(engine.lands('127.0.0.1', 30_080)?.servicePort, 'd/a');
  await proxier.sync(view.set(a('- TCP 80 80'), b('- TCP 80 80@30080')));
  t.equal(engine.lands('127.0.0.1', 30_080)?.servicePort, 'd/b');
  t.notOk(engine.log.includes('-0.0.0.0:30080/TCP'));
  t.equal(rig.plans, 2);
  t.same(rig.told, []);
});

t.test('a renamed port keeps its socket', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, view } = rig;
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', 'http TCP 80 80', ['10.1.0.1'])));
  await proxier.sync(view.set(clusterEntry('d/web', '10.0.0.1', 'web TCP 80 80', ['10.1.0.1'])));
  t.same([...rig.lastBatch].sort(), ['remove d/web:http', 'set d/web:web']);
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web:web');
  t.same(engine.log, ['+10.0.0.1:80/TCP']);
});

t.test('a different protocol is a different service port of the same name', async (t) => {
  const rig = addressRig(t);
  const { proxier, engine, view } = rig;
  await proxier.sync(view.set(clusterEntry('d/dns', '10.0.0.1', '- TCP 53 53', ['10.1.0.1'])));
  await proxier.sync(view.set(clusterEntry('d/dns', '10.0.0.1', '- UDP 53 53', ['10.1.0.1'])));
  t.same(rig.lastBatch, ['set d/dns']);
  t.equal(engine.lands('10.0.0.1', 53), undefined);
  t.equal(engine.lands('10.0.0.1', 53, 'UDP')?.servicePort, 'd/dns');
});

t.test('V17 (kept, different): a change touches only the listeners that it concerns', async (t) => {
  const { proxier, engine, view } = addressRig(t);
  const steps: [addresses: string[], ports: string[], log: string[]][] = [
    [['10.0.0.1'], ['a TCP 80 80'], ['+10.0.0.1:80/TCP']],
    [['10.0.0.1'], ['a TCP 80 80', 'b TCP 81 81'], ['+10.0.0.1:81/TCP']],
    [['10.0.0.1'], ['a TCP 80 80', 'c TCP 82 82'], ['+10.0.0.1:82/TCP', '-10.0.0.1:81/TCP']],
    [
      ['10.0.0.1', '10.0.0.2'],
      ['a TCP 80 80', 'c TCP 82 82'],
      ['+10.0.0.2:80/TCP', '+10.0.0.2:82/TCP'],
    ],
    [['10.0.0.2'], ['c TCP 82 82'], ['-10.0.0.1:80/TCP', '-10.0.0.1:82/TCP', '-10.0.0.2:80/TCP']],
  ];
  for (const [v4, texts, log] of steps) {
    engine.log.length = 0;
    const web = entry('demo/web', { ips: { clusterIPs: { v4 } }, ports: ports(...texts) });
    await proxier.sync(view.set(web));
    t.strictSame(engine.log.toSorted(), log);
  }
  engine.log.length = 0;
  await proxier.sync(view.remove('demo/web'));
  t.strictSame(engine.log, ['-10.0.0.2:82/TCP']);
  t.equal(engine.batches.length, steps.length + 1, 'one batch for each change set');
});

t.test('services that share no name do not share anything else', async (t) => {
  const { proxier, engine, view } = addressRig(t);
  await proxier.sync(
    view.set(
      {
        ...clusterEntry('a/web', '10.0.0.1', '- TCP 80 80', ['10.1.0.1']),
        service: service('x/y', {
          ips: { clusterIPs: { v4: ['10.0.0.1'] } },
          ports: ports('- TCP 80 80'),
        }),
      },
      clusterEntry('b/web', '10.0.0.2', '- TCP 80 80', ['10.1.0.2']),
    ),
  );
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'a/web', 'the key of the entry counts');
  t.equal(engine.lands('10.0.0.2', 80)?.servicePort, 'b/web');
});
