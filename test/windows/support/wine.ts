/** Programs of Windows, run by Wine in a Debian of its own and a network namespace of the test's own. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { Namespace } from './namespace.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..', '..', '..');

/** Enters the Debian, with the sources of this project read-only in it; gone when the program ends. */
const ENTER =
  'root=$1 main=$2; shift 2; mount -t proc proc "$root/proc"; mount --bind "$main" "$root/mnt/main"; ' +
  'mount -o remount,bind,ro "$root/mnt/main"; exec chroot "$root" "$@"';

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Wine {
  readonly #root: string;
  readonly #namespace: Namespace;
  /** The variables of all programs. */
  readonly #env: readonly string[];

  /** `cache`: the folder that prepare.sh has filled. */
  constructor(cache: string, namespace: Namespace) {
    this.#root = join(cache, 'root');
    this.#namespace = namespace;
    this.#env = [
      'HOME=/root',
      'PATH=/usr/bin:/bin:/usr/lib/wine',
      'WINEPREFIX=/kpng/prefix',
      'WINEARCH=win64',
      'WINEDEBUG=-all',
      // Seconds that a test may take; the machine may be slow, and Wine is.
      'TAP_TIMEOUT=110',
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
    await this.#quiet('wineserver', '-p');
    await this.#quiet('wine', 'cmd', '/c', 'exit');
  }

  /** Where a file of C: or Z: is on this machine. */
  hostPath(path: string): string {
    const [drive = '', ...parts] = path.split('\\');
    return join(this.#root, ...(drive === 'C:' ? ['kpng', 'prefix', 'drive_c'] : []), ...parts);
  }

  /** Copies a file of this machine to C: or Z:. */
  async put(file: string, path: string): Promise<void> {
    const target = this.hostPath(path);
    await mkdir(dirname(target), { recursive: true });
    await copyFile(file, target);
  }

  /** Runs a program to its end, with pipes of Windows. It is killed after a while. */
  async run(program: string, args: readonly string[], timeoutMs = 120_000): Promise<Ended> {
    const line = this.#command('wine', String.raw`Z:\kpng\bin\winrun.exe`, program, ...args);
    const [file = '', ...rest] = line;
    const child = spawn(file, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
    const printed = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].setEncoding('utf8').on('data', (text: string) => (printed[name] += text));
    }
    const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
    const [code] = (await once(child, 'close')) as [number | null];
    clearTimeout(timer);
    return { code, ...printed };
  }

  async close(): Promise<void> {
    await this.#quiet('wineserver', '-k');
  }

  #command(...words: readonly string[]): string[] {
    const { inside } = this.#namespace;
    const enter = ['unshare', '-m', 'sh', '-c', ENTER, 'sh', this.#root, ROOT];
    return [...inside, ...enter, 'env', '-i', ...this.#env, ...words];
  }

  /** The first program of Wine leaves others behind, which would keep pipes open. */
  async #quiet(...words: readonly string[]): Promise<void> {
    const [file = '', ...rest] = this.#command(...words);
    await run('sh', ['-c', '"$@" </dev/null >/dev/null 2>&1', 'sh', file, ...rest]);
  }
}
