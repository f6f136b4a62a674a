import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Teardown } from './sockets.ts';

/** A program that runs until it ends, or the test does. */
export class Running {
  readonly child: ChildProcess;
  /** What it has printed, on both streams, and on standard error alone. */
  text = '';
  stderr = '';
  /** Exit code and signal. */
  readonly ended: Promise<[number | null, NodeJS.Signals | null]>;
  readonly #looks = new Set<() => void>();

  constructor(t: Teardown, file: string, args: readonly string[]) {
    this.child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.ended = once(this.child, 'close') as Running['ended'];
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#add(text));
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      this.#add(text);
    });
    t.teardown(async () => {
      this.child.kill('SIGKILL');
      await this.ended;
    });
  }

  /** Resolves when it has printed this; rejects when it has ended before. */
  said(pattern: RegExp): Promise<RegExpExecArray> {
    const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>();
    const look = (): void => {
      const match = pattern.exec(this.text);
      if (match !== null) resolve(match);
    };
    this.#looks.add(look);
    look();
    const fail = (): void => reject(new Error(`ended before ${pattern.source}: ${this.text}`));
    void this.ended.then(fail, reject);
    return promise;
  }

  #add(text: string): void {
    this.text += text;
    for (const look of this.#looks) look();
  }
}
