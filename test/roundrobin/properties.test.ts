import t from 'tap';
import * as fc from 'fast-check';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import type { BalancerEndpoint } from '../../src/roundrobin/types.ts';
import { CLIENT_IP, endpoint, seeded, Subject } from '../support/balancer.ts';
import { holds } from '../support/property.ts';

const text = (which: number): string => `10.0.0.${which}:80`;

t.test(
  'fairness: while others come and go, two that stay never differ by more than one',
  async (t) => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.constant('pick' as const) },
      { weight: 1, arbitrary: fc.nat(7) },
    );
    holds(
      t,
      fc.property(fc.array(step, { maxLength: 150 }), fc.nat(), (steps, seed) => {
        const subject = new Subject({ random: seeded(seed) });
        const present = new Set<number>([100, 101, 102]);
        const apply = (): string[] => subject.set(...[...present].map(text));
        apply();
        const counts = new Map([100, 101, 102].map((which) => [text(which), 0]));
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
      }),
    );
  },
);

/** Anything that can happen to a balancer, in any order. */
const anything = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant('pick' as const),
        client: fc.nat(9),
        traffic: fc.constantFrom('internal' as const, 'external' as const),
        family: fc.constantFrom(4 as const, 6 as const),
        triesBefore: fc.nat(3),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constantFrom('update' as const, 'patch' as const),
        set: fc.array(
          fc.record({
            which: fc.nat(7),
            allowed: fc.constantFrom('both', 'internal', 'external', 'neither'),
          }),
          { maxLength: 6 },
        ),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constantFrom('fail', 'connect'), which: fc.nat(7) }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(40_000) }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant('affinity' as const),
        timeoutSeconds: fc.nat(60),
      }),
    },
  ),
  { maxLength: 80 },
);

t.test(
  'never picks a removed or disallowed endpoint, and always picks one if possible',
  async (t) => {
    holds(
      t,
      fc.property(anything, fc.nat(), (steps, seed) => {
        const subject = new Subject({
          random: seeded(seed),
          affinity: CLIENT_IP,
          maxAffinityClients: 5,
        });
        const address = (which: number): string =>
          which % 3 === 0 ? `fd00::${which}:80` : text(which);
        // Lists have some of the same objects.
        const objects = new Map<string, EndpointSpec>();
        const known = (which: number, traffic: string): EndpointSpec => {
          const spec = objects.get(`${which} ${traffic}`);
          const made = spec ?? endpoint(address(which), traffic as 'both');
          objects.set(`${which} ${traffic}`, made);
          return made;
        };
        const gone = new Set<BalancerEndpoint>();
        let allowed = new Map<string, Set<string>>();
        for (const step of steps) {
          if ('set' in step) {
            const before = [...allowed.keys()];
            const specs = step.set.map(({ which, allowed: traffic }) => known(which, traffic));
            allowed = new Map();
            for (const spec of specs) {
              const key = spec.address.includes(':')
                ? `[${spec.address}]:80`
                : `${spec.address}:80`;
              const kinds = allowed.get(key) ?? new Set<string>();
              if (spec.internal) kinds.add('internal');
              if (spec.external) kinds.add('external');
              allowed.set(key, kinds);
            }
            const left = before.filter((key) => !allowed.has(key));
            const leaving = left.map((key) => endpoint(key.replace(/[[\]]/g, '')));
            const set = [...allowed].map(([key, kinds]) =>
              Object.assign(endpoint(key.replace(/[[\]]/g, '')), {
                internal: kinds.has('internal'),
                external: kinds.has('external'),
              }),
            );
            const removed =
              step.kind === 'update'
                ? subject.balancer.update(specs)
                : subject.balancer.patch({ removed: leaving, set });
            if (
              removed
                .map((each) => each.text)
                .sort()
                .join() !== left.sort().join()
            )
              return false;
            for (const each of removed) gone.add(each);
          } else if (step.kind === 'pick') {
            const { client, traffic, family } = step;
            const could = [...allowed.values()].filter((kinds) => kinds.has(traffic)).length;
            const tried: BalancerEndpoint[] = [];
            for (let attempt = 0; attempt <= step.triesBefore; attempt += 1) {
              const picked = subject.pick(String(client), { traffic, family, tried });
              if ((picked === undefined) !== (could === 0)) return false;
              if (picked === undefined) break;
              if (gone.has(picked) || allowed.get(picked.text)?.has(traffic) !== true) return false;
              const sameFamily = [...allowed].filter(
                ([key, kinds]) => kinds.has(traffic) && key.startsWith('[') === (family === 6),
              ).length;
              const choice = sameFamily > 0 ? sameFamily : could;
              if (attempt < choice && tried.includes(picked)) return false;
              tried.push(picked);
            }
          } else if (step.kind === 'wait') subject.clock.advance(step.ms);
          else if (step.kind === 'affinity') {
            subject.balancer.setAffinity(
              step.timeoutSeconds === 0
                ? { kind: 'none' }
                : { kind: 'clientIP', timeoutSeconds: step.timeoutSeconds },
            );
          } else {
            const member = subject.balancer.endpoints()[step.which];
            if (member !== undefined) {
              if (step.kind === 'fail') subject.balancer.connectFailed(member, 'refused');
              else subject.balancer.connected(member);
            }
          }
          if (subject.balancer.affinityClients > 5) return false;
          if (subject.balancer.size !== allowed.size) return false;
        }
        return true;
      }),
    );
  },
);

t.test('the first order favours none', async (t) => {
  const counts = new Map<string, number>();
  const random = seeded(7);
  for (let round = 0; round < 6000; round += 1) {
    const subject = new Subject({ random });
    subject.set(text(1), text(2), text(3));
    const order = subject.many(3).join();
    counts.set(order, (counts.get(order) ?? 0) + 1);
  }
  t.equal(counts.size, 6);
  for (const count of counts.values()) t.ok(count > 850 && count < 1150, `${count} of about 1000`);
});
