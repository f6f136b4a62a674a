import { join } from 'node:path';
import { answerRequests, Dialogue } from '../../../bench/support/dialogue.ts';
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

/** Functions of a script, by name. */
type Handlers<H> = { readonly [K in keyof H]: (...args: never[]) => unknown };

/** A script of ours that runs on a machine of a network. It ends when its standard input does. */
export class ScriptProcess<H extends Handlers<H>> {
  /** Everything that it reported without being asked. */
  readonly events: unknown[] = [];
  readonly #dialogue: Dialogue;

  constructor(
    network: Network,
    machine: MachineName,
    script: string,
    args: readonly string[] = [],
  ) {
    const program = [process.execPath, join(import.meta.dirname, script), ...args];
    // `ip netns exec` becomes the program, so the process that is started is the one that runs.
    const command = ['ip', 'netns', 'exec', network.namespace(machine), ...program];
    this.#dialogue = new Dialogue(command, (event) => this.events.push(event));
  }

  get pid(): number {
    return this.#dialogue.pid;
  }

  /** Calls a function of the script. Rejects when that does, or the script ends. */
  call<K extends keyof H & string>(
    name: K,
    ...args: Parameters<H[K]>
  ): Promise<Awaited<ReturnType<H[K]>>> {
    return this.#dialogue.ask({ name, args });
  }

  /** Ends it as it would end by itself, or at once with a signal. Idempotent. */
  end(signal?: NodeJS.Signals): Promise<void> {
    return this.#dialogue.end(signal);
  }
}

/** The other side: carries out the calls, and answers as they resolve. */
export function serveLines<H extends Handlers<H>>(handlers: H): void {
  answerRequests(({ name, args }: { name: keyof H; args: never[] }) => handlers[name](...args));
}
