import t from 'tap';
import { AddressPortal } from '../../src/portal/address.ts';
import { listening, portal, wants } from '../support/portals.ts';

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

t.test('a plan tells only of service ports whose listeners differ', async (t) => {
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

t.test('the same place twice in one service port is one listener', async (t) => {
  const subject = new AddressPortal({ interfaces: () => host });
  const plan = subject.plan(
    [wants('d/web', 'clusterIP 10.0.0.1:80', 'externalIP 10.0.0.1:80')],
    [],
  );
  t.same(listening(plan), { 'd/web': ['10.0.0.1:80 internal'] });
  t.same(plan.problems, []);
});

t.test('N2: a conflict names the holder, and is over when the holder goes', async (t) => {
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
    'told as long as it is so',
  );
  const freed = subject.plan([], ['d/old']);
  t.same(listening(freed), { 'd/new': ['10.0.0.1:80 internal', '0.0.0.0:30080 external'] });
  t.same(freed.problems, []);
});

t.test(
  'a node port moves between services in one plan (different: kube-proxy needs two syncs)',
  async (t) => {
    const subject = new AddressPortal({ interfaces: () => host });
    subject.plan([wants('d/a', 'clusterIP 10.0.0.1:80', 'nodePort 30080')], []);
    const plan = subject.plan(
      [wants('d/b', 'nodePort 30080'), wants('d/a', 'clusterIP 10.0.0.1:80')],
      [],
    );
    t.same(listening(plan), {
      'd/a': ['10.0.0.1:80 internal'],
      'd/b': ['0.0.0.0:30080 external'],
    });
    t.same(plan.problems, []);
  },
);

t.test('a service port in its own way is told, too', async (t) => {
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
