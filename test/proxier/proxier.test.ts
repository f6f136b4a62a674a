import t from 'tap';
import { endpoint, clusterEntry, entry, ports } from '../support/messages.ts';
import { addressRig } from '../support/proxier-rig.ts';

t.test('a service is reachable on its addresses, in both families', async (t) => {
  const { proxier, engine, set } = addressRig(t);
  const ips = { clusterIPs: { v4: ['10.0.0.1'], v6: ['::1'] }, externalIPs: { v4: ['192.0.2.1'] } };
  const more = { ips, ports: ports('http TCP 80 8080@30080', 'dns UDP 53 5353') };
  const here = endpoint('10.1.0.1', { ips: { v4: ['10.1.0.1'], v6: ['FD01::1'] } });
  const there = endpoint('10.1.0.2', { scopes: { internal: true, external: false } });
  await set(entry('d/web', { ...more, externalTrafficToLocal: true }, { here, there }));
  const http = { servicePort: 'd/web:http', traffic: 'internal' };
  const endpoints = ['10.1.0.1:8080', '[fd01::1]:8080', '10.1.0.2:8080'];
  const local = { ...http, traffic: 'external', endpoints: endpoints.slice(0, 2) };
  t.same(engine.lands('10.0.0.1', 80), { ...http, endpoints });
  t.same(engine.lands('::1', 80), { ...http, endpoints });
  t.same(engine.lands('192.0.2.1', 80), local);
  t.same(engine.lands('127.0.0.1', 30_080), local, 'on every address of the host');
  const dns = endpoints.map((text) => text.replace('8080', '5353'));
  t.same(engine.lands('10.0.0.1', 53, 'UDP')?.endpoints, dns);
  t.equal(engine.lands('10.0.0.1', 53), undefined);
  const external = engine.batches[0]?.flatMap((change) =>
    change.kind === 'set' ? change.spec.listen.filter((each) => each.traffic === 'external') : [],
  );
  t.match(external, [{ clusterClients: { traffic: 'internal' } }]);
  t.match(proxier.snapshot(), { services: 1, endpoints: 6, problems: [] });
  t.equal(proxier.snapshot().servicePorts.length, 2);
});

const affinity = (timeoutSeconds: number) =>
  entry('d/web', {
    ips: { clusterIPs: { v4: ['10.0.0.1'] } },
    ports: ports('- TCP 80 8080'),
    sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds } },
  });
const at = (portText: string, address = '10.0.0.1', ...endpoints: string[]) =>
  clusterEntry('d/web', address, portText, ['10.1.0.1', ...endpoints]);
const empty = clusterEntry('d/web', '10.0.0.1', '- TCP 80 1');
const headless = entry('d/web', { ips: { headless: true }, ports: ports('- TCP 80 8080') });

// What a change of a service sends the engine, and the listeners that it closes and opens.
for (const [name, before, after, batch, log] of [
  // Not removed: accepted connections continue.
  ['G3: a port', at('- TCP 80 1'), at('- TCP 81 1'), ['set d/web'], ['-80/TCP', '+81/TCP']],
  ['G3 (different): an affinity timeout', affinity(10), affinity(20), ['set d/web'], []],
  ['G4: a cluster IP that goes', at('- TCP 80 1'), at('- TCP 80 1', ''), undefined, ['-80/TCP']],
  ['G4: a cluster IP that becomes None', at('- TCP 80 1'), headless, undefined, ['-80/TCP']],
  ['a name', at('a TCP 80 1'), at('b TCP 80 1'), ['remove d/web:a', 'set d/web:b'], []],
  ['a protocol', at('- TCP 53 1'), at('- UDP 53 1'), ['set d/web'], ['-53/TCP', '+53/UDP']],
  ['a target port', at('- TCP 80 1'), at('- TCP 80 2'), ['endpoints d/web'], []],
  ['an endpoint', at('- TCP 80 1'), at('- TCP 80 1', '10.0.0.1', '::1'), ['endpoints d/web'], []],
  ['the last endpoint', at('- TCP 80 1'), empty, ['endpoints d/web'], []],
] as const) {
  t.test(`a change of ${name}, and back`, async (t) => {
    const rig = addressRig(t);
    const { proxier, engine, set } = rig;
    await set(before);
    const state = engine.state();
    engine.tcp.log.length = 0;
    await set(after);
    t.same(rig.lastBatch.toSorted(), batch ?? ['remove d/web']);
    const opened = [
      ...engine.tcp.log.map((line) => `${line}/TCP`),
      ...engine.udp.log.map((line) => `${line}/UDP`),
    ];
    const expected = log.map((each) => each.replace(/^./, '$&10.0.0.1:'));
    t.same(opened, expected);
    if (batch === undefined) t.match(proxier.snapshot(), { services: 0, endpoints: 0 });
    if (batch?.[0] === 'endpoints d/web') t.equal(rig.plans, 1, 'it goes to the engine alone');
    t.notSame(engine.state(), state);
    await set(before);
    t.same(engine.state(), state, 'with its endpoints at once (G5: different)');
  });
}

t.test('V17 (kept, different): a change touches only the listeners that it concerns', async (t) => {
  const { engine, set, remove } = addressRig(t);
  const steps: [addresses: string[], ports: string[], log: string[]][] = [
    [['10.0.0.1'], ['a TCP 80 80'], ['+10.0.0.1:80']],
    [['10.0.0.1'], ['a TCP 80 80', 'b TCP 81 81'], ['+10.0.0.1:81']],
    [['10.0.0.1'], ['a TCP 80 80', 'c TCP 82 82'], ['+10.0.0.1:82', '-10.0.0.1:81']],
    [
      ['10.0.0.1', '10.0.0.2'],
      ['a TCP 80 80', 'c TCP 82 82'],
      ['+10.0.0.2:80', '+10.0.0.2:82'],
    ],
    [['10.0.0.2'], ['c TCP 82 82'], ['-10.0.0.1:80', '-10.0.0.1:82', '-10.0.0.2:80']],
  ];
  for (const [v4, texts, log] of steps) {
    engine.tcp.log.length = 0;
    const web = entry('demo/web', { ips: { clusterIPs: { v4 } }, ports: ports(...texts) });
    await set(web);
    t.strictSame(engine.tcp.log.toSorted(), log);
  }
  engine.tcp.log.length = 0;
  await remove('demo/web');
  t.strictSame(engine.tcp.log, ['-10.0.0.2:82']);
  t.equal(engine.batches.length, steps.length + 1, 'one batch for each change set');
});
