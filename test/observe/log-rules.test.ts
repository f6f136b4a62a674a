/** How many log lines come of events, and from which verbosity on. */
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { KpngError } from '../../src/errors.ts';
import * as kube from '../../src/kube/events.ts';
import { DATA_PATH_RULES } from '../../src/observe/log-data-path.ts';
import { LogLimiter, subscribeLog } from '../../src/observe/log-rules.ts';
import { SINK_RULES } from '../../src/observe/log-sinks.ts';
import { SOURCE_RULES } from '../../src/observe/log-sources.ts';
import * as proxier from '../../src/proxier/events.ts';
import * as events from '../../src/proxysocket/events.ts';
import * as store from '../../src/store/events.ts';
import { captureLog, type CapturedLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { holds } from '../support/property.ts';

/** A log that follows events until the test ends. */
async function follow(t: Test, verbosity: number): Promise<CapturedLog & { clock: FakeClock }> {
  const captured = await captureLog(verbosity);
  const clock = new FakeClock();
  t.teardown(
    subscribeLog(captured.log, [...DATA_PATH_RULES, ...SINK_RULES, ...SOURCE_RULES], clock),
  );
  return { ...captured, clock };
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

t.test('many failures do not flood the log, and none is lost', async (t) => {
  const { lines, clock } = await follow(t, 0);
  for (let n = 0; n < 1000; n += 1) rejected();
  t.equal(lines().length, 10);
  clock.advance(2000);
  rejected();
  t.equal(lines().at(-1)?.['suppressed'], 990);
  for (let n = 0; n < 20; n += 1) rejected();
  clock.advance(20_000);
  t.match(lines().at(-1), {
    level: 'warn',
    msg: 'Log lines suppressed',
    line: "Couldn't find an endpoint for service",
    suppressed: 19,
  });
  const before = lines().length;
  for (let n = 0; n < 100; n += 1) rejected('source');
  clock.advance(20_000);
  t.equal(lines().length, before, 'what is logged from -v=2 on is not missing before');
  const chatty = await follow(t, 3);
  for (let n = 0; n < 100; n += 1) rejected();
  t.equal(chatty.lines().length, 100, 'all of them from -v=3 on');
});

t.test('every line is either written or counted exactly once', async (t) => {
  const steps = fc.array(fc.integer({ min: 0, max: 2500 }), { maxLength: 60 });
  holds(
    t,
    fc.property(steps, (waits) => {
      const clock = new FakeClock();
      let counted = 0;
      const limiter = new LogLimiter(clock, (_, suppressed) => (counted += suppressed));
      for (const wait of [...Array.from({ length: 10 }, () => 0), ...waits]) {
        clock.advance(wait);
        const before = limiter.take('x');
        if (before !== undefined) counted += 1 + before;
      }
      limiter.close();
      return counted === 10 + waits.length;
    }),
  );
});
