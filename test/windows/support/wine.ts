/** Programs of Windows, run by Wine in a root folder of its own and a network namespace of the test's own. */
import { equal } from 'node:assert/strict';
import { execFile, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { promisify, inspect } from 'node:util';
import { Namespaces } from '../../../bench/support/namespaces.ts';
import { Running } from '../../support/running.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..', '..', '..');

/** Enters the root folder, with the sources of this project read-only in it; the mounts end with the program. */
const ENTER =
  'root=$1 main=$2; shift 2; mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; ' +
  'mount --bind "$main" "$root/mnt/main"; mount -o remount,bind,ro "$root/mnt/main"; exec env -i "$@"';
const WINE = '/usr/lib/wine/wine64';
const WINESERVER = '/usr/lib/wine/wineserver64';
const WINRUN = String.raw`Z:\kpng\bin\winrun.exe`;

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** What Wine itself has to say to programs without a desktop. */
export const REMARKS = /^(?:error: XDG.*|Wine cannot find the FreeType[^]*?freetype\.org)\r?\n?/gm;

/** A program that runs longer is killed. Milliseconds. */
const PATIENCE_MS = 600_000;

/** Programs that are ended by hand, or with their namespace. */
export const NO_TEST = { teardown: () => undefined };

/** A program of Windows that runs. */
class Program extends Running {
  /** Resolves when it has ended. */
  readonly code: Promise<number | null>;

  constructor(file: string, args: readonly string[], patienceMs = PATIENCE_MS) {
    super(NO_TEST, file, args);
    const late = setTimeout(() => this.kill('SIGKILL'), patienceMs).unref();
    this.code = endOf(this.child, () => this.text.length).finally(() => clearTimeout(late));
  }

  /** Presses Ctrl-C or Ctrl-Break in its console, or closes that. */
  press(what: 'Ctrl-C' | 'Ctrl-Break' | 'close'): void {
    this.child.stdin?.write({ 'Ctrl-C': 'c', 'Ctrl-Break': 'b', close: 'h' }[what]);
  }
}

/**
 * Resolves with the exit code, when what the program printed has been read; `read`: how much that is so far. Its
 * pipes may stay open for longer: the first program that needs a desktop starts one, which inherits them.
 */
async function endOf(child: ChildProcess, read: () => number): Promise<number | null> {
  const [code] = (await once(child, 'exit')) as [number | null];
  let before: number;
  do {
    before = read();
    // One turn of the loop reads what is there already.
    await setImmediate();
    await setImmediate();
  } while (read() > before);
  return code;
}

export class Wine {
  readonly #root: string;
  readonly #namespace: Namespace;
  /** The variables of all programs. */
  readonly #env: readonly string[];

  /** `cache`: the folder that prepare.sh has filled. */
  constructor(cache: string, namespace: Namespace) {
    this.#root = join(cache, 'wine');
    this.#namespace = namespace;
    this.#env = [
      'HOME=/root',
      'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
      `WINELOADER=${WINE}`,
      `WINESERVER=${WINESERVER}`,
      'WINEPREFIX=/kpng/prefix',
      'WINEARCH=win64',
      'WINEDEBUG=-all',
      // Seconds that a test may take; the machine may be slow, and Wine is.
      'TAP_TIMEOUT=600',
      String.raw`WINEPATH=Z:\kpng\bin`,
      String.raw`KPNG_NETSH_SPOOL=Z:\kpng\spool`,
    ];
  }

  /** Begins with a Windows on which nothing was ever done, and a server that stays. */
  async open(): Promise<void> {
    await rm(this.hostPath(String.raw`Z:\kpng\prefix`), { recursive: true, force: true });
    await rm(this.hostPath(String.raw`Z:\kpng\spool`), { recursive: true, force: true });
    await mkdir(this.hostPath(String.raw`Z:\kpng\prefix`), { recursive: true });
    await mkdir(this.hostPath(String.raw`Z:\kpng\spool`));
    await this.#quiet(WINESERVER, '-p');
    await this.#quiet(WINE, 'cmd', '/c', 'exit');
  }

  /** Where a file of C: or Z: is on this machine. */
  hostPath(path: string): string {
    const [drive = '', ...parts] = path.split('\\');
    return join(this.#root, ...(drive === 'C:' ? ['kpng', 'prefix', 'drive_c'] : []), ...parts);
  }

  /** Copies files of this machine to a folder of C: or Z:. */
  async put(folder: string, ...files: string[]): Promise<void> {
    const target = this.hostPath(folder);
    await mkdir(target, { recursive: true });
    for (const file of files) await copyFile(file, join(target, basename(file)));
  }

  /** Runs a program to its end, with pipes of Windows. It is killed after a while. */
  async run(program: string, args: readonly string[], timeoutMs = 300_000): Promise<Ended> {
    const running = this.#spawn([], [program, ...args], timeoutMs);
    const code = await running.code;
    return { code, stdout: running.stdout, stderr: running.stderr.replaceAll(REMARKS, '') };
  }

  /** Runs a program that ends with `code`; resolves with what it prints. */
  async runs(code: number, program: string, ...args: string[]): Promise<string> {
    const { code: actual, stdout, stderr } = await this.run(program, args);
    equal(actual, code, `${program} ${args.join(' ')}: ${stdout}${stderr}`);
    return stdout + stderr;
  }

  /** Starts a program with pipes of Windows in a console of its own; `env`: more variables, `NAME=value`. */
  start(program: string, args: readonly string[], env: readonly string[] = []): Program {
    return this.#spawn(env, ['/console', program, ...args]);
  }

  #spawn(env: readonly string[], words: readonly string[], patienceMs?: number): Program {
    const [file = '', ...rest] = this.#command(env, [WINE, WINRUN, ...words]);
    return new Program(file, rest, patienceMs);
  }

  async close(): Promise<void> {
    // It says no when programs need longer than half a second. The namespace ends whatever is left.
    await this.#quiet(WINESERVER, '-k').catch(() => undefined);
  }

  #command(env: readonly string[], words: readonly string[]): string[] {
    const { inside } = this.#namespace;
    const enter = ['unshare', '-m', 'sh', '-c', ENTER, 'sh', this.#root, ROOT];
    return [...inside, ...enter, ...this.#env, ...env, 'chroot', this.#root, ...words];
  }

  /** The first program of Wine leaves others behind, which would keep pipes open. */
  async #quiet(...words: readonly string[]): Promise<void> {
    const [file = '', ...rest] = this.#command([], words);
    await run('sh', ['-c', '"$@" </dev/null >/dev/null 2>&1', 'sh', file, ...rest]);
  }
}

/** Interface that service addresses are put on. Nothing is attached to it. */
export const PORTAL_LINK = 'kpng0';

/** A network namespace of the test's own, with an interface for service addresses. */
export class Namespace {
  readonly #namespaces = new Namespaces('kpng-windows');

  constructor() {
    this.#namespaces.add('node');
    this.#namespaces.ip('node', [
      `link add ${PORTAL_LINK} type bridge`,
      `link set ${PORTAL_LINK} up`,
    ]);
  }

  /** What runs a program in it. */
  get inside(): readonly string[] {
    return this.#namespaces.command('node', []);
  }

  /** Adds an address to the interface, or deletes it. */
  change(verb: 'add' | 'delete', address: string): void {
    const network = address.includes(':') ? `${address}/128` : `${address}/32`;
    const more = verb === 'add' && address.includes(':') ? ' nodad' : '';
    this.#namespaces.ip('node', [`address ${verb} ${network} dev ${PORTAL_LINK}${more}`]);
  }

  /** Ends the programs in it, which are all ours, and removes it. */
  close(): void {
    this.#namespaces.remove();
  }
}

/** Steps of a long test, reported as they go. */
export class Steps {
  passed = 0;
  failed = 0;
  readonly #begin = performance.now();

  /** One step. What fails is reported, and ends the steps that build on it only where these say so. */
  async step(name: string, work: () => Promise<string | undefined | void>): Promise<boolean> {
    const begin = performance.now();
    try {
      const note = await work();
      this.passed += 1;
      this.say(`    ok  ${name.padEnd(76)} ${seconds(performance.now() - begin)}`);
      if (note !== undefined) this.say(note.trimEnd().replaceAll(/^/gm, ' '.repeat(12)));
      return true;
    } catch (error) {
      this.failed += 1;
      this.say(`  FAIL  ${name.padEnd(76)} ${seconds(performance.now() - begin)}`);
      const text = error instanceof Error ? (error.stack ?? '') : inspect(error);
      this.say(text.replaceAll(/^/gm, '        '));
      return false;
    }
  }

  /** The closing line. */
  end(): void {
    this.say(`\nin ${seconds(performance.now() - this.#begin).trim()}`);
    this.say(`${this.passed} passed, ${this.failed} failed, 0 skipped`);
  }

  say(line: string): void {
    process.stdout.write(`${line}\n`);
  }
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`.padStart(7);
}
