import t, { type Test } from 'tap';
import { KpngError } from '../../src/errors.ts';
import { captureLog } from '../support/captured-log.ts';
import * as kube from '../../src/kube/events.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { SINK_RULES, SOURCE_RULES } from '../../src/observe/log-table.ts';
import * as proxier from '../../src/proxier/events.ts';
import * as events from '../../src/proxysocket/events.ts';
import * as store from '../../src/store/events.ts';
import { FakeClock } from '../support/fake-clock.ts';

t.test('lines are JSON objects with a level, a time, a message and keys', async (t) => {
  const { log, raw, lines } = await captureLog(2);
  log.error('it failed', { service: 'a/b:c' });
  log.warn('careful');
  log.info('hello', { n: 1 });
  log.v(2, 'detail', { x: [1, 2] });
  log.v(3, 'above the verbosity');
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
  t.match(lines(), [
    { level: 'error', msg: 'it failed', service: 'a/b:c', time },
    { level: 'warn', msg: 'careful' },
    { level: 'info', msg: 'hello', n: 1 },
    { level: 'info', msg: 'detail', v: 2, x: [1, 2] },
  ]);
  t.strictSame(Object.keys(lines()[1] ?? {}).sort(), ['level', 'msg', 'time'], 'and nothing else');
  t.equal(lines().length, 4);
  t.ok(raw.every((line) => line.endsWith('\n') && line.indexOf('\n') === line.length - 1));
});

t.test('an error is logged with its code, causes and service port', async (t) => {
  const { log, lines } = await captureLog();
  const code = 'ECONNREFUSED';
  const system = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code });
  const cause = new Error('no connection', { cause: system });
  const more = { cause, servicePort: 'ns/web:http' };
  const inner = new Error('14 UNAVAILABLE: refused');
  const middle = new Error('UNAVAILABLE: refused', { cause: inner });
  const ping: Error = new Error('ping');
  ping.cause = new Error('pong', { cause: ping });
  for (const [keys, expected] of [
    [
      { err: new KpngError('KPNG_SOURCE_LOST', 'the server is unreachable', more) },
      {
        err: 'the server is unreachable',
        code: 'KPNG_SOURCE_LOST',
        cause: 'no connection: connect ECONNREFUSED 127.0.0.1:1',
        servicePortName: 'ns/web:http',
      },
    ],
    [{ err: system }, { err: system.message, code }],
    [
      { err: 'just words', code: 'KEPT' },
      { err: 'just words', code: 'KEPT' },
    ],
    [{ err: new RangeError('') }, { err: 'RangeError' }],
    // Repeated causes are left out, and circular ones end.
    [{ err: new Error('x: UNAVAILABLE: refused', { cause: middle }) }, { cause: undefined }],
    [{ err: ping }, { cause: 'pong: ping: pong: ping: pong' }],
  ] as const) {
    log.error('failed', keys);
    t.match(lines().at(-1), expected);
  }
});

t.test('text is for people: time, level, message, keys with quotes', async (t) => {
  const { log, raw } = await captureLog(4, 'text');
  log.v(4, 'NextEndpoint for service', { servicePortName: 'default/web:http', endpoints: 3 });
  log.error('Dial failed', { err: new Error('refused') });
  const line = 'INFO: NextEndpoint for service servicePortName="default/web:http" endpoints=3\n';
  t.match(raw[0], /^\[\d\d:\d\d:\d\d\.\d{3}\] /);
  t.equal(raw[0]?.slice(15), line);
  t.match(raw[1], /ERROR: Dial failed err="refused"\n$/);
});

t.test('names cannot break a line or control the terminal', async (t) => {
  const evil = 'a\nINFO: all is well\r\u001b[2J\u009b31m\u2028\u202e"quoted"';
  for (const format of ['text', 'json'] as const) {
    const { log, raw } = await captureLog(0, format);
    log.info(evil, { [evil]: evil, list: [evil] });
    t.equal(raw.length, 1);
    const line = raw[0] ?? '';
    t.equal(line.indexOf('\n'), line.length - 1, `${format}: one line`);
    t.notMatch(line.trimEnd(), /[\p{Cc}\p{Cf}\u2028\u2029]/u, `${format}: no controls`);
    if (format === 'json') t.match(JSON.parse(line), { msg: evil, [evil]: evil, list: [evil] });
  }
  const { log, raw } = await captureLog(0, 'text');
  log.info('x', { name: evil });
  t.notMatch(raw[0], /[\u0080-\u009f\u2028\u202e]/);
  t.match(raw[0], /\\u202e\\"quoted\\"/);
});

t.test('a stack is shown on lines of its own, in text only', async (t) => {
  const stack = 'Error: x\n    at one (file.ts:1:1)\n    at two (file.ts:2:2)';
  const text = await captureLog(0, 'text');
  text.log.error('Crashed', { stack });
  t.match(text.raw.join(''), /Crashed\n {4}at one \(file\.ts:1:1\)\n {4}at two/);
  const json = await captureLog();
  json.log.error('Crashed', { stack });
  t.equal(json.lines()[0]?.['stack'], stack);
});

// How many log lines come of events, and from which verbosity on.

/** A log that follows events until the test ends. */
async function follow(t: Test, verbosity: number) {
  const captured = await captureLog(verbosity);
  const clock = new FakeClock();
  const rules = [...SINK_RULES, ...SOURCE_RULES];
  const end = subscribeLog(captured.log, rules, clock);
  t.teardown(end);
  return { ...captured, clock, end };
}

const client = {
  servicePort: 'ns/web:http',
  protocol: 'TCP',
  remoteAddress: '10.9.0.1:5',
} as const;
const rejected = (reason: events.Rejected['reason'] = 'no-endpoint'): void =>
  events.rejected.publish({ ...client, reason });
const accepted = (): void =>
  events.tcpAccepted.publish({ ...client, localAddress: '127.0.0.2:80' });

t.test('the verbosity can change; without it, no channel has a subscriber', async (t) => {
  const { log, lines } = await follow(t, 0);
  // Some of those that many events come from, of each verbosity.
  const { tcpAccepted, relayStarted, udpSessionEnded, listenerFailed } = events;
  const { kubeListed, kubeFailed } = kube;
  const ofData = [tcpAccepted, relayStarted, udpSessionEnded, listenerFailed];
  const quiet = [...ofData, kubeListed, kubeFailed, proxier.servicePortChanged, store.sourceSynced];
  const isQuiet = (): void => {
    for (const channel of quiet) t.equal(channel.hasSubscribers, false, channel.name);
  };
  isQuiet();
  log.setVerbosity(3);
  t.equal(events.relayStarted.hasSubscribers, false, 'from -v=4 on');
  accepted();
  log.setVerbosity(3);
  log.setVerbosity(0);
  isQuiet();
  log.setVerbosity(3);
  accepted();
  t.equal(lines().length, 2, 'raised again');
});

t.test('one line for each reason of an outage; every failure from -v=2 on', async (t) => {
  const failed = (reason: string): void => {
    const error = new KpngError('KPNG_SOURCE_LOST', reason);
    store.sourceDisconnected.publish({ source: 's', error, retryInMs: 1 });
  };
  const { log, lines, clock } = await follow(t, 0);
  for (const what of ['list services', 'watch nodes']) failed(`${what} at k: refused`);
  t.equal(lines().length, 1, 'of several resources');
  failed('timed out');
  failed('timed out');
  t.equal(lines().length, 2);
  log.setVerbosity(2);
  failed('timed out');
  log.setVerbosity(0);
  t.equal(lines().length, 3);
  store.sourceConnected.publish({ source: 's' });
  failed('timed out');
  t.match(lines().slice(3), [{ msg: /^Connected/ }, { err: 'timed out' }], 'another outage');
  for (let n = 0; n < 16; n += 1) failed(`reason ${n}`);
  clock.advance(2000);
  failed('timed out');
  t.match(lines().at(-1), { err: 'timed out' }, 'only so many reasons are remembered');
});

t.test('many failures do not flood the log, and each is counted once', async (t) => {
  const { lines, clock, end } = await follow(t, 0);
  const flood = (times: number, reason?: events.Rejected['reason']): void => {
    for (let n = 0; n < times; n += 1) rejected(reason);
  };
  const last = () => lines().at(-1);
  flood(1000);
  t.equal(lines().length, 10);
  clock.advance(2000);
  flood(1);
  t.equal(last()?.['suppressed'], 990);
  flood(20);
  clock.advance(20_000);
  const line = "Couldn't find an endpoint for service";
  const expected = { level: 'warn', msg: 'Log lines suppressed', line };
  t.match(last(), { ...expected, suppressed: 19 });
  flood(1);
  t.equal(last()?.['suppressed'], undefined);
  flood(10);
  clock.advance(20_000);
  t.match(last(), { ...expected, suppressed: 1 });
  flood(11);
  clock.advance(2000);
  flood(1);
  const before = lines().length;
  flood(100, 'source');
  clock.advance(20_000);
  t.equal(lines().length, before, 'nor what is logged from -v=2 on');
  flood(12);
  end();
  t.match(last(), { ...expected, suppressed: 2 });
  t.equal(clock.pending, 0);
  const chatty = await follow(t, 3);
  flood(100);
  t.equal(chatty.lines().length, 100, 'all of them from -v=3 on');
});
