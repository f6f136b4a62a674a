import type { AgentRequest, Answer } from './agent.ts';
import { ScriptProcess } from './lines.ts';
import type { MachineName, Network } from './network.ts';
import type { TrafficRequest } from './traffic-peers.ts';

/** How long to wait for an answer that should come. Decides only how long a failing test takes. */
const ANSWER_MS = 5000;
/** How long to wait where none should come. */
const SILENCE_MS = 400;

/** `10.0.0.1:80` or `[fd00::1]:53/UDP`. */
function readPlace(text: string): { address: string; port: number; protocol: 'TCP' | 'UDP' } {
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
  readonly #agent: ScriptProcess;

  constructor(network: Network, name: MachineName) {
    this.name = name;
    this.#agent = new ScriptProcess(network, name, 'agent.ts');
  }

  /** Answers at a place with a name and the address that the client seems to have, until the test ends or for good. */
  async serve(place: string, name: string, stays = false): Promise<void> {
    await this.#do({ do: 'serve', ...readPlace(place), name, stays });
  }

  /** See `Traffic`. */
  traffic(request: TrafficRequest): Promise<unknown> {
    return this.#do({ do: 'traffic', request });
  }

  /** Closes what a test has opened. */
  async reset(): Promise<void> {
    await this.#do({ do: 'reset' });
  }

  /** What comes back from a place: `name client`, the system's word for an error, or `silence`. */
  async ask(place: string, options: { source?: string; waitMs?: number } = {}): Promise<Answer> {
    const { waitMs = ANSWER_MS, ...more } = options;
    return (await this.#do({ do: 'ask', ...readPlace(place), waitMs, ...more })) as Answer;
  }

  /** The same where no answer is expected. */
  askInVain(place: string, options: { source?: string } = {}): Promise<Answer> {
    return this.ask(place, { ...options, waitMs: SILENCE_MS });
  }

  /** A connection, or a UDP socket, that stays. */
  async open(flow: string, place: string): Promise<Answer> {
    return (await this.#do({ do: 'open', flow, ...readPlace(place) })) as Answer;
  }

  /** Closes what `open` has opened. */
  async close(flow: string): Promise<void> {
    await this.#do({ do: 'close', flow });
  }

  async say(flow: string, waitMs = ANSWER_MS): Promise<Answer> {
    return (await this.#do({ do: 'say', flow, waitMs })) as Answer;
  }

  get pid(): number {
    return this.#agent.pid;
  }

  #do(request: AgentRequest): Promise<unknown> {
    return this.#agent.ask(request);
  }
}
