import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Agent, Answer, Place } from './agent.ts';
import type { MachineName, Network } from './network.ts';

/** How long to wait for an answer that should come. Decides only how long a failing test takes. */
const ANSWER_MS = 5000;
/** How long to wait where none should come. */
const SILENCE_MS = 400;

/** `10.0.0.1:80` or `[fd00::1]:53/UDP`. */
function readPlace(text: string): Place {
  const [place = '', protocol] = text.split('/');
  const at = place.lastIndexOf(':');
  return {
    address: place.slice(0, at).replace(/^\[|\]$/g, ''),
    port: Number(place.slice(at + 1)),
    protocol: protocol === 'UDP' ? 'UDP' : 'TCP',
  };
}

/** A machine of a test network with a program on it that serves and asks. */
export class Machine {
  readonly name: MachineName;
  /** What the program does; see agent.ts. */
  readonly agent: ScriptProcess<Agent>;

  constructor(network: Network, name: MachineName) {
    this.name = name;
    this.agent = new ScriptProcess(network, name, 'agent.ts');
  }

  /** Answers at a place with a name and the address that the client seems to have, until the test ends or for good. */
  async serve(place: string, name: string, stays = false): Promise<void> {
    await this.agent.call('serve', readPlace(place), name, stays);
  }

  /** What comes back from a place: `name client`, the system's word for an error, or `silence`. */
  ask(place: string, options: { source?: string; waitMs?: number } = {}): Promise<Answer> {
    return this.agent.call('ask', readPlace(place), { waitMs: ANSWER_MS, ...options });
  }

  /** The same where no answer is expected. */
  askInVain(place: string, options: { source?: string } = {}): Promise<Answer> {
    return this.ask(place, { ...options, waitMs: SILENCE_MS });
  }

  /** A connection, or a UDP socket, that stays. */
  open(flow: string, place: string): Promise<Answer> {
    return this.agent.call('open', flow, readPlace(place));
  }

  /** Closes what `open` has opened. */
  async close(flow: string): Promise<void> {
    await this.agent.call('close', flow);
  }

  say(flow: string, waitMs = ANSWER_MS): Promise<Answer> {
    return this.agent.call('say', flow, waitMs);
  }
}

/** A message that answers a request, or one that was not asked for. */
type Message =
  | { readonly id: number; readonly result?: unknown; readonly error?: string }
  | {
      readonly event: unknown;
    };

/** Functions of a script, by name. */
type Handlers<H> = { readonly [K in keyof H]: (...args: never[]) => unknown };

/**
 * A script of ours that runs on a machine of a network, and speaks JSON lines: each call gets one
 * answer, and it may report events. It ends when its standard input does.
 */
export class ScriptProcess<H extends Handlers<H>> {
  /** Everything that it reported without being asked. */
  readonly events: unknown[] = [];
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #nextId = 1;
  #stderr = '';

  constructor(
    network: Network,
    machine: MachineName,
    script: string,
    args: readonly string[] = [],
  ) {
    const path = join(import.meta.dirname, script);
    const inside = ['netns', 'exec', network.namespace(machine), process.execPath, path, ...args];
    // `ip netns exec` becomes the program, so the process that is started is the one that runs.
    this.#child = spawn('ip', inside, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-64 * 1024);
    });
    const { stdout, stdin } = this.#child;
    if (stdout === null || stdin === null) throw new Error('no pipes');
    // Only an answer that is waited for keeps the test process alive: machines stay until it ends.
    this.#child.unref();
    for (const pipe of [stdin, stdout, this.#child.stderr]) (pipe as Socket | null)?.unref();
    // Writing to a process that has just ended is reported by `exit`.
    stdin.on('error', () => undefined);
    createInterface({ input: stdout }).on('line', (line) => {
      this.#receive(JSON.parse(line) as Message);
    });
    this.#child.once('exit', (code, signal) => {
      const error = new Error(
        `${script} on ${machine} has ended (${signal ?? code}): ${this.#stderr}`,
      );
      for (const { reject } of this.#waiting.values()) reject(error);
      this.#waiting.clear();
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Calls a function of the script. Rejects when that does, or the script ends. */
  call<K extends keyof H & string>(
    name: K,
    ...args: Parameters<H[K]>
  ): Promise<Awaited<ReturnType<H[K]>>> {
    const id = this.#nextId;
    this.#nextId += 1;
    const waiting = Promise.withResolvers<unknown>();
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
      return Promise.reject(new Error(`the process has ended: ${this.#stderr}`));
    }
    this.#waiting.set(id, waiting);
    this.#child.ref();
    this.#child.stdin?.write(`${JSON.stringify({ id, name, args })}\n`);
    return waiting.promise as Promise<Awaited<ReturnType<H[K]>>>;
  }

  /** Ends it as it would end by itself, or at once with a signal. Idempotent. */
  async end(signal?: NodeJS.Signals): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const ended = once(this.#child, 'exit');
    if (signal === undefined) this.#child.stdin?.end();
    else this.#child.kill(signal);
    await ended;
  }

  #receive(message: Message): void {
    if ('event' in message) {
      this.events.push(message.event);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (this.#waiting.size === 0) this.#child.unref();
    if (message.error === undefined) waiting?.resolve(message.result);
    else waiting?.reject(new Error(message.error));
  }
}

/** The other side: carries out the calls on standard input, and answers as they resolve. */
export function serveLines<H extends Handlers<H>>(handlers: H): void {
  createInterface({ input: process.stdin })
    .on('line', (line) => {
      const { id, name, args } = JSON.parse(line) as { id: number; name: keyof H; args: never[] };
      void answer(id, async () => handlers[name](...args));
    })
    .on('close', () => process.exit(0));
}

/** Reports an event. */
export function tell(event: unknown): void {
  process.stdout.write(`${JSON.stringify({ event })}\n`);
}

async function answer(id: number, handle: () => Promise<unknown>): Promise<void> {
  let message: Message;
  try {
    message = { id, result: (await handle()) ?? null };
  } catch (error) {
    message = {
      id,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    };
  }
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
