import t from 'tap';
import { SharedListener } from '../../../src/proxysocket/linux/tcp/shared-listener.ts';
import type {
  AcceptOwner,
  TcpClient,
  TcpListening,
} from '../../../src/proxysocket/tcp/transport.ts';

/** A service port that notes its clients. */
class Owner implements AcceptOwner {
  clients = 0;

  accepted(): void {
    this.clients += 1;
  }

  acceptFailed(): void {
    // It does not happen here.
  }
}

function setUp() {
  let open = 1;
  const socket: TcpListening = { boundPort: 4000, close: async () => void (open -= 1) };
  let unused = 0;
  const shared = new SharedListener([socket], () => (unused += 1));
  /** Whether a client of an address was reset. */
  const arrives = (address: string, port: number): boolean => {
    let isReset = false;
    const client = { localAddress: () => ({ address, port }), reset: () => (isReset = true) };
    shared.accepted(client as unknown as TcpClient);
    return isReset;
  };
  return { shared, arrives, open: () => open, unused: () => unused };
}

t.test('clients get the service port of the address that they connected to', async (t) => {
  const { shared, arrives, open, unused } = setUp();
  const [web, dns, node] = [new Owner(), new Owner(), new Owner()];
  const first = shared.listen(web, [{ address: '10.0.0.1', port: 80 }]);
  const second = shared.listen(dns, [{ address: '2001:0db8:0:0::1', port: 53 }]);
  const third = shared.listen(node, [{ address: undefined, port: 80 }]);
  t.equal(first.boundPort, 4000);
  t.notOk(arrives('10.0.0.1', 80));
  t.notOk(arrives('2001:db8::1', 53), 'however the address is written');
  t.notOk(arrives('192.0.2.5', 80), 'a node port is everywhere else');
  t.same([web.clients, dns.clients, node.clients], [1, 1, 1]);
  t.ok(arrives('10.0.0.1', 81), 'no service port');

  // An address moves from one service port to another, in either order.
  second.serve?.([{ address: '10.0.0.1', port: 80 }]);
  first.serve?.([]);
  arrives('10.0.0.1', 80);
  t.same([web.clients, dns.clients], [1, 2]);
  t.ok(arrives('2001:db8::1', 53), 'it is served no more');

  await first.close();
  await first.close();
  await second.close();
  t.same([open(), unused()], [1, 0], 'one service port is left');
  await third.close();
  t.same([open(), unused()], [0, 1]);
});

t.test('an address that two service ports serve for a while', async (t) => {
  const { shared, arrives } = setUp();
  const [old, now] = [new Owner(), new Owner()];
  const address = { address: '10.0.0.1', port: 80 };
  const staying = shared.listen(now, [address]);
  // For a worker that replaces another one, the service port that is about to go may come last.
  const leaving = shared.listen(old, [address]);
  leaving.serve?.([address]);
  await leaving.close();
  t.notOk(arrives('10.0.0.1', 80));
  t.same([old.clients, now.clients], [0, 1], 'the other one has it');
  const late = shared.listen(old, [address]);
  await staying.close();
  arrives('10.0.0.1', 80);
  t.same([old.clients, now.clients], [1, 1]);
  await late.close();
  t.ok(arrives('10.0.0.1', 80), 'no service port');
});
