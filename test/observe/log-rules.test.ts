/** How many log lines come of events, and from which verbosity on. */
import t, { type Test } from 'tap';
import { KpngError } from '../../src/errors.ts';
import * as kube from '../../src/kube/events.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { SINK_RULES, SOURCE_RULES } from '../../src/observe/log-table.ts';
import * as proxier from '../../src/proxier/events.ts';
import * as events from '../../src/proxysocket/events.ts';
import * as store from '../../src/store/events.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';

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
  const quiet = [
    events.tcpAccepted,
    events.endpointPicked,
    events.relayStarted,
    events.relayEnded,
    events.udpSessionStarted,
    events.udpSessionEnded,
    events.listenerFailed,
    kube.kubeListed,
    kube.kubeFailed,
    kube.kubeWatching,
    kube.kubeOrphans,
    proxier.servicePortChanged,
    store.sourceSynced,
  ];
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
