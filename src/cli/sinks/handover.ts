import type { HandoverServer } from '../../handover/predecessor.ts';
import type { FileId } from '../../handover/socket-file.ts';
import type { Inheritance } from '../../handover/take-over.ts';
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
  readonly #path: string;
  readonly #log: Log;
  readonly #inheritance: Inheritance | undefined;
  /** The file at the path when this process began. */
  readonly #file: FileId;
  readonly #activation: Activation;
  readonly #taken = Promise.withResolvers<number>();
  #server: HandoverServer | undefined;
  #isTaken = false;
  #newProcess: NewProcess | undefined;
  #closed = false;

  private constructor(
    options: HandoverOptions,
    inheritance: Inheritance | undefined,
    file: FileId,
  ) {
    const { path, log, activation } = options;
    this.#path = path;
    this.#log = log;
    this.#activation = activation;
    this.#inheritance = inheritance;
    this.#file = file;
  }

  /** Takes over from a running process; without one, or if that fails, this process starts alone. */
  static async begin(options: HandoverOptions): Promise<Handover> {
    const { path, log, activation } = options;
    const { takeOver } = await import('../../handover/take-over.ts');
    const begin = performance.now();
    const found = await takeOver(path);
    if (found.kind === 'inherited') {
      const { pid, sockets } = found;
      const ms = Math.round(performance.now() - begin);
      log.info('Taking over from the running process', { pid, sockets, ms });
      const handover = new Handover(options, found, found.file);
      void found.predecessorGone.then(() => handover.#predecessorGone(pid));
      return handover;
    }
    if (found.kind === 'failed') {
      log.warn('Cannot take over; starting without handed-off sockets', {
        path,
        reason: found.reason,
      });
    }
    await activation.activate();
    return new Handover(options, undefined, found.kind === 'nobody' ? found.file : undefined);
  }

  /** Resolves with the process id of the new process when it serves the clients. */
  get taken(): Promise<number> {
    return this.#taken.promise;
  }

  get isTaken(): boolean {
    return this.#isTaken;
  }

  /** What the new process does with the listening sockets; undefined: none, or unknown. */
  get newProcess(): NewProcess | undefined {
    return this.#newProcess;
  }

  /** Where service ports listened in the previous process. */
  get previousListeners(): readonly PreviousListener[] {
    return this.#inheritance?.previousListeners ?? [];
  }

  /** Takes over and begins to wait for a new process, once a state is applied. Only the first call has an effect. */
  async inPlace(handedOver: HandedOver): Promise<void> {
    if (this.#server === undefined && !this.#closed) await this.#serve(handedOver);
  }

  /** Waits up to this many milliseconds for a new process that is about to take over. */
  async settled(withinMs: number): Promise<void> {
    const isSettled = (await this.#server?.settled(withinMs)) ?? true;
    if (!isSettled) {
      this.#log.warn('New process did not take over in time; stopping without it', { withinMs });
    }
  }

  /**
   * With a new process, waits for a signal or for that process to end. Returns the exit code: not 0 in the second
   * case, so that the service manager restarts this process.
   */
  async wait(asked: Promise<void>): Promise<number> {
    if (!this.#isTaken || this.#server === undefined) return 0;
    this.#log.info('Waiting for a signal, or for the new process to end');
    const gone = this.#server.newProcessGone.then(() => 1);
    const code = await Promise.race([asked.then(() => 0), gone]);
    if (code !== 0) this.#log.warn('New process has ended; exiting, to be restarted');
    return code;
  }

  /** Stops handing over. The connection to a new process stays open. Idempotent. */
  close(): void {
    this.#closed = true;
    if (!this.#isTaken) this.#server?.close();
  }

  async #serve(handedOver: HandedOver): Promise<void> {
    const log = this.#log;
    const { HandoverServer } = await import('../../handover/predecessor.ts');
    const server = new HandoverServer({
      path: this.#path,
      expected: this.#file,
      listeners: () => previousListeners(handedOver.snapshot()),
      flows: async () => {
        try {
          return await handedOver.flows();
        } catch (error) {
          log.warn('Cannot send UDP sessions to the new process', { err: error });
          return [];
        }
      },
      ports: () => handedOver.ports(),
      onGiven: (pid, sockets) =>
        log.info('Handing the listeners to a new process', { pid, sockets }),
      onFailed: (reason) => log.warn('New process did not take over; still serving', { reason }),
      onUnreachable: (reason) => {
        const path = this.#path;
        if (reason === undefined)
          log.info('Handover socket ready; a new process can take over', { path });
        else
          log.warn('Handover socket unavailable; a new process cannot take over; retrying', {
            path,
            reason,
          });
      },
    });
    this.#server = server;
    void server.taken.then(({ pid, newProcess }) => {
      this.#isTaken = true;
      this.#newProcess = newProcess;
      server.close();
      log.info('New process has taken over', { pid });
      this.#taken.resolve(pid);
    });
    await server.listen();
    if (this.#inheritance === undefined) return;
    const { pid } = this.#inheritance;
    // Until now, metrics and health would have reported that no state is applied yet.
    await this.#activation.activate(pid);
    this.#inheritance.complete();
    log.info('Took over from the previous process', { pid });
  }

  /**
   * The previous process ended before this one serves. Clients wait in the queues; no other process can answer
   * probes.
   */
  async #predecessorGone(pid: number): Promise<void> {
    if (this.#server !== undefined) return;
    this.#log.warn('Previous process ended before this one could serve', { pid });
    await this.#activation.activate(pid);
  }
}

/** The listeners and sessions that a process hands over. */
export interface HandedOver {
  /** Where service ports listen. */
  snapshot(): ServicePortSnapshot[];
  /** UDP sessions. */
  flows(): Promise<readonly PreviousFlow[]>;
  /** TCP ports of other listeners. */
  ports(): readonly number[];
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
export async function previousFlows(
  engine: Pick<Engine, 'snapshot'> & Required<Pick<Engine, 'inspect'>>,
): Promise<PreviousFlow[]> {
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
