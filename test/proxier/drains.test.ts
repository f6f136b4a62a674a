/** What is drained, on an engine that says where connections land. */
import t from 'tap';
import { Drains, MAX_DRAINS } from '../../src/proxier/drains.ts';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { clusterEntry, entry, ports } from '../support/messages.ts';
import { addressRig } from '../support/proxier-rig.ts';
import { until } from '../support/until.ts';

function web(...endpoints: string[]) {
  const more = {
    ips: { clusterIPs: { v4: ['10.0.0.1'] } },
    ports: ports('http TCP 80 8080', 'https TCP 443 8443'),
  };
  return entry('ns/web', more, endpoints);
}

/** A proxier with a service of two ports and another one. */
async function rig(t: { teardown(close: () => Promise<void>): void }) {
  const made = addressRig(t);
  await made.set(
    web('10.1.0.1', '10.1.0.2'),
    clusterEntry('ns/webs', '10.0.0.2', '- TCP 81 8080', ['10.1.0.1']),
  );
  const lands = (port: number) =>
    made.engine.lands(port === 81 ? '10.0.0.2' : '10.0.0.1', port)?.endpoints;
  return Object.assign(made, { lands });
}

t.test('a service or one of its ports, an endpoint of one service or of all', async (t) => {
  const { proxier, lands } = await rig(t);
  const one = { kind: 'endpoint', endpoint: '10.1.0.1:8080' } as const;
  const web = { kind: 'service', service: 'ns/web' } as const;
  t.strictSame(await proxier.drain(web), ['ns/web:http', 'ns/web:https']);
  t.strictSame([lands(80), lands(443), lands(81)], [[], [], ['10.1.0.1:8080']]);
  t.equal(proxier.drains.isDrained('ns/web:http'), true);
  t.equal(proxier.drains.isDrained('ns/webs'), false);
  t.equal(proxier.endpointsOf('ns/web:http').length, 2, 'as the source wants them');
  await proxier.undrain(web);
  t.strictSame(lands(80), ['10.1.0.1:8080', '10.1.0.2:8080']);
  t.strictSame(proxier.drains.list(), []);

  await proxier.drain({ kind: 'service', service: 'ns/web:https' });
  t.strictSame([lands(80)?.length, lands(443)], [2, []]);
  t.strictSame(await proxier.drain({ ...one, service: 'ns/web' }), ['ns/web:http']);
  t.strictSame([lands(80), lands(81)], [['10.1.0.2:8080'], ['10.1.0.1:8080']]);
  t.strictSame(await proxier.drain(one), ['ns/web:http', 'ns/webs']);
  t.strictSame([lands(80), lands(81)], [['10.1.0.2:8080'], []]);
  await proxier.undrain(one);
  t.strictSame(lands(80), ['10.1.0.2:8080'], 'the narrower one holds on');
});

t.test('drains the process, and services that are added meanwhile', async (t) => {
  const { proxier, lands, engine, set } = await rig(t);
  const before = [...engine.tcp.log];
  t.equal((await proxier.drain({ kind: 'process' })).length, 3);
  t.strictSame([lands(80), lands(443), lands(81)], [[], [], []]);
  t.equal(proxier.drains.isAllDrained, true);
  t.strictSame(engine.tcp.log, before, 'no listener closes');
  t.ok(engine.batches[1]?.every(({ kind }) => kind === 'endpoints'));
  await set(clusterEntry('ns/new', '10.0.0.3', '- TCP 90 1', ['10.1.0.9']));
  t.strictSame(engine.lands('10.0.0.3', 90)?.endpoints, []);
  await proxier.undrain();
  t.equal(lands(80)?.length, 2);
  t.strictSame(engine.lands('10.0.0.3', 90)?.endpoints, ['10.1.0.9:1']);
});

t.test('a drain holds through changes, and through the end of its service', async (t) => {
  const { proxier, lands, set, remove } = await rig(t);
  await proxier.drain({ kind: 'service', service: 'ns/web' });
  await set(web('10.1.0.7', '10.1.0.8'));
  t.strictSame(lands(80), []);
  await remove('ns/web');
  await set(web('10.1.0.9'));
  t.strictSame(lands(80), []);
  await proxier.undrain();
  t.strictSame(lands(80), ['10.1.0.9:8080'], 'what is wanted by now');
});

t.test('a drain that fails to apply is reported and not recorded', async (t) => {
  for (const failAfter of [0, 1]) {
    const { proxier, engine, lands, clock } = await rig(t);
    engine.failAfter = failAfter;
    const drained = proxier.drain({ kind: 'service', service: 'ns/web' });
    await t.rejects(drained, { code: 'KPNG_SINK_FAILED' });
    t.strictSame(proxier.drains.list(), []);
    clock.advance(1000);
    await until(() => lands(80)?.length === 2 && lands(443)?.length === 2);
    t.equal(clock.pending, 0, 'and then all is quiet');
  }
});

t.test('an undrain that fails to apply is reported, and the drain stays', async (t) => {
  const { proxier, engine, lands, again } = await rig(t);
  await proxier.drain({ kind: 'service', service: 'ns/web' });
  engine.failAfter = 1;
  await t.rejects(proxier.undrain(), { code: 'KPNG_SINK_FAILED' });
  t.equal(proxier.drains.isDrained('ns/web:http'), true);
  await again('ns/webs');
  t.strictSame([lands(80), lands(443)], [[], []], 'the next change set brings it back');
  await proxier.undrain();
  t.equal(lands(80)?.length, 2);
});

t.test('an unknown target cannot be drained or undrained', async (t) => {
  const { proxier } = await rig(t);
  for (const [service, more] of [
    ['web', '; did you mean "ns/web"?'],
    ['we', '; services are named namespace/name'],
    ['ns/we', ''],
  ] as const) {
    await t.rejects(proxier.drain({ kind: 'service', service }), {
      code: 'KPNG_ADMIN_REFUSED',
      message: `there is no service "${service}"${more}`,
    });
  }
  const elsewhere = { kind: 'endpoint', endpoint: '10.1.0.2:8080', service: 'ns/webs' } as const;
  for (const attempt of [
    proxier.drain({ kind: 'endpoint', endpoint: '10.9.9.9:1' }),
    proxier.drain(elsewhere),
    proxier.undrain({ kind: 'service', service: 'ns/web' }),
  ]) {
    await t.rejects(attempt, { code: 'KPNG_ADMIN_REFUSED' });
  }
  t.strictSame(proxier.drains.list(), []);
});

t.test('the number of individual drains is limited', (t) => {
  const drains = new Drains();
  const endpoints = Array.from({ length: MAX_DRAINS + 1 }, (_, index) => ({
    address: '10.1.0.1',
    port: index + 1,
    internal: true,
    external: true,
  }));
  const services = new Map([['ns/web', { spec: { name: 'ns/web', endpoints } }]]);
  const drain = (port: number) =>
    drains.drain({ kind: 'endpoint', endpoint: `10.1.0.1:${port}` }, services);
  for (let port = 2; port <= MAX_DRAINS + 1; port += 1) drain(port);
  t.throws(() => drain(1), { message: /1000 services and endpoints are drained already/ });
  drain(2);
  t.end();
});

t.test('a drained endpoint says for which traffic it would be used', (t) => {
  const drains = new Drains();
  const one: EndpointSpec = { address: '10.1.0.1', port: 80, internal: true, external: false };
  const spec = { name: 'ns/web', endpoints: [one, { ...one, port: 81, internal: false }] };
  t.equal(drains.specOf(spec), spec, 'nothing is drained');
  drains.drain({ kind: 'process' }, new Map());
  const closed = { internal: false, external: false };
  const [first, second] = drains.specOf(spec).endpoints;
  t.match(first, { ...closed, drained: ['internal'] });
  t.strictSame(second, { ...one, port: 81, ...closed, drained: [] });
  t.end();
});
