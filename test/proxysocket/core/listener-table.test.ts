import t from 'tap';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { ListenerTable } from '../../../src/proxysocket/core/listener-table.ts';
import { LoopGuard } from '../../../src/proxysocket/core/loop-guard.ts';
import type { Acceptor, ServicePort } from '../../../src/proxysocket/core/service-port.ts';
import type { ListenSpec } from '../../../src/proxysocket/spec.ts';
import { systemClock } from '../../../src/util/clock.ts';

t.test('shared sockets close first: no one knows any more whose their clients are', async (t) => {
  const open = new Set<string>();
  const acceptor = {
    listen: async ({ address, port, transparent }: ListenSpec) => {
      const place = transparent === undefined ? `${address} ${port}` : 'shared';
      open.add(place);
      const close = async (): Promise<void> => void open.delete(place);
      return {
        protocol: 'TCP',
        address,
        boundPort: port,
        family: 4,
        assign: () => undefined,
        close,
      };
    },
  } as unknown as Acceptor;
  const table = new ListenerTable({
    kind: 'linux',
    acceptors: { TCP: acceptor, UDP: acceptor },
    descriptors: new ProcessDescriptors({ limit: 10_000, reserve: 0 }),
    loops: new LoopGuard(systemClock),
    clock: systemClock,
    random: () => 0,
    enqueue: () => undefined,
  });
  const owner = { name: 'd/all', protocol: 'TCP' } as ServicePort;
  const many = Array.from({ length: 300 }, (_, index): ListenSpec => {
    return { address: '127.0.0.1', port: 1000 + index, traffic: 'internal' };
  });
  table.set(owner, [], [...many, { ...many[0], port: 1, transparent: [] } as ListenSpec]);
  await table.settle();
  t.equal(open.size, 301);
  const closing = table.close();
  t.notOk(open.has('shared'));
  await closing;
  t.equal(open.size, 0);
});
