/** How much memory V8 takes for new objects: in programs of their own, as it counts for a whole process. */
import { execFileSync } from 'node:child_process';
import { constants, PerformanceObserver, type PerformanceEntry } from 'node:perf_hooks';
import t from 'tap';
import { COLLECT_AFTER_MS, collectAfterFirst } from '../../src/cli/small-heap.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';

const SMALL_HEAP = new URL('../../src/cli/small-heap.ts', import.meta.url).href;

/** Makes objects that live for a while; prints what V8 has for new ones then, in MB. */
const PROGRAM = `
  import { getHeapSpaceStatistics } from 'node:v8';
  const { keepHeapSmall, collectAfterFirst } = await import(process.argv[1]);
  if (process.argv.length > 2) keepHeapSmall();
  if (process.argv[2] === 'served') collectAfterFirst({ kind: 'node' });
  let kept = [];
  for (let round = 0; round < 40; round++) {
    for (let i = 0; i < 20_000; i++) kept.push({ i, list: [i, round] });
    if (kept.length > 300_000) kept = kept.slice(-100_000);
  }
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
  console.log(space.physical_space_size / 1e6);
`;

function newSpace(...args: string[]): number {
  const input = ['--input-type=module', '--eval', PROGRAM, SMALL_HEAP, ...args];
  return Number(execFileSync(process.execPath, input, { encoding: 'utf8' }));
}

t.test('the young generation stays small', async (t) => {
  const small = newSpace('small');
  t.ok(small < 12, `${small} MB`);
  t.ok(newSpace() > 2 * small, 'and by itself it grows');
  t.ok(newSpace('served') > 2 * small, 'as it does when a proxy has its first state');
});

t.test('garbage of the first state is collected once', async (t) => {
  const major: PerformanceEntry[] = [];
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { detail } = entry as PerformanceEntry & { readonly detail: { kind: number } };
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) major.push(entry);
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  t.teardown(() => observer.disconnect());
  const clock = new FakeClock();
  for (const engine of [undefined, { kind: 'linux' } as const]) {
    major.length = 0;
    collectAfterFirst(engine, clock);
    clock.advance(COLLECT_AFTER_MS);
    await until(() => major.length > 0);
    t.equal(clock.pending, 0);
  }
});
