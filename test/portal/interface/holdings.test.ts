import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { KpngError } from '../../../src/errors.ts';
import { Holdings, Rotation } from '../../../src/portal/interface/holdings.ts';
import { holds } from '../../support/property.ts';

const ADDRESSES = ['a', 'b', 'c', 'd', 'e'];
const error = new KpngError('KPNG_PORTAL_FAILED', 'no');

const subset = fc.subarray(ADDRESSES);
const step = fc.oneof(
  fc.record({
    kind: fc.constant('want' as const),
    who: fc.constantFrom('x', 'y', 'z'),
    what: subset,
  }),
  fc.record({ kind: fc.constant('listed' as const), ours: subset, others: subset }),
  fc.record({
    kind: fc.constantFrom('added', 'found', 'removed', 'refuse', 'readmit'),
    what: fc.constantFrom(...ADDRESSES),
  }),
);

t.test(
  'property: what is to be added and removed follows from what is there and wanted',
  async (t) => {
    holds(
      t,
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const subject = new Holdings();
        const wants = new Map<string, readonly string[]>();
        let ours = new Set<string>();
        let others = new Set<string>();
        const refused = new Set<string>();
        const isWanted = (address: string): boolean =>
          [...wants.values()].some((list) => list.includes(address));
        for (const each of steps) {
          if ('who' in each) {
            wants.set(each.who, each.what);
            subject.want(each.who, each.what);
          } else if ('ours' in each) {
            ours = new Set(each.ours);
            others = new Set(each.others);
            subject.listed({
              ours,
              others: each.others.map((address) => ({ address, loopback: false })),
            });
          } else if (each.kind === 'readmit') {
            refused.clear();
            subject.readmit();
          } else if (each.kind === 'removed') {
            ours.delete(each.what);
            subject.removed(each.what);
          } else if (subject.toAdd.has(each.what)) {
            // The outcome of an attempt to add.
            if (each.kind === 'added') ours.add(each.what);
            if (each.kind === 'found') others.add(each.what);
            if (each.kind === 'refuse') refused.add(each.what);
            if (each.kind === 'added') subject.added(each.what);
            if (each.kind === 'found') subject.found(each.what);
            if (each.kind === 'refuse') subject.refuse(each.what, error);
          }
          for (const address of refused) if (!isWanted(address)) refused.delete(address);
          const toAdd = ADDRESSES.filter(
            (address) =>
              isWanted(address) &&
              !ours.has(address) &&
              !others.has(address) &&
              !refused.has(address),
          );
          const toRemove = ADDRESSES.filter((address) => !isWanted(address) && ours.has(address));
          assert.deepEqual([...subject.toAdd].sort(), toAdd);
          assert.deepEqual([...subject.toRemove].sort(), toRemove);
        }
      }),
    );
  },
);

t.test('says how many wanted addresses are gone', async (t) => {
  const subject = new Holdings();
  subject.want('x', ['a', 'b', 'c']);
  const other = { address: 'c', loopback: false };
  t.equal(subject.listed({ ours: new Set(['a', 'b', 'd']), others: [other] }), 0);
  t.equal(subject.listed({ ours: new Set(['b']), others: [] }), 1, 'not d, which nobody wants');
  t.same([...subject.toAdd].sort(), ['a', 'c']);
});

t.test('knows who wants an address', async (t) => {
  const subject = new Holdings();
  subject.want('x', ['a']);
  subject.want('y', ['a', 'b']);
  t.same([...subject.users('a')], ['x', 'y']);
  subject.want('x', []);
  t.same([...subject.users('a')], ['y']);
  t.same([...subject.users('c')], []);
});

t.test('rounds go through everything, whatever comes and goes', async (t) => {
  const items = new Set(['a', 'b', 'c', 'd', 'e']);
  const rounds = new Rotation();
  t.same(rounds.next(items, 2), ['a', 'b']);
  t.same(rounds.next(items, 2), ['c', 'd']);
  items.delete('e');
  items.add('f');
  t.same(rounds.next(items, 2), ['f', 'a']);
  t.same(rounds.next(items, 9), ['b', 'c', 'd', 'f', 'a'], 'each once');
  items.clear();
  t.same(rounds.next(items, 2), []);
  t.same(rounds.next(new Set(), 2), []);
});
