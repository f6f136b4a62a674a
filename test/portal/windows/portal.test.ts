import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { AddressPortal } from '../../../src/portal/address.ts';
import { AddressKeeper } from '../../../src/portal/interface/keeper.ts';
import { windowsInterface } from '../../../src/portal/windows/addresses.ts';
import { HNS_INTERFACE } from '../../../src/portal/windows/keeper-link.ts';
import { AddressLedger } from '../../../src/portal/windows/ledger.ts';
import { systemClock } from '../../../src/util/clock.ts';
import { FakeNetsh } from '../../support/fake-netsh.ts';
import { wants } from '../../support/portals.ts';

/** The portal of a Windows node, whose own address is 172.16.0.1. */
async function node(t: { teardown(end: () => Promise<void>): unknown }) {
  const folder = await mkdtemp(join(tmpdir(), 'kpng-windows-'));
  const netsh = new FakeNetsh();
  const keeper = new AddressKeeper({
    link: windowsInterface({
      name: HNS_INTERFACE,
      ledger: new AddressLedger({ path: join(folder, 'ledger.txt'), bootedAt: () => 1 }),
      exec: netsh.exec,
      has: netsh.has,
      host: netsh.host,
    }),
    removeOnClose: true,
    clock: systemClock,
    random: () => 0.5,
  });
  const portal = new AddressPortal({ keeper });
  t.teardown(async () => {
    await portal.close();
    await rm(folder, { recursive: true });
  });
  const sync = async (set: Parameters<typeof portal.plan>[0], remove: readonly string[] = []) => {
    const { listen, problems } = portal.plan(set, remove);
    await portal.prepare();
    await portal.commit();
    return { listen, problems };
  };
  return { netsh, portal, sync };
}

t.test('W3: a cluster IP and a node port', async (t) => {
  const { netsh, sync } = await node(t);
  const { listen } = await sync([wants('d/web:http', 'clusterIP 10.96.0.10:80', 'nodePort 30080')]);
  t.same(
    listen.get('d/web:http')?.map(({ address, port }) => `${address}:${port}`),
    ['10.96.0.10:80', '0.0.0.0:30080', ':::30080'],
  );
  await sync([], ['d/web:http']);
  t.same(netsh.vectors.slice(1), [
    [
      'interface',
      'ipv4',
      'add',
      'address',
      `name=${HNS_INTERFACE}`,
      'address=10.96.0.10',
      'mask=255.255.255.255',
      'skipassource=true',
      'store=active',
    ],
    [
      'interface',
      'ipv4',
      'delete',
      'address',
      `name=${HNS_INTERFACE}`,
      'address=10.96.0.10',
      'store=active',
    ],
  ]);
});

t.test('an address stays while any service port has it, and the host keeps its own', async (t) => {
  const { netsh, sync } = await node(t);
  await sync([
    wants('d/dns:udp', 'clusterIP 10.96.0.53:53/UDP', 'externalIP 172.16.0.1:53/UDP'),
    wants('d/dns:tcp', 'clusterIP 10.96.0.53:53'),
  ]);
  const both = ['10.96.0.53/32', '172.16.0.1/20'];
  t.same(netsh.addresses(HNS_INTERFACE), both);
  await sync([], ['d/dns:udp']);
  t.same(netsh.addresses(HNS_INTERFACE), both);
  await sync([], ['d/dns:tcp']);
  t.same(netsh.addresses(HNS_INTERFACE), ['172.16.0.1/20']);
});

t.test('--cleanup-on-exit leaves the interface as it was', async (t) => {
  const { netsh, portal, sync } = await node(t);
  await sync([wants('d/a', 'clusterIP 10.96.0.1:80', 'clusterIP fd00::1:80')]);
  t.equal(netsh.addresses(HNS_INTERFACE).length, 3);
  await portal.close();
  t.same(netsh.addresses(HNS_INTERFACE), ['172.16.0.1/20']);
});
