/** `kubectl create --dry-run=client`: kubectl can read each manifest, knows its kinds, and names each object once. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { serveDiscovery } from '../support/discovery.ts';
import { readRendered, RENDERINGS } from '../support/rendered.ts';
import { missing, run, type Outcome } from '../support/toolbox.ts';

const WINDOWS = join(import.meta.dirname, '..', '..', '..', 'deploy', 'windows');
const KUBECTL = ['kubectl-1.32', 'kubectl-1.35'] as const;
const skip = missing(...KUBECTL);

for (const name of KUBECTL) {
  const create = (
    url: string,
    folder: string,
    args: readonly string[],
    input?: string,
  ): Promise<Outcome> => {
    const where = ['--server', url, '--cache-dir', folder, '--kubeconfig', '/dev/null'];
    const how = ['create', '--dry-run=client', '--validate=false', '--output=name'];
    return run(name, [...where, ...how, ...args], input === undefined ? {} : { input });
  };

  t.test(`${name} would create everything`, { skip }, async (t) => {
    const url = await serveDiscovery(t);
    const folder = t.testdir();
    for (const rendering of RENDERINGS) {
      const { text: input, manifests } = readRendered(rendering);
      const { code, stdout, text } = await create(url, folder, ['-f', '-'], input);
      t.equal(code, 0, `${rendering.name}: ${text}`);
      const names = stdout.trim().split('\n');
      t.equal(new Set(names).size, manifests.length, rendering.name);
    }
    for (const file of readdirSync(WINDOWS).filter((each) => each.endsWith('.yaml'))) {
      const { code, text } = await create(url, folder, ['-f', join(WINDOWS, file)]);
      t.equal(code, 0, `${file}: ${text}`);
    }
    const bad = 'apiVersion: apps/v1beta1\nkind: DaemonSet\nmetadata:\n  name: x\n';
    const refused = await create(url, folder, ['-f', '-'], bad);
    t.not(refused.code, 0, 'and a version that is gone is refused');
    t.match(refused.text, /no matches for kind "DaemonSet" in version "apps\/v1beta1"/);
  });
}
