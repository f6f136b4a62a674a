import t from 'tap';
import { AddressPortal } from '../../src/portal/address.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import { FakeEngine } from '../support/fake-engine.ts';
import { exits } from '../support/fake-exec.ts';
import { KeeperRig } from '../support/keeper-rig.ts';
import { listening, portal, wants } from '../support/portals.ts';
import { clusterEntry, TestView } from '../support/messages.ts';

const host = [
  { address: '127.0.0.1', loopback: true },
  { address: '192.0.2.7', loopback: false },
];
const dual = [...host, { address: '::1', loopback: true }];

t.test('it listens on the addresses of the service, each for its kind of traffic', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  const plan = subject.plan(
    [
      wants(
        'd/web:http',
        'clusterIP 10.0.0.1:80',
        'clusterIP fd00::1:80',
        'externalIP 192.0.2.7:80',
        'loadBalancerIP 192.0.2.8:80',
        'nodePort 30080',
      ),
    ],
    [],
  );
  t.same(listening(plan), {
    'd/web:http': [
      '10.0.0.1:80 internal',
      'fd00::1:80 internal',
      '192.0.2.7:80 external',
      '192.0.2.8:80 external',
      '0.0.0.0:30080 external',
    ],
  });
  t.same(plan.problems, []);
  await subject.commit();
  await subject.close();
});

t.test('on a host with IPv6, node ports listen on both wildcards', async (t) => {
  const subject = new AddressPortal({ interfaces: () => dual });
  t.same(listening(subject.plan([wants('d/web', 'nodePort 30080')], [])), {
    'd/web': ['0.0.0.0:30080 external', ':::30080 external'],
  });
});

t.test('source ranges reach the listener', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  const ranges = ['192.0.2.0/24'];
  const open = subject.plan([wants('d/web', 'loadBalancerIP 192.0.2.8:80')], []);
  t.notOk('sourceRanges' in (open.listen.get('d/web')?.[0] ?? {}));
  const closed = subject.plan([wants('d/web', portal('loadBalancerIP 192.0.2.8:80', ranges))], []);
  t.same(closed.listen.get('d/web')?.[0]?.sourceRanges, ranges);
});

t.test('a plan contains only service ports whose listeners differ', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  const web = wants('d/web', 'clusterIP 10.0.0.1:80');
  const api = wants('d/api', 'clusterIP 10.0.0.2:80');
  subject.plan([web, api], []);
  t.same(listening(subject.plan([web, api], [])), {});
  t.same(listening(subject.plan([wants('d/api', 'clusterIP 10.0.0.3:80')], [])), {
    'd/api': ['10.0.0.3:80 internal'],
  });
  t.same(listening(subject.plan([wants('d/api')], [])), { 'd/api': [] });
  t.same(listening(subject.plan([], ['d/web', 'd/unknown'])), {}, 'the engine removes the rest');
  t.same(listening(subject.plan([web], ['d/web'])), { 'd/web': ['10.0.0.1:80 internal'] });
});

t.test('N2: a conflict names the holder, and ends when the holder is removed', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  subject.plan([wants('d/old', 'nodePort 30080')], []);
  const plan = subject.plan(
    [
      wants('d/new', 'clusterIP 10.0.0.1:80', 'nodePort 30080'),
      wants('d/udp', 'nodePort 30080/UDP'),
    ],
    [],
  );
  t.same(
    listening(plan),
    { 'd/new': ['10.0.0.1:80 internal'], 'd/udp': ['0.0.0.0:30080 external'] },
    'the rest of the service port is there (kube-proxy leaves out all that follows)',
  );
  t.match(plan.problems, [
    {
      servicePort: 'd/new',
      code: 'KPNG_PORTAL_CONFLICT',
      portal: { kind: 'nodePort', port: 30080 },
      message: 'd/new cannot have 0.0.0.0:30080/TCP: d/old has it',
    },
  ]);
  t.equal(
    subject.plan([wants('d/third', 'clusterIP 10.0.0.3:80')], []).problems.length,
    1,
    'reported as long as it is so',
  );
  const freed = subject.plan([], ['d/old']);
  t.same(listening(freed), { 'd/new': ['10.0.0.1:80 internal', '0.0.0.0:30080 external'] });
  t.same(freed.problems, []);
});

t.test('a service port that conflicts with itself is reported, too', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  const plan = subject.plan([wants('d/a', 'clusterIP 10.0.0.1:30080', 'nodePort 30080')], []);
  t.match(plan.problems, [{ message: /another of its own addresses is in the way/ }]);
});

t.test('node ports only on chosen addresses', async (t) => {
  const subject = new AddressPortal({
    nodePortAddresses: ['127.0.0.0/8', '192.0.2.9'],
    interfaces: () => dual,
  });
  t.same(listening(subject.plan([wants('d/web', 'nodePort 30080')], [])), {
    'd/web': ['127.0.0.1:30080 external', '192.0.2.9:30080 external'],
  });
});

t.test('when the host’s addresses change, node ports follow with the next plan', async (t) => {
  let now = host;
  const subject = new AddressPortal({ nodePortAddresses: ['192.0.2.0/24'], interfaces: () => now });
  subject.plan([wants('d/web', 'nodePort 30080'), wants('d/api', 'clusterIP 10.0.0.1:80')], []);
  now = [{ address: '192.0.2.20', loopback: false }];
  t.same(listening(subject.plan([wants('d/new', 'clusterIP 10.0.0.2:80')], [])), {
    'd/new': ['10.0.0.2:80 internal'],
    'd/web': ['192.0.2.20:30080 external'],
  });
  now = [];
  const plan = subject.plan([], []);
  t.same(listening(plan), { 'd/web': [] });
  t.match(plan.problems, [
    {
      servicePort: 'd/web',
      code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
      message:
        /node port 30080\/TCP: the host has no address in --nodeport-addresses 192\.0\.2\.0\/24/,
    },
  ]);
  t.same(subject.plan([], ['d/web']).problems, []);
});

t.test('a wrong node port address is refused at once', async (t) => {
  t.throws(() => new AddressPortal({ nodePortAddresses: ['10.0.0.0/99'] }), RangeError);
});

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

t.test('listeners open on added addresses', async (t) => {
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

t.test('endpoint changes do not touch the interface', async (t) => {
  const rig = new Rig(t);
  const web = (endpoints: string[]) =>
    clusterEntry('d/web', '10.96.0.1', 'http TCP 80 8080', endpoints);
  await rig.proxier.sync(rig.view.set(web(['10.1.0.1'])));
  const programs = rig.ip.commands.length;
  await rig.proxier.sync(rig.view.set(web(['10.1.0.2', '10.1.0.3'])));
  await rig.proxier.sync(rig.view.set(web([])));
  t.equal(rig.ip.commands.length, programs);
});

t.test('an unavailable address is a problem of its service only', async (t) => {
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

t.test('loopback addresses need not be added, nor do node ports', async (t) => {
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
