import t, { type Test } from 'tap';
import { proxierSyncFailed, servicePortChanged } from '../../src/proxier/events.ts';
import { LINGER_MS, MAX_LINGERING } from '../../src/proxier/engine-sync.ts';
import { addressRig, nftablesRig } from '../support/proxier-rig.ts';
import { collect } from '../support/sockets.ts';
import { portOf } from '../support/tcp-rig.ts';
import { until } from '../support/until.ts';
import { clusterEntry, entry, ports } from '../support/messages.ts';

const failed = { code: 'KPNG_SINK_FAILED', name: 'KpngError' };
const web = (port: string, ...endpoints: string[]) =>
  clusterEntry('d/web', '10.0.0.1', port, endpoints);

t.test('if the engine fails, the change set is applied with the next one', async (t) => {
  const { engine, set, again } = addressRig(t);
  const events = collect(t, proxierSyncFailed);
  engine.failAfter = 0;
  await t.rejects(set(web('- TCP 80 80', '10.1.0.1')), {
    ...failed,
    message: 'service ports could not be changed: the engine broke down',
  });
  t.equal(events.length, 1);
  await again();
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web');
  await again('d/web');
  t.equal(engine.batches.length, 2, 'and then all is quiet');
});

t.test('if the portal’s commit fails, the next change set commits it', async (t) => {
  const { rig, lands } = nftablesRig(t);
  const { engine, set, again } = rig;
  const commit = rig.portal.commit.bind(rig.portal);
  rig.portal.commit = () => {
    rig.portal.commit = commit;
    throw new Error('nft is missing');
  };
  let prepared = 0;
  rig.portal.prepare = async () => void (prepared += 1);
  await t.rejects(set(web('- TCP 80 80@30080', '10.1.0.1')), {
    ...failed,
    message: /nft is missing/,
    cause: { message: 'nft is missing' },
  });
  await again('d/web');
  t.equal(prepared, 2);
  t.equal(engine.batches.length, 1);
  t.strictSame([lands('10.0.0.1:80'), lands('192.0.2.5:30080')], ['d/web', 'd/web']);
  const log = [...engine.tcp.log];
  await set(web('- TCP 81 80', '10.1.0.1'));
  t.strictSame([lands('10.0.0.1:80'), lands('10.0.0.1:81')], ['passed on', 'd/web']);
  t.strictSame(engine.tcp.log, log, 'the proxy port stays');
});

t.test('calls run one after another, and none after close', async (t) => {
  const { proxier, engine, set, remove, again } = addressRig(t);
  const one = set(webService());
  engine.failAfter = 0;
  const two = again();
  await t.rejects(one, failed);
  await two;
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web');
  await proxier.close();
  const late = { ...failed, message: /the proxier is closed/ };
  await t.rejects(remove('d/web'), late);
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web', 'the state stays');
});

const webService = () => web('- TCP 80 80', '10.1.0.1');

/** A rig with the nftables portal that serves d/web. */
async function serving(t: Test, options?: Parameters<typeof nftablesRig>[1]) {
  const { rig, lands } = nftablesRig(t, options);
  const told = collect(t, servicePortChanged);
  await rig.set(webService());
  return {
    rig,
    lands,
    /** What happened to service ports since. */
    changes: () => told.map(({ kind }) => kind).slice(1),
    /** Lets time pass, and what falls due be done. */
    pass: async (ms: number) => {
      rig.clock.advance(ms);
      await rig.again();
    },
    /** The service ports with listeners. */
    open: () => rig.engine.snapshot().map(({ name }) => name),
  };
}

t.test('a connecting client reaches its listener after the rules change', async (t) => {
  const { rig, lands, changes, pass } = await serving(t);
  const port = portOf(rig.engine, 'd/web');
  await rig.remove('d/web');
  t.equal(lands('10.0.0.1:80'), 'passed on', 'no one new is redirected there');
  t.same(changes(), ['removed'], 'and that is when its removal is reported');
  await pass(LINGER_MS - 1);
  t.same(rig.engine.lands('127.0.0.1', port)?.endpoints, ['10.1.0.1:80']);
  await pass(1);
  t.equal(rig.engine.lands('127.0.0.1', port), undefined);
  t.same(changes(), ['removed']);
  t.equal(rig.clock.pending, 0);
});

t.test('a service that returns meanwhile gets its listener back', async (t) => {
  const { rig, lands, changes, pass, open } = await serving(t);
  const log = [...rig.engine.tcp.log];
  await rig.remove('d/web');
  rig.clock.advance(LINGER_MS - 1);
  await rig.set(webService());
  t.equal(lands('10.0.0.1:80'), 'd/web');
  await rig.remove('d/web');
  await pass(LINGER_MS - 1);
  t.same(open(), ['d/web'], 'and when it goes again, it has all of its time');
  await rig.set(webService());
  await pass(LINGER_MS);
  t.strictSame(rig.engine.tcp.log, log);
  t.same(changes(), ['removed', 'added', 'removed', 'added']);
});

t.test('changes of others do not keep it open', async (t) => {
  const { rig, open } = await serving(t);
  await rig.remove('d/web');
  for (let n = 0; n < 4; n += 1) {
    rig.clock.advance(LINGER_MS / 4);
    await rig.set(clusterEntry('d/other', '10.0.0.2', `- TCP ${80 + n} 80`, ['10.1.0.1']));
  }
  t.same(open(), ['d/other']);
});

t.test('of many listeners removed at once, not all linger', async (t) => {
  const { rig, pass, open } = await serving(t);
  const names = Array.from({ length: MAX_LINGERING + 2 }, (_, n) => `d/s${n}`);
  await rig.set(
    ...names.map((name, n) =>
      clusterEntry(name, `10.2.${n >> 8}.${n & 255}`, '- TCP 80 80', ['10.1.0.1']),
    ),
  );
  await rig.remove('d/web', ...names);
  await pass(0);
  t.equal(open().length, MAX_LINGERING);
  t.notOk(open().includes('d/s1'), 'those that went first have closed');
  await pass(LINGER_MS);
  t.equal(open().length, 0);
});

t.test('when closing fails, it is reported and retried', async (t) => {
  const { rig, pass, open } = await serving(t);
  const failures = collect(t, proxierSyncFailed);
  await rig.remove('d/web');
  rig.engine.failAfter = 0;
  rig.clock.advance(LINGER_MS);
  await until(() => failures.length === 1);
  t.same(open(), ['d/web']);
  await pass(LINGER_MS);
  t.same(open(), []);
});

t.test('a failed change that is applied while listeners close is reported', async (t) => {
  const { rig, changes } = await serving(t);
  await rig.remove('d/web');
  rig.engine.failAfter = 0;
  await t.rejects(rig.set(clusterEntry('d/other', '10.0.0.2', '- TCP 80 80')), failed);
  rig.clock.advance(LINGER_MS);
  await until(() => changes().includes('added'));
});

t.test('an address that another service port needs is released at once', async (t) => {
  const { rig, lands, pass, open } = await serving(t, { range: { first: 36_000, last: 36_001 } });
  const split = {
    ips: { clusterIPs: { v4: ['10.0.0.1'] }, externalIPs: { v4: ['203.0.113.1'] } },
    ports: ports('- TCP 80 80'),
    externalTrafficToLocal: true,
  };
  await rig.set(entry('d/web', split, ['10.1.0.1']));
  await rig.remove('d/web');
  await rig.set(clusterEntry('d/other', '10.0.0.2', '- TCP 80 80', ['10.1.0.9']));
  t.equal(lands('10.0.0.2:80'), 'd/other');
  t.same(open(), ['d/web', 'd/other'], 'the other listener stays open');
  t.same(rig.told, [], 'without a word about a conflict');
  await pass(LINGER_MS);
  t.same(open(), ['d/other']);
});
