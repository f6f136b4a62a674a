import { watch, type FSWatcher } from 'node:fs';
import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ExecError } from '../../../src/portal/exec.ts';
import { SerialQueue } from '../../../src/util/serial-queue.ts';
import { FakeNetsh } from '../../support/fake-netsh.ts';
import { PORTAL_LINK, type Namespace, type Wine } from './wine.ts';

/**
 * Answers the netsh.exe of the tests as a Windows would, and does to the network namespace what it is asked to do,
 * so that sockets can be bound to the addresses.
 */
export class NetshDesk {
  readonly netsh = new FakeNetsh();
  readonly #wine: Wine;
  readonly #spool: string;
  readonly #namespace: Namespace;
  readonly #watcher: FSWatcher;
  readonly #timer: NodeJS.Timeout;
  /** Requests are answered one after the other. */
  readonly #queue = new SerialQueue();
  /** What went wrong here, which is no fault of the program. */
  failure: unknown;

  constructor(wine: Wine, namespace: Namespace) {
    this.#wine = wine;
    this.#namespace = namespace;
    this.#spool = wine.hostPath(String.raw`Z:\kpng\spool`);
    this.netsh.interfaces.clear();
    this.netsh.interfaces.set(PORTAL_LINK, []);
    const look = (): void => {
      this.#queue.run(() => this.#look()).catch((error: unknown) => (this.failure ??= error));
    };
    this.#watcher = watch(this.#spool, look).on('error', (error) => (this.failure ??= error));
    // Should the watcher miss one.
    this.#timer = setInterval(look, 1000).unref();
  }

  /** Resolves when everything that was asked is answered. */
  async close(): Promise<void> {
    this.#watcher.close();
    clearInterval(this.#timer);
    await this.#queue.idle();
  }

  async #look(): Promise<void> {
    for (const name of (await readdir(this.#spool)).sort()) {
      if (name.endsWith('.request')) await this.#answer(name);
    }
  }

  async #answer(name: string): Promise<void> {
    const request = join(this.#spool, name);
    const args = JSON.parse(await readFile(request, 'utf8')) as string[];
    await rm(request);
    const before = this.#addresses();
    const answer = await this.#carryOut(args);
    const after = this.#addresses();
    for (const each of after) if (!before.has(each)) this.#namespace.change('add', each);
    for (const each of before) if (!after.has(each)) this.#namespace.change('delete', each);
    const file = join(this.#spool, name.replace('.request', '.answer'));
    await writeFile(`${file}.draft`, answer);
    await rename(`${file}.draft`, file);
  }

  /** The exit code in the first line, then what is printed. */
  async #carryOut(args: readonly string[]): Promise<string> {
    const [option, script = ''] = args;
    const real = option === '-f' ? ['-f', this.#wine.hostPath(script)] : args;
    try {
      const { stdout } = await this.netsh.exec({ file: 'netsh', args: real });
      return `0\n${stdout}`;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      return `${error.exitCode ?? 1}\n${error.stdout}`;
    }
  }

  #addresses(): Set<string> {
    return new Set(this.netsh.on(PORTAL_LINK).map(({ address }) => address));
  }
}
