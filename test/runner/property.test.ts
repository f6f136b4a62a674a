import { setTimeout as pause } from 'node:timers/promises';
import * as fc from 'fast-check';
import t from 'tap';
import { holdsAsync } from '../support/property.ts';

t.test('no run of a property is under way when its time is over', async (t) => {
  let begun = 0;
  let ended = 0;
  const property = fc.asyncProperty(fc.nat(), async () => {
    begun += 1;
    await pause(60);
    ended += 1;
  });
  await holdsAsync(t, property, 100);
  t.ok(begun >= 1 && begun < 50, 'the limit counts');
  t.equal(ended, begun);
});

t.test('a counterexample is told', async (t) => {
  const property = fc.asyncProperty(fc.nat(), async (number) => number < 3);
  await t.rejects(holdsAsync(t, property), /Counterexample: \[3\]/);
});
