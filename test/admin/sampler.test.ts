import t from 'tap';
import {
  HISTORY_SAMPLES,
  SAMPLE_MS,
  MAX_HISTORIES,
  startSampler,
} from '../../src/admin/sampler.ts';
import {
  CONNECT_ERROR_CAUSES,
  newCounters,
  REJECT_COUNTERS,
  type Activity,
  type ServicePortCounters,
} from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { FakeClock } from '../support/fake-clock.ts';

function setup() {
  const clock = new FakeClock();
  const all = new Map<string, ServicePortCounters>();
  const read = (): ServicePortSnapshot[] =>
    [...all].map(([name, counters]) => {
      return { name, protocol: 'TCP', listeners: [], endpoints: 1, counters };
    });
  const seen: { looks: number; activity?: Activity } = { looks: 0 };
  const sampler = startSampler(clock, () => ({
    activity: () => seen.activity,
    names: () => [...all.keys()],
    snapshot(names) {
      seen.looks += 1;
      return read().filter(({ name }) => names?.has(name));
    },
  }));
  const counters = (name: string): ServicePortCounters => {
    const found = all.get(name) ?? newCounters();
    all.set(name, found);
    return found;
  };
  /** How many service ports have one. */
  const histories = () => [...all.keys()].filter((name) => sampler.history(name)).length;
  const sample = (times = 1) => clock.advance(times * SAMPLE_MS);
  return { clock, all, seen, sampler, counters, histories, sample };
}

t.test('rates are counts between two samples, per second', async (t) => {
  const { counters, sample, sampler } = setup();
  const a = counters('ns/a');
  Object.assign(a, { connections: 10, bytesIn: 4000 });
  a.connectErrors.refused = 2;
  a.rejectedLimit = 4;
  sample();
  const rates = { connections: 5, bytesIn: 2000, bytesOut: 0, errors: 3 };
  t.strictSame(sampler.ratesOf('ns/a'), rates);
  counters('ns/b').connections = 2;
  a.connections += 2;
  sample();
  t.equal(sampler.ratesOf('ns/a').connections, 1);
  t.equal(sampler.rates.connections, 2, 'of all together');
  sample();
  t.equal(sampler.rates.connections, 0, 'nothing happens any more');
  const [errors, causes] = [Object.values(REJECT_COUNTERS), a.connectErrors];
  for (const counter of errors) a[counter] += 2;
  for (const cause of CONNECT_ERROR_CAUSES) causes[cause] += 2;
  sample();
  const all = errors.length + CONNECT_ERROR_CAUSES.length;
  t.equal(sampler.ratesOf('ns/a').errors, all, 'each rejected client and failed attempt counts');
});

t.test('the history has the last five minutes, oldest first', async (t) => {
  const { counters, sample, sampler } = setup();
  const a = counters('ns/a');
  for (let second = 1; second <= 200; second += 1) {
    a.connections += second * 2;
    a.active = second;
    if (second > 195) a.bytesIn += 2000;
    sample();
  }
  const history = sampler.history('ns/a');
  t.equal(history?.connections.length, HISTORY_SAMPLES);
  t.equal(history?.connections[0], 51);
  t.equal(history?.connections.at(-1), 200);
  t.equal(history?.active.at(-1), 200);
  t.equal(history?.intervalSeconds, 2);
  t.strictSame(sampler.history(undefined)?.connections, history?.connections);
  const spark = sampler.sparkOf('ns/a') ?? [];
  t.equal(spark.length, 30);
  t.strictSame(spark.slice(-2), [0, 1000], 'a small plot is the mean of its parts');
});

t.test('only service ports with recent traffic have a history', async (t) => {
  const { all, counters, sample, sampler, histories } = setup();
  counters('ns/idle');
  const a = counters('ns/a');
  a.connections = 1;
  sample(2);
  t.equal(histories(), 1);
  sample(HISTORY_SAMPLES + 1);
  t.equal(histories(), 0);
  a.connections += 1;
  sample();
  t.strictSame(sampler.history('ns/a')?.connections, [0.5], 'a fresh one');
  all.delete('ns/a');
  sample();
  t.equal(sampler.history('ns/a'), undefined, 'removed');
  t.equal(sampler.ratesOf('ns/a').connections, 0);
});

t.test('the number of histories is limited; all service ports have rates', async (t) => {
  const { clock, counters, sample, sampler, histories } = setup();
  for (let index = 0; index < MAX_HISTORIES + 10; index += 1)
    counters(`ns/${index}`).connections = 2;
  sample();
  t.equal(histories(), MAX_HISTORIES);
  t.equal(sampler.ratesOf(`ns/${MAX_HISTORIES + 5}`).connections, 1);
  sampler.close();
  t.equal(clock.pending, 0);
});

t.test('without traffic, no service port is sampled, and the history continues', async (t) => {
  const { seen, sampler, counters, sample } = setup();
  const a = counters('ns/a');
  const passes = (samples: number, connections: number, looks: number): void => {
    sample(samples);
    t.equal(seen.looks, looks);
    t.equal(sampler.ratesOf('ns/a').connections, connections);
    t.equal(sampler.rates.connections, connections);
  };
  seen.activity = { servicePorts: 1, counted: 0, active: 0 };
  passes(10, 0, 1);
  Object.assign(a, { connections: 4, active: 2 });
  seen.activity = { servicePorts: 1, counted: 4, active: 2 };
  passes(1, 2, 2);
  passes(1, 0, 2);
  for (const name of ['ns/a', undefined]) {
    const { connections = [], active = [] } = sampler.history(name) ?? {};
    t.strictSame([connections.slice(-2), active.slice(-2)].join(), '2,0,2,2');
  }
  a.active = 0;
  seen.activity = { ...seen.activity, active: 0 };
  passes(HISTORY_SAMPLES, 0, 3);
  t.equal(sampler.history('ns/a'), undefined, 'nothing of it is left');
  delete seen.activity;
  passes(3, 0, 6);
});
