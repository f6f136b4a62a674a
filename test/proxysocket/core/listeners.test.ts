import { basename } from 'node:path';
import { kernelPortRange, listenOnAnyPort } from '../../../src/proxysocket/core/kernel-port.ts';
import { sourceRangeInvalid, limitChanged } from '../../../src/proxysocket/events.ts';
import { sourceFilter, clientSource } from '../../../src/proxysocket/core/listener.ts';
import { collect } from '../../support/sockets.ts';
import { connectErrorCause, lossCause } from '../../../src/proxysocket/core/socket-errors.ts';
import t from 'tap';
import {
  defaultReserve,
  ProcessDescriptors,
  processDescriptorLimit,
} from '../../../src/proxysocket/core/descriptors.ts';

const range = { first: 40_000, last: 40_009, reserved: [] };

/** A host where some ports are taken; `tried` reports what was asked for. */
function host(taken: readonly number[], code = 'EADDRINUSE') {
  const tried: number[] = [];
  return {
    tried,
    open: async (port: number): Promise<void> => {
      tried.push(port);
      if (taken.includes(port)) throw Object.assign(new Error('taken'), { code });
    },
  };
}

/** Numbers to be drawn, one after another. */
function draws(...numbers: number[]): () => number {
  return () => numbers.shift() ?? 0;
}

t.test('chooses a random port, or lets the kernel choose', async (t) => {
  const all = Array.from({ length: 10 }, (_, n) => 40_000 + n);
  const reserved = [
    { first: 40_001, last: 40_003 },
    { first: 40_009, last: 40_009 },
  ];
  for (const [what, from, taken, drawn, expected] of [
    ['any port of the range', range, [], [0.99], [40_009]],
    ['another if it is in use', range, [40_001], [0.1, 0.2], [40_001, 40_002]],
    ['not too many', range, all, [0.1, 0.2, 0.3], [40_001, 40_002, 40_003, 0]],
    ['none that is reserved', { ...range, reserved }, [], [0.1, 0.99, 0.4], [40_004]],
    ['the kernel knows what is left', { ...range, reserved: [range] }, [], [], [0]],
  ] as const) {
    const { open, tried } = host(taken);
    await listenOnAnyPort(open, from, draws(...drawn));
    t.same(tried, expected, what);
  }
  const { open, tried } = host([40_000], 'EADDRNOTAVAIL');
  await t.rejects(listenOnAnyPort(open, range, draws(0)), { code: 'EADDRNOTAVAIL' });
  t.same(tried, [40_000], 'no other port will do');
});

t.test('reads which ports are reserved', async (t) => {
  const files: Record<string, string> = {
    ip_local_port_range: '32768\t60999\n',
    ip_local_reserved_ports: '8080,33000-33010,40000\n',
  };
  const read = (path: string): string => files[basename(path)] ?? '';
  t.same(kernelPortRange(read), {
    first: 32_768,
    last: 60_999,
    reserved: [
      { first: 8080, last: 8080 },
      { first: 33_000, last: 33_010 },
      { first: 40_000, last: 40_000 },
    ],
  });
  files['ip_local_reserved_ports'] = '\n';
  t.same(kernelPortRange(read)?.reserved, []);
  const missing = (): string => {
    throw new Error('ENOENT');
  };
  t.equal(kernelPortRange(missing), undefined);
});

t.test('admits clients in one of the ranges', async (t) => {
  for (const [ranges, inside, outside] of [
    [
      ['10.1.2.3/8', ' 192.0.2.7/32 '],
      ['10.255.0.1', '192.0.2.7'],
      ['11.0.0.1', '192.0.2.8', ''],
    ],
    [['fd00::/8'], ['fd12::1'], ['fe80::1']],
    [['0.0.0.0/0'], ['203.0.113.9'], ['2001:db8::1']],
    [['::/0'], ['2001:db8::1'], ['203.0.113.9']],
  ] as const) {
    const allows = sourceFilter('a', ranges);
    for (const client of inside) t.equal(allows?.(client), true, `${ranges.join()}: ${client}`);
    for (const client of outside) t.equal(allows?.(client), false, `${ranges.join()}: ${client}`);
  }
});

t.test('an invalid range admits no client, and is reported', async (t) => {
  const invalid = collect(t, sourceRangeInvalid);
  const ranges = ['10.0.0.0/33', '10.0.0/8', 'fd00::/129', '10.0.0.1', 'x/8', '', '10.0.0.0/8/8'];
  const allows = sourceFilter('ns/s:p', ranges);
  t.equal(allows?.('10.0.0.1'), false);
  const servicePort = 'ns/s:p';
  t.same(
    invalid,
    ranges.map((range) => ({ servicePort, range })),
  );
});

const [HERE, CLIENT] = ['127.0.0.1', '198.51.100.7'];
const [FOUR, SIX] = ['203.0.113.10', '2001:db8::10'];

t.test('endpoints see the client where its traffic stays on this node', async (t) => {
  for (const [keepsClients, traffic, client, endpoint, isSeen] of [
    ['external', 'external', CLIENT, FOUR, true],
    ['all', 'internal', CLIENT, FOUR, true],
    [undefined, 'external', CLIENT, FOUR, false],
    // Endpoints may be elsewhere.
    ['external', 'internal', CLIENT, FOUR, false],
    ['all', 'cluster', CLIENT, FOUR, false],
    // Answers would not come back: the client is the endpoint, one of them is this host, the family
    // is another, the client has gone, its address is link-local.
    ['all', 'external', FOUR, FOUR, false],
    ['all', 'external', HERE, FOUR, false],
    ['all', 'external', CLIENT, HERE, false],
    ['all', 'external', '2001:db8::7', FOUR, false],
    ['all', 'external', '', FOUR, false],
    ['all', 'external', '2001:db8::7', SIX, true],
    ['all', 'external', 'fe80::7%eth9', SIX, false],
  ] as const) {
    const to = { address: endpoint, family: endpoint === SIX ? 6 : 4 } as const;
    const source = clientSource({ keepsClients }, { traffic, client }, to);
    t.equal(source, isSeen ? client : undefined, `${keepsClients} ${traffic} ${client}`);
  }
});

t.test('socket errors: of the endpoint, of the process, or of one datagram', async (t) => {
  for (const [code, tcp, udp, loss] of [
    ['ECONNREFUSED', 'refused', 'refused', 'refused'],
    ['ECONNRESET', 'reset', 'refused', 'refused'],
    ['ETIMEDOUT', 'timeout', 'timeout', undefined],
    ['EHOSTUNREACH', 'unreachable', 'unreachable', 'unreachable'],
    ['ENETUNREACH', 'unreachable', 'unreachable', 'unreachable'],
    ['EMFILE', 'limit', 'limit', undefined],
    ['ENFILE', 'limit', 'limit', undefined],
    ['ENOBUFS', 'limit', 'limit', undefined],
    ['ENOMEM', 'limit', 'limit', undefined],
    ['EADDRINUSE', 'limit', 'limit', undefined],
    ['EADDRNOTAVAIL', 'limit', 'unreachable', 'unreachable'],
    ['EMSGSIZE', 'other', 'other', undefined],
    ['EAGAIN', 'other', 'other', undefined],
    ['EPERM', 'other', 'other', undefined],
    ['', 'other', 'other', undefined],
  ] as const) {
    const error = Object.assign(new Error(code), { code });
    t.equal(connectErrorCause(error, 'TCP'), tcp, code);
    t.equal(connectErrorCause(error, 'UDP'), udp, code);
    t.equal(lossCause(error), loss, code);
  }
  const bind = Object.assign(new Error('bind'), { code: 'EACCES', syscall: 'bind' });
  t.equal(connectErrorCause(bind), 'limit', 'the address of our side');
  t.equal(connectErrorCause(new Error('no code')), 'other');
});

t.test('the limit of the process', async (t) => {
  const limits = (soft: string): string =>
    `Limit                     Soft Limit           Hard Limit           Units\n` +
    `Max open files            ${soft.padEnd(20)} 1048576              files\n`;
  const missing = (): string => {
    throw new Error('ENOENT');
  };
  for (const [read, expected] of [
    [() => limits('20000'), 20_000],
    [() => limits('unlimited'), 65_536],
    [() => 'something else', 65_536],
    [missing, 65_536],
  ] as const)
    t.equal(processDescriptorLimit(read), expected);
  t.ok(processDescriptorLimit() > 0);
});

t.test('the default reserve leaves something to clients, whatever the limit', async (t) => {
  const limits = [1_048_576, 1024, 1000, 512, 256, 200, 128, 100, 64, 20, 1, 0];
  t.same(limits.map(defaultReserve), [256, 256, 250, 128, 64, 64, 64, 50, 32, 10, 0, 0]);
  for (const limit of limits.slice(0, -2)) {
    const descriptors = new ProcessDescriptors({ limit, reserve: defaultReserve(limit) });
    const isAccepted = descriptors.acquireListener() && descriptors.acquire(2);
    t.ok(isAccepted, `a connection with a limit of ${limit}`);
  }
});

t.test('an eighth is for UDP while there is a UDP listener', async (t) => {
  const descriptors = new ProcessDescriptors({ limit: 101, reserve: 20 });
  t.ok(descriptors.acquireListener('UDP'));
  t.ok(descriptors.acquire(70, 'TCP'));
  t.notOk(descriptors.acquire(2, 'TCP'), 'ten are kept');
  t.equal(descriptors.used, 70);
  for (let session = 0; session < 10; session += 1) t.ok(descriptors.acquire(1, 'UDP'));
  t.notOk(descriptors.acquire(1, 'UDP'));
  descriptors.release(2, 'TCP');
  t.ok(descriptors.acquire(1, 'UDP'), 'more than the share, when there is room');
  t.notOk(descriptors.acquire(2, 'TCP'));
  descriptors.release(11, 'UDP');
  t.ok(descriptors.acquire(2, 'TCP'));
  t.notOk(descriptors.acquire(2, 'TCP'), 'the share is kept again');
  descriptors.releaseListener('UDP');
  t.ok(descriptors.acquire(11, 'TCP'), 'all 81');
  t.notOk(descriptors.acquire(1, 'TCP'));
});

t.test('each protocol reports its own limit, without flapping', async (t) => {
  const changes = collect(t, limitChanged);
  const descriptors = new ProcessDescriptors({ limit: 101, reserve: 20 });
  descriptors.acquireListener('UDP');
  const limit = 'reserved-descriptors';
  t.ok(descriptors.acquire(70));
  for (let client = 0; client < 5; client += 1) {
    t.notOk(descriptors.acquire(2));
    descriptors.release(2);
    t.ok(descriptors.acquire(2));
  }
  t.same(changes, [{ limit, value: 70, reached: true }]);
  descriptors.release(10);
  t.same(changes.at(-1), { limit, value: 70, reached: false });

  while (descriptors.acquireListener());
  t.same(changes.at(-1), { limit, value: 36, reached: true });
  const { length } = changes;
  descriptors.releaseListener();
  t.ok(descriptors.acquireListener());
  t.notOk(descriptors.acquireListener());
  t.equal(changes.length, length);
});
