import t from 'tap';
import { AddressPortal } from '../../src/portal/address.ts';
import { exits } from '../support/fake-exec.ts';
import { KeeperRig } from '../support/keeper-rig.ts';
import { listening, wants } from '../support/portals.ts';

const host = [
  { address: '127.0.0.1', loopback: true },
  { address: '192.0.2.7', loopback: false },
];

t.test('a plan contains only service ports whose listeners differ', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  t.notOk(subject.choosesPorts, 'so syncs do not ask the engine for taken ones');
  const web = wants('d/web', 'clusterIP 10.0.0.1:80');
  subject.plan([web, wants('d/api', 'clusterIP 10.0.0.2:80')], []);
  t.same(listening(subject.plan([web, wants('d/api', 'clusterIP 10.0.0.3:80')], [])), {
    'd/api': ['10.0.0.3:80 internal'],
  });
  t.same(listening(subject.plan([wants('d/api')], ['d/web', 'd/unknown'])), { 'd/api': [] });
  t.same(listening(subject.plan([web], ['d/web'])), { 'd/web': ['10.0.0.1:80 internal'] });
  subject.plan([wants('d/self', 'nodePort 1', 'externalIP 10.0.0.1:1')], []);
  t.match(subject.problems(), [
    { message: /d\/self .* another of its own addresses is in the way/ },
  ]);
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
  t.match(subject.problems(), [
    {
      servicePort: 'd/web',
      code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
      message:
        /node port 30080\/TCP: the host has no address in --nodeport-addresses 192\.0\.2\.0\/24/,
    },
  ]);
  subject.plan([], ['d/web']);
  t.same(subject.problems(), []);
});

t.test('addresses but loopback ones are added; a failure fails the commit', async (t) => {
  const rig = new KeeperRig(t);
  const portal = new AddressPortal({ keeper: rig.keeper });
  rig.ip.broken = exits('RTNETLINK answers: Operation not permitted\n');
  const own = ['externalIP 127.0.0.10:80', 'externalIP ::1:80', 'nodePort 30080'];
  portal.plan([wants('d/a', ...own, 'clusterIP 10.96.0.1:80')], []);
  await portal.prepare();
  await t.rejects(portal.commit(), { code: 'KPNG_PORTAL_PERMISSION', message: /CAP_NET_ADMIN/ });
  rig.ip.broken = undefined;
  await portal.prepare();
  await portal.commit();
  t.same(rig.ip.addresses('kpng0'), ['10.96.0.1/32']);
  rig.ip.refuses = () => 'No thanks.';
  portal.plan([wants('d/b', 'clusterIP 10.96.0.2:80')], []);
  await portal.prepare();
  t.match(portal.problems(), [{ servicePort: 'd/b', code: 'KPNG_PORTAL_FAILED' }]);
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
