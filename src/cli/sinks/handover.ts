import type { HandoverServer, Taken } from '../../handover/predecessor.ts';
import type { Log } from '../../observe/log.ts';
import type { PreviousListener } from '../../proxysocket/core/inherited.ts';
import { isShared, slotKeys } from '../../proxysocket/core/listener-slot.ts';
import type { Engine, ServicePortSnapshot } from '../../proxysocket/engine.ts';
import { MAX_LISTED } from '../../proxysocket/inspect.ts';
import type { PreviousFlow } from '../../proxysocket/udp/known-clients.ts';
import type { Activation } from '../../util/activation.ts';

/**
 * Takes over from a running process over the socket at `path`; without one, or if that fails, this process starts alone.
 * Activates `activation` when no other process serves, or when this one is about to. The result hands over to the next
 * process.
 */
export async function beginHandover(path: string, log: Log, activation: Activation) {
  const { takeOver } = await import('../../handover/take-over.ts');
  const begin = performance.now();
  const found = await takeOver(path);
  const taken = Promise.withResolvers<number>();
  let server: HandoverServer | undefined;
  let newProcess: Taken | undefined;
  let closed = false;

  if (found.kind === 'inherited') {
    const { pid, sockets } = found;
    const ms = Math.round(performance.now() - begin);
    log.info('Taking over from the running process', { pid, sockets, ms });
    void found.predecessorGone.then(async () => {
      if (server !== undefined) return;
      // Clients wait in the queues; no other process can answer probes.
      log.warn('Previous process ended before this one could serve', { pid });
      await activation.activate(pid);
    });
  } else {
    if (found.kind === 'failed') {
      const { reason } = found;
      log.warn('Cannot take over; starting without handed-off sockets', { path, reason });
    }
    await activation.activate();
  }

  /**
   * Takes over and begins to wait for a new process, once a state is applied. Only the first call has an effect.
   * `ports`: TCP ports of listeners that are not the engine's.
   */
  const inPlace = async (engine: Required<Engine>, ports: () => readonly number[]) => {
    if (server !== undefined || closed) return;
    const { HandoverServer } = await import('../../handover/predecessor.ts');
    const made = new HandoverServer({
      path,
      expected: found.kind === 'failed' ? undefined : found.file,
      offer: async () => {
        const flows = await previousFlows(engine).catch((error: unknown) => {
          log.warn('Cannot send UDP sessions to the new process', { err: error });
          return [];
        });
        return { flows, listeners: previousListeners(engine.snapshot()), ports: ports() };
      },
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
    server = made;
    void made.taken.then((result) => {
      newProcess = result;
      made.close();
      log.info('New process has taken over', { pid: result.pid });
      taken.resolve(result.pid);
    });
    await made.listen();
    if (found.kind !== 'inherited') return;
    const { pid } = found;
    // Until now, metrics and health would have reported that no state is applied yet.
    await activation.activate(pid);
    found.complete();
    log.info('Took over from the previous process', { pid });
  };

  return {
    /** Resolves with the process id of the new process when it serves the clients. */
    taken: taken.promise,
    newProcess: () => newProcess,
    previousListeners: found.kind === 'inherited' ? found.previousListeners : [],

    inPlace,

    /** Waits up to this many milliseconds for a new process that is about to take over. */
    async settled(withinMs: number): Promise<void> {
      if ((await server?.settled(withinMs)) !== false) return;
      log.warn('New process did not take over in time; stopping without it', { withinMs });
    },

    /**
     * With a new process, waits for a signal or for that process to end. Returns the exit code: not 0 in the second
     * case, so that the service manager restarts this process.
     */
    async wait(asked: Promise<unknown>): Promise<number> {
      if (newProcess === undefined) return 0;
      log.info('Waiting for a signal, or for the new process to end');
      const gone = newProcess.gone.then(() => 1);
      const code = await Promise.race([asked.then(() => 0), gone]);
      if (code !== 0) log.warn('New process has ended; exiting, to be restarted');
      return code;
    },

    /** Stops handing over. The connection to a new process stays open. Idempotent. */
    close(): void {
      closed = true;
      server?.close();
    },
  };
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
  return connections.map(({ servicePort, client, endpoint }) => {
    return { servicePort, client, endpoint };
  });
}
