/**
 * Programs of benchmarks and tests that are asked more than one thing: each line on their standard input is a
 * request, each line on their standard output the answer to one.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { createInterface } from 'node:readline';

/** What an answer looks like on its way. */
type Message =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: string };

/** A program that answers requests until it is ended. */
export class Dialogue {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #gone: Promise<unknown>;
  readonly #onExit: () => void;
  #nextId = 1;

  /** `command` runs a script of ours; its standard error is that of this process. */
  constructor(command: readonly string[]) {
    const [file = '', ...args] = command;
    this.#child = spawn(file, args, {
      stdio: ['pipe', 'pipe', 'inherit'],
      // Linux shares its cores out by session: every server has one of its own, as the proxy has.
      detached: process.platform !== 'win32',
    });
    this.#gone = once(this.#child, 'exit');
    this.#onExit = (): void => void this.#child.kill('SIGKILL');
    process.once('exit', this.#onExit);
    const { stdin, stdout } = this.#child;
    if (stdin === null || stdout === null) throw new Error('no pipes');
    // Only an answer that is waited for keeps this process alive.
    this.#child.unref();
    for (const pipe of [stdin, stdout]) (pipe as Socket).unref();
    stdin.on('error', () => undefined);
    createInterface({ input: stdout }).on('line', (line) => this.#receive(line));
    void this.#gone.then(() => this.#fail(`${command.join(' ')} has ended`));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Resolves with the answer; rejects when the program says that it failed, or ends. */
  ask<Answer>(request: object): Promise<Answer> {
    const id = this.#nextId;
    this.#nextId += 1;
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting.set(id, waiting);
    this.#child.ref();
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.stdin?.write(`${JSON.stringify({ id, request })}\n`);
    } else {
      this.#fail('the program has ended');
    }
    return waiting.promise as Promise<Answer>;
  }

  /** Ends it at once. Idempotent. */
  kill(): Promise<void> {
    return this.end('SIGKILL');
  }

  /** Ends it as it would end by itself, or with a signal. Idempotent. */
  async end(signal?: NodeJS.Signals): Promise<void> {
    process.off('exit', this.#onExit);
    this.#child.ref();
    if (signal === undefined) this.#child.stdin?.end();
    else this.#child.kill(signal);
    await this.#gone;
  }

  #receive(line: string): void {
    const message = JSON.parse(line) as Message;
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (this.#waiting.size === 0) this.#child.unref();
    if ('error' in message) waiting?.reject(new Error(message.error));
    else waiting?.resolve(message.result);
  }

  #fail(why: string): void {
    for (const { reject } of this.#waiting.values()) reject(new Error(why));
    this.#waiting.clear();
  }
}

/** Starts a script of ours with its settings. `inside`: what runs it, such as `ip netns exec NAME`. */
export function startScript(
  script: string,
  settings: object = {},
  inside: readonly string[] = [],
): Dialogue {
  return new Dialogue([...inside, process.execPath, script, JSON.stringify(settings)]);
}

/** For the program itself: its settings, the JSON in its first argument. */
export function settings(): unknown {
  return JSON.parse(process.argv[2] ?? '{}');
}

/** For the program itself: answers requests as they resolve, and ends when its input does. */
export function answerRequests(handle: (request: never) => unknown): void {
  createInterface({ input: process.stdin })
    .on('line', (line) => {
      const { id, request } = JSON.parse(line) as { id: number; request: never };
      void answerOne(id, async () => handle(request));
    })
    .on('close', () => process.exit(0));
}

async function answerOne(id: number, handle: () => Promise<unknown>): Promise<void> {
  let message: Message;
  try {
    message = { id, result: (await handle()) ?? null };
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    message = { id, error: text };
  }
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
