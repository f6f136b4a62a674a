import { once } from 'node:events';
import { KpngError } from '../../../src/errors.ts';
import type { PortalSpec, ServicePortPortals } from '../../../src/portal/portal.ts';
import { PortAllocator } from '../../../src/portal/proxy-ports.ts';
import { exits } from '../../support/fake-exec.ts';
import { testEachRig } from '../../support/rule-rigs.ts';
import { listening, portal, wants } from '../../support/portals.ts';

const web = wants(
  'default/web:http',
  'clusterIP 10.0.0.1:80',
  'externalIP 203.0.113.1:80',
  'nodePort 30080',
);

testEachRig('redirects each portal to the proxy port of its traffic', async (t, make) => {
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

testEachRig(
  'has one proxy port for each family when all traffic has the same endpoints',
  async (t, make) => {
    const rig = make();
    const plan = await rig.sync([{ ...web, splitTraffic: false }]);
    t.strictSame(listening(plan), { 'default/web:http': ['0.0.0.0:0 internal', ':::0 internal'] });
    t.equal(rig.lands('10.0.0.1:80'), rig.lands('203.0.113.1:80'));
  },
);

testEachRig('refuses traffic without endpoints until there is one', async (t, make) => {
  const rig = make();
  await rig.sync([{ ...web, served: { internal: false, external: false } }]);
  t.equal(rig.lands('10.0.0.1:80'), 'refused');
  t.equal(rig.lands('203.0.113.1:80'), 'refused');
  t.equal(rig.lands('192.0.2.5:30080'), 'refused');
  const plan = await rig.sync([{ ...web, served: { internal: true, external: true } }]);
  t.strictSame(listening(plan), {}, 'no listener changes');
  t.equal(rig.lands('10.0.0.1:80'), 'proxy port 40002');
  t.equal(rig.lands('203.0.113.1:80'), 'proxy port 40001');
  t.equal(rig.lands('192.0.2.5:30080'), 'proxy port 40001');
});

/** Served by endpoints of other nodes only, which clients in the cluster may use. */
const elsewhere = (...portals: (PortalSpec | string)[]): ServicePortPortals => {
  const { portals: all, ...rest } = wants('default/web:http', ...portals);
  const clusterClients = { networks: ['10.1.0.0/16', 'fd00:1::/64'], traffic: 'internal' } as const;
  return {
    ...rest,
    portals: all.map((each) =>
      each.traffic === 'external' ? Object.assign({ clusterClients }, each) : each,
    ),
    served: { internal: true, external: false },
  };
};

testEachRig(
  'without a local endpoint, drops clients outside the cluster and serves those in it',
  async (t, make) => {
    const rig = make();
    const portals = ['clusterIP 10.0.0.1:80', 'externalIP 203.0.113.1:80', 'nodePort 30080'];
    await rig.sync([elsewhere(...portals, 'externalIP 2001:db8:ff::7:80')]);
    const pod = { from: 'pod', source: '10.1.0.7' } as const;
    const pod6 = { from: 'pod', source: 'fd00:1::7' } as const;
    t.equal(rig.lands('203.0.113.1:80'), 'dropped');
    t.equal(rig.lands('192.0.2.5:30080'), 'dropped');
    t.equal(rig.lands('[2001:db8:ff::7]:80'), 'dropped');
    t.equal(rig.lands('[2001:db8::5]:30080'), 'dropped');
    const external = rig.lands('203.0.113.1:80', pod);
    t.match(external, /proxy port/);
    t.equal(rig.lands('192.0.2.5:30080', pod), external);
    t.equal(rig.lands('203.0.113.1:80', { from: 'host', source: '192.0.2.5' }), external);
    t.equal(rig.lands('192.0.2.5:30080', { from: 'host', source: '192.0.2.5' }), external);
    t.match(rig.lands('[2001:db8:ff::7]:80', pod6), /proxy port/);
    t.match(rig.lands('[2001:db8::5]:30080', pod6), /proxy port/);
    t.match(rig.lands('10.0.0.1:80'), /proxy port/, 'the cluster IP has another policy');
    t.not(rig.lands('10.0.0.1:80'), external);

    await rig.sync([{ ...elsewhere(...portals), served: { internal: true, external: true } }]);
    t.equal(rig.lands('203.0.113.1:80'), external, 'a local endpoint');
    await rig.sync([{ ...elsewhere(...portals), served: { internal: false, external: false } }]);
    t.equal(rig.lands('203.0.113.1:80'), 'refused', 'no endpoint anywhere');
    t.equal(rig.lands('203.0.113.1:80', pod), 'refused');
    t.equal(rig.lands('192.0.2.5:30080', { from: 'host' }), 'refused');
  },
);

testEachRig('without a local endpoint, source ranges hold for the cluster too', async (t, make) => {
  const rig = make();
  await rig.sync([
    elsewhere(
      portal('loadBalancerIP 203.0.113.7:443', ['10.1.2.0/24', '198.51.100.0/24', '192.0.2.5/32']),
      portal('loadBalancerIP 203.0.113.8:443', ['10.0.0.0/8']),
    ),
  ]);
  const lands = (to: string, source: string) => rig.lands(to, { from: 'pod', source });
  t.match(lands('203.0.113.7:443', '10.1.2.7'), /proxy port/);
  t.equal(lands('203.0.113.7:443', '10.1.3.7'), 'dropped', 'a pod outside the source ranges');
  t.equal(lands('203.0.113.7:443', '198.51.100.7'), 'dropped', 'a client outside the cluster');
  t.match(lands('203.0.113.8:443', '10.1.3.7'), /proxy port/);
  const host = { from: 'host', source: '192.0.2.5' } as const;
  t.match(rig.lands('203.0.113.7:443', host), /proxy port/);
  t.equal(rig.lands('203.0.113.8:443', host), 'dropped');
});

testEachRig(
  'internalTrafficPolicy Local: drops all clients of the cluster IP without a local endpoint',
  async (t, make) => {
    const rig = make();
    const served = { internal: false, external: true };
    await rig.sync([
      { ...web, served },
      wants('b/b', 'nodePort 80'),
      { ...wants('c/c', 'clusterIP 192.0.2.5:80'), served },
    ]);
    t.equal(rig.lands('10.0.0.1:80', { from: 'pod', source: '10.1.0.7' }), 'dropped');
    t.equal(rig.lands('10.0.0.1:80', { from: 'host', source: '192.0.2.5' }), 'dropped');
    t.match(rig.lands('203.0.113.1:80'), /proxy port/);
    t.equal(rig.lands('192.0.2.5:80'), 'dropped', 'not a node port of another service');
    await rig.sync([{ ...web, served: { internal: true, external: true } }]);
    t.match(rig.lands('10.0.0.1:80'), /proxy port/);
  },
);

testEachRig(
  'a node port of another service is not behind a service address without endpoints',
  async (t, make) => {
    const rig = make();
    await rig.sync([
      {
        ...wants('a/a', 'externalIP 192.0.2.5:30080'),
        served: { internal: false, external: false },
      },
      wants('b/b', 'nodePort 30080'),
    ]);
    t.equal(rig.lands('192.0.2.5:30080'), 'refused');
    t.match(rig.lands('127.0.0.1:30080', { from: 'host' }), /proxy port/);
  },
);

testEachRig('admits only the source ranges of a portal', async (t, make) => {
  const rig = make();
  const guarded = portal('loadBalancerIP 203.0.113.7:443', [
    '198.51.100.9/24',
    '198.51.100.64/26',
    '2001:db8:1::/48',
  ]);
  const mixed = portal('loadBalancerIP 2001:db8:ff::7:443', ['198.51.100.0/24']);
  await rig.sync([wants('a/a', guarded, mixed, 'clusterIP 10.0.0.2:443')]);
  t.match(rig.lands('203.0.113.7:443', { source: '198.51.100.200' }), /proxy port/);
  t.equal(rig.lands('203.0.113.7:443', { source: '192.0.2.9' }), 'dropped');
  t.match(rig.lands('10.0.0.2:443', { source: '192.0.2.9' }), /proxy port/);
  t.equal(
    rig.lands('[2001:db8:ff::7]:443'),
    'dropped',
    'ranges of the other family do not open the address to everybody',
  );
  await rig.sync([wants('a/a', portal('loadBalancerIP 203.0.113.7:443'))]);
  t.match(rig.lands('203.0.113.7:443', { source: '192.0.2.9' }), /proxy port/);
});

testEachRig('a proxy port cannot be reached directly, except from the node', async (t, make) => {
  const rig = make();
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.2:443')]);
  t.equal(rig.lands('192.0.2.5:40001'), 'refused');
  t.equal(rig.lands('192.0.2.5:40001', { from: 'pod' }), 'refused');
  t.equal(rig.lands('192.0.2.5:40001', { from: 'host' }), 'passed on');
  await rig.sync([], ['a/a']);
  t.equal(rig.lands('192.0.2.5:40001'), 'passed on');
});

testEachRig('opens node ports on the configured addresses', async (t, make) => {
  const rig = make({ nodePortAddresses: ['192.0.2.0/24', 'localhost'] });
  await rig.sync([wants('a/a', 'nodePort 30000')]);
  t.match(rig.lands('192.0.2.5:30000'), /proxy port/);
  t.match(rig.lands('127.0.0.1:30000', { from: 'host' }), /proxy port/);
  t.equal(rig.lands('127.0.0.2:30000', { from: 'host' }), 'passed on');
  t.equal(rig.lands('[2001:db8::5]:30000'), 'passed on');
  t.match(rig.lands('[::1]:30000', { from: 'host' }), /proxy port/);
});

testEachRig('a portal moves to another service in one transaction', async (t, make) => {
  const rig = make();
  await rig.sync([wants('a/a', 'nodePort 30000', 'clusterIP 10.0.0.1:80')]);
  const conflict = await rig.sync([wants('b/b', 'nodePort 30000', 'clusterIP 10.0.0.2:80')]);
  t.equal(conflict.problems[0]?.code, 'KPNG_PORTAL_CONFLICT');
  t.match(conflict.problems[0]?.message, 'b/b cannot have node port 30000/TCP: a/a has it');
  const before = rig.lands('192.0.2.5:30000');
  const scripts = rig.scripts.length;
  const moved = await rig.sync([], ['a/a']);
  t.strictSame(moved.problems, []);
  const families = rig.kind === 'nftables' ? 1 : 2;
  t.equal(rig.scripts.length, scripts + families, 'one transaction, of each family that differs');
  t.match(rig.lands('192.0.2.5:30000'), /proxy port/);
  t.not(rig.lands('192.0.2.5:30000'), before);
  t.equal(rig.lands('10.0.0.1:80'), 'passed on');
});

testEachRig(
  'a node port and a service address with the same port do not conflict',
  async (t, make) => {
    const rig = make();
    const { problems } = await rig.sync([
      wants('a/a', 'nodePort 30000'),
      wants('b/b', 'externalIP 192.0.2.5:30000'),
    ]);
    t.strictSame(problems, []);
    t.equal(rig.lands('192.0.2.5:30000'), 'proxy port 40003');
    t.equal(rig.lands('127.0.0.1:30000', { from: 'host' }), 'proxy port 40001');
  },
);

testEachRig(
  'writes nothing when nothing differs, and only what differs otherwise',
  async (t, make) => {
    const rig = make();
    await rig.sync([web]);
    const runs = rig.runs;
    await rig.sync([web]);
    t.equal(rig.runs, runs);
    await rig.sync([wants('default/db', 'clusterIP 10.0.0.9:5432')]);
    t.equal(rig.runs, runs + 1);
    const script = rig.scripts.at(-1) ?? '';
    t.match(script, '10.0.0.9');
    t.notMatch(script, '10.0.0.1');
    t.ok(script.split('\n').length < 20, script);
  },
);

testEachRig(
  'a service port whose protocol changes gets the ports of its new listeners',
  async (t, make) => {
    const rig = make();
    await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:53')]);
    const plan = rig.portal.plan([wants('a/a', 'clusterIP 10.0.0.1:53/UDP')], []);
    t.strictSame(listening(plan), { 'a/a': ['0.0.0.0:0 internal'] });
    const listen = plan.listen.get('a/a')?.[0];
    t.ok(listen);
    if (listen !== undefined) {
      await rig.portal.commit(new Map([['a/a', [{ listen, boundPort: 45_000 }]]]));
    }
    t.equal(rig.lands('10.0.0.1:53'), 'passed on');
    t.equal(rig.lands('10.0.0.1:53/UDP'), 'proxy port 45000');
    t.equal(rig.lands('192.0.2.5:40001'), 'passed on');
  },
);

testEachRig('allocates a port range, and reports when it is exhausted', async (t, make) => {
  const allocator = new PortAllocator({ first: 36_000, last: 36_001 }, () => 0);
  const rig = make({ allocator });
  const first = await rig.sync([
    wants('a/a', 'clusterIP 10.0.0.1:80'),
    wants('b/b', 'clusterIP 10.0.0.2:80'),
    wants('c/c', 'clusterIP 10.0.0.3:80'),
  ]);
  t.equal(first.problems[0]?.code, 'KPNG_PORT_RANGE_EXHAUSTED');
  t.equal(rig.lands('10.0.0.3:80'), 'refused');
  const second = await rig.sync([], ['a/a']);
  t.strictSame(second.problems, []);
  t.match(rig.lands('10.0.0.3:80'), /proxy port 3600/);
});

testEachRig('a portal whose proxy port could not be opened refuses clients', async (t, make) => {
  const rig = make();
  rig.closed.add('a/a 0.0.0.0 internal');
  await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  t.equal(rig.lands('10.0.0.1:80'), 'refused');
});

testEachRig('listens on one address on request, and sends packets there', async (t, make) => {
  const rig = make({ bindAddress: '192.0.2.5' });
  const plan = await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80', 'clusterIP fd00::1:80')]);
  t.strictSame(listening(plan), { 'a/a': ['192.0.2.5:0 internal', ':::0 internal'] });
  t.match(rig.scripts[0], /(?:dnat ip to|--to-destination) 192\.0\.2\.5 ?:/);
  t.throws(() => make({ bindAddress: '127.0.0.1' }), { code: 'KPNG_USAGE' });
  t.throws(() => make({ bindAddress: 'eth0' }), { code: 'KPNG_USAGE' });
  t.throws(() => make({ nodePortAddresses: ['x'] }), RangeError);
});

testEachRig('reports portals that it cannot serve, and serves the others', async (t, make) => {
  const rig = make();
  rig.host = [{ address: '127.0.0.1', loopback: true }];
  const v4 = make({ interfaces: () => rig.host });
  const { problems } = await v4.sync([
    wants(
      'a/a',
      'clusterIP 10.0.0.1:80',
      'clusterIP fd00::1:80',
      'clusterIP nonsense:80',
      'clusterIP 10.0.0.2:0',
      portal('nodePort 30000', ['10.0.0.0/8']),
    ),
  ]);
  t.strictSame(
    problems.map(({ code, count }) => `${count} ${code}`),
    ['1 KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', '3 KPNG_SERVICE_INVALID'],
  );
  t.match(v4.lands('10.0.0.1:80'), /proxy port/);
  t.match(
    v4.scripts[0],
    /redirect to :|-j REDIRECT --to-ports/,
    'a host with only loopback addresses',
  );
  t.notMatch(v4.scripts[0], /services6|icmp6/, 'a host without IPv6');
  const fixed = await v4.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  t.strictSame(fixed.problems, []);
});

testEachRig('a failed commit changes nothing and stays due', async (t, make) => {
  const rig = make();
  await rig.sync([web]);
  rig.breakTools(exits('Operation not permitted (you must be root)\n'));
  const error = await rig.sync([wants('b/b', 'clusterIP 10.0.0.2:80')]).catch((e: unknown) => e);
  t.ok(error instanceof KpngError && error.code === 'KPNG_PORTAL_PERMISSION' && error.retried);
  t.match(error, { message: /CAP_NET_ADMIN/ });
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
  rig.breakTools(undefined);
  await rig.portal.commit(new Map());
  t.match(rig.lands('10.0.0.2:80'), /proxy port/);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

testEachRig('closing the portal aborts the work after the first write', async (t, make) => {
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
