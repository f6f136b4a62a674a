import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as fc from 'fast-check';
import t from 'tap';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { FileSource } from '../../src/file/source.ts';
import type { LocalChange } from '../../src/store/local-view.ts';
import { renameOver } from '../../src/util/rename-over.ts';
import { feedSink } from '../support/file-rig.ts';
import { holdsAsync } from '../support/property.ts';
import { until } from '../support/until.ts';

type Step =
  | { readonly kind: 'good'; readonly services: readonly string[] }
  | { readonly kind: 'bad' | 'empty' | 'gone' };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    kind: fc.constant('good' as const),
    services: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd')),
  }),
  fc.record({ kind: fc.constantFrom('bad' as const, 'empty' as const, 'gone' as const) }),
);

function textOf(services: readonly string[]): string {
  if (services.length === 0) return 'services: []\n';
  return `services:\n${services.map((name) => `- service: {name: ${name}}\n`).join('')}`;
}

async function perform(step: Step, path: string): Promise<void> {
  if (step.kind === 'gone') return rm(path, { force: true });
  const text =
    step.kind === 'good' ? textOf(step.services) : step.kind === 'bad' ? 'services: [{]\n' : '';
  await writeFile(`${path}.new`, text);
  return renameOver(`${path}.new`, path);
}

t.test('whatever happens to the file, the sink ends up with the last good state', async (t) => {
  const dir = t.testdir({});
  let run = 0;
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
      run += 1;
      const path = join(dir, `state-${run}.yaml`);
      const source = new FileSource({
        path,
        limits: { ...DEFAULT_FILE_LIMITS, settleMs: 1 },
      });
      const seen: string[] = [];
      const abort = new AbortController();
      const done = feedSink(
        source,
        'n',
        {
          async sync({ view }: LocalChange) {
            seen.push([...view.entries()].map(({ key }) => key.replace('default/', '')).join(''));
          },
        },
        abort.signal,
      );
      for (const step of steps) await perform(step, path);
      // The last word is a good file, so that there is something to wait for.
      await perform({ kind: 'good', services: ['z'] }, path);
      await until(() => seen.at(-1) === 'z');
      abort.abort();
      await done;
      const good = new Set(
        steps.map((step) =>
          step.kind === 'good' ? [...step.services].sort().join('') : undefined,
        ),
      );
      return seen.slice(0, -1).every((state) => good.has(state));
    }),
  );
});
