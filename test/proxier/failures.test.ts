import t from 'tap';
import type { Portal } from '../../src/portal/portal.ts';
import { proxierSyncFailed, servicePortChanged } from '../../src/proxier/events.ts';
import { LINGER_MS, MAX_LINGERING } from '../../src/proxier/late-listeners.ts';
import { addressRig, nftablesRig, type Rig } from '../support/proxier-rig.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';
import { clusterEntry, entry, ports } from '../support/messages.ts';

const failed = { code: 'KPNG_SINK_FAILED', name: 'KpngError' };
const web = (port: string, ...endpoints: string[]) =>
  clusterEntry('d/web', '10.0.0.1', port, endpoints);

t.test(
  'if the engine fails, the change set is rejected and applied with the next one',
  async (t) => {
    for (const failAfter of [0, 1, 2]) {
      const rig = addressRig(t);
      const { proxier, engine, view } = rig;
      await proxier.sync(
        view.set(web('- TCP 80 80', '10.1.0.1'), clusterEntry('d/old', '10.0.0.2', '- TCP 80 80')),
      );
      view.remove('d/old');
      const change = view.set(
        web('- TCP 81 80', '10.1.0.1'),
        clusterEntry('d/new', '10.0.0.3', '- TCP 80 80'),
      );
      const events = collect(t, proxierSyncFailed);
      engine.failAfter = failAfter;
      await t.rejects(proxier.sync({ ...change, changed: new Set(['d/web', 'd/old', 'd/new']) }), {
        ...failed,
        message: 'service ports could not be changed: the engine broke down',
      });
      t.equal(events.length, 1);
      await proxier.sync(view.again());
      t.equal(engine.lands('10.0.0.1', 80), undefined, `after ${failAfter} changes`);
      t.equal(engine.lands('10.0.0.1', 81)?.servicePort, 'd/web');
      t.equal(engine.lands('10.0.0.2', 80), undefined);
      t.equal(engine.lands('10.0.0.3', 80)?.servicePort, 'd/new');
      await proxier.sync(view.again('d/web', 'd/old', 'd/new'));
      t.equal(engine.batches.length, 3, 'and then all is quiet');
    }
  },
);

/** Lets the next call fail. */
function failOnce(portal: Portal, method: 'plan' | 'commit', message: string): void {
  const original = portal[method].bind(portal);
  portal[method] = () => {
    portal[method] = original as never;
    throw new Error(message);
  };
}

t.test('if the portal’s commit fails, the next change set commits it', async (t) => {
  const { rig, lands } = nftablesRig(t);
  const { proxier, engine, view } = rig;
  failOnce(rig.portal, 'commit', 'nft is missing');
  await t.rejects(proxier.sync(view.set(web('- TCP 80 80@30080', '10.1.0.1'))), {
    ...failed,
    message: /nft is missing/,
    cause: { message: 'nft is missing' },
  });
  await proxier.sync(view.again('d/web'));
  t.equal(engine.batches.length, 1);
  t.strictSame([lands('10.0.0.1:80'), lands('192.0.2.5:30080')], ['d/web', 'd/web']);
  const log = [...engine.log];
  await proxier.sync(view.set(web('- TCP 81 80', '10.1.0.1')));
  t.strictSame([lands('10.0.0.1:80'), lands('10.0.0.1:81')], ['passed on', 'd/web']);
  t.strictSame(engine.log, log, 'the proxy port stays');
});

t.test(
  'a portal that comes and goes between a failed plan and the next is not left behind',
  async (t) => {
    const { rig, lands } = nftablesRig(t);
    const { proxier, engine, view } = rig;
    await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
    engine.failAfter = 0;
    const both = view.set(
      web('- TCP 81 80', '10.1.0.2'),
      clusterEntry('d/b', '10.0.0.2', '- TCP 80 80'),
    );
    await t.rejects(proxier.sync(both), failed);
    view.remove('d/b');
    const back = view.set(web('- TCP 80 80', '10.1.0.1'));
    await proxier.sync({ ...back, changed: new Set(['d/b', 'd/web']) });
    t.equal(lands('10.0.0.1:80'), 'd/web');
    t.equal(lands('10.0.0.1:81'), 'passed on');
    t.equal(lands('10.0.0.2:80'), 'passed on');
    t.same(
      engine.snapshot().map(({ name }) => name),
      ['d/web'],
    );
  },
);

t.test(
  'when the portal cannot plan, what is taken back meanwhile is not planned later',
  async (t) => {
    const { rig, lands } = nftablesRig(t);
    const { proxier, view, portal } = rig;
    await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
    failOnce(portal, 'plan', 'no interfaces');
    await t.rejects(proxier.sync(view.set(web('- TCP 81 80', '10.1.0.1'))), failed);
    await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
    t.equal(lands('10.0.0.1:80'), 'd/web');
    t.equal(lands('10.0.0.1:81'), 'passed on');
    failOnce(portal, 'plan', 'no interfaces');
    await t.rejects(proxier.sync(view.set(web('- TCP 82 80', '10.1.0.1'))), failed);
    await proxier.sync(view.again());
    t.equal(
      lands('10.0.0.1:82'),
      'd/web',
      'and what is not taken back is planned with the next change set',
    );
  },
);

t.test('calls run one after another, and none after close', async (t) => {
  const { proxier, engine, view } = addressRig(t);
  const one = proxier.sync(view.set(webService()));
  engine.failAfter = 0;
  const two = proxier.sync(view.again());
  await t.rejects(one, failed);
  await two;
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web');
  await proxier.close();
  const late = { ...failed, message: /the proxier is closed/ };
  await t.rejects(proxier.sync(view.remove('d/web')), late);
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web', 'the state stays');
});

const webService = () => web('- TCP 80 80', '10.1.0.1');

/** Nothing new, once what the clock has begun is done. */
async function settle({ proxier, view }: Rig): Promise<void> {
  await proxier.sync({ view, changed: new Set() });
}

function open({ engine }: Rig): string[] {
  return engine.snapshot().map(({ name }) => name);
}

t.test(
  'a client that is connecting still reaches its listener after the rules change',
  async (t) => {
    const { rig, lands } = nftablesRig(t);
    await rig.proxier.sync(rig.view.set(webService()));
    const told = collect(t, servicePortChanged);
    await rig.proxier.sync(rig.view.remove('d/web'));
    t.equal(lands('10.0.0.1:80'), 'passed on', 'no one new is redirected there');
    t.match(told, [{ kind: 'removed' }], 'and that is when its removal is reported');
    rig.clock.advance(LINGER_MS - 1);
    await settle(rig);
    t.same(rig.engine.lands('127.0.0.1', 40_000)?.endpoints, ['10.1.0.1:80']);
    rig.clock.advance(1);
    await settle(rig);
    t.equal(rig.engine.lands('127.0.0.1', 40_000), undefined);
    t.equal(told.length, 1);
    t.equal(rig.clock.pending, 0);
  },
);

t.test('a service that returns meanwhile gets its listener back', async (t) => {
  const { rig, lands } = nftablesRig(t);
  const told = collect(t, servicePortChanged);
  const bring = () => rig.proxier.sync(rig.view.set(webService()));
  const take = () => rig.proxier.sync(rig.view.remove('d/web'));
  await bring();
  const log = [...rig.engine.log];
  await take();
  rig.clock.advance(LINGER_MS - 1);
  await bring();
  t.equal(lands('10.0.0.1:80'), 'd/web');
  await take();
  rig.clock.advance(LINGER_MS - 1);
  await settle(rig);
  t.same(open(rig), ['d/web'], 'and when it goes again, it has all of its time');
  await bring();
  rig.clock.advance(LINGER_MS);
  await settle(rig);
  t.strictSame(rig.engine.log, log);
  t.same(
    told.map(({ kind }) => kind),
    ['added', 'removed', 'added', 'removed', 'added'],
  );
});

t.test('changes of others do not keep it open', async (t) => {
  const { rig } = nftablesRig(t);
  await rig.proxier.sync(rig.view.set(webService()));
  await rig.proxier.sync(rig.view.remove('d/web'));
  for (let n = 0; n < 4; n += 1) {
    rig.clock.advance(LINGER_MS / 4);
    await rig.proxier.sync(
      rig.view.set(clusterEntry('d/other', '10.0.0.2', `- TCP ${80 + n} 80`, ['10.1.0.1'])),
    );
  }
  t.same(open(rig), ['d/other']);
});

t.test('of many listeners removed at once, not all linger', async (t) => {
  const { rig } = nftablesRig(t);
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

t.test('when closing fails, it is reported and retried', async (t) => {
  const { rig } = nftablesRig(t);
  const failures = collect(t, proxierSyncFailed);
  await rig.proxier.sync(rig.view.set(webService()));
  await rig.proxier.sync(rig.view.remove('d/web'));
  rig.engine.failAfter = 0;
  rig.clock.advance(LINGER_MS);
  await until(() => failures.length === 1);
  t.same(open(rig), ['d/web']);
  rig.clock.advance(LINGER_MS);
  await settle(rig);
  t.same(open(rig), []);
});

t.test('an address that another service port needs is released at once', async (t) => {
  const { rig, lands } = nftablesRig(t, { range: { first: 36_000, last: 36_001 } });
  const split = {
    ips: { clusterIPs: { v4: ['10.0.0.1'] }, externalIPs: { v4: ['203.0.113.1'] } },
    ports: ports('- TCP 80 80'),
    externalTrafficToLocal: true,
  };
  await rig.proxier.sync(rig.view.set(entry('d/web', split, ['10.1.0.1'])));
  await rig.proxier.sync(rig.view.remove('d/web'));
  const other = clusterEntry('d/other', '10.0.0.2', '- TCP 80 80', ['10.1.0.9']);
  await rig.proxier.sync(rig.view.set(other));
  t.equal(lands('10.0.0.2:80'), 'd/other');
  t.same(open(rig), ['d/web', 'd/other'], 'the other listener stays open');
  t.same(rig.told, [], 'without a word about a conflict');
  rig.clock.advance(LINGER_MS);
  await settle(rig);
  t.same(open(rig), ['d/other']);
});
