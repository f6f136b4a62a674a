import t from 'tap';
import { LINGER_MS, MAX_LINGERING } from '../../src/proxier/late-listeners.ts';
import { proxierSyncFailed, servicePortChanged } from '../../src/proxier/events.ts';
import type { Portal, PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import { FakePortal } from '../support/fake-portal.ts';
import { Rig } from '../support/proxier-rig.ts';
import { until } from '../support/until.ts';
import { clusterEntry } from '../support/views.ts';

const web = (address = '10.0.0.1') => clusterEntry('d/web', address, '- TCP 80 80', ['10.1.0.1']);

/** Nothing new, once what the clock has begun is done. */
async function settle({ proxier, view }: Rig<Portal>): Promise<void> {
  await proxier.sync({ view, changed: new Set() });
}

function open({ engine }: Rig<Portal>): string[] {
  return engine.snapshot().map(({ name }) => name);
}

t.test('a client on its way to a listener still finds it after the rules have gone', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  await rig.proxier.sync(rig.view.set(web()));
  const proxyPort = rig.portal.lands('10.0.0.1', 80) ?? 0;
  const told: string[] = [];
  const tell = ({ kind, servicePort }: { kind: string; servicePort: string }) =>
    told.push(`${kind} ${servicePort}`);
  servicePortChanged.subscribe(tell);
  t.teardown(() => servicePortChanged.unsubscribe(tell));
  await rig.proxier.sync(rig.view.remove('d/web'));
  t.equal(rig.portal.lands('10.0.0.1', 80), undefined, 'nobody new is led there');
  t.same(told, ['removed d/web'], 'and that is when it is told to be gone');
  rig.clock.advance(LINGER_MS - 1);
  await settle(rig);
  t.same(rig.engine.lands('127.0.0.1', proxyPort)?.endpoints, ['10.1.0.1:80']);
  rig.clock.advance(1);
  await settle(rig);
  t.equal(rig.engine.lands('127.0.0.1', proxyPort), undefined);
  t.same(told, ['removed d/web']);
  t.equal(rig.clock.pending, 0);
});

t.test('a service that comes back meanwhile has its listener back', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  const told: string[] = [];
  const tell = ({ kind }: { kind: string }) => told.push(kind);
  servicePortChanged.subscribe(tell);
  t.teardown(() => servicePortChanged.unsubscribe(tell));
  await rig.proxier.sync(rig.view.set(web()));
  const proxyPort = rig.portal.lands('10.0.0.1', 80);
  await rig.proxier.sync(rig.view.remove('d/web'));
  rig.clock.advance(LINGER_MS - 1);
  await rig.proxier.sync(rig.view.set(web()));
  t.equal(rig.portal.lands('10.0.0.1', 80), proxyPort);
  rig.clock.advance(LINGER_MS);
  await settle(rig);
  t.same(open(rig), ['d/web']);
  await rig.proxier.sync(rig.view.remove('d/web'));
  rig.clock.advance(LINGER_MS - 1);
  await settle(rig);
  t.same(open(rig), ['d/web'], 'and when it goes again, it has all of its time');
  t.same(told, ['added', 'removed', 'added', 'removed']);
});

t.test('changes of others do not keep it open', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  await rig.proxier.sync(rig.view.set(web()));
  await rig.proxier.sync(rig.view.remove('d/web'));
  for (let n = 0; n < 4; n += 1) {
    rig.clock.advance(LINGER_MS / 4);
    await rig.proxier.sync(
      rig.view.set(clusterEntry('d/other', '10.0.0.2', `- TCP ${80 + n} 80`, ['10.1.0.1'])),
    );
  }
  t.same(open(rig), ['d/other']);
});

t.test('many that go at once do not all stay', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  const names = Array.from({ length: MAX_LINGERING + 3 }, (_, n) => `d/s${n}`);
  const entries = names.map((name, n) =>
    clusterEntry(name, `10.2.${n >> 8}.${n & 255}`, '- TCP 80 80', ['10.1.0.1']),
  );
  await rig.proxier.sync(rig.view.set(...entries));
  for (const name of names) rig.view.remove(name);
  await rig.proxier.sync(rig.view.again(...names));
  rig.clock.advance(0);
  await settle(rig);
  t.equal(open(rig).length, MAX_LINGERING);
  t.notOk(open(rig).includes('d/s2'), 'those that went first have closed');
  rig.clock.advance(LINGER_MS);
  await settle(rig);
  t.equal(open(rig).length, 0);
});

t.test('when closing fails, it is told and tried again', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  let failures = 0;
  const count = () => {
    failures += 1;
  };
  proxierSyncFailed.subscribe(count);
  t.teardown(() => proxierSyncFailed.unsubscribe(count));
  await rig.proxier.sync(rig.view.set(web()));
  await rig.proxier.sync(rig.view.remove('d/web'));
  rig.engine.failAfter = 0;
  rig.clock.advance(LINGER_MS);
  await until(() => failures === 1);
  t.same(open(rig), ['d/web']);
  rig.clock.advance(LINGER_MS);
  await settle(rig);
  t.same(open(rig), []);
});

/** A portal that redirects to ports of its own choice, as with a range of proxy ports. */
class ChosenPorts implements Portal {
  readonly kind = 'nftables';
  readonly redirects = true;

  plan(set: readonly ServicePortPortals[]): PortalPlan {
    const listen = set.map(
      ({ servicePort }) =>
        [servicePort, [{ address: '127.0.0.1', port: 36_000, traffic: 'internal' }]] as const,
    );
    return { listen: new Map(listen), problems: [] };
  }

  async commit(): Promise<void> {}

  async close(): Promise<void> {}
}

t.test('a place that another service port is to have is given up at once', async (t) => {
  const rig = new Rig(new ChosenPorts());
  t.teardown(() => rig.close());
  await rig.proxier.sync(rig.view.set(web()));
  rig.view.remove('d/web');
  const other = rig.view.set(clusterEntry('d/other', '10.0.0.2', '- TCP 80 80', ['10.1.0.9']));
  await rig.proxier.sync({ ...other, changed: new Set(['d/web', 'd/other']) });
  t.equal(rig.engine.lands('127.0.0.1', 36_000)?.servicePort, 'd/other');
  t.same(rig.told, [], 'without a word about a conflict');
});
