/** Ports of --port-range that another program holds, with real sockets on both sides. */
import { once } from 'node:events';
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import t, { type Test } from 'tap';
import { NonePortal } from '../../src/portal/none.ts';
import { NftablesPortal } from '../../src/portal/nftables/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { Portal } from '../../src/portal/portal.ts';
import { Proxier } from '../../src/proxier/proxier.ts';
import type { PortRange } from '../../src/util/port-range.ts';
import { engineUnderTest } from '../support/engine-under-test.ts';
import { FakeNft } from '../support/fake-nft.ts';
import { landing } from '../support/landing.ts';
import { NODE, packet } from '../support/rule-rig.ts';
import { until } from '../support/until.ts';
import { clusterEntry, TestView } from '../support/views.ts';

/** Below the ports that the kernel chooses. Processes of the same test seldom meet. */
const FIRST = 12_000 + (process.pid % 150) * 100;

type Protocol = 'TCP' | 'UDP';

/** Another program listens there. Resolves with what ends it; undefined: somebody else has the port already. */
async function hold(port: number, protocol: Protocol): Promise<() => void> {
  if (protocol === 'UDP') {
    const socket = createSocket('udp4');
    socket.bind(port);
    await once(socket, 'listening').catch(() => undefined);
    return () => socket.close();
  }
  const server = createServer((socket) => socket.destroy());
  server.listen(port, '0.0.0.0');
  await once(server, 'listening').catch(() => undefined);
  return () => server.close();
}

async function holdAll(t: Test, ports: readonly number[], protocol: Protocol): Promise<() => void> {
  const ends = await Promise.all(ports.map((port) => hold(port, protocol)));
  const end = (): void => {
    for (const each of ends.splice(0)) each();
  };
  t.teardown(end);
  return end;
}

function proxierRig(t: Test, range: PortRange) {
  const nft = new FakeNft();
  const portal = new NftablesPortal({
    // The first port of the range, then from the last one down.
    allocator: new PortAllocator(range, () => 0),
    exec: nft.exec,
    interfaces: () => NODE,
    families: [4],
    canary: () => ({ open: async () => [], probe: async () => 'alive', close: () => undefined }),
  });
  const rig = startProxier(t, portal);
  const local = new Set(NODE.map(({ address }) => address));
  return {
    ...rig,
    /** The proxy port that the rules redirect to, or what else becomes of a packet. */
    lands: (to: string): number | string => {
      const end = landing(nft.table().sets, packet(to), local);
      return end.startsWith('proxy port ') ? Number(end.slice(11)) : end;
    },
  };
}

function startProxier(t: Test, portal: Portal) {
  const engine = engineUnderTest(t, {});
  const proxier = new Proxier({ engine, portal });
  t.teardown(async () => {
    await proxier.close();
    await portal.close();
  });
  return { engine, proxier, view: new TestView() };
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

for (const protocol of ['TCP', 'UDP'] as const) {
  t.test(`${protocol}: services get other ports than another program holds`, async (t) => {
    const foreign = [FIRST, ...numbers(9).map((n) => FIRST + 98 - n)];
    await holdAll(t, foreign, protocol);
    const { proxier, view, engine, lands } = proxierRig(t, { first: FIRST, last: FIRST + 99 });
    const services = numbers(40).map((n) =>
      clusterEntry(`d/s${n}`, `10.96.0.${n}`, `- ${protocol} 80 8080`, ['10.1.0.1']),
    );
    await proxier.sync(view.set(...services));
    t.strictSame(proxier.snapshot().problems, []);
    const open = new Map(
      engine
        .snapshot()
        .flatMap(({ name, listeners }) =>
          listeners.map((each): [number, string] => [
            each.state === 'listening' ? each.boundPort : 0,
            name,
          ]),
        ),
    );
    for (const n of numbers(40)) {
      t.equal(open.get(Number(lands(`10.96.0.${n}:80/${protocol}`))), `d/s${n}`);
    }
  });
}

t.test('where no other port is left, clients are refused until it is free', async (t) => {
  const range = { first: FIRST + 97, last: FIRST + 99 };
  const end = await holdAll(t, [FIRST + 97, FIRST + 98, FIRST + 99], 'TCP');
  const { proxier, view, lands } = proxierRig(t, range);
  const web = clusterEntry('d/web', '10.96.0.1', '- TCP 80 8080', ['10.1.0.1']);
  await proxier.sync(view.set(web));
  t.equal(lands('10.96.0.1:80'), 'refused');
  t.match(proxier.snapshot().problems, [{ code: 'KPNG_LISTEN_ADDRESS_IN_USE' }]);
  end();
  await until(() => typeof lands('10.96.0.1:80') === 'number');
  t.strictSame(proxier.snapshot().problems, []);
});

t.test('without rules a service port gets another port, too', async (t) => {
  const range = { first: FIRST + 50, last: FIRST + 59 };
  await holdAll(t, [range.first], 'TCP');
  const allocator = new PortAllocator(range, () => 0);
  const rig = startProxier(t, new NonePortal({ allocator, bindAddress: '0.0.0.0' }));
  const web = clusterEntry('d/web', '10.96.0.1', '- TCP 80 8080', ['10.1.0.1']);
  await rig.proxier.sync(rig.view.set(web));
  t.match(rig.engine.snapshot(), [{ listeners: [{ state: 'listening' }] }]);
  t.strictSame(rig.proxier.snapshot().problems, []);
});
