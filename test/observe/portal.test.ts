/** What learns of a portal that writes rules: in the log, in the metrics and by the health. */
import t, { type Test } from 'tap';
import { KpngError } from '../../src/errors.ts';
import { followEvents } from '../../src/observe/health-events.ts';
import { Health } from '../../src/observe/health.ts';
import { SINK_RULES } from '../../src/observe/log-sinks.ts';
import { subscribeLog } from '../../src/observe/log-rules.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import * as events from '../../src/portal/events.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { scrapePage } from '../support/metrics-page.ts';

const portal = 'nftables';
const START = { portal, reason: 'start', added: 12, removed: 0, durationMs: 50.04 } as const;
const CHANGE = { portal, reason: 'change', added: 1, removed: 2, durationMs: 4 } as const;

function failure(code: 'KPNG_PORTAL_PERMISSION' | 'KPNG_PORTAL_TAKEN', servicePort?: string) {
  return new KpngError(code, 'it says why', { ...(servicePort !== undefined && { servicePort }) });
}

async function follow(t: Test, verbosity = 0) {
  const captured = await captureLog(verbosity);
  t.teardown(subscribeLog(captured.log, SINK_RULES, new FakeClock()));
  return captured;
}

t.test('the log reports when rules are written, lost and not written', async (t) => {
  const { lines } = await follow(t);
  events.portalWritten.publish(START);
  events.portalWritten.publish(CHANGE);
  events.portalLost.publish({ portal, message: 'they are gone' });
  events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION') });
  events.portalWritten.publish({ ...START, reason: 'repair' });
  const error = new KpngError('KPNG_PORTAL_TOOL_MISSING', 'no conntrack');
  events.flowsNotCleared.publish({ portal, error });
  t.match(lines(), [
    { level: 'info', msg: 'Packet rules written', portal, added: 12, removed: 0, ms: 50 },
    { level: 'warn', reason: 'they are gone' },
    { level: 'error', msg: /^Writing packet rules failed/, code: 'KPNG_PORTAL_PERMISSION' },
    { level: 'info', msg: 'Packet rules repaired' },
    { level: 'warn', msg: /^Removing stale UDP conntrack/, code: 'KPNG_PORTAL_TOOL_MISSING' },
  ]);
  t.equal(lines().length, 5, 'a change is not worth a line');
});

t.test(
  'a service port that is left out is named, and a host that fails does not flood',
  async (t) => {
    const { lines } = await follow(t);
    events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION', 'a/b:c') });
    t.match(lines(), [{ servicePortName: 'a/b:c' }]);
    for (let n = 0; n < 100; n += 1) {
      events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION') });
    }
    t.ok(lines().length <= 10, `${lines().length} lines`);
  },
);

t.test('metrics count writes by reason and failures by code', async (t) => {
  const metrics = createMetrics({ version: '1' });
  t.teardown(() => metrics.close());
  const value = async (name: string, labels = {}) => {
    return (await scrapePage(metrics)).value(`kpng_userspace_portal_${name}`, labels);
  };
  t.equal(await value('up'), undefined, 'other portals have no rules');
  events.portalWritten.publish(START);
  events.portalWritten.publish(CHANGE);
  events.portalWritten.publish(CHANGE);
  t.equal(await value('up', { portal }), 1);
  t.equal(await value('writes_total', { portal, reason: 'start' }), 1);
  t.equal(await value('writes_total', { portal, reason: 'change' }), 2);
  t.equal(await value('last_write_duration_seconds', { portal }), 0.004);

  events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION', 'a/b:c') });
  t.equal(await value('up', { portal }), 1, 'all others are served');
  events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION') });
  t.equal(await value('up', { portal }), 0);
  t.equal(await value('failures_total', { portal, code: 'KPNG_PORTAL_PERMISSION' }), 2);

  events.portalWritten.publish(START);
  events.portalLost.publish({ portal, message: 'gone' });
  t.equal(await value('up', { portal }), 0);
  t.equal(await value('lost_total', { portal }), 1);
  events.portalWritten.publish({ ...START, reason: 'repair' });
  t.equal(await value('up', { portal }), 1);
  const error = new KpngError('KPNG_PORTAL_TOOL_MISSING', 'no conntrack');
  events.flowsNotCleared.publish({ portal, error });
  t.equal(await value('flow_failures_total', { code: 'KPNG_PORTAL_TOOL_MISSING' }), 1);
});

t.test('the node gets no traffic while its rules cannot be written', (t) => {
  const health = new Health();
  t.teardown(followEvents(health));
  const status = () =>
    (['healthz', 'readyz', 'livez'] as const).map((p) => health.verdict.probes[p].status);
  health.synced();
  t.same(status(), [200, 200, 200]);
  events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION') });
  t.same(status(), [503, 503, 200]);
  t.match(health.verdict.reasons, [
    {
      code: 'portal-failing',
      message: /^the packet rules could not be written since 2.* \(KPNG_PORTAL_PERMISSION\)$/,
    },
  ]);
  events.portalWritten.publish(START);
  t.same(status(), [200, 200, 200]);
  t.equal(health.verdict.state, 'ready');
  t.end();
});

t.test(
  'another process that redirects the same traffic is reported, and takes no node out',
  async (t) => {
    const { lines } = await follow(t);
    const metrics = createMetrics({ version: '1' });
    const health = new Health(() => Date.UTC(2026, 0, 1));
    t.teardown(() => metrics.close());
    t.teardown(followEvents(health));
    health.synced();
    const shared = async () => {
      return (await scrapePage(metrics)).value('kpng_userspace_portal_shared', { portal });
    };
    const error = new KpngError('KPNG_PORTAL_SHARED', 'process 4711 writes the chains');
    events.portalShared.publish({ portal, error });
    events.portalWritten.publish(START);
    t.equal(await shared(), 1);
    t.match(health.verdict, {
      state: 'degraded',
      reasons: [
        {
          code: 'portal-shared',
          message:
            'another process has redirected the same traffic since 2026-01-01T00:00:00.000Z (KPNG_PORTAL_SHARED)',
        },
      ],
      probes: { healthz: { status: 200 } },
    });
    events.portalShared.publish({ portal, error: undefined });
    t.equal(await shared(), 0);
    t.equal(health.verdict.state, 'ready');
    t.match(lines(), [
      { level: 'warn', msg: 'Another process redirects the same traffic', err: /4711/ },
      { msg: 'Packet rules written' },
      { level: 'info', msg: 'No other process redirects the same traffic any more' },
    ]);
  },
);

t.test('one service port that is left out fails nothing', (t) => {
  const health = new Health();
  t.teardown(followEvents(health));
  health.synced();
  events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_PERMISSION', 'a/b:c') });
  t.equal(health.verdict.probes.healthz.status, 200);
  t.end();
});

t.test('rules taken by another process degrade health, however long', (t) => {
  let now = Date.UTC(2026, 0, 1);
  const health = new Health(() => now);
  t.teardown(followEvents(health));
  health.synced();
  events.portalFailed.publish({ portal, error: failure('KPNG_PORTAL_TAKEN') });
  health.syncFailed('KPNG_PORTAL_TAKEN');
  now += 3_600_000;
  for (const probe of ['healthz', 'readyz', 'livez'] as const) {
    t.equal(health.verdict.probes[probe].status, 200, probe);
  }
  t.match(health.verdict, {
    state: 'degraded',
    reasons: [
      { code: 'change-failed' },
      { code: 'portal-taken', since: '2026-01-01T00:00:00.000Z' },
    ],
  });
  t.end();
});

t.test('a portal that writes addresses has its own messages', async (t) => {
  const { lines } = await follow(t, 2);
  const health = new Health();
  t.teardown(followEvents(health));
  health.synced();
  const about = { portal: 'address' } as const;
  events.portalWritten.publish({ ...START, ...about });
  events.portalWritten.publish({ ...CHANGE, ...about });
  events.portalLost.publish({ ...about, message: '2 are gone' });
  events.portalFailed.publish({ ...about, error: failure('KPNG_PORTAL_PERMISSION') });
  t.match(health.verdict.reasons, [
    {
      message:
        /^the service addresses could not be put on the interface since 2.* \(KPNG_PORTAL_PERMISSION\)$/,
    },
  ]);
  events.portalWritten.publish({ ...START, ...about, reason: 'repair' });
  t.equal(health.verdict.probes.healthz.status, 200);
  const messages = lines().map(({ msg }) => msg);
  t.equal(new Set(messages).size, 5);
  for (const message of messages) t.match(message, /service addresses/i);
});
