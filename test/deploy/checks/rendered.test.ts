/** What kustomize and Helm make of deploy/ today is what test/deploy/rendered has, with old and new versions of both. */
import { join } from 'node:path';
import t from 'tap';
import { keep, manifestsOf, readRendered, RENDERINGS } from '../support/rendered.ts';
import { missing, run } from '../support/toolbox.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');

/** Versions of the program that users have: the first is the one whose output is kept. */
const VERSIONS = { kubectl: ['kubectl-1.32', 'kubectl-1.35'], helm: ['helm-3', 'helm-4'] } as const;

for (const rendering of RENDERINGS) {
  const names = VERSIONS[rendering.file];
  const title = `${rendering.name}, with ${names.join(' and ')}`;
  t.test(title, { skip: missing(...names) }, async (t) => {
    for (const name of names) {
      const { code, stdout, text } = await run(name, rendering.args, { cwd: ROOT });
      t.equal(code, 0, `${name} ${rendering.args.join(' ')}\n${code === 0 ? '' : text}`);
      if (process.env['UPDATE_RENDERED'] === '1' && name === names[0]) keep(rendering, stdout);
      t.same(manifestsOf(stdout), readRendered(rendering).manifests, `${name} makes what is kept`);
    }
  });
}

const CHART = join(ROOT, 'deploy', 'helm', 'kpng-userspace');

t.test('helm lint reports no problems', { skip: missing(...VERSIONS.helm) }, async (t) => {
  for (const name of VERSIONS.helm) {
    const { code, text } = await run(name, ['lint', '--strict', CHART]);
    t.equal(code, 0, text);
    t.match(text, /1 chart\(s\) linted, 0 chart\(s\) failed/);
    t.notMatch(text, /\[(WARNING|ERROR)\]/);
  }
});

/** Values that the schema or a template has to refuse, and a part of what is said then. */
const REFUSED: readonly (readonly [string, RegExp])[] = [
  ['portl=auto', /portl/],
  ['portal=ipvs', /portal/],
  ['source=local', /api/],
  ['drainSeconds=60s', /drainSeconds/],
  ['image.digest=latest', /digest/],
  ['priorityClass.create=true', /priorityClass/],
];

t.test('unknown values are refused by name', { skip: missing(...VERSIONS.helm) }, async (t) => {
  for (const name of VERSIONS.helm) {
    for (const [value, said] of REFUSED) {
      const { code, text } = await run(name, ['template', 'kpng', CHART, '--set', value]);
      t.not(code, 0, `${name} --set ${value}`);
      t.match(text, said);
    }
  }
});
