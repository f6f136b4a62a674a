import t from 'tap';
import { AddressPortal } from '../../src/portal/address.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import { exits } from '../support/fake-exec.ts';
import { FakeEngine } from '../support/fake-engine.ts';
import { KeeperRig } from '../support/keeper-rig.ts';
import { listening, wants } from '../support/portals.ts';
import { clusterEntry, TestView } from '../support/views.ts';

/** A portal, and an engine that can listen where the make-believe host has addresses. */
class Rig extends KeeperRig {
  readonly engine = new FakeEngine();
  readonly view = new TestView();
  readonly portal = new AddressPortal({ keeper: this.keeper });
  readonly proxier: Proxier;

  constructor(...args: ConstructorParameters<typeof KeeperRig>) {
    super(...args);
    const has = (address: string): boolean => this.ip.has(address);
    this.engine.addresses.has = has;
    const { engine, portal, clock } = this;
    this.proxier = new Proxier({ engine, portal, clock, platform: 'linux' });
    args[0].teardown(() => this.proxier.close());
  }
}

t.test('listeners open on addresses that were not there before', async (t) => {
  const rig = new Rig(t);
  const web = clusterEntry('d/web', '10.96.0.1', 'http TCP 80 8080', ['10.1.0.1']);
  await rig.proxier.sync(rig.view.set(web));
  t.match(rig.engine.lands('10.96.0.1', 80), { servicePort: 'd/web:http' });
  t.same(rig.proxier.snapshot().problems, []);
  t.same(rig.ip.addresses('kpng0'), ['10.96.0.1/32']);

  const moved = clusterEntry('d/web', '10.96.0.2', 'http TCP 80 8080', ['10.1.0.1']);
  await rig.proxier.sync(rig.view.set(moved));
  t.match(rig.engine.lands('10.96.0.2', 80), { servicePort: 'd/web:http' });
  t.same(rig.ip.addresses('kpng0'), ['10.96.0.2/32']);

  await rig.proxier.sync(rig.view.remove('d/web'));
  t.same(rig.ip.addresses('kpng0'), []);
});

t.test('endpoints do not concern the interface', async (t) => {
  const rig = new Rig(t);
  const web = (endpoints: string[]) =>
    clusterEntry('d/web', '10.96.0.1', 'http TCP 80 8080', endpoints);
  await rig.proxier.sync(rig.view.set(web(['10.1.0.1'])));
  const programs = rig.ip.commands.length;
  await rig.proxier.sync(rig.view.set(web(['10.1.0.2', '10.1.0.3'])));
  await rig.proxier.sync(rig.view.set(web([])));
  t.equal(rig.ip.commands.length, programs);
});

t.test('an address that cannot be had is a problem of its service, and of no other', async (t) => {
  const rig = new Rig(t);
  rig.ip.refuses = (address) => (address === '10.96.0.1' ? 'ipv4: No thanks.' : undefined);
  await rig.proxier.sync(
    rig.view.set(
      clusterEntry('d/bad', '10.96.0.1', '- TCP 80 8080'),
      clusterEntry('d/good', '10.96.0.2', '- TCP 80 8080'),
    ),
  );
  t.match(rig.engine.lands('10.96.0.2', 80), { servicePort: 'd/good' });
  const problems = () =>
    rig.proxier.snapshot().problems.toSorted((x, y) => (x.code < y.code ? -1 : 1));
  t.match(problems(), [
    { code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', servicePort: 'd/bad', count: 1 },
    { code: 'KPNG_PORTAL_FAILED', servicePort: 'd/bad', message: /No thanks/ },
  ]);
  await rig.proxier.sync(rig.view.set(clusterEntry('d/new', '10.96.0.3', '- TCP 80 8080')));
  t.equal(problems().length, 2, 'a change of another one changes nothing of that');
});

t.test('when no address can be added, node ports open, and the change is refused', async (t) => {
  const rig = new Rig(t);
  rig.ip.broken = exits('RTNETLINK answers: Operation not permitted\n');
  const web = clusterEntry('d/web', '10.96.0.1', 'http TCP 80 8080@30080', ['10.1.0.1']);
  await t.rejects(rig.proxier.sync(rig.view.set(web)), {
    code: 'KPNG_SINK_FAILED',
    message: /CAP_NET_ADMIN/,
  });
  t.match(rig.engine.lands('127.0.0.1', 30_080), { servicePort: 'd/web:http' });
  rig.ip.broken = undefined;
  await rig.proxier.sync(rig.view.again('d/web'));
  rig.engine.retry();
  t.match(rig.engine.lands('10.96.0.1', 80), { servicePort: 'd/web:http' });
});

t.test('loopback addresses are there anyhow, and node ports need none', async (t) => {
  const rig = new Rig(t);
  const { portal } = rig;
  portal.plan(
    [wants('d/a', 'externalIP 127.0.0.10:80', 'externalIP ::1:80', 'nodePort 30080')],
    [],
  );
  await portal.prepare();
  await portal.commit();
  t.same(rig.ip.addresses('kpng0'), []);
});

t.test('node ports are not opened on service addresses', async (t) => {
  const rig = new KeeperRig(t);
  const portal = new AddressPortal({ keeper: rig.keeper, nodePortAddresses: ['10.0.0.0/8'] });
  rig.ip.link('eth0').addresses.push({ address: '10.0.0.5', prefix: 24 });
  portal.plan([wants('d/a', 'clusterIP 10.96.0.1:80')], []);
  await portal.prepare();
  const plan = portal.plan([wants('d/b', 'nodePort 30080')], []);
  t.same(listening(plan), { 'd/b': ['10.0.0.5:30080 external'] });
  t.same(
    portal.hostAddresses().map(({ address }) => address),
    ['127.0.0.1', '::1', '192.0.2.5', '2001:db8::5', '10.0.0.5'],
  );
});
