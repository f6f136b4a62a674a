import type { Machine } from './machine.ts';
import type { Outcomes, Flight, Spot, TrafficRequest } from './traffic-peers.ts';

/** Clients and servers on a machine of a test network that do what `Machine` does not. See traffic-main.ts. */
export class Traffic {
  readonly #machine: Machine;

  /** Ends with the test. */
  constructor(t: { teardown(end: () => unknown): unknown }, machine: Machine) {
    this.#machine = machine;
    t.teardown(async () => {
      await this.close();
      await this.stop();
    });
  }

  async respond(place: string, name: string): Promise<void> {
    await this.#do({ do: 'respond', name, ...spot(place) });
  }

  /** `ends`: whether it closes a connection when the client does. */
  async greet(place: string, { ends }: { ends: boolean }): Promise<void> {
    await this.#do({ do: 'greet', ends, ...spot(place) });
  }

  /** How many connections the clients have ended. */
  ended(): Promise<number> {
    return this.#do({ do: 'ended' }) as Promise<number>;
  }

  async stop(): Promise<void> {
    await this.#do({ do: 'stop' });
  }

  /** `waitMs`: for each greeting. */
  connect(
    place: string,
    options: { count: number; waitMs?: number; after?: 'stay' | 'half-close' },
  ): Promise<Outcomes> {
    const { count, waitMs = 5000, after = 'stay' } = options;
    const request = { do: 'connect', count, waitMs, after, ...spot(place) } as const;
    return this.#do(request) as Promise<Outcomes>;
  }

  async close(): Promise<void> {
    await this.#do({ do: 'close' });
  }

  /** Resolves with how many were answered. */
  flows(place: string, count: number): Promise<number> {
    return this.#do({ do: 'flows', count, ...spot(place) }) as Promise<number>;
  }

  say(index: number, waitMs = 5000): Promise<string> {
    return this.#do({ do: 'say', index, waitMs }) as Promise<string>;
  }

  async serveFirstFlight(place: string, bytes: number): Promise<void> {
    await this.#do({ do: 'serve-first-flight', bytes, ...spot(place) });
  }

  firstFlight(place: string, bytes: number): Promise<Flight> {
    return this.#do({ do: 'first-flight', bytes, ...spot(place) }) as Promise<Flight>;
  }

  /** PEM texts. */
  async serveTls(place: string, files: { key: string; cert: string }): Promise<void> {
    await this.#do({ do: 'serve-tls', ...files, ...spot(place) });
  }

  askTls(place: string, options: { ca: string; text: string }): Promise<string> {
    return this.#do({ do: 'ask-tls', ...options, ...spot(place) }) as Promise<string>;
  }

  #do(request: TrafficRequest): Promise<unknown> {
    return this.#machine.traffic(request);
  }
}

/** `10.0.0.1:80` or `[fd00::1]:80`. */
function spot(place: string): Spot {
  const at = place.lastIndexOf(':');
  return {
    address: place.slice(0, at).replace(/^\[|\]$/g, ''),
    port: Number(place.slice(at + 1)),
  };
}
