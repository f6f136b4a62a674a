import * as fc from 'fast-check';
import t from 'tap';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { endpoint, seeded, Subject } from '../support/balancer.ts';
import { holds } from '../support/property.ts';

const spec: fc.Arbitrary<EndpointSpec> = fc
  .tuple(fc.nat(9), fc.constantFrom('both', 'internal', 'external', 'neither'))
  .map(([which, allowed]) => endpoint(`10.0.0.${which}:80`, allowed as 'both'));

/** Lists that have objects of the former lists in them, in the same order or another. */
const lists = fc
  .tuple(fc.array(spec, { minLength: 1, maxLength: 12 }), fc.array(fc.array(fc.nat(11))))
  .map(([pool, picks]) =>
    picks.map((indexes) => indexes.map((index) => pool[index % pool.length] as EndpointSpec)),
  );

function seen(subject: Subject, list: readonly EndpointSpec[]): unknown {
  const gone = subject.set(...list);
  const turns = (traffic: 'internal' | 'external') => list.map(() => subject.for(traffic));
  const all = subject.balancer.endpoints().map(({ text }) => text);
  return [gone, all, turns('internal'), turns('external')];
}

t.test(
  'an update means the same whether its objects are those of the last one or equal ones',
  async (t) => {
    holds(
      t,
      fc.property(lists, fc.nat(), (steps, seed) => {
        const same = new Subject({ random: seeded(seed) });
        const equal = new Subject({ random: seeded(seed) });
        return steps.every((list) => {
          const copies = list.map((each) => ({ ...each }));
          return JSON.stringify(seen(same, list)) === JSON.stringify(seen(equal, copies));
        });
      }),
    );
  },
);

t.test(
  'what all listings of an endpoint allow is allowed, and no more than the last ones do',
  async (t) => {
    const subject = new Subject();
    const inside = endpoint('10.0.0.1:80', 'internal');
    const outside = endpoint('10.0.0.1:80', 'external');
    const allowed = () => [subject.for('internal'), subject.for('external')];
    subject.set(inside, outside);
    t.strictSame(allowed(), ['10.0.0.1:80', '10.0.0.1:80']);
    t.equal(subject.balancer.size, 1);
    subject.set(inside);
    t.strictSame(allowed(), ['10.0.0.1:80', 'none']);
    subject.set(outside, inside);
    t.strictSame(allowed(), ['10.0.0.1:80', '10.0.0.1:80']);
    subject.set(outside, outside);
    t.strictSame(allowed(), ['none', '10.0.0.1:80']);
  },
);

t.test('only endpoints that are not there yet are looked at, however many stay', async (t) => {
  const { balancer } = new Subject();
  const asked: string[] = [];
  const admits = ({ address }: EndpointSpec): boolean => {
    asked.push(address);
    return address !== '10.0.0.2';
  };
  const [one, two, three, four] = [1, 2, 3, 4].map((which) => endpoint(`10.0.0.${which}:80`));
  if (!one || !two || !three || !four) throw new Error('four were made');
  balancer.update([one, two, three], admits);
  t.strictSame(asked.splice(0), ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  t.strictSame(
    balancer
      .endpoints()
      .map(({ text }) => text)
      .sort(),
    ['10.0.0.1:80', '10.0.0.3:80'],
  );
  const gone = balancer.update([four, one, two], admits);
  t.strictSame(
    gone.map(({ text }) => text),
    ['10.0.0.3:80'],
  );
  t.strictSame(asked, ['10.0.0.4', '10.0.0.2'], 'what was refused is asked about again');
});
