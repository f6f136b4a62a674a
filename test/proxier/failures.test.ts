import t from 'tap';
import type { KpngError } from '../../src/errors.ts';
import { proxierSyncFailed } from '../../src/proxier/events.ts';
import { FakePortal } from '../support/fake-portal.ts';
import { addressRig, Rig } from '../support/proxier-rig.ts';
import { clusterEntry } from '../support/views.ts';

const failed = { code: 'KPNG_SINK_FAILED', name: 'KpngError' };
const web = (port: string, ...endpoints: string[]) =>
  clusterEntry('d/web', '10.0.0.1', port, endpoints);

t.test(
  'when the engine breaks down the change set is refused, and done with the next one',
  async (t) => {
    for (const failAfter of [0, 1, 2]) {
      const rig = addressRig();
      const { proxier, engine, view } = rig;
      await proxier.sync(
        view.set(web('- TCP 80 80', '10.1.0.1'), clusterEntry('d/old', '10.0.0.2', '- TCP 80 80')),
      );
      view.remove('d/old');
      const change = view.set(
        web('- TCP 81 80', '10.1.0.1'),
        clusterEntry('d/new', '10.0.0.3', '- TCP 80 80'),
      );
      const events: KpngError[] = [];
      const listen = ({ error }: { error: KpngError }) => events.push(error);
      proxierSyncFailed.subscribe(listen);
      engine.failAfter = failAfter;
      await t.rejects(proxier.sync({ ...change, changed: new Set(['d/web', 'd/old', 'd/new']) }), {
        ...failed,
        message: 'service ports could not be changed: the engine broke down',
      });
      proxierSyncFailed.unsubscribe(listen);
      t.equal(events.length, 1);
      await proxier.sync(view.again());
      t.equal(engine.lands('10.0.0.1', 80), undefined, `after ${failAfter} changes`);
      t.equal(engine.lands('10.0.0.1', 81)?.servicePort, 'd/web');
      t.equal(engine.lands('10.0.0.2', 80), undefined);
      t.equal(engine.lands('10.0.0.3', 80)?.servicePort, 'd/new');
      await proxier.sync(view.again('d/web', 'd/old', 'd/new'));
      t.equal(engine.batches.length, 3, 'and then all is quiet');
      await rig.close();
    }
  },
);

t.test('a change that is taken back while it is in doubt leaves no trace', async (t) => {
  for (const failAfter of [0, 1, 2]) {
    const rig = addressRig();
    const { proxier, engine, view } = rig;
    await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
    engine.failAfter = failAfter;
    await t.rejects(
      proxier.sync(view.set(web('- UDP 81 80'), clusterEntry('d/new', '10.0.0.3', '- TCP 80 80'))),
      failed,
    );
    view.remove('d/new');
    const back = view.set(web('- TCP 80 80', '10.1.0.1'));
    await proxier.sync({ ...back, changed: new Set(['d/web', 'd/new']) });
    t.same(engine.lands('10.0.0.1', 80)?.endpoints, ['10.1.0.1:80'], `after ${failAfter} changes`);
    t.equal(engine.lands('10.0.0.1', 81, 'UDP'), undefined);
    t.equal(engine.lands('10.0.0.3', 80), undefined);
    await rig.close();
  }
});

t.test('endpoints in doubt are set as a whole, also after several failures', async (t) => {
  const rig = addressRig();
  t.teardown(() => rig.close());
  const { proxier, engine, view } = rig;
  await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
  engine.failAfter = 1;
  await t.rejects(proxier.sync(view.set(web('- TCP 80 80', '10.1.0.2'))), failed);
  engine.failAfter = 0;
  await t.rejects(proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1'))), failed);
  await proxier.sync(view.again());
  t.same(engine.lands('10.0.0.1', 80)?.endpoints, ['10.1.0.1:80']);
});

t.test('a portal that redirects: traffic lands on the proxy port, which stays', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  const { proxier, engine, view, portal } = rig;
  await proxier.sync(view.set(web('- TCP 80 80@30080', '10.1.0.1')));
  const proxyPort = portal.lands('10.0.0.1', 80) ?? 0;
  t.equal(engine.lands('127.0.0.1', proxyPort)?.servicePort, 'd/web');
  t.equal(portal.lands('node', 30_080), proxyPort);
  await proxier.sync(view.set(web('- TCP 81 80', '10.1.0.1')));
  t.equal(portal.lands('10.0.0.1', 80), undefined);
  t.equal(portal.lands('10.0.0.1', 81), proxyPort);
  t.equal(engine.lands('127.0.0.1', proxyPort)?.servicePort, 'd/web');
  t.equal(portal.commits, 2);
  await proxier.sync(view.set(web('- TCP 81 80', '10.1.0.2')));
  t.equal(portal.commits, 2, 'the portal has nothing to do with endpoints');
});

t.test('when the portal cannot carry out its plan, the next change set does it', async (t) => {
  const rig = new Rig(new FakePortal());
  t.teardown(() => rig.close());
  const { proxier, engine, view, portal } = rig;
  portal.failCommit = new Error('nft is missing');
  await t.rejects(proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1'))), {
    ...failed,
    message: /nft is missing/,
    cause: { message: 'nft is missing' },
  });
  t.equal(portal.lands('10.0.0.1', 80), undefined);
  await proxier.sync(view.again('d/web'));
  t.equal(engine.batches.length, 1);
  t.equal(engine.lands('127.0.0.1', portal.lands('10.0.0.1', 80) ?? 0)?.servicePort, 'd/web');
  t.same(portal.plans, [
    { set: ['d/web'], remove: [] },
    { set: [], remove: [] },
  ]);
});

t.test(
  'a portal that comes and goes between a failed plan and the next is not left behind',
  async (t) => {
    const rig = new Rig(new FakePortal());
    t.teardown(() => rig.close());
    const { proxier, engine, view, portal } = rig;
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
    t.ok(portal.lands('10.0.0.1', 80));
    t.equal(portal.lands('10.0.0.1', 81), undefined);
    t.equal(portal.lands('10.0.0.2', 80), undefined);
    t.same(
      engine.snapshot().map(({ name }) => name),
      ['d/web'],
    );
  },
);

t.test(
  'when the portal cannot plan, what is taken back meanwhile is not planned later',
  async (t) => {
    const rig = new Rig(new FakePortal());
    t.teardown(() => rig.close());
    const { proxier, view, portal } = rig;
    await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
    portal.failPlan = new Error('no interfaces');
    await t.rejects(proxier.sync(view.set(web('- TCP 81 80', '10.1.0.1'))), failed);
    await proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
    t.ok(portal.lands('10.0.0.1', 80));
    t.equal(portal.lands('10.0.0.1', 81), undefined);
    portal.failPlan = new Error('no interfaces');
    await t.rejects(proxier.sync(view.set(web('- TCP 82 80', '10.1.0.1'))), failed);
    await proxier.sync(view.again());
    t.ok(
      portal.lands('10.0.0.1', 82),
      'and what is not taken back is planned with the next change set',
    );
  },
);

t.test('calls are carried out one after another', async (t) => {
  const rig = addressRig();
  t.teardown(() => rig.close());
  const { proxier, engine, view } = rig;
  const one = proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
  engine.failAfter = 0;
  const two = proxier.sync({ view, changed: new Set() });
  await t.rejects(one, failed);
  await two;
  t.equal(engine.lands('10.0.0.1', 80)?.servicePort, 'd/web');
});

t.test('after close nothing is taken any more, and what is there stays', async (t) => {
  const rig = addressRig();
  const { proxier, engine, view } = rig;
  const under = proxier.sync(view.set(web('- TCP 80 80', '10.1.0.1')));
  await Promise.all([proxier.close(), under.catch(() => undefined)]);
  await t.rejects(proxier.sync(view.remove('d/web')), {
    ...failed,
    message: /the proxier is closed/,
  });
  t.equal(engine.batches.length <= 1, true);
  await rig.close();
});
