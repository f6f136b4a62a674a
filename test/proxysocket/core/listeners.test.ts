import { basename } from 'node:path';
import { kernelPortRange, listenOnAnyPort } from '../../../src/proxysocket/core/kernel-port.ts';
import { sourceRangeInvalid } from '../../../src/proxysocket/events.ts';
import { sourceFilter } from '../../../src/proxysocket/core/clients.ts';
import { collect } from '../../support/sockets.ts';
import t from 'tap';

const range = { first: 40_000, last: 40_009, reserved: [] };

/** A host where some ports are taken; `tried` reports what was asked for. */
function host(taken: readonly number[]) {
  const tried: number[] = [];
  return {
    tried,
    open: async (port: number): Promise<void> => {
      tried.push(port);
      if (taken.includes(port)) throw Object.assign(new Error('taken'), { code: 'EADDRINUSE' });
    },
  };
}

/** Numbers to be drawn, one after another. */
function draws(...numbers: number[]): () => number {
  return () => numbers.shift() ?? 0;
}

t.test('chooses a random port of the range', async (t) => {
  const { open, tried } = host([]);
  await listenOnAnyPort(open, range, draws(0.99));
  t.same(tried, [40_009]);
});

t.test('continues if a port is in use, and finally lets the kernel choose', async (t) => {
  const some = host([40_001]);
  await listenOnAnyPort(some.open, range, draws(0.1, 0.2));
  t.same(some.tried, [40_001, 40_002]);
  const all = host(Array.from({ length: 10 }, (_, n) => 40_000 + n));
  await listenOnAnyPort(all.open, range, draws(0.1, 0.2, 0.3));
  t.same(all.tried, [40_001, 40_002, 40_003, 0]);
});

t.test('does not try another port on other errors', async (t) => {
  const tried: number[] = [];
  const open = async (port: number): Promise<void> => {
    tried.push(port);
    throw Object.assign(new Error('no'), { code: 'EADDRNOTAVAIL' });
  };
  await t.rejects(listenOnAnyPort(open, range, draws(0)), { code: 'EADDRNOTAVAIL' });
  t.same(tried, [40_000]);
});

t.test('leaves ports alone that are reserved for other programs', async (t) => {
  const reserved = [
    { first: 40_001, last: 40_003 },
    { first: 40_009, last: 40_009 },
  ];
  const { open, tried } = host([]);
  await listenOnAnyPort(open, { ...range, reserved }, draws(0.1, 0.99, 0.4));
  t.same(tried, [40_004]);
  const none = host([]);
  await listenOnAnyPort(none.open, { ...range, reserved: [range] }, draws());
  t.same(none.tried, [0], 'the kernel knows what is left');
});

t.test('reads which ports are reserved', async (t) => {
  const files: Record<string, string> = {
    ip_local_port_range: '32768\t60999\n',
    ip_local_reserved_ports: '8080,33000-33010,40000\n',
  };
  const read = (path: string): string => files[basename(path)] ?? '';
  t.same(kernelPortRange(read, 'linux'), {
    first: 32_768,
    last: 60_999,
    reserved: [
      { first: 8080, last: 8080 },
      { first: 33_000, last: 33_010 },
      { first: 40_000, last: 40_000 },
    ],
  });
  files['ip_local_reserved_ports'] = '\n';
  t.same(kernelPortRange(read, 'linux')?.reserved, []);
  t.equal(kernelPortRange(read, 'win32'), undefined);
});

t.test('admits clients in one of the ranges', (t) => {
  const allows = sourceFilter('a', ['10.1.2.3/8', ' 192.0.2.7/32 ', 'fd00::/8']);
  const verdicts = ['10.255.0.1', '11.0.0.1', '192.0.2.7', '192.0.2.8', 'fd12::1', 'fe80::1', ''];
  t.same(
    verdicts.map((client) => allows?.(client)),
    [true, false, true, false, true, false, false],
  );
  t.end();
});

t.test('a prefix of 0 matches every client of the family', (t) => {
  const four = sourceFilter('a', ['0.0.0.0/0']);
  t.same([four?.('203.0.113.9'), four?.('2001:db8::1')], [true, false]);
  const six = sourceFilter('a', ['::/0']);
  t.same([six?.('203.0.113.9'), six?.('2001:db8::1')], [false, true]);
  t.end();
});

t.test('an invalid range admits no client, and is reported', (t) => {
  const invalid = collect(t, sourceRangeInvalid);
  const ranges = ['10.0.0.0/33', '10.0.0/8', 'fd00::/129', '10.0.0.1', 'x/8', '', '10.0.0.0/8/8'];
  const allows = sourceFilter('ns/s:p', ranges);
  t.equal(allows?.('10.0.0.1'), false);
  t.same(
    invalid.map(({ range }) => range),
    ranges,
  );
  t.equal(invalid[0]?.servicePort, 'ns/s:p');
  t.end();
});
