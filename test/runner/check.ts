import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

/** Whether system and Node have what the `linux` engine needs. */
export const HAS_LINUX_ENGINE =
  process.platform === 'linux' && Number.parseInt(process.versions.node, 10) >= 26;

/** One check beside the tests: a script that exits 0 when all is well. */
export interface Check {
  readonly name: string;
  readonly script: string;
  readonly args: readonly string[];
}

type CheckResult = Awaited<ReturnType<typeof runCheck>>;

/**
 * Environment for tools of the project: this Node and the project's tools come first. Hundreds of processes load the
 * same modules, so Node keeps what it has compiled, until the next `npm ci`.
 */
export function toolEnv(root: string): NodeJS.ProcessEnv {
  const path = [dirname(process.execPath), join(root, 'node_modules', '.bin')];
  return {
    NODE_COMPILE_CACHE: join(root, 'node_modules', '.cache', 'compile'),
    ...process.env,
    PATH: [...path, process.env['PATH'] ?? ''].join(delimiter),
  };
}

/**
 * The script behind a tool's command, to be run by this Node: what is in `node_modules/.bin` finds
 * its own Node, and on Windows it is no script.
 */
export function toolScript(root: string, packageName: string, command = packageName): string {
  const folder = join(root, 'node_modules', packageName);
  const { bin } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    bin: string | Record<string, string>;
  };
  const path = typeof bin === 'string' ? bin : bin[command];
  if (path === undefined) throw new Error(`${packageName} has no command ${command}`);
  return join(folder, path);
}

/** Runs one check to its end. `output`: everything that it has printed. */
async function runCheck({ name, script, args }: Check, root: string) {
  const start = performance.now();
  const child = spawn(process.execPath, [script, ...args], {
    cwd: root,
    // Some tools write colours in CI although no one asked for them.
    env: { ...toolEnv(root), NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const [code] = (await once(child, 'close')) as [number | null];
  return { name, ok: code === 0, ms: performance.now() - start, output };
}

/** Runs the checks, two at a time, and reports each as it ends. */
export function runChecks(
  checks: readonly Check[],
  root: string,
  onResult: (result: CheckResult) => void,
): Promise<void> {
  return forEach(checks, 2, async (check) => onResult(await runCheck(check, root)));
}

/** Does something with each item in order, so many at a time. */
export async function forEach<Item>(
  items: readonly Item[],
  atOnce: number,
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const left = items.values();
  const lane = async (): Promise<void> => {
    for (const item of left) await action(item);
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}
