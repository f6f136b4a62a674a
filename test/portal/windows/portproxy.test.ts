import { join } from 'node:path';
import t, { type Test } from 'tap';
import { PortAllocator } from '../../../src/portal/proxy-ports.ts';
import { AddressLedger } from '../../../src/portal/windows/ledger.ts';
import {
  type PortProxyOptions,
  PortProxyPortal,
  readRules,
  RuleStore,
} from '../../../src/portal/windows/portproxy.ts';
import type { ListenSpec } from '../../../src/proxysocket/spec.ts';
import { portalWritten } from '../../../src/portal/events.ts';
import { FakeNetsh } from '../../support/fake-netsh.ts';
import { listening } from '../../support/sockets.ts';
import { KeeperRig } from '../../support/keeper-rig.ts';
import { portal as spec, wants } from '../../support/portals.ts';

const RANGE = { first: 36_000, last: 36_003 };

/** A Windows node, and processes of ours on it one after the other. */
async function node(t: Test) {
  const netsh = new FakeNetsh();
  const path = join(t.testdir({}), 'rules.txt');
  const start = (more: Partial<PortProxyOptions> = {}) => {
    const ledger = new AddressLedger(path, () => 0);
    const portal = new PortProxyPortal({
      addresses: { interfaces: () => [{ address: '::1', loopback: true }] },
      store: new RuleStore(netsh.exec, ledger),
      allocator: new PortAllocator(RANGE, () => 0),
      bindAddress: '0.0.0.0',
      ...more,
    });
    const sync = async (
      set: Parameters<typeof portal.plan>[0],
      remove: readonly string[] = [],
      opens: (listen: ListenSpec) => boolean = () => true,
    ) => {
      const plan = portal.plan(set, remove);
      await portal.prepare();
      const bound = [...plan].map(
        ([name, list]) =>
          [name, list.filter(opens).map((listen) => ({ listen, boundPort: listen.port }))] as const,
      );
      await portal.commit(new Map(bound));
      return plan;
    };
    return { portal, sync };
  };
  return { netsh, start, ...start() };
}

const addresses = (list: readonly ListenSpec[] | undefined) =>
  list?.map(({ address, port }) => `${address}:${port}`);

t.test('TCP is redirected to proxy ports by rules, one for each address', async (t) => {
  const written: string[] = [];
  listening(t, portalWritten, ({ reason, added, removed }) => {
    written.push(`${reason} +${added} -${removed}`);
  });
  const { netsh, sync } = await node(t);
  const portals = ['clusterIP 10.96.0.10:80', 'clusterIP fd00::10:80', 'nodePort 30080'];
  const listen = await sync([wants('d/web:http', ...portals)]);
  t.same(addresses(listen.get('d/web:http')), ['127.0.0.1:36000', '127.0.0.1:36003']);
  t.same(Object.fromEntries(netsh.rules), {
    'v4tov4 10.96.0.10 80': '127.0.0.1 36000',
    'v6tov4 fd00::10 80': '127.0.0.1 36000',
    'v4tov4 * 30080': '127.0.0.1 36003',
    'v6tov4 * 30080': '127.0.0.1 36003',
  });
  t.match(
    netsh.scripts[0]?.[0],
    /^interface portproxy add v4tov4 listenaddress=10\.96\.0\.10 listenport=80 connectaddress=127\.0\.0\.1 connectport=36000 protocol=tcp$/,
  );
  t.equal(netsh.listings, 4, 'each type once, at the start');

  const before = netsh.commands.length;
  const more = wants('d/web:http', ...portals, 'clusterIP 10.96.0.2:80');
  t.equal((await sync([more])).size, 0, 'the proxy port stays');
  t.equal(netsh.commands.length, before + 1, 'a change costs what it changes');
  const added = netsh.vectors.at(-1)?.slice(0, 5).join(' ');
  t.equal(added, 'interface portproxy add v4tov4 listenaddress=10.96.0.2');
  await sync([more]);
  t.equal(netsh.commands.length, before + 1);
  await sync([], ['d/web:http']);
  t.equal(netsh.rules.size, 0);
  t.same(written, ['start +4 -0', 'change +1 -0', 'change +0 -5']);
});

t.test('a proxy port that another program holds is replaced', async (t) => {
  const { netsh, portal, sync } = await node(t);
  const free = ({ port }: ListenSpec) => port !== 36_000;
  const listen = await sync([wants('d/web', 'clusterIP 10.96.0.10:80')], [], free);
  t.equal(netsh.rules.size, 0, 'no rule redirects there');
  const [taken] = listen.get('d/web') ?? [];
  portal.portTaken('d/web', taken!);
  t.same(addresses((await sync([])).get('d/web')), ['127.0.0.1:36003']);
  t.same([...netsh.rules.values()], ['127.0.0.1 36003']);
  portal.portTaken('d/web', { ...taken!, port: 36_003 });
  await sync([]);
  t.same([...netsh.rules.values()], ['127.0.0.1 36002']);
});

t.test('a proxy port of IPv6 has rules that redirect there', async (t) => {
  const { netsh, start } = await node(t);
  const { sync } = start({ bindAddress: '::' });
  await sync([wants('d/web', 'clusterIP 10.96.0.10:80', 'clusterIP fd00::10:80')]);
  t.same([...netsh.rules.keys()], ['v4tov6 10.96.0.10 80', 'v6tov6 fd00::10 80']);
  t.match([...netsh.rules.values()], ['::1 36000', '::1 36000']);
});

t.test('UDP, and TCP with source ranges, listen on the addresses themselves', async (t) => {
  const { netsh, start } = await node(t);
  const { ip, keeper } = new KeeperRig(t);
  const { sync } = start({ addresses: { keeper } });
  const guarded = Array.from({ length: 20 }, (_, n) =>
    spec(`loadBalancerIP 203.0.113.${n}:80`, ['192.0.2.0/24']),
  );
  const listen = await sync([
    wants('d/dns', 'clusterIP 10.96.0.53:53/UDP'),
    wants('d/guarded', ...guarded, 'clusterIP 10.96.0.1:80'),
  ]);
  t.same(addresses(listen.get('d/dns')), ['10.96.0.53:53']);
  t.equal(addresses(listen.get('d/guarded'))?.[1], '203.0.113.1:80');
  t.same([...netsh.rules], [['v4tov4 10.96.0.1 80', '127.0.0.1 36000']], 'none for those');
  await sync([], ['d/dns']);
  t.equal(ip.addresses('kpng0').length, 21, 'and they are on the interface meanwhile');
});

t.test('rules of a killed process are taken over or removed, not those of others', async (t) => {
  const { netsh, sync, start } = await node(t);
  netsh.rules.set('v4tov4 192.0.2.5 8080', '192.0.2.9 80');
  netsh.rules.set('v4tov4 10.96.0.3 80', '192.0.2.9 80');
  await sync([wants('d/a', 'clusterIP 10.96.0.1:80'), wants('d/b', 'clusterIP 10.96.0.2:80')]);
  const next = start();
  await next.sync([wants('d/b', 'clusterIP 10.96.0.2:80'), wants('d/c', 'clusterIP 10.96.0.3:80')]);
  t.same([...netsh.rules.keys()].sort(), [
    'v4tov4 10.96.0.2 80',
    'v4tov4 10.96.0.3 80',
    'v4tov4 192.0.2.5 8080',
  ]);
  t.equal(netsh.rules.get('v4tov4 10.96.0.3 80'), '192.0.2.9 80', 'that of another program');
  t.match(next.portal.problems(), [
    {
      servicePort: 'd/c',
      code: 'KPNG_PORTAL_CONFLICT',
      message: /10\.96\.0\.3:80.*another program.*; 192\.0\.2\.9:80\)$/,
    },
  ]);
  const { listings } = netsh;
  await Promise.all([next.portal.close(true), next.portal.close(true)]);
  t.equal(netsh.listings, listings, 'removed once');
  t.same([...netsh.rules.keys()].sort(), ['v4tov4 10.96.0.3 80', 'v4tov4 192.0.2.5 8080']);
});

t.test('a rule that netsh rejects is an error, and is retried', async (t) => {
  const { netsh, sync, portal } = await node(t);
  netsh.refused.add('10.96.0.1');
  const both = [wants('d/a', 'clusterIP 10.96.0.1:80'), wants('d/b', 'clusterIP 10.96.0.2:80')];
  await t.rejects(sync(both), {
    code: 'KPNG_PORTAL_FAILED',
    message: /portproxy add v4tov4 listenaddress=10\.96\.0\.1/,
  });
  netsh.refused.clear();
  await portal.commit(new Map());
  t.equal(netsh.rules.size, 2);
});

t.test('rules that are gone already do not keep others from being written', async (t) => {
  const { netsh, sync } = await node(t);
  const portals = Array.from({ length: 12 }, (_, index) => `clusterIP 10.96.0.${index}:80`);
  await sync([wants('d/web', ...portals)]);
  netsh.rules.delete('v4tov4 10.96.0.5 80');
  await sync([wants('d/new', 'clusterIP 10.96.1.1:80')], ['d/web']);
  t.same([...netsh.rules.keys()], ['v4tov4 10.96.1.1 80']);
});

t.test('listings are read in any language', async (t) => {
  const text = [
    'Abhören auf ipv4:           Verbinden mit ipv4:',
    '',
    'Adresse         Port        Adresse         Port',
    '--------------- ----------  --------------- ----------',
    '*               30080       127.0.0.1       36000',
    '10.96.0.1       80          backend.example 8080',
    '',
  ].join('\r\n');
  t.same(readRules(text, 'v4tov4'), [
    ['v4tov4 * 30080', '127.0.0.1 36000'],
    ['v4tov4 10.96.0.1 80', 'backend.example 8080'],
  ]);
});
