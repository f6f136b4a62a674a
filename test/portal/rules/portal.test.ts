import { once } from 'node:events';
import { testRules } from '../../support/rule-rigs.ts';
import { listening, wants } from '../../support/portals.ts';

const web = wants(
  'default/web:http',
  'clusterIP 10.0.0.1:80',
  'externalIP 203.0.113.1:80',
  'nodePort 30080',
);

testRules('redirects each portal to the proxy port of its traffic', async (t, make) => {
  const rig = make();
  const plan = await rig.sync([web]);
  t.strictSame(listening(plan), {
    'default/web:http': ['0.0.0.0:0 external', '0.0.0.0:0 internal', ':::0 external'],
  });
  t.equal(rig.lands('10.0.0.1:80', { from: 'pod', source: '10.1.0.7' }), 'proxy port 40002');
  t.equal(rig.lands('203.0.113.1:80'), 'proxy port 40001');
  t.equal(rig.lands('192.0.2.5:30080'), 'proxy port 40001');
  t.equal(rig.lands('127.0.0.1:30080', { from: 'host' }), 'proxy port 40001');
  t.equal(rig.lands('[2001:db8::5]:30080'), 'proxy port 40003');
  t.equal(rig.lands('10.0.0.1:80/UDP'), 'passed on');
  t.equal(rig.lands('10.0.0.1:81'), 'passed on');
  t.equal(rig.lands('192.0.2.9:30080'), 'passed on', 'the node port of another machine');
});

testRules(
  'without a local endpoint, drops clients outside the cluster and serves those in it',
  async (t, make) => {
    const rig = make();
    const clusterClients = { networks: ['10.1.0.0/16'], traffic: 'internal' } as const;
    const { portals } = web;
    const external = portals.slice(1).map((each) => Object.assign({ clusterClients }, each));
    const local = { ...web, portals: [...portals.slice(0, 1), ...external] };
    const clients = [{}, { from: 'pod', source: '10.1.0.7' }, { from: 'host' }] as const;
    const ends = (to: string) => clients.map((client) => rig.lands(to, client));
    const served = 'proxy port 40001';
    const all = (end: string) => clients.map(() => end);
    for (const [internal, external, atExternal, atNode, atCluster] of [
      [true, false, ['dropped', served, served], ['dropped', served, served], 'proxy port 40002'],
      [false, true, all(served), all(served), 'dropped'],
      [false, false, all('refused'), all('refused'), 'refused'],
    ] as const) {
      await rig.sync([{ ...local, served: { internal, external } }]);
      t.same(ends('203.0.113.1:80'), atExternal);
      t.same(ends('192.0.2.5:30080'), atNode);
      t.same(ends('10.0.0.1:80'), all(atCluster));
    }
  },
);

testRules('a portal moves to another service in one transaction', async (t, make) => {
  const rig = make();
  await rig.sync([wants('a/a', 'nodePort 30000', 'clusterIP 10.0.0.1:80')]);
  await rig.sync([wants('b/b', 'nodePort 30000', 'clusterIP 10.0.0.2:80')]);
  const message = 'b/b cannot have node port 30000/TCP: a/a has it';
  t.match(rig.portal.problems(), [{ code: 'KPNG_PORTAL_CONFLICT', message }]);
  const before = rig.lands('192.0.2.5:30000');
  const scripts = rig.nft.scripts.length;
  await rig.sync([], ['a/a']);
  t.strictSame(rig.portal.problems(), []);
  t.equal(rig.nft.scripts.length, scripts + 1, 'one transaction');
  t.match(rig.lands('192.0.2.5:30000'), /proxy port/);
  t.not(rig.lands('192.0.2.5:30000'), before);
  t.equal(rig.lands('10.0.0.1:80'), 'passed on');
});

testRules(
  'writes nothing when nothing differs, and only what differs otherwise',
  async (t, make) => {
    const rig = make();
    await rig.sync([web]);
    const runs = rig.runs;
    await rig.sync([web]);
    t.equal(rig.runs, runs);
    await rig.sync([wants('default/db', 'clusterIP 10.0.0.9:5432')]);
    t.equal(rig.runs, runs + 1);
    const script = rig.nft.scripts.at(-1) ?? '';
    t.match(script, '10.0.0.9');
    t.notMatch(script, '10.0.0.1');
    t.ok(script.split('\n').length < 20, script);
  },
);

testRules('listens on one address on request, and sends packets there', async (t, make) => {
  const rig = make({ bindAddress: '192.0.2.5' });
  const plan = await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80', 'clusterIP fd00::1:80')]);
  t.strictSame(listening(plan), { 'a/a': ['192.0.2.5:0 internal', ':::0 internal'] });
  t.match(rig.nft.scripts[0], /dnat ip to 192\.0\.2\.5 :/);
  t.throws(() => make({ bindAddress: '127.0.0.1' }), { code: 'KPNG_USAGE' });
  t.throws(() => make({ nodePortAddresses: ['x'] }), RangeError);
});

testRules('reports portals that it cannot serve, and serves the others', async (t, make) => {
  const rig = make();
  rig.host = [{ address: '127.0.0.1', loopback: true }];
  const v4 = make({ interfaces: () => rig.host });
  const code = 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE';
  const message = 'a/a cannot have [fd00::1]:80/TCP: the host does not have that address family';
  const faulty = ['clusterIP fd00::1:80', 'clusterIP fd00::2:80'];
  for (const added of [wants('a/a', 'clusterIP 10.0.0.1:80', ...faulty), wants('b/b')]) {
    await v4.sync([added]);
    t.strictSame(v4.portal.problems(), [{ servicePort: 'a/a', code, message, count: 2 }]);
  }
  t.match(v4.lands('10.0.0.1:80'), /proxy port/);
  t.match(v4.nft.scripts[0], /redirect to :/, 'a host with only loopback addresses');
  t.notMatch(v4.nft.scripts[0], /services6|ip6/, 'a host without IPv6');
  await v4.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  t.strictSame(v4.portal.problems(), []);
});

testRules('closing the portal aborts the work after the first write', async (t, make) => {
  let begun = false;
  const afterStart = async (signal: AbortSignal): Promise<void> => {
    begun = true;
    await once(signal, 'abort');
  };
  const rig = make({ afterStart });
  await rig.sync([]);
  t.equal(begun, true);
  await rig.portal.close();
  t.pass('it does not wait for what never ends by itself');
});
