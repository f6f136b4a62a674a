import * as fc from 'fast-check';
import t from 'tap';
import {
  Health,
  INITIAL_FACTS,
  evaluate,
  SYNC_FAILURE_LIMIT_MS,
  type HealthFacts,
  type Probe,
} from '../../src/observe/health.ts';

const T0 = Date.UTC(2026, 0, 1);
const PROBES: readonly Probe[] = ['healthz', 'livez', 'readyz'];

function statuses(facts: HealthFacts, now = T0): number[] {
  return PROBES.map((probe) => evaluate(facts, [], probe, now).status);
}

const working: HealthFacts = { ...INITIAL_FACTS, firstSyncAt: T0, lastSyncAt: T0 };

t.test('before the first complete state: not healthy, not ready, but alive', (t) => {
  t.same(statuses(INITIAL_FACTS), [503, 200, 503]);
  t.same(evaluate(INITIAL_FACTS, [], 'healthz', T0).body, {
    lastUpdated: null,
    currentTime: '2026-01-01T00:00:00.000Z',
    nodeEligible: true,
    failing: ['waiting for the first complete state'],
  });
  t.end();
});

t.test('with a state and nothing wrong: three times 200, and up to date now', (t) => {
  t.same(statuses(working, T0 + 3_600_000), [200, 200, 200]);
  t.same(evaluate(working, [], 'healthz', T0 + 3_600_000).body, {
    lastUpdated: '2026-01-01T01:00:00.000Z',
    currentTime: '2026-01-01T01:00:00.000Z',
    nodeEligible: true,
  });
  t.end();
});

t.test('a source that is away degrades, and never fails', (t) => {
  const lost = { ...working, sourceLost: { since: T0 + 1000, code: 'KPNG_SOURCE_LOST' } };
  const muchLater = T0 + 7 * 86_400_000;
  t.same(statuses(lost, muchLater), [200, 200, 200]);
  const { body } = evaluate(lost, [], 'healthz', muchLater);
  t.same(body.degraded, ['source lost since 2026-01-01T00:00:01.000Z (KPNG_SOURCE_LOST)']);
  t.equal(body.lastUpdated, '2026-01-01T00:00:00.000Z', 'the state is as old as it is');
  const bad = { ...working, sourceLost: { since: T0, code: 'KPNG_STATE_FILE_INVALID' } };
  t.match(evaluate(bad, [], 'healthz', T0).body.degraded, [
    /^state file not usable since .*INVALID\)$/,
  ]);
  t.end();
});

t.test('changes that fail are a warning first, and a failure after a minute', (t) => {
  const failing = { ...working, syncFailing: { since: T0, code: 'KPNG_SINK_FAILED' } };
  t.same(statuses(failing, T0 + SYNC_FAILURE_LIMIT_MS - 1), [200, 200, 200]);
  t.match(evaluate(failing, [], 'livez', T0 + 1).body.degraded, [/KPNG_SINK_FAILED/]);
  t.same(statuses(failing, T0 + SYNC_FAILURE_LIMIT_MS), [503, 503, 503]);
  const { body } = evaluate(failing, [], 'livez', T0 + SYNC_FAILURE_LIMIT_MS);
  t.match(body.failing, [/since 2026-01-01T00:00:00.000Z \(KPNG_SINK_FAILED\)/]);
  t.end();
});

t.test('a process that stops takes no more traffic but is not to be restarted', (t) => {
  t.same(statuses({ ...working, stopping: true }), [503, 200, 503]);
  t.end();
});

t.test('problems of single services degrade, summed by code and without names', (t) => {
  const problems = [
    { code: 'KPNG_LISTEN_PERMISSION', count: 2 },
    { code: 'KPNG_PORTAL_CONFLICT', count: 1 },
    { code: 'KPNG_LISTEN_PERMISSION', count: 3 },
  ];
  const { status, body } = evaluate(working, problems, 'healthz', T0);
  t.equal(status, 200);
  t.same(body.degraded, [
    '5 not served (KPNG_LISTEN_PERMISSION)',
    '1 not served (KPNG_PORTAL_CONFLICT)',
  ]);
  t.end();
});

t.test('facts are taken up one by one', (t) => {
  let now = T0;
  const health = new Health(() => now);
  t.equal(health.evaluate('readyz').status, 503);
  health.sourceLost('KPNG_SOURCE_LOST');
  now += 5000;
  health.sourceLost('KPNG_SOURCE_LOST');
  t.equal(health.facts.sourceLost?.since, T0, 'the first failure counts');
  health.sourceConnected();
  t.equal(health.facts.sourceLost, undefined);
  health.syncFailed('KPNG_SINK_FAILED');
  t.equal(health.evaluate('readyz').status, 503, 'a failure is no first state');
  now += 5000;
  health.synced();
  t.equal(health.evaluate('readyz').status, 200);
  t.equal(health.facts.syncFailing, undefined);
  now += 5000;
  health.synced();
  t.match(health.facts, { firstSyncAt: T0 + 10_000, lastSyncAt: T0 + 15_000 });
  health.readProblemsFrom(() => [{ code: 'KPNG_SERVICE_INVALID', count: 1 }]);
  t.match(health.evaluate('healthz').body.degraded, [/KPNG_SERVICE_INVALID/]);
  health.stopping();
  t.equal(health.evaluate('readyz').status, 503);
  t.end();
});

t.test('whatever happens: no 200 without a first state, none without reasons for a 503', (t) => {
  const step = fc.constantFrom('synced', 'failed', 'lost', 'connected', 'stopping', 'wait');
  const outcome = fc.check(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      let now = T0;
      let everSynced = false;
      const health = new Health(() => now);
      for (const each of steps) {
        if (each === 'synced') {
          health.synced();
          everSynced = true;
        } else if (each === 'failed') health.syncFailed('KPNG_SINK_FAILED');
        else if (each === 'lost') health.sourceLost('KPNG_SOURCE_LOST');
        else if (each === 'connected') health.sourceConnected();
        else if (each === 'stopping') health.stopping();
        else now += 45_000;
      }
      return PROBES.every((probe) => {
        const { status, body } = health.evaluate(probe);
        if (!everSynced && probe !== 'livez' && status === 200) return false;
        return (status === 503) === (body.failing !== undefined);
      });
    }),
    { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false },
  );
  t.notOk(outcome.failed, JSON.stringify(outcome.counterexample));
  t.end();
});

t.test('a node that is to be deleted fails healthz only, and says so everywhere', (t) => {
  const leaving = { ...working, nodeIneligible: 'the node is being deleted' };
  t.same(statuses(leaving), [503, 200, 200]);
  t.match(evaluate(leaving, [], 'healthz', T0).body, {
    nodeEligible: false,
    failing: ['the node is being deleted'],
  });
  const { body } = evaluate(leaving, [], 'livez', T0);
  t.equal(body.nodeEligible, false);
  t.notOk('failing' in body);
  t.end();
});

t.test('a change that waits for too long fails, even if nothing says that it did', (t) => {
  let now = T0;
  const health = new Health(() => now);
  const seen = (): number[] => PROBES.map((probe) => health.evaluate(probe).status);
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
  t.match(health.evaluate('livez').body.failing, [/^a change has been waiting since 2026/]);
  health.syncFailed('KPNG_SINK_FAILED');
  t.same(seen(), [200, 200, 200], 'from now on the failure counts');
  health.syncStarted();
  health.synced();
  now += SYNC_FAILURE_LIMIT_MS;
  t.same(seen(), [200, 200, 200]);
  t.end();
});

t.test('a process that is drained by hand gets no traffic, and may take it again', (t) => {
  const health = new Health(() => T0);
  health.synced();
  health.draining(true);
  t.same(
    PROBES.map((probe) => health.evaluate(probe).status),
    [503, 200, 503],
  );
  t.match(health.evaluate('readyz').body.failing, ['drained']);
  health.draining(false);
  t.same(
    PROBES.map((probe) => health.evaluate(probe).status),
    [200, 200, 200],
  );
  t.end();
});
