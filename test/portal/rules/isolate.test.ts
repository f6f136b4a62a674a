import t from 'tap';
import { findUnacceptable } from '../../../src/portal/rules/rule-set.ts';

t.test('finds those that are not taken', async (t) => {
  const names = Array.from({ length: 1000 }, (_, n) => `s${n}`);
  const find = async (bad: readonly string[], limit = 100) => {
    let trials = 0;
    const accepted = async (some: readonly string[]) => {
      trials += 1;
      return !some.some((name) => bad.includes(name));
    };
    const found = await findUnacceptable(names, accepted, limit);
    return { found: found?.sort(), trials };
  };
  t.strictSame((await find(['s7'])).found, ['s7']);
  t.strictSame((await find(['s0', 's500', 's999'])).found, ['s0', 's500', 's999']);
  t.ok((await find(['s7'])).trials < 25);
  t.strictSame((await find([])).found, []);
  const { found = [], trials } = await find(
    names.filter((_, n) => n % 2 === 0),
    50,
  );
  t.ok(trials <= 51, 'the effort is limited');
  t.ok(found.length >= 500 && found.length < 1000, 'and then more are left out than need be');
  t.equal(await findUnacceptable(names, async () => false, 10), undefined);
});

t.test('a tool that fails now and then puts the blame on nobody', async (t) => {
  const names = Array.from({ length: 64 }, (_, n) => `s${n}`);
  let trials = 0;
  // Every second call fails, whatever it is asked.
  const accepted = async () => {
    trials += 1;
    return trials % 2 === 1;
  };
  t.strictSame(await findUnacceptable(names, accepted, 100), []);
});
