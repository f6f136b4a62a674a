import { spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import type { Teardown } from './sockets.ts';

/** How long a step of a program may take on a loaded machine before a test stops. */
const PATIENCE_MS = 120_000;

/** A program that runs until it ends, or the test does. */
export class Running {
  readonly child: ChildProcess;
  /** What it has printed, on each stream and on both. */
  stdout = '';
  stderr = '';
  text = '';
  /** Exit code and signal. */
  readonly ended: Promise<[number | null, NodeJS.Signals | null]>;
  /** `change`: it has printed something, or has ended. */
  readonly #events = new EventEmitter();
  #hasEnded = false;

  constructor(t: Teardown, file: string, args: readonly string[], env = process.env) {
    this.child = spawn(file, args, { stdio: 'pipe', env });
    this.ended = once(this.child, 'close') as Running['ended'];
    for (const name of ['stdout', 'stderr'] as const) {
      this.child[name]?.setEncoding('utf8').on('data', (text: string) => {
        this[name] += text;
        this.text += text;
        this.printed(name, text);
        this.#events.emit('change');
      });
    }
    this.child.once('close', () => {
      this.#hasEnded = true;
      this.#events.emit('change');
    });
    t.teardown(async () => {
      this.kill('SIGKILL');
      await this.ended;
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Resolves with what `look` finds in what it has printed; rejects when it has ended before. */
  async when<T>(what: string, look: () => T | undefined): Promise<T> {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      const why = this.#hasEnded ? 'the program ended' : signal.aborted && 'the time was up';
      if (why !== false) throw new Error(`${why} before ${what}: ${this.text}`);
      await once(this.#events, 'change', { signal }).catch(() => undefined);
    }
  }

  /** Resolves when it has printed this. */
  said(pattern: RegExp): Promise<RegExpExecArray> {
    return this.when(pattern.source, () => pattern.exec(this.text) ?? undefined);
  }

  /** Called with each piece that it prints. */
  protected printed(_stream: 'stdout' | 'stderr', _text: string): void {}
}
