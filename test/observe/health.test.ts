import t from 'tap';
import { Health } from '../../src/observe/health.ts';
import { NO_TRAFFIC, noStates, type ServiceSummary } from '../../src/observe/service-state.ts';
import {
  type HealthFacts,
  PROBES,
  STALE_AFTER_MS,
  SYNC_FAILURE_LIMIT_MS,
  verdictOf,
} from '../../src/observe/verdict.ts';

const T0 = Date.UTC(2026, 0, 1);
const SINCE = '2026-01-01T00:00:00.000Z';
const LIMIT = SYNC_FAILURE_LIMIT_MS;

/** The state and the codes of the reasons, and which probes fail. */
function verdict(facts: HealthFacts, now = T0): string {
  const { state, reasons, probes } = verdictOf(facts, now);
  const codes = [state, ...reasons.map(({ code }) => code)].join(' ');
  const failing = PROBES.filter((probe) => probes[probe].status === 503);
  return failing.length === 0 ? codes : `${codes}; ${failing.join(' ')}`;
}

function summary(states: Partial<ServiceSummary['states']>, failed = 0, open = 1): HealthFacts {
  const all = { ...noStates(), ...states };
  const services = {
    servicePorts: Object.values(all).reduce((sum, each) => sum + each, 0),
    states: all,
    endpoints: 0,
    listeners: { open, failed },
    active: { tcp: 0, udp: 0, held: 0 },
    totals: NO_TRAFFIC,
  };
  return { services };
}

const failure = (code: string) => ({ since: T0, code });
const lost = (code: string): HealthFacts => ({ sourceLost: failure(code) });
const away = lost('KPNG_SOURCE_LOST');
const failing = { syncFailing: failure('KPNG_SINK_FAILED') };
const taken = failure('KPNG_PORTAL_TAKEN');
const unlisted = [{ code: 'KPNG_LISTEN_PERMISSION', count: 2 }];
const problems = [
  { code: 'KPNG_PORTAL_CONFLICT', count: 1 },
  { code: 'KPNG_SERVICE_INVALID', count: 3 },
  { code: 'KPNG_PORTAL_CONFLICT', count: 2 },
];

/** What is known of a process that once had a complete state, the time since then, and the verdict. */
const VERDICTS: readonly (readonly [HealthFacts, number, string])[] = [
  [{}, 0, 'ready'],
  [{ firstSyncAt: undefined }, 0, 'down starting; healthz readyz'],
  // A source that is unreachable degrades, and never fails.
  [away, 0, 'degraded source-unreachable'],
  [away, STALE_AFTER_MS - 1, 'degraded source-unreachable'],
  [away, 7 * 86_400_000, 'degraded source-unreachable state-stale'],
  [lost('KPNG_KUBE_FORBIDDEN'), 0, 'degraded source-forbidden'],
  [lost('KPNG_STATE_FILE_INVALID'), 0, 'degraded state-file-invalid'],
  // Changes that fail degrade first, and bring it down after a minute.
  [failing, 1, 'degraded change-failed'],
  [failing, LIMIT - 1, 'degraded change-failed'],
  [failing, LIMIT, 'down changes-failing; healthz livez readyz'],
  [{ syncPending: T0 }, LIMIT - 1, 'ready'],
  [{ syncPending: T0 }, LIMIT, 'down changes-waiting; healthz livez readyz'],
  [{ syncPending: T0, firstSyncAt: undefined }, 2 * LIMIT, 'down starting; healthz readyz'],
  // What ends or drains takes no more traffic but is not to be restarted.
  [{ stopping: true }, 0, 'down stopping; healthz readyz'],
  [{ draining: true }, 0, 'down drained; healthz readyz'],
  [{ replacedBy: 7 }, 0, 'down replaced; healthz readyz'],
  [{ nodeIneligible: 'deleted' }, 0, 'degraded node-ineligible; healthz'],
  // A portal that fails takes the node out; others that interfere degrade it.
  [{ portalFailing: { ...failure('X'), what: '' } }, 0, 'down portal-failing; healthz readyz'],
  [{ portalFailing: { ...taken, what: '' } }, 0, 'degraded portal-taken'],
  [
    { portalFailing: { ...taken, what: '' }, syncFailing: taken },
    LIMIT,
    'degraded change-failed portal-taken',
  ],
  [{ portalShared: failure('X') }, 0, 'degraded portal-shared'],
  // Service ports and listeners: down when none serves, but no probe fails.
  [summary({}), 0, 'ready'],
  [summary({ ok: 2, drained: 1, removed: 1 }), 0, 'ready'],
  [summary({ ok: 1, down: 1 }), 0, 'degraded services-down'],
  [summary({ degraded: 1, down: 1 }), 0, 'degraded services-down'],
  [summary({ down: 2 }), 0, 'down services-down'],
  [summary({ ok: 1, 'no-endpoints': 2 }), 0, 'degraded services-without-endpoints'],
  [summary({ 'no-endpoints': 2 }), 0, 'degraded services-without-endpoints'],
  [summary({ ok: 1 }, 2, 1), 0, 'degraded listeners-failed'],
  [summary({ down: 1 }, 1, 0), 0, 'down listeners-failed services-down'],
  // Listeners of service ports have a reason of their own; there may be others.
  [{ ...summary({ ok: 1 }, 2), problems: unlisted }, 0, 'degraded listeners-failed'],
  [{ problems: unlisted }, 0, 'degraded not-served'],
  [{ problems }, 0, 'degraded not-served'],
  [{ ...away, stopping: true }, 0, 'down stopping source-unreachable; healthz readyz'],
];

t.test('the verdict on each fact, and the health pages that fail', async (t) => {
  for (const [facts, later, expected] of VERDICTS) {
    t.equal(verdict({ firstSyncAt: T0, lastSyncAt: T0, ...facts }, T0 + later), expected);
  }
});

t.test('reasons say what and since when, name no service, and count', async (t) => {
  const facts = { firstSyncAt: T0, ...away, ...summary({ ok: 12, down: 2 }), problems };
  const lostMessage = `the source has been unreachable since ${SINCE} (KPNG_SOURCE_LOST); serving the last known state`;
  const notServed = '3 not served (KPNG_PORTAL_CONFLICT), 3 not served (KPNG_SERVICE_INVALID)';
  const gone = 'no client gets through to 2 of 14 service ports';
  const state = 'degraded';
  t.same(verdictOf(facts, T0).reasons, [
    { code: 'source-unreachable', state, message: lostMessage, since: SINCE },
    { code: 'services-down', state, message: gone, count: 2 },
    { code: 'not-served', state, message: notServed, count: 6 },
  ]);
  const { livez } = verdictOf({ firstSyncAt: T0, ...failing }, T0 + LIMIT).probes;
  t.same(livez, { status: 503, failing: ['changes-failing'] });
});

t.test('facts are taken up one by one', async (t) => {
  let now = T0;
  const health = new Health(() => now);
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  now += 5000;
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  t.equal(health.facts.sourceLost?.since, T0, 'the first failure counts');
  health.change({ sourceLost: undefined });
  health.syncFailed('KPNG_SINK_FAILED');
  t.equal(health.verdict.probes.readyz.status, 503, 'a failure is no first state');
  now += 5000;
  health.synced();
  t.equal(health.verdict.state, 'ready');
  now += 5000;
  health.syncStarted();
  t.equal(health.facts.syncPending, now);
  health.synced();
  t.match(health.facts, { firstSyncAt: T0 + 10_000, lastSyncAt: now, syncPending: undefined });
  health.syncStarted();
  now += LIMIT;
  t.equal(health.verdict.state, 'down');
  health.syncFailed('KPNG_SINK_FAILED');
  t.match(health.verdict.reasons, [{ code: 'change-failed' }], 'from now on the failure counts');
  health.synced();
  health.readFrom({
    problems: () => [{ code: 'KPNG_SERVICE_INVALID', count: 1 }],
    services: async () => summary({ down: 1 }).services,
  });
  t.match(health.verdict.reasons, [{ code: 'not-served' }]);
  t.match((await health.read()).reasons, [{ code: 'services-down' }, { code: 'not-served' }]);
});

t.test('the body of a page has the keys of kube-proxy, the state and the reasons', async (t) => {
  let now = T0;
  const health = new Health(() => now);
  const body = (probe: 'healthz' | 'livez' = 'healthz') => health.body(health.verdict, probe);
  const message = 'waiting for the first complete state';
  t.same(body(), {
    lastUpdated: null,
    currentTime: SINCE,
    nodeEligible: true,
    state: 'down',
    failing: ['starting'],
    reasons: [{ code: 'starting', state: 'down', message }],
  });
  health.synced();
  now += 3_600_000;
  const currentTime = '2026-01-01T01:00:00.000Z';
  const ready = { lastUpdated: currentTime, currentTime, nodeEligible: true, state: 'ready' };
  t.same(body(), ready);
  health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  t.match(body(), { lastUpdated: SINCE, state: 'degraded', failing: undefined });
  health.change({ nodeIneligible: 'the node is being deleted' });
  const reasons = [{ message: 'the node is being deleted' }, {}];
  t.match(body(), { nodeEligible: false, failing: ['node-ineligible'], reasons });
  t.notOk('failing' in body('livez'));
});
