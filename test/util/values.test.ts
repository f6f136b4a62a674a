import * as fc from 'fast-check';
import t from 'tap';
import { Backoff, DEFAULT_BACKOFF } from '../../src/util/backoff.ts';
import { bundledText, provideBundle, threadModule } from '../../src/util/bundle.ts';
import { formatBytes, parseBytes } from '../../src/util/bytes.ts';
import { formatDuration, parseDuration } from '../../src/util/duration.ts';
import { hostAddresses } from '../../src/util/host-addresses.ts';
import { formatHostPort, parseHostPort } from '../../src/util/host-port.ts';
import { kept } from '../../src/util/byte-buffer.ts';
import { LinkedList, type ListNode } from '../../src/util/linked-list.ts';
import { isPort, parsePortRange } from '../../src/util/port-range.ts';
import { SerialQueue } from '../../src/util/serial-queue.ts';
import { holds } from '../support/property.ts';

t.test('pieces are joined, in memory of their own', async (t) => {
  const joined = kept([Buffer.from('ab'), Buffer.from(''), Buffer.from('c')]);
  t.equal(joined.toString(), 'abc');
  t.equal(joined.buffer.byteLength, 3, 'nothing else is kept with it');
  t.equal(kept([]).length, 0);
});

t.test('without an executable around it, files are files', async (t) => {
  t.equal(bundledText('package.json'), undefined);
  const { href } = threadModule('some-worker', 'worker', 'file:///somewhere/thread.js');
  t.equal(href, 'file:///somewhere/worker.js');
});

t.test('inside an executable, threads run modules that it has inside', async (t) => {
  provideBundle({ 'a.txt': 'text', worker: 'export const umlaut = "ü";' });
  t.teardown(() => provideBundle({}));
  t.equal(bundledText('a.txt'), 'text');
  t.equal(bundledText('toString'), undefined);
  const module = threadModule('worker', 'worker', 'file:///somewhere/thread.js');
  const { umlaut } = (await import(module.href)) as { umlaut: string };
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
  const gate = Promise.withResolvers<void>();
  const first = queue.run(async () => {
    log.push('first starts');
    await gate.promise;
    log.push('first ends');
    return 1;
  });
  const second = queue.run(async () => {
    log.push('second');
    throw new Error('broken');
  });
  const third = queue.run(async () => {
    log.push('third');
    return 3;
  });
  await new Promise(setImmediate);
  t.same(log, ['first starts']);
  const idle = queue.idle().then(() => log.push('idle'));
  gate.resolve();
  t.equal(await first, 1);
  await t.rejects(second, { message: 'broken' });
  t.equal(await third, 3);
  await idle;
  t.same(log, ['first starts', 'first ends', 'second', 'third', 'idle']);
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

t.test('sizes: plain numbers and binary units', (t) => {
  const cases: [string, number | undefined][] = [
    ['4194304', 4_194_304],
    ['4Mi', 4_194_304],
    ['512Ki', 524_288],
    ['1Gi', 1_073_741_824],
    ['0', 0],
    ['', undefined],
    ['4M', undefined],
    ['4.5Mi', undefined],
    ['-1', undefined],
    ['99999999999999999999', undefined],
    ['9999999999Gi', undefined],
  ];
  for (const [text, bytes] of cases) t.equal(parseBytes(text), bytes, JSON.stringify(text));
  t.equal(formatBytes(4_194_304), '4Mi');
  t.equal(formatBytes(1_048_577), '1048577');
  t.equal(formatBytes(2 ** 40), '1024Gi');
  t.equal(formatBytes(0), '0');
  t.end();
});

t.test('listen addresses: an IP address or none, and a port', (t) => {
  t.same(parseHostPort('127.0.0.1:10249'), { host: '127.0.0.1', port: 10_249 });
  t.same(parseHostPort('[::1]:80'), { host: '::1', port: 80 });
  t.same(parseHostPort(':0'), { host: '', port: 0 });
  t.same(parseHostPort('0.0.0.0:65535'), { host: '0.0.0.0', port: 65_535 });
  const wrong = [
    '',
    '10249',
    '127.0.0.1',
    '127.0.0.1:',
    '127.0.0.1:65536',
    '::1:80',
    '[127.0.0.1]:80',
    '[::1]',
    'localhost:80',
    '1.2.3:80',
    '[]:80',
    '127.0.0.1:80 ',
    '127.0.0.1:-1',
  ];
  for (const text of wrong) t.equal(parseHostPort(text), undefined, JSON.stringify(text));
  for (const text of ['127.0.0.1:80', '[::1]:80', ':80']) {
    const parsed = parseHostPort(text);
    t.equal(parsed && formatHostPort(parsed), text);
  }
  t.end();
});

t.test('port ranges: the three forms of kube-proxy', (t) => {
  t.same([0, 1, 65_535, 65_536, 1.5].map(isPort), [false, true, true, false, false]);
  t.same(parsePortRange('36000-37000'), { first: 36_000, last: 37_000 });
  t.same(parsePortRange('36000 - 37000'), { first: 36_000, last: 37_000 });
  t.same(parsePortRange('36000+1000'), { first: 36_000, last: 37_000 });
  t.same(parsePortRange('36000'), { first: 36_000, last: 36_000 });
  t.same(parsePortRange('1-65535'), { first: 1, last: 65_535 });
  for (const text of [
    '',
    '0',
    '0-10',
    '37000-36000',
    '1-65536',
    '65535+1',
    'a-b',
    '1-',
    '-1',
    '1-2-3',
  ]) {
    t.equal(parsePortRange(text), undefined, JSON.stringify(text));
  }
  t.end();
});

t.test('reads what Go programs write', (t) => {
  const cases: [string, number][] = [
    ['250ms', 250],
    ['30s', 30_000],
    ['1m30s', 90_000],
    ['1.5h', 5_400_000],
    ['1h0m0.5s', 3_600_500],
    ['.5s', 500],
    ['1.s', 1000],
    ['15us', 0.015],
    ['15µs', 0.015],
    ['15μs', 0.015],
    ['2ns', 0.000_002],
    ['+3s', 3000],
    ['0', 0],
    ['+0', 0],
    ['0s', 0],
  ];
  for (const [text, ms] of cases) t.equal(parseDuration(text), ms, text);
  t.end();
});

t.test('refuses what is not a duration', (t) => {
  const cases = ['', '+', '15', '1.5', '-3s', 's', '1d', '1s ', ' 1s', '1s2', '1e3s', '.s', '1,5s'];
  for (const text of cases) t.equal(parseDuration(text), undefined, JSON.stringify(text));
  t.end();
});

t.test('writes the short form', (t) => {
  const cases: [number, string][] = [
    [0, '0s'],
    [250, '250ms'],
    [999.5, '999.5ms'],
    [1000, '1s'],
    [1500, '1.5s'],
    [60_000, '1m'],
    [90_000, '1m30s'],
    [3_600_000, '1h'],
    [5_400_000, '1h30m'],
    [0.015, '15us'],
    [0.000_002, '2ns'],
    [1e-9, '0s'],
  ];
  for (const [ms, text] of cases) t.equal(formatDuration(ms), text, text);
  t.end();
});

t.test('any whole number of microseconds is read back as written', (t) => {
  holds(
    t,
    fc.property(fc.integer({ min: 0, max: 10 ** 13 }), (microseconds) => {
      const ms = microseconds / 1000;
      const read = parseDuration(formatDuration(ms));
      return read !== undefined && Math.abs(read - ms) < 1e-6 * Math.max(1, ms);
    }),
  );
  t.end();
});
