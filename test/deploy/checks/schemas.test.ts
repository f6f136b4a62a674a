/** Every manifest against the schemas of the Kubernetes API, strictly: a field that there is not is a mistake. */
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { toolScript } from '../../runner/check.ts';
import { manifestsOf, readRendered, RENDERINGS, type Manifest } from '../support/rendered.ts';
import { FOLDER, missing, run } from '../support/toolbox.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const WINDOWS = join(ROOT, 'deploy', 'windows');

/** The oldest version that is promised (docs/how-to/deploy.md), and the newest whose schema there is. */
const KUBERNETES = ['1.29', '1.37'] as const;

/** All manifests that are shipped, by name. */
const SHIPPED = new Map<string, readonly Manifest[]>([
  ...RENDERINGS.map((each) => [each.name, readRendered(each).manifests] as const),
  ...readdirSync(WINDOWS)
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => [file, manifestsOf(readFileSync(join(WINDOWS, file), 'utf8'))] as const),
]);
const isMonitoring = ({ apiVersion }: Manifest): boolean =>
  apiVersion === 'monitoring.coreos.com/v1';

/** Writes objects of Kubernetes itself to files and has them checked. */
async function validate(t: Test, sets: ReadonlyMap<string, readonly Manifest[]>, version: string) {
  const folder = t.testdir();
  const files = [...sets].map(([name, manifests]) => {
    const file = join(folder, `${name}.json`);
    const items = manifests.filter((each) => !isMonitoring(each));
    writeFileSync(file, items.map((each) => JSON.stringify(each)).join('\n---\n'));
    return file;
  });
  return run('kubernetes-validate', ['--strict', '-k', version, ...files]);
}

for (const version of KUBERNETES) {
  t.test(`Kubernetes ${version}`, { skip: missing('kubernetes-validate') }, async (t) => {
    const { code, text } = await validate(t, SHIPPED, version);
    t.equal(code, 0, text);
    t.notMatch(text, /WARN/, 'there is a schema for each');
    const objects = [...SHIPPED.values()].flat().filter((each) => !isMonitoring(each));
    t.equal(text.match(/ passed for resource /g)?.length, objects.length, 'each was looked at');
  });
}

/** Has TypeScript compare objects with the types of the operator, which have no index signatures: nothing unknown gets by. */
async function typeCheck(t: Test, objects: readonly Manifest[]) {
  const folder = t.testdir();
  mkdirSync(folder, { recursive: true });
  symlinkSync(join(FOLDER, 'node_modules'), join(folder, 'node_modules'));
  const lines = objects.map(
    (object, index) =>
      `import type { I${object.kind} as I${index} } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/${object.kind}';\n` +
      `export const object${index}: I${index} = ${JSON.stringify(object)};\n`,
  );
  writeFileSync(join(folder, 'objects.mts'), lines.join(''));
  const flags = '--ignoreConfig --noEmit --strict --skipLibCheck --module nodenext --types ';
  const script = toolScript(ROOT, 'typescript', 'tsc');
  const args = [script, ...flags.split(' '), join(folder, 'objects.mts')];
  return run('env', [process.execPath, ...args]);
}

const skip = missing('prometheus-operator');

t.test('objects of the Prometheus operator', { skip }, async (t) => {
  const objects = [...SHIPPED.values()].flat().filter(isMonitoring);
  t.same(new Set(objects.map(({ kind }) => kind)), new Set(['PodMonitor', 'PrometheusRule']));
  const { code, text } = await typeCheck(t, objects);
  t.equal(code, 0, text);
});
