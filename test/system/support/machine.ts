import { join } from 'node:path';
import { answerRequests, Dialogue } from '../../../bench/support/dialogue.ts';
import type { Agent, Answer } from './agent.ts';
import type { MachineName, Network } from './network.ts';

/** How long to wait for an answer that should come. Decides only how long a failing test takes. */
const ANSWER_MS = 20_000;
/** How long to wait where none should come. */
const SILENCE_MS = 400;

/** Functions of a script, by name. */
type Handlers<H> = { readonly [K in keyof H]: (...args: never[]) => unknown };

/** A script of this folder that runs on a machine of a network. It ends when its standard input does. */
export class ScriptProcess<H extends Handlers<H>> {
  readonly #dialogue: Dialogue;

  constructor(network: Network, machine: MachineName, script: string) {
    const program = [process.execPath, join(import.meta.dirname, script)];
    this.#dialogue = new Dialogue([...network.command(machine), ...program]);
  }

  /** Calls a function of the script. Rejects when that does, or the script ends. */
  call<K extends keyof H & string>(
    name: K,
    ...args: Parameters<H[K]>
  ): Promise<Awaited<ReturnType<H[K]>>> {
    return this.#dialogue.ask({ name, args });
  }

  /** Ends it as it would end by itself. Idempotent. */
  end(): Promise<void> {
    return this.#dialogue.end();
  }
}

/** The other side: carries out the calls, and answers as they resolve. */
export function serveLines<H extends Handlers<H>>(handlers: H): void {
  answerRequests(({ name, args }: { name: keyof H; args: never[] }) => handlers[name](...args));
}

/** A machine of a test network with a program on it that serves and asks; see agent.ts. */
export class Machine extends ScriptProcess<Agent> {
  readonly name: MachineName;

  constructor(network: Network, name: MachineName) {
    super(network, name, 'agent.ts');
    this.name = name;
  }

  /** Answers at a place with a name and the address that the client seems to have, until the test ends or for good. */
  async serve(place: string, name: string, stays = false): Promise<void> {
    await this.call('serve', place, name, stays);
  }

  /** What comes back from a place: `name client`, the system's word for an error, or `silence`. */
  ask(place: string, options: { source?: string; waitMs?: number } = {}): Promise<Answer> {
    return this.call('ask', place, { waitMs: ANSWER_MS, ...options });
  }

  /** The same where no answer is expected. */
  askInVain(place: string, options: { source?: string } = {}): Promise<Answer> {
    return this.ask(place, { ...options, waitMs: SILENCE_MS });
  }

  /** The names of the servers that answer so many questions, each once; or what came back instead. */
  async who(place: string, times = 1): Promise<string> {
    const answers = await Promise.all(Array.from({ length: times }, () => this.ask(place)));
    return [...new Set(answers.map((answer) => answer.split(' ')[0] ?? ''))].sort().join(' ');
  }

  /** A connection, or a UDP socket, that stays. */
  open(flow: string, place: string): Promise<Answer> {
    return this.call('open', flow, place);
  }

  /** Closes what `open` has opened. */
  async close(flow: string): Promise<void> {
    await this.call('close', flow);
  }

  say(flow: string, waitMs = ANSWER_MS): Promise<Answer> {
    return this.call('say', flow, waitMs);
  }
}
