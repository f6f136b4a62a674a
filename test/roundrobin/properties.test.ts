import t from 'tap';
import * as fc from 'fast-check';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import type { BalancerEndpoint } from '../../src/roundrobin/endpoint.ts';
import { CLIENT_IP, endpoint, seeded, Subject } from '../support/balancer.ts';
import { holds } from '../support/property.ts';

const text = (which: number): string => `10.0.0.${which}:80`;
const TRAFFIC = ['internal', 'external'] as const;

t.test('fairness: two that stay never differ by more than one while others change', async (t) => {
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.constant('pick' as const) },
    { weight: 1, arbitrary: fc.nat(7) },
  );
  const property = fc.property(fc.array(step, { maxLength: 150 }), fc.nat(), (steps, seed) => {
    const subject = new Subject({ random: seeded(seed) });
    const staying = [100, 101, 102];
    const present = new Set(staying);
    const apply = (): string[] => subject.set(...[...present].map(text));
    apply();
    const counts = new Map(staying.map((which) => [text(which), 0]));
    const lead = new Map<string, { low: number; high: number }>();
    for (const each of steps) {
      if (each !== 'pick') {
        if (!present.delete(each)) present.add(each);
        apply();
        continue;
      }
      const picked = subject.next();
      const count = counts.get(picked);
      if (count !== undefined) counts.set(picked, count + 1);
      for (const [a, ofA] of counts) {
        for (const [b, ofB] of counts) {
          // Over every stretch of time: the spread of the advance, not only its last value.
          const spread = lead.get(a + b) ?? { low: 0, high: 0 };
          spread.low = Math.min(spread.low, ofA - ofB);
          spread.high = Math.max(spread.high, ofA - ofB);
          lead.set(a + b, spread);
          if (spread.high - spread.low > 1) return false;
        }
      }
    }
    return true;
  });
  holds(t, property);
});

/** Of a few, so that lists have some of the same objects. */
const POOL = Array.from({ length: 8 }, (_, which) =>
  (['both', 'internal', 'external', 'neither'] as const).map((allowed) =>
    endpoint(which % 3 === 0 ? `fd00::${which}:80` : text(which), allowed),
  ),
).flat();

const textOf = ({ address, port }: EndpointSpec): string =>
  address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;

const lists = fc.uniqueArray(fc.constantFrom(...POOL), { maxLength: 6, selector: textOf });

const does = <K extends string, T>(
  weight: number,
  kind: K,
  model: { [P in keyof T]: fc.Arbitrary<T[P]> },
) => ({ weight, arbitrary: fc.record(model).map((rest) => Object.assign(rest, { kind })) });

/** Anything that can happen to a balancer, in any order. */
const anything = fc.array(
  fc.oneof(
    does(5, 'pick', {
      client: fc.nat(9),
      traffic: fc.constantFrom(...TRAFFIC),
      family: fc.constantFrom(4 as const, 6 as const),
      triesBefore: fc.nat(3),
    }),
    does(1, 'update', { specs: lists }),
    does(1, 'fail', { which: fc.nat(7) }),
    does(1, 'connect', { which: fc.nat(7) }),
    does(1, 'wait', { ms: fc.nat(40_000) }),
    does(1, 'affinity', { timeoutSeconds: fc.nat(60) }),
  ),
  { maxLength: 80 },
);

t.test('never picks a removed or disallowed endpoint; always picks one if possible', async (t) => {
  const property = fc.property(anything, fc.nat(), (steps, seed) => {
    const random = seeded(seed);
    const subject = new Subject({ random, affinity: CLIENT_IP, affinityLimit: { maxClients: 5 } });
    const { balancer } = subject;
    const gone = new Set<BalancerEndpoint>();
    let allowed = new Map<string, EndpointSpec>();
    for (const step of steps) {
      if (step.kind === 'update') {
        const before = allowed;
        allowed = new Map(step.specs.map((spec) => [textOf(spec), spec]));
        const left = [...before.keys()].filter((key) => !allowed.has(key));
        const removed = balancer.update(step.specs);
        const texts = removed.map((each) => each.text);
        if (texts.sort().join() !== left.sort().join()) return false;
        for (const each of removed) gone.add(each);
      } else if (step.kind === 'pick') {
        const { client, traffic, family } = step;
        const could = [...allowed.values()].filter((each) => each[traffic]);
        const own = could.filter(({ address }) => address.includes(':') === (family === 6));
        const choice = own.length > 0 ? own : could;
        const tried: BalancerEndpoint[] = [];
        for (let attempt = 0; attempt <= step.triesBefore; attempt += 1) {
          const picked = subject.pick(String(client), { traffic, family, tried });
          if (picked === undefined ? could.length > 0 : gone.has(picked)) return false;
          if (picked === undefined) break;
          if (allowed.get(picked.text)?.[traffic] !== true) return false;
          if (attempt < choice.length && tried.includes(picked)) return false;
          tried.push(picked);
        }
      } else if (step.kind === 'wait') {
        subject.clock.advance(step.ms);
      } else if (step.kind === 'affinity') {
        const { timeoutSeconds } = step;
        balancer.setAffinity(
          timeoutSeconds === 0 ? { kind: 'none' } : { kind: 'clientIP', timeoutSeconds },
        );
      } else {
        const member = balancer.endpoints()[step.which];
        if (member !== undefined && step.kind === 'fail') balancer.connectFailed(member, 'refused');
        if (member !== undefined && step.kind === 'connect') balancer.connected(member);
      }
      if (subject.clients > 5 || balancer.size !== allowed.size) return false;
    }
    return true;
  });
  holds(t, property);
});

t.test('the first order favours none', async (t) => {
  const counts = new Map<string, number>();
  const random = seeded(7);
  for (let round = 0; round < 6000; round += 1) {
    const order = new Subject({ random }).with(text(1), text(2), text(3)).many(3).join();
    counts.set(order, (counts.get(order) ?? 0) + 1);
  }
  t.equal(counts.size, 6);
  for (const count of counts.values()) t.ok(count > 850 && count < 1150, `${count} of about 1000`);
});
