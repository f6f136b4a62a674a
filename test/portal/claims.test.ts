import t from 'tap';
import * as fc from 'fast-check';
import { claimKey, ClaimTable, type Claim } from '../../src/portal/claims.ts';
import { overlap } from '../support/fake-engine.ts';
import { holds } from '../support/property.ts';

type Table = ClaimTable<Claim>;

/** `10.0.0.1:80`, `:80` for the wildcard, `udp 10.0.0.1:80`. */
function claim(text: string): Claim {
  const udp = text.startsWith('udp ');
  const place = udp ? text.slice(4) : text;
  const at = place.lastIndexOf(':');
  const address = place.slice(0, at) || '0.0.0.0';
  const port = Number(place.slice(at + 1));
  const protocol = udp ? 'UDP' : 'TCP';
  return {
    portal: { kind: 'externalIP', protocol, address, port, traffic: 'external', sourceRanges: [] },
    address,
    port,
  };
}

const holdsClaim = (table: Table, owner: string, wanted: Claim): boolean =>
  table.held(owner).some((each) => claimKey(each) === claimKey(wanted));

/** Sets and removes, and returns the owners that were affected, in order. */
function update(table: Table, set: Record<string, string[]>, remove: string[] = []): string[] {
  const claims = new Map(Object.entries(set).map(([owner, list]) => [owner, list.map(claim)]));
  return [...table.update(claims, remove)].sort();
}

/** The claim that the problem names, and how many wait. */
function waiting(table: Table): [number, string?] {
  const problem = table.problem(claimKey);
  if (problem === undefined) return [0];
  return [problem.count ?? 1, problem.message.replace(/ has it, .*$/, '')];
}

t.test('who has a place keeps it, and the next one gets it when it is free', async (t) => {
  const table = new ClaimTable<Claim>();
  t.same(update(table, { b: ['10.0.0.1:80'] }), ['b']);
  t.same(update(table, { a: ['10.0.0.1:80'], c: ['10.0.0.1:80'] }), []);
  t.same(waiting(table), [2, 'a cannot have TCP 10.0.0.1 80: b']);
  t.same(update(table, {}, ['b']), ['a', 'b']);
  t.same(waiting(table), [1, 'c cannot have TCP 10.0.0.1 80: a']);
  t.same(update(table, { a: [] }), ['a', 'c'], 'giving up a place counts as removing it');
  t.ok(holdsClaim(table, 'c', claim('10.0.0.1:80')));
  t.same(waiting(table), [0]);
});

t.test('N2: among newcomers the first by name wins, whatever the order they come in', async (t) => {
  for (const order of [
    ['x', 'y'],
    ['y', 'x'],
  ]) {
    const table = new ClaimTable<Claim>();
    update(table, Object.fromEntries(order.map((owner) => [owner, [':30080']])));
    t.ok(holdsClaim(table, 'x', claim(':30080')));
    t.same(update(table, { z: ['udp :30080'] }), ['z'], 'the other protocol is another place');
  }
});

t.test('a place can move from one to another in one update', async (t) => {
  const table = new ClaimTable<Claim>();
  update(table, { a: ['10.0.0.1:80', '10.0.0.2:80'] });
  t.same(update(table, { a: ['10.0.0.2:80'], b: ['10.0.0.1:80'] }), ['a', 'b']);
  t.same(update(table, { a: ['10.0.0.1:80'], b: ['10.0.0.2:80'] }), ['a', 'b'], 'and be swapped');
  t.same(waiting(table), [0]);
});

t.test(
  'the wildcard and a single address with the same port are in each other’s way',
  async (t) => {
    const table = new ClaimTable<Claim>();
    update(table, { single: ['127.0.0.1:80'] });
    update(table, { wild: [':80'] });
    update(table, { other: ['127.0.0.2:80'] });
    t.same(waiting(table), [1, 'wild cannot have TCP 0.0.0.0 80: single']);
    t.same(update(table, {}, ['single']), ['single']);
    t.same(
      waiting(table),
      [1, 'wild cannot have TCP 0.0.0.0 80: other'],
      'one is enough to be in the way',
    );
    t.same(update(table, {}, ['other']), ['other', 'wild']);
    t.same(update(table, { late: ['127.0.0.3:80'], six: ['::1:80'] }), ['six']);
    t.same(
      waiting(table),
      [1, 'late cannot have TCP 127.0.0.3 80: wild'],
      'but the other family is free',
    );
  },
);

t.test('when a wildcard goes, all the single addresses that waited get theirs', async (t) => {
  const table = new ClaimTable<Claim>();
  update(table, { wild: [':80'] });
  update(table, { a: ['127.0.0.1:80'], b: ['127.0.0.2:80'], c: ['127.0.0.1:80'] });
  t.equal(waiting(table)[0], 3);
  t.same(update(table, {}, ['wild']), ['a', 'b', 'wild']);
  t.same(waiting(table), [1, 'c cannot have TCP 127.0.0.1 80: a']);
});

t.test('asking twice for one place is asking once', async (t) => {
  const table = new ClaimTable<Claim>();
  t.same(update(table, { a: ['10.0.0.1:80', '10.0.0.1:80'] }), ['a']);
  t.same(update(table, { a: ['10.0.0.1:80'] }), []);
  t.same(update(table, {}, ['a', 'nobody']), ['a']);
});

t.test(
  'hundreds of thousands of claims that are not met cost a later update nothing',
  async (t) => {
    const table = new ClaimTable<Claim>();
    let reads = 0;
    // Looking at a claim means to read its address or its portal.
    const counted = (address: string): Claim => {
      const { portal } = claim(`${address}:80`);
      return {
        port: 80,
        get portal() {
          reads += 1;
          return portal;
        },
        get address() {
          reads += 1;
          return address;
        },
      };
    };
    const addresses = Array.from({ length: 1000 }, (_, n) => `10.1.${n >> 8}.${n & 255}`);
    const claims = addresses.map(counted);
    table.update(new Map(['a', 'b', 'c', 'd', 'e'].map((owner) => [owner, claims])), []);
    t.same(waiting(table)[0], 4000);
    const cost = (action: () => unknown): number => {
      reads = 0;
      action();
      return reads;
    };
    t.ok(cost(() => waiting(table)) < 20, 'one is described, whatever their number');
    t.ok(cost(() => table.update(new Map([['new', [counted('10.2.0.1')]]]), [])) < 40);
    t.ok(cost(() => table.update(new Map(), ['new'])) < 40, 'on the same port as all of them');
    table.update(new Map([['b', claims.slice(1)]]), []);
    t.same(waiting(table), [3999, 'c cannot have TCP 10.1.0.0 80: a'], 'the next one is named');
  },
);

t.test('whatever happens, holders never overlap and nobody waits without a reason', async (t) => {
  const place = fc.constantFrom(
    '10.0.0.1:80',
    '10.0.0.2:80',
    ':80',
    '::1:80',
    ':::80',
    '10.0.0.1:81',
  );
  const step = fc.record({
    set: fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd'), fc.array(place, { maxLength: 3 })),
    remove: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 2 }),
  });
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const table = new ClaimTable<Claim>();
      const wanted = new Map<string, Claim[]>();
      for (const { set, remove } of steps) {
        const before = new Set(
          held(table, wanted).map(({ owner, claim }) => owner + claimKey(claim)),
        );
        const kept = new Map(wanted);
        for (const owner of remove) wanted.delete(owner);
        for (const [owner, list] of Object.entries(set)) wanted.set(owner, list.map(claim));
        update(table, set, remove);
        const holders = held(table, wanted);
        const stillWanted = [...kept].flatMap(([owner, claims]) =>
          claims.flatMap((each) => {
            const wants = wanted.get(owner)?.some((other) => claimKey(other) === claimKey(each));
            return wants === true ? [owner + claimKey(each)] : [];
          }),
        );
        const now = new Set(holders.map(({ owner, claim }) => owner + claimKey(claim)));
        if (stillWanted.some((key) => before.has(key) && !now.has(key))) return false;
        for (const [index, one] of holders.entries()) {
          for (const other of holders.slice(index + 1))
            if (collide(one.claim, other.claim)) return false;
        }
        const unmet = [...wanted].flatMap(([owner, claims]) => {
          const keys = new Map(claims.map((each) => [claimKey(each), each]));
          return [...keys.values()].filter((each) => !holdsClaim(table, owner, each));
        });
        if (unmet.length !== waiting(table)[0]) return false;
        if (unmet.some((each) => !holders.some((holder) => collide(holder.claim, each))))
          return false;
      }
      return true;
    }),
  );
});

function held(
  table: Table,
  wanted: ReadonlyMap<string, readonly Claim[]>,
): { owner: string; claim: Claim }[] {
  return [...wanted].flatMap(([owner, claims]) => {
    const keys = new Map(claims.map((each) => [claimKey(each), each]));
    return [...keys.values()]
      .filter((each) => holdsClaim(table, owner, each))
      .map((claim) => ({ owner, claim }));
  });
}

function collide(a: Claim, b: Claim): boolean {
  return (
    a.portal.protocol === b.portal.protocol && a.port === b.port && overlap(a.address, b.address)
  );
}
