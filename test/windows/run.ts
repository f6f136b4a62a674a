/**
 * `npm run test:windows`: the program on Windows, as far as that goes without one: the real node.exe and the real
 * executable under Wine 10, the real NSSM, and a netsh.exe that does to a network namespace what it is asked to do.
 *
 *     npm run test:windows                  everything
 *     npm run test:windows -- short         what CI runs: the demo, and the life of the services
 *     npm run test:windows -- services      what NSSM gets, logs, exit codes, ways to stop
 *     npm run test:windows -- cluster       the command lines of the posts only
 *     npm run test:windows -- suites        the test files only
 *     npm run test:windows -- suites test/util/file-watcher.test.ts
 *     npm run test:windows -- prepare       only downloads and builds what they need
 *
 * Needs root and a Debian or Ubuntu. What it makes is kept in KPNG_WINE_CACHE, by default
 * /var/cache/kpng-wine (1.5 GB), so that the next run is faster.
 */
import { equal } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { nodeOf, TARGETS } from '../../tools/sea/node-of.ts';
import { cluster } from './cluster.ts';
import { life, type Lab } from './life.ts';
import { services } from './services.ts';
import { stops } from './stops.ts';
import { runScript, suites } from './suites.ts';
import { Namespace, Steps, Wine } from './support/wine.ts';
import { NetshDesk } from './support/netsh-desk.ts';
import { Peer } from './support/peers.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const cache = process.env['KPNG_WINE_CACHE'] ?? '/var/cache/kpng-wine';
const executables = join(cache, 'executables');

async function command(file: string, args: readonly string[]): Promise<void> {
  const child = spawn(file, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${file} ${args.join(' ')} has ended with ${code}`);
}

async function main(parts: readonly string[]): Promise<boolean> {
  const steps = new Steps();
  let node = '';
  const prepared = await steps.step('Wine 10, NSSM, a compiler and node.exe', async () => {
    await command(join(import.meta.dirname, 'support', 'prepare.sh'), [cache]);
    for (const target of TARGETS) if (target.name === 'win-x64') node = await nodeOf(target);
  });
  if (prepared && !parts.includes('prepare')) await inWine(steps, parts, node);
  steps.end();
  return steps.failed === 0;
}

async function inWine(steps: Steps, parts: readonly string[], node: string): Promise<void> {
  const wanted = (part: string): boolean => parts.length === 0 || parts.includes(part);
  const namespace = new Namespace();
  try {
    const wine = new Wine(cache, namespace);
    const sea = [join(ROOT, 'tools/sea/main.ts'), 'win-x64', '--out', executables];
    const made = await Promise.all([
      steps.step('a Windows on which nothing was ever done', () => wine.open()),
      steps.step('the executables', () => command(process.execPath, sea)),
    ]);
    if (made.includes(false)) return;
    await wine.put(String.raw`Z:\kpng`, node);
    const desk = new NetshDesk(wine, namespace);
    const nssm = wine.hostPath(String.raw`Z:\kpng\nssm.exe`);
    // What all services have as endpoint; it ends with the namespace.
    await new Peer(namespace, ['echo']).said(/ready/);
    const programs = ['kpng.exe', 'winuserspace.exe'].map((name) =>
      join(executables, 'win-x64', name),
    );
    const lab: Lab = { wine, namespace, desk, files: [...programs, nssm] };
    if (wanted('short')) {
      steps.say('\nthe demo on the real node.exe, and the life of the services');
      await steps.step('npm run demo -- --once', () => demo(wine));
      await life(steps, lab);
    }
    if (wanted('services')) {
      steps.say('\nwhat services get, and how they end');
      await services(steps, lab);
      await stops(steps, lab);
    }
    if (wanted('cluster')) {
      steps.say('\nthe command lines of the posts');
      await cluster(steps, lab);
    }
    if (wanted('suites')) {
      steps.say('\ntest files on the real node.exe');
      const files = parts.filter((part) => part.endsWith('.test.ts'));
      await suites(steps, wine, files);
    }
    await desk.close();
    if (desk.failure !== undefined)
      await steps.step('the netsh of the test', () => Promise.reject(desk.failure));
    await wine.close();
  } finally {
    namespace.close();
  }
}

async function demo(wine: Wine): Promise<string> {
  const { code, stdout, stderr } = await runScript(wine, 'examples/demo/main.ts', '--once');
  equal(code, 0, stdout + stderr);
  return stdout;
}

process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
