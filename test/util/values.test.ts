import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { Backoff, DEFAULT_BACKOFF } from '../../src/util/backoff.ts';
import { bundledText, provideBundle, threadModule } from '../../src/util/bundle.ts';
import { formatBytes, parseBytes } from '../../src/util/bytes.ts';
import { formatDuration, parseDuration } from '../../src/util/duration.ts';
import { isEqual } from '../../src/util/compare.ts';
import { hostAddresses } from '../../src/util/host-addresses.ts';
import { formatHostPort, parseHostPort } from '../../src/util/host-port.ts';
import { kept } from '../../src/util/byte-buffer.ts';
import { LinkedList, type ListNode } from '../../src/util/linked-list.ts';
import { isPort, parsePortRange } from '../../src/util/port-range.ts';
import { closest } from '../../src/util/suggest.ts';
import { SerialQueue } from '../../src/util/serial-queue.ts';
import { holds } from '../support/property.ts';

t.test('pieces are joined, in memory of their own', async (t) => {
  const joined = kept([Buffer.from('ab'), Buffer.from(''), Buffer.from('c')]);
  t.equal(joined.toString(), 'abc');
  t.equal(joined.buffer.byteLength, 3, 'nothing else is kept with it');
  t.equal(kept([]).length, 0);
});

t.test('an executable has files and the modules of threads inside', async (t) => {
  const module = () => threadModule('worker', 'beside', 'file:///somewhere/thread.js').href;
  t.equal(module(), 'file:///somewhere/beside.js', 'without one they are files');
  provideBundle({ 'a.txt': 'text', worker: 'export const umlaut = "ü";' });
  t.teardown(() => provideBundle({}));
  t.equal(bundledText('a.txt'), 'text');
  t.equal(bundledText('toString'), undefined);
  const { umlaut } = (await import(module())) as { umlaut: string };
  t.equal(umlaut, 'ü');
});

t.test('a sandbox that hides the interfaces has no addresses', async (t) => {
  const fail = (code: string) => () => {
    throw Object.assign(new Error('uv_interface_addresses'), { code });
  };
  t.same(hostAddresses(fail('ERR_SYSTEM_ERROR')), []);
  t.throws(() => hostAddresses(fail('ERR_OTHER')), { code: 'ERR_OTHER' });
});

t.test('a job starts when the one before has ended, however it ended', async (t) => {
  const queue = new SerialQueue();
  const log: string[] = [];
  const gate = Promise.withResolvers<number>();
  const first = queue.run(() => {
    log.push('first');
    return gate.promise;
  });
  const second = queue.run(async () => {
    log.push('second');
    throw new Error('broken');
  });
  const idle = queue.idle().then(() => log.push('idle'));
  await new Promise(setImmediate);
  t.same(log, ['first']);
  gate.resolve(1);
  t.equal(await first, 1);
  await t.rejects(second, { message: 'broken' });
  await idle;
  t.same(log, ['first', 'second', 'idle']);
});

t.test('waits grow from one second to half a minute and stay there', async (t) => {
  const backoff = new Backoff(DEFAULT_BACKOFF, () => 0.5);
  const waits = Array.from({ length: 10 }, () => Math.round(backoff.next()));
  t.strictSame(waits, [1000, 1600, 2560, 4096, 6554, 10486, 16777, 26844, 30000, 30000]);
  backoff.reset();
  t.equal(backoff.next(), 1000);
  const low = new Backoff(DEFAULT_BACKOFF, () => 0);
  t.strictSame([low.next(), low.next()], [800, 1280], 'jitter does not add up');
});

t.test('a list behaves as a Map in insertion order; leaving twice is leaving once', (t) => {
  const steps = fc.array(fc.tuple(fc.boolean(), fc.nat({ max: 15 })), { maxLength: 100 });
  const property = fc.property(steps, (all) => {
    const list = new LinkedList<number>();
    const nodes = new Map<number, ListNode<number>>();
    for (const [add, value] of all) {
      if (add && !nodes.has(value)) nodes.set(value, list.add(value));
      else if (!add) {
        for (let times = 0; times < 2; times += 1) nodes.get(value)?.remove();
        nodes.delete(value);
      }
      if ([...list].join() !== [...nodes.keys()].join()) return false;
      if (list.size !== nodes.size || list.first?.item !== [...nodes.keys()][0]) return false;
    }
    return true;
  });
  holds(t, property);
  t.end();
});

/** Checks what a function makes of the parts of a text between `|`. */
function reads<T>(t: Test, parse: (text: string) => T | undefined, texts: string, all: T[]): void {
  t.same(texts.split('|').map(parse), all, texts);
}

function refuses(t: Test, parse: (text: string) => unknown, texts: string): void {
  for (const text of texts.split('|')) t.equal(parse(text), undefined, `"${text}"`);
}

t.test('sizes: plain numbers and binary units', async (t) => {
  reads(t, parseBytes, '4194304|4Mi|512Ki|1Gi|0', [2 ** 22, 2 ** 22, 2 ** 19, 2 ** 30, 0]);
  refuses(t, parseBytes, '|4M|4.5Mi|-1|99999999999999999999|9999999999Gi');
  const sizes = [4_194_304, 1_048_577, 2 ** 40, 0].map(formatBytes);
  t.strictSame(sizes, ['4Mi', '1048577', '1024Gi', '0']);
});

t.test('listen addresses: an IP address or none, and a port', async (t) => {
  const good = '127.0.0.1:10249|[::1]:80|:0|0.0.0.0:65535';
  const parsed = [
    { host: '127.0.0.1', port: 10_249 },
    { host: '::1', port: 80 },
    { host: '', port: 0 },
    { host: '0.0.0.0', port: 65_535 },
  ];
  reads(t, parseHostPort, good, parsed);
  t.equal(parsed.map(formatHostPort).join('|'), good);
  refuses(t, parseHostPort, '|10249|127.0.0.1|127.0.0.1:|127.0.0.1:65536|::1:80|[127.0.0.1]:80');
  refuses(t, parseHostPort, '[::1]|localhost:80|1.2.3:80|[]:80|127.0.0.1:80 |127.0.0.1:-1');
});

t.test('port ranges: the three forms of kube-proxy', async (t) => {
  t.same([0, 1, 65_535, 65_536, 1.5].map(isPort), [false, true, true, false, false]);
  const range = { first: 36_000, last: 37_000 };
  reads(t, parsePortRange, '36000-37000|36000 - 37000|36000+1000', [range, range, range]);
  const others = [
    { first: 36_000, last: 36_000 },
    { first: 1, last: 65_535 },
  ];
  reads(t, parsePortRange, '36000|1-65535', others);
  refuses(t, parsePortRange, '|0|0-10|37000-36000|1-65536|65535+1|a-b|1-|-1|1-2-3');
});

t.test('durations: what Go programs write is read, and written in the short form', async (t) => {
  const long = [250, 30_000, 90_000, 5_400_000, 3_600_500];
  reads(t, parseDuration, '250ms|30s|1m30s|1.5h|1h0m0.5s', long);
  const short = [500, 1000, 0.015, 0.015, 0.015, 0.000_002, 3000, 0, 0, 0];
  reads(t, parseDuration, '.5s|1.s|15us|15µs|15μs|2ns|+3s|0|+0|0s', short);
  refuses(t, parseDuration, '|+|15|1.5|-3s|s|1d|1s | 1s|1s2|1e3s|.s|1,5s');
  const times = [
    0, 250, 999.5, 1.0005, 1000.0005, 1500, 60_000, 90_000, 3_600_000, 0.015, 0.000_002, 1e-9,
    60_000.000_001,
  ];
  t.equal(
    times.map(formatDuration).join(),
    '0s,250ms,999.5ms,1.0005ms,1.0000005s,1.5s,1m,1m30s,1h,15us,2ns,0s,1m0.000000001s',
  );
});

t.test('suggestions for a misspelled word', async (t) => {
  const known = 'clusterips|externalips|headless|file|kube|y'.split('|');
  reads(t, (word) => closest(word, known), 'clusterip|ClusterIPs|clutserips|hedles|flie', [
    'clusterips',
    'clusterips',
    'clusterips',
    'headless',
    'file',
  ]);
  refuses(t, (word) => closest(word, known), '|x|ports|xternalip_ss');
});

t.test('plain data is equal as for Node', async (t) => {
  const leaf = fc.constantFrom<unknown>(0, -0, 1, 1n, Number.NaN, '', 'a', null, undefined, true);
  const { data } = fc.letrec<{ data: unknown }>((tie) => ({
    data: fc.oneof(
      { depthSize: 'small' },
      leaf,
      fc.array(tie('data'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom('a', 'b', '0'), tie('data'), { noNullPrototype: true }),
    ),
  }));
  holds(
    t,
    fc.property(data, data, (a, b) => {
      const copy = structuredClone(a);
      return isEqual(a, b) === isDeepStrictEqual(a, b) && isEqual(a, copy);
    }),
  );
});
