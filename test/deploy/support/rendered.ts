/**
 * What kustomize and Helm make of deploy/. `npm test` looks into it wherever it runs, so their output is kept in
 * test/deploy/rendered/, with a hash of everything that it was made from. `npm run test:deploy` has the programs
 * themselves and compares; with UPDATE_RENDERED=1 it keeps what they say.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const RENDERED = join(ROOT, 'test', 'deploy', 'rendered');
const CHART = 'deploy/helm/kpng-userspace';

/** An object as far as tests look into it. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec?: unknown;
  readonly [key: string]: unknown;
}

export interface Rendering {
  readonly name: string;
  /** Folder of deploy/ that it is made from. */
  readonly from: string;
  readonly file: 'kubectl' | 'helm';
  readonly args: readonly string[];
}

function kustomize(name: string, path: string): Rendering {
  const args = ['kustomize', path];
  return { name: `kustomize-${name}`, from: 'deploy/kustomize', file: 'kubectl', args };
}

/** `values`: what `--set` gets, with blanks between. */
function helm(name: string, values = ''): Rendering {
  const set = values.split(' ').flatMap((value) => (value === '' ? [] : ['--set', value]));
  const common = ['-n', 'kube-system', '--kube-version', '1.31.0'];
  const args = ['template', 'kpng', CHART, ...common, ...set];
  return { name: `helm-${name}`, from: CHART, file: 'helm', args };
}

export const RENDERINGS: readonly Rendering[] = [
  kustomize('direct', 'deploy/kustomize/overlays/direct'),
  kustomize('kpng-sidecar', 'deploy/kustomize/overlays/kpng-sidecar'),
  kustomize('node-port', 'deploy/kustomize/overlays/node-port'),
  kustomize('monitored', 'test/deploy/support/monitored'),
  helm('default'),
  helm(
    'address',
    'portal=address nodePortAddresses={10.0.0.0/8,fd00::/8} verbosity=2 nameOverride=proxy',
  ),
  helm(
    'server',
    'source=local api=192.0.2.1:12090 handover=false image.digest= fullnameOverride=service-proxy',
  ),
  helm(
    'sidecar',
    'source=local sidecar=true serviceProxyName=kpng apiServer.host=192.0.2.1 metrics.bindAddress=:10249 ' +
      'metrics.podMonitor.enabled=true metrics.prometheusRule.enabled=true',
  ),
];

/** A hash of everything that a rendering is made from. */
export function inputHash({ from, args }: Rendering): string {
  const hash = createHash('sha256').update(args.join(' '));
  const files = readdirSync(join(ROOT, from), { recursive: true, encoding: 'utf8' })
    .map((file) => file.replaceAll('\\', '/'))
    .filter((file) => /\.(ya?ml|json|tpl)$/.test(file))
    .sort();
  for (const file of files) {
    const text = readFileSync(join(ROOT, from, file), 'utf8').replaceAll('\r\n', '\n');
    hash.update(`\n${file}\n${text}`);
  }
  return hash.digest('hex');
}

/** Keeps what the program has written. */
export function keep(rendering: Rendering, text: string): void {
  const { name, file, args } = rendering;
  const head = `# ${[file, ...args].join(' ')}\n# made from ${inputHash(rendering)}\n`;
  writeFileSync(join(RENDERED, `${name}.yaml`), head + text);
}

/** What is kept of a rendering: the hash that it was made from, the text, and its objects. */
export function readRendered({ name }: Rendering): {
  madeFrom: string;
  text: string;
  manifests: Manifest[];
} {
  const whole = readFileSync(join(RENDERED, `${name}.yaml`), 'utf8').replaceAll('\r\n', '\n');
  const [, madeFrom = '', text = ''] = /^#.*\n# made from (\w+)\n([^]*)$/.exec(whole) ?? [];
  return { madeFrom, text, manifests: manifestsOf(text) };
}

/** The objects of a file with several documents. */
export function manifestsOf(text: string): Manifest[] {
  return parseAllDocuments(text)
    .map((document) => {
      if (document.errors[0] !== undefined) throw document.errors[0];
      return document.toJS() as Manifest | null;
    })
    .filter((manifest) => manifest !== null);
}
