import t from 'tap';
import { HISTORY_SAMPLES, SAMPLE_MS } from '../../src/admin/history.ts';
import { MAX_HISTORIES, Sampler } from '../../src/admin/sampler.ts';
import {
  CONNECT_ERROR_CAUSES,
  newCounters,
  REJECT_COUNTERS,
  type Activity,
  type ServicePortCounters,
} from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { FakeClock } from '../support/fake-clock.ts';

class Rig {
  readonly clock = new FakeClock();
  readonly counters = new Map<string, ServicePortCounters>();
  readonly sampler = new Sampler({
    clock: this.clock,
    names: () => [...this.counters.keys()],
    snapshot: (names) => this.#snapshot().filter(({ name }) => names?.has(name)),
  });

  of(name: string): ServicePortCounters {
    const counters = this.counters.get(name) ?? newCounters();
    this.counters.set(name, counters);
    return counters;
  }

  /** How many service ports have one. */
  get histories(): number {
    return [...this.counters.keys()].filter((name) => this.sampler.history(name)).length;
  }

  sample(times = 1): void {
    this.clock.advance(times * SAMPLE_MS);
  }

  #snapshot(): ServicePortSnapshot[] {
    return [...this.counters].map(([name, counters]) => {
      return { name, protocol: 'TCP', listeners: [], endpoints: 1, counters };
    });
  }
}

t.test('rates are counts between two samples, per second', (t) => {
  const rig = new Rig();
  const a = rig.of('ns/a');
  a.connections = 10;
  a.bytesIn = 4000;
  a.connectErrors.refused = 2;
  a.rejectedLimit = 4;
  rig.sample();
  t.strictSame(rig.sampler.ratesOf('ns/a'), {
    connections: 5,
    bytesIn: 2000,
    bytesOut: 0,
    errors: 3,
  });
  rig.of('ns/b').bytesOut = 0;
  rig.of('ns/b').connections = 2;
  a.connections += 2;
  rig.sample();
  t.equal(rig.sampler.ratesOf('ns/a').connections, 1);
  t.equal(rig.sampler.rates.connections, 2, 'of all together');
  rig.sample();
  t.equal(rig.sampler.rates.connections, 0, 'nothing happens any more');
  t.end();
});

t.test('every rejected client and every failed attempt counts as an error', (t) => {
  const rig = new Rig();
  const a = rig.of('ns/a');
  for (const counter of Object.values(REJECT_COUNTERS)) {
    a[counter] += SAMPLE_MS / 1000;
    rig.sample();
    t.equal(rig.sampler.ratesOf('ns/a').errors, 1, counter);
  }
  for (const cause of CONNECT_ERROR_CAUSES) {
    a.connectErrors[cause] += SAMPLE_MS / 1000;
    rig.sample();
    t.equal(rig.sampler.ratesOf('ns/a').errors, 1, cause);
  }
  t.end();
});

t.test('the history has the last five minutes, oldest first', (t) => {
  const rig = new Rig();
  const a = rig.of('ns/a');
  for (let second = 1; second <= 200; second += 1) {
    a.connections += second * 2;
    a.active = second;
    rig.sample();
  }
  const history = rig.sampler.history('ns/a');
  t.equal(history?.connections.length, HISTORY_SAMPLES);
  t.equal(history?.connections[0], 51);
  t.equal(history?.connections.at(-1), 200);
  t.equal(history?.active.at(-1), 200);
  t.equal(history?.intervalSeconds, 2);
  t.strictSame(rig.sampler.history(undefined)?.connections, history?.connections);
  t.end();
});

t.test('a small plot is the mean of its parts', (t) => {
  const rig = new Rig();
  const a = rig.of('ns/a');
  a.connections = 1;
  for (let sample = 0; sample < HISTORY_SAMPLES; sample += 1) {
    if (sample >= HISTORY_SAMPLES - 5) a.bytesIn += 2000;
    else a.connections += 1;
    rig.sample();
  }
  const spark = rig.sampler.sparkOf('ns/a') ?? [];
  t.equal(spark.length, 30);
  t.strictSame(spark.slice(-2), [0, 1000]);
  t.end();
});

t.test('only service ports with recent traffic have a history', (t) => {
  const rig = new Rig();
  rig.of('ns/idle');
  const a = rig.of('ns/a');
  a.connections = 1;
  rig.sample(2);
  t.equal(rig.histories, 1);
  t.equal(rig.sampler.history('ns/idle'), undefined);
  rig.sample(HISTORY_SAMPLES + 1);
  t.equal(rig.histories, 0);
  t.equal(rig.sampler.history('ns/a'), undefined);
  a.connections += 1;
  rig.sample();
  t.strictSame(rig.sampler.history('ns/a')?.connections, [0.5], 'a fresh one');
  t.end();
});

t.test('removed service ports are forgotten', (t) => {
  const rig = new Rig();
  rig.of('ns/a').connections = 1;
  rig.sample();
  rig.counters.delete('ns/a');
  rig.sample();
  t.equal(rig.sampler.history('ns/a'), undefined);
  t.equal(rig.sampler.ratesOf('ns/a').connections, 0);
  t.end();
});

t.test('the number of histories is limited; all service ports have rates', (t) => {
  const rig = new Rig();
  for (let index = 0; index < MAX_HISTORIES + 10; index += 1) rig.of(`ns/${index}`).connections = 2;
  rig.sample();
  t.equal(rig.histories, MAX_HISTORIES);
  t.equal(rig.sampler.ratesOf(`ns/${MAX_HISTORIES + 5}`).connections, 1);
  t.end();
});

t.test('closing stops its timer', (t) => {
  const rig = new Rig();
  rig.sampler.close();
  t.equal(rig.clock.pending, 0);
  t.end();
});

t.test('without traffic, no service port is sampled, and the history continues', (t) => {
  const clock = new FakeClock();
  const counters = newCounters();
  let looks = 0;
  let activity: Activity | undefined = { servicePorts: 1, counted: 0, active: 0 };
  const sampler = new Sampler({
    clock,
    activity: () => activity,
    snapshot() {
      looks += 1;
      return [{ name: 'ns/a', protocol: 'TCP', listeners: [], endpoints: 1, counters }];
    },
  });
  clock.advance(10 * SAMPLE_MS);
  t.equal(looks, 1);
  counters.connections = 4;
  counters.active = 2;
  activity = { servicePorts: 1, counted: 4, active: 2 };
  clock.advance(SAMPLE_MS);
  t.equal(looks, 2);
  t.equal(sampler.ratesOf('ns/a').connections, 2);
  clock.advance(SAMPLE_MS);
  t.equal(looks, 2);
  t.equal(sampler.ratesOf('ns/a').connections, 0);
  t.equal(sampler.rates.connections, 0);
  const last = (name: string | undefined) => {
    const { connections = [], active = [] } = sampler.history(name) ?? {};
    return [connections.slice(-2), active.slice(-2)];
  };
  for (const name of ['ns/a', undefined])
    t.strictSame(last(name), [
      [2, 0],
      [2, 2],
    ]);
  counters.active = 0;
  activity = { servicePorts: 1, counted: 4, active: 0 };
  clock.advance(HISTORY_SAMPLES * SAMPLE_MS);
  t.equal(looks, 3);
  t.equal(sampler.history('ns/a'), undefined, 'nothing of it is left');
  activity = undefined;
  clock.advance(3 * SAMPLE_MS);
  t.equal(looks, 6, 'an engine that does not report is looked at each time');
  sampler.close();
  t.end();
});
