import type { HandoverServer, Taken } from '../../handover/predecessor.ts';
import type { TakeOver } from '../../handover/take-over.ts';
import type { Log } from '../../observe/log.ts';
import type { PreviousListener } from '../../proxysocket/core/inherited.ts';
import { isShared, slotKeys } from '../../proxysocket/core/listener-slot.ts';
import type { NewProcess, Engine, ServicePortSnapshot } from '../../proxysocket/engine.ts';
import { MAX_LISTED } from '../../proxysocket/inspect.ts';
import type { PreviousFlow } from '../../proxysocket/udp/previous-flows.ts';
import type { Activation } from '../../util/activation.ts';

export interface HandoverOptions {
  /** Of the unix socket. */
  readonly path: string;
  readonly log: Log;
  /** Activated when no other process serves, or when this one is about to. */
  readonly activation: Activation;
}

/** Takes over from the previous process, and hands over to the next one. */
export class Handover {
  readonly #options: HandoverOptions;
  /** What became of the previous process. */
  readonly #found: TakeOver;
  readonly #taken = Promise.withResolvers<number>();
  /** Resolves with the process id of the new process when it serves the clients. */
  readonly taken: Promise<number> = this.#taken.promise;
  #server: HandoverServer | undefined;
  /** The new process. */
  #result: Taken | undefined;
  #closed = false;

  private constructor(options: HandoverOptions, found: TakeOver) {
    this.#options = options;
    this.#found = found;
  }

  /** Takes over from a running process; without one, or if that fails, this process starts alone. */
  static async begin(options: HandoverOptions): Promise<Handover> {
    const { path, log, activation } = options;
    const { takeOver } = await import('../../handover/take-over.ts');
    const begin = performance.now();
    const found = await takeOver(path);
    const handover = new Handover(options, found);
    if (found.kind === 'inherited') {
      const { pid, sockets } = found;
      const ms = Math.round(performance.now() - begin);
      log.info('Taking over from the running process', { pid, sockets, ms });
      void found.predecessorGone.then(() => handover.#predecessorGone(pid));
      return handover;
    }
    if (found.kind === 'failed') {
      const { reason } = found;
      log.warn('Cannot take over; starting without handed-off sockets', { path, reason });
    }
    await activation.activate();
    return handover;
  }

  get isTaken(): boolean {
    return this.#result !== undefined;
  }

  /** What the new process does with the listening sockets; undefined: none, or unknown. */
  get newProcess(): NewProcess | undefined {
    return this.#result?.newProcess;
  }

  /** Where service ports listened in the previous process. */
  get previousListeners(): readonly PreviousListener[] {
    return this.#found.kind === 'inherited' ? this.#found.previousListeners : [];
  }

  /**
   * Takes over and begins to wait for a new process, once a state is applied. Only the first call has an effect. `ports`: TCP
   * ports of listeners that are not the engine's.
   */
  async inPlace(engine: Required<Engine>, ports: () => readonly number[]): Promise<void> {
    if (this.#server === undefined && !this.#closed) await this.#serve(engine, ports);
  }

  /** Waits up to this many milliseconds for a new process that is about to take over. */
  async settled(withinMs: number): Promise<void> {
    const isSettled = (await this.#server?.settled(withinMs)) ?? true;
    if (!isSettled) {
      this.#options.log.warn('New process did not take over in time; stopping without it', {
        withinMs,
      });
    }
  }

  /**
   * With a new process, waits for a signal or for that process to end. Returns the exit code: not 0 in the second
   * case, so that the service manager restarts this process.
   */
  async wait(asked: Promise<void>): Promise<number> {
    const { log } = this.#options;
    if (this.#result === undefined) return 0;
    log.info('Waiting for a signal, or for the new process to end');
    const gone = this.#result.gone.then(() => 1);
    const code = await Promise.race([asked.then(() => 0), gone]);
    if (code !== 0) log.warn('New process has ended; exiting, to be restarted');
    return code;
  }

  /** Stops handing over. The connection to a new process stays open. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#server?.close();
  }

  async #serve(engine: Required<Engine>, ports: () => readonly number[]): Promise<void> {
    const { path, log, activation } = this.#options;
    const found = this.#found;
    const { HandoverServer } = await import('../../handover/predecessor.ts');
    const server = new HandoverServer({
      path,
      expected: found.kind === 'failed' ? undefined : found.file,
      listeners: () => previousListeners(engine.snapshot()),
      flows: async () => {
        try {
          return await previousFlows(engine);
        } catch (error) {
          log.warn('Cannot send UDP sessions to the new process', { err: error });
          return [];
        }
      },
      ports,
      onGiven: (pid, sockets) =>
        log.info('Handing the listeners to a new process', { pid, sockets }),
      onFailed: (reason) => log.warn('New process did not take over; still serving', { reason }),
      onUnreachable: (reason) => {
        if (reason === undefined) {
          log.info('Handover socket ready; a new process can take over', { path });
          return;
        }
        const message = 'Handover socket unavailable; a new process cannot take over; retrying';
        log.warn(message, { path, reason });
      },
    });
    this.#server = server;
    void server.taken.then((taken) => {
      this.#result = taken;
      server.close();
      log.info('New process has taken over', { pid: taken.pid });
      this.#taken.resolve(taken.pid);
    });
    await server.listen();
    if (found.kind !== 'inherited') return;
    const { pid } = found;
    // Until now, metrics and health would have reported that no state is applied yet.
    await activation.activate(pid);
    found.complete();
    log.info('Took over from the previous process', { pid });
  }

  /**
   * The previous process ended before this one serves. Clients wait in the queues; no other process can answer
   * probes.
   */
  async #predecessorGone(pid: number): Promise<void> {
    if (this.#server !== undefined) return;
    const { log, activation } = this.#options;
    log.warn('Previous process ended before this one could serve', { pid });
    await activation.activate(pid);
  }
}

/** Where service ports listen now, for a new process. */
export function previousListeners(snapshot: readonly ServicePortSnapshot[]): PreviousListener[] {
  const shared = new Set<string>();
  return snapshot.flatMap(({ name, protocol, listeners }) => {
    const keys = slotKeys(
      { name, protocol },
      listeners.map(({ listen }) => listen),
    );
    return listeners.flatMap((status, index): PreviousListener[] => {
      if (status.state !== 'listening') return [];
      const { address, traffic, port: asked } = status.listen;
      const key = keys[index] ?? '';
      // Once is enough.
      if (isShared(key) && shared.size === shared.add(key).size) return [];
      const place = { servicePort: name, protocol, address, traffic };
      return [{ ...place, asked, port: status.boundPort, key }];
    });
  });
}

/** Current UDP sessions, up to the limit of one query. None if the engine does not know them. */
async function previousFlows(engine: Required<Engine>): Promise<PreviousFlow[]> {
  const servicePorts = engine
    .snapshot()
    .filter(({ protocol, counters }) => protocol === 'UDP' && counters.active > 0)
    .map(({ name }) => name);
  if (servicePorts.length === 0) return [];
  const { connections } = await engine.inspect({ servicePorts, maxConnections: MAX_LISTED });
  return connections.map(({ servicePort, client, endpoint }) => ({
    servicePort,
    client,
    endpoint,
  }));
}
