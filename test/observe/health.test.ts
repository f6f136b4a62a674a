import * as fc from 'fast-check';
import t from 'tap';
import { KpngError } from '../../src/errors.ts';
import { followEvents, Health } from '../../src/observe/health.ts';
import { noStates } from '../../src/observe/service-state.ts';
import type { ServiceSummary } from '../../src/observe/service-summary.ts';
import { NO_TRAFFIC } from '../../src/observe/traffic.ts';
import {
  type HealthFacts,
  PROBES,
  STALE_AFTER_MS,
  SYNC_FAILURE_LIMIT_MS,
  unreachable,
  verdictOf,
} from '../../src/observe/verdict.ts';
import * as portals from '../../src/portal/events.ts';
import { holds } from '../support/property.ts';

const T0 = Date.UTC(2026, 0, 1);
const SINCE = '2026-01-01T00:00:00.000Z';
const working: HealthFacts = { firstSyncAt: T0, lastSyncAt: T0 };

/** Answers of healthz, livez and readyz. */
function statuses(facts: HealthFacts, now = T0): number[] {
  const { probes } = verdictOf(facts, now);
  return PROBES.map((probe) => probes[probe].status);
}

/** The state and the codes of the reasons, in order. */
function verdict(facts: HealthFacts, now = T0): string[] {
  const { state, reasons } = verdictOf(facts, now);
  return [state, ...reasons.map(({ code }) => code)];
}

function summary(states: Partial<ServiceSummary['states']>, failed = 0, open = 1): ServiceSummary {
  const all = { ...noStates(), ...states };
  return {
    servicePorts: Object.values(all).reduce((sum, each) => sum + each, 0),
    states: all,
    endpoints: 0,
    listeners: { open, failed },
    active: { tcp: 0, udp: 0, held: 0 },
    totals: NO_TRAFFIC,
  };
}

t.test('a source that is unreachable degrades, and never fails', async (t) => {
  const lost = (code: string): HealthFacts => ({ ...working, sourceLost: { since: T0, code } });
  const muchLater = T0 + 7 * 86_400_000;
  t.same(statuses(lost('KPNG_SOURCE_LOST'), muchLater), [200, 200, 200]);
  t.same(verdict(lost('KPNG_SOURCE_LOST')), ['degraded', 'source-unreachable']);
  t.same(verdict(lost('KPNG_KUBE_FORBIDDEN')), ['degraded', 'source-forbidden']);
  t.same(verdict(lost('KPNG_STATE_FILE_INVALID')), ['degraded', 'state-file-invalid']);
  const stale = verdictOf(lost('KPNG_SOURCE_LOST'), T0 + STALE_AFTER_MS);
  t.match(stale.reasons, [
    {
      code: 'source-unreachable',
      state: 'degraded',
      message: `the source has been unreachable since ${SINCE} (KPNG_SOURCE_LOST); serving the last known state`,
      since: SINCE,
    },
    { code: 'state-stale', since: SINCE },
  ]);
});

t.test('changes that fail degrade first, and bring it down after a minute', async (t) => {
  const failing = { ...working, syncFailing: { since: T0, code: 'KPNG_SINK_FAILED' } };
  t.same(statuses(failing, T0 + SYNC_FAILURE_LIMIT_MS - 1), [200, 200, 200]);
  t.same(verdict(failing, T0 + 1), ['degraded', 'change-failed']);
  t.same(statuses(failing, T0 + SYNC_FAILURE_LIMIT_MS), [503, 503, 503]);
  t.same(verdict(failing, T0 + SYNC_FAILURE_LIMIT_MS), ['down', 'changes-failing']);
  const { livez } = verdictOf(failing, T0 + SYNC_FAILURE_LIMIT_MS).probes;
  t.same(livez, { status: 503, failing: ['changes-failing'] });
});

t.test('what ends or drains takes no more traffic but is not to be restarted', async (t) => {
  for (const [facts, code] of [
    [{ stopping: true }, 'stopping'],
    [{ draining: true }, 'drained'],
    [{ replacedBy: 7 }, 'replaced'],
  ] as const) {
    t.same(statuses({ ...working, ...facts }), [503, 200, 503]);
    t.same(verdict({ ...working, ...facts }), ['down', code]);
  }
});

t.test('service ports and listeners: down when none serves, but no probe fails', async (t) => {
  const of = (services: ServiceSummary): string[] => {
    t.same(statuses({ ...working, services }), [200, 200, 200], 'endpoints cannot be cured here');
    return verdict({ ...working, services });
  };
  t.same(of(summary({})), ['ready'], 'no service ports is no problem');
  t.same(of(summary({ ok: 2, drained: 1, removed: 1 })), ['ready']);
  t.same(of(summary({ ok: 1, down: 1 })), ['degraded', 'services-down']);
  t.same(of(summary({ degraded: 1, down: 1 })), ['degraded', 'services-down']);
  t.same(of(summary({ down: 2 })), ['down', 'services-down']);
  t.same(of(summary({ ok: 1, 'no-endpoints': 2 })), ['degraded', 'services-without-endpoints']);
  t.same(of(summary({ 'no-endpoints': 2 })), ['degraded', 'services-without-endpoints']);
  t.same(of(summary({ ok: 1 }, 2, 1)), ['degraded', 'listeners-failed']);
  t.same(of(summary({ down: 1 }, 1, 0)), ['down', 'listeners-failed', 'services-down']);
  const { reasons } = verdictOf({ ...working, services: summary({ ok: 12, down: 2 }) }, T0);
  t.match(reasons, [{ count: 2, message: 'no client gets through to 2 of 14 service ports' }]);
});

t.test('problems of single services degrade, summed by code and without names', async (t) => {
  const problems = [
    { code: 'KPNG_PORTAL_CONFLICT', count: 1 },
    { code: 'KPNG_SERVICE_INVALID', count: 3 },
    { code: 'KPNG_PORTAL_CONFLICT', count: 2 },
  ];
  const listeners = [...problems, { code: 'KPNG_LISTEN_PERMISSION', count: 2 }];
  const codes = (failed: number): string[] =>
    verdict({ ...working, problems: listeners, services: summary({ ok: 1 }, failed) });
  t.same(codes(2), ['degraded', 'listeners-failed', 'not-served'], 'counted once');
  t.match(verdictOf({ ...working, problems: listeners.slice(3) }, T0).reasons, [
    { code: 'not-served', message: '2 not served (KPNG_LISTEN_PERMISSION)' },
  ]);
  t.same(statuses({ ...working, problems }), [200, 200, 200]);
  t.match(verdictOf({ ...working, problems }, T0).reasons, [
    {
      code: 'not-served',
      count: 6,
      message: '3 not served (KPNG_PORTAL_CONFLICT), 3 not served (KPNG_SERVICE_INVALID)',
    },
  ]);
});

t.test('who asks a process that does not answer has a verdict, too', async (t) => {
  t.match(unreachable('no answer'), {
    state: 'down',
    reasons: [{ code: 'proxy-unreachable', state: 'down', message: 'no answer' }],
  });
});

t.test('facts are taken up one by one', async (t) => {
  let now = T0;
  const health = new Health(() => now);
  t.equal(health.verdict.probes.readyz.status, 503);
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  now += 5000;
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  t.equal(health.facts.sourceLost?.since, T0, 'the first failure counts');
  health.change({ sourceLost: undefined });
  t.equal(health.facts.sourceLost, undefined);
  health.syncFailed('KPNG_SINK_FAILED');
  t.equal(health.verdict.probes.readyz.status, 503, 'a failure is no first state');
  now += 5000;
  health.synced();
  t.equal(health.verdict.state, 'ready');
  t.equal(health.facts.syncFailing, undefined);
  now += 5000;
  health.synced();
  t.match(health.facts, { firstSyncAt: T0 + 10_000, lastSyncAt: T0 + 15_000 });
  health.readFrom({
    problems: () => [{ code: 'KPNG_SERVICE_INVALID', count: 1 }],
    services: async () => summary({ down: 1 }),
  });
  t.match(health.verdict.reasons, [{ code: 'not-served' }]);
  t.match((await health.read()).reasons, [{ code: 'services-down' }, { code: 'not-served' }]);
  health.change({ stopping: true });
  t.equal(health.verdict.probes.readyz.status, 503);
});

t.test('the body of a page has the keys of kube-proxy, the state and the reasons', async (t) => {
  let now = T0;
  const health = new Health(() => now);
  t.same(health.body(health.verdict, 'healthz'), {
    lastUpdated: null,
    currentTime: SINCE,
    nodeEligible: true,
    state: 'down',
    failing: ['starting'],
    reasons: [{ code: 'starting', state: 'down', message: 'waiting for the first complete state' }],
  });
  health.synced();
  now += 3_600_000;
  t.same(health.body(health.verdict, 'healthz'), {
    lastUpdated: '2026-01-01T01:00:00.000Z',
    currentTime: '2026-01-01T01:00:00.000Z',
    nodeEligible: true,
    state: 'ready',
  });
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  t.match(health.body(health.verdict, 'healthz'), {
    lastUpdated: SINCE,
    state: 'degraded',
    failing: undefined,
  });
});

t.test('whatever happens: no 200 without a first state, no 503 without reasons', async (t) => {
  const step = fc.constantFrom('synced', 'failed', 'lost', 'connected', 'stopping', 'wait');
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      let now = T0;
      let everSynced = false;
      const health = new Health(() => now);
      for (const each of steps) {
        if (each === 'synced') {
          health.synced();
          everSynced = true;
        } else if (each === 'failed') health.syncFailed('KPNG_SINK_FAILED');
        else if (each === 'lost') health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
        else if (each === 'connected') health.change({ sourceLost: undefined });
        else if (each === 'stopping') health.change({ stopping: true });
        else now += 45_000;
      }
      const { state, reasons, probes } = health.verdict;
      if ((state === 'ready') !== (reasons.length === 0)) return false;
      // These facts bring it down exactly when it should get no clients.
      if ((state === 'down') !== (probes.readyz.status === 503)) return false;
      return PROBES.every((probe) => {
        const { status, failing } = probes[probe];
        if (!everSynced && probe !== 'livez' && status === 200) return false;
        return (status === 503) === failing.length > 0;
      });
    }),
  );
});

t.test('a node that is to be deleted fails healthz only, and says so everywhere', async (t) => {
  const health = new Health(() => T0);
  health.synced();
  health.change({ nodeIneligible: 'the node is being deleted' });
  t.same(statuses(health.facts), [503, 200, 200]);
  t.match(health.body(health.verdict, 'healthz'), {
    nodeEligible: false,
    state: 'degraded',
    failing: ['node-ineligible'],
    reasons: [{ message: 'the node is being deleted' }],
  });
  const body = health.body(health.verdict, 'livez');
  t.equal(body.nodeEligible, false);
  t.notOk('failing' in body);
});

t.test('a change that waits for too long fails, even if nothing says that it did', async (t) => {
  let now = T0;
  const health = new Health(() => now);
  const seen = (): number[] => statuses(health.facts, now);
  health.syncStarted();
  now += SYNC_FAILURE_LIMIT_MS * 2;
  t.same(seen(), [503, 200, 503], 'the first state may take its time');
  health.synced();
  t.same(seen(), [200, 200, 200]);
  health.syncStarted();
  now += SYNC_FAILURE_LIMIT_MS - 1;
  t.same(seen(), [200, 200, 200]);
  now += 1;
  t.same(seen(), [503, 503, 503]);
  t.match(health.verdict.reasons, [{ code: 'changes-waiting' }]);
  health.syncFailed('KPNG_SINK_FAILED');
  t.same(seen(), [200, 200, 200], 'from now on the failure counts');
  health.syncStarted();
  health.synced();
  now += SYNC_FAILURE_LIMIT_MS;
  t.same(seen(), [200, 200, 200]);
});

t.test('a portal that fails takes the node out; others that interfere degrade it', async (t) => {
  let now = T0;
  const health = new Health(() => now);
  t.teardown(followEvents(health));
  health.synced();
  const reads = (
    expected: readonly string[],
    status: readonly number[],
    message?: string,
  ): void => {
    t.same(verdict(health.facts, now), expected);
    t.same(statuses(health.facts, now), status);
    if (message !== undefined) t.match(health.verdict.reasons, [{ message, since: SINCE }]);
  };
  type Code = 'KPNG_PORTAL_PERMISSION' | 'KPNG_PORTAL_TAKEN' | 'KPNG_PORTAL_SHARED';
  const error = (code: Code, where = {}) => new KpngError(code, 'it says why', where);
  const portal = 'nftables';
  const written = (): void => {
    const none = { added: 0, removed: 0, durationMs: 1 };
    portals.portalWritten.publish({ portal, reason: 'start', ...none });
    reads(['ready'], [200, 200, 200]);
  };
  const denied = error('KPNG_PORTAL_PERMISSION');
  for (const [kind, what] of [
    [portal, 'the packet rules could not be written'],
    ['address', 'the service addresses could not be put on the interface'],
  ] as const) {
    portals.portalFailed.publish({ portal: kind, error: denied });
    const message = `${what} since ${SINCE} (KPNG_PORTAL_PERMISSION)`;
    reads(['down', 'portal-failing'], [503, 200, 503], message);
    written();
  }
  const one = error('KPNG_PORTAL_PERMISSION', { servicePort: 'a/b:c' });
  portals.portalFailed.publish({ portal, error: one });
  reads(['ready'], [200, 200, 200]);
  portals.portalShared.publish({ portal, error: error('KPNG_PORTAL_SHARED') });
  const shared = `another process has redirected the same traffic since ${SINCE} (KPNG_PORTAL_SHARED)`;
  reads(['degraded', 'portal-shared'], [200, 200, 200], shared);
  portals.portalShared.publish({ portal, error: undefined });
  portals.portalFailed.publish({ portal, error: error('KPNG_PORTAL_TAKEN') });
  health.syncFailed('KPNG_PORTAL_TAKEN');
  now += 3_600_000;
  reads(['degraded', 'change-failed', 'portal-taken'], [200, 200, 200]);
});
