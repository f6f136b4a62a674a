import type { Log } from '../observe/log.ts';
import { isShared, slotKeys } from '../proxysocket/core/addresses.ts';
import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import { MAX_LISTED } from '../proxysocket/inspect.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';
import type { Activation } from '../util/activation.ts';
import { pagePorts } from '../util/http-server.ts';
import { HandoverServer, type Offered } from './predecessor.ts';
import type { PreviousListener } from './protocol.ts';
import { takeOver } from './take-over.ts';

/**
 * Takes over from a running process over the socket at `path`; without one, or if that fails, this process starts alone.
 * Activates `activation` when no other process serves, or when this one is about to. The server in the result hands over
 * to the next process, together with those of `served` and of pages.
 */
export async function beginHandover(
  path: string,
  served: () => Required<Engine>,
  log: Log,
  activation: Activation,
) {
  const begin = performance.now();
  const found = await takeOver(path);
  const offer = async (): Promise<Offered> => {
    const engine = served();
    const flows = await previousFlows(engine).catch((err: unknown) => {
      log.warn('Cannot send UDP sessions to the new process', { err });
      return [];
    });
    return { flows, listeners: previousListeners(engine.snapshot()), ports: pagePorts() };
  };
  const server = new HandoverServer(path, offer, log);
  let isServing = false;

  if (found.kind === 'inherited') {
    const { pid, sockets } = found;
    const ms = Math.round(performance.now() - begin);
    log.info('Taking over from the running process', { pid, sockets, ms });
    void found.predecessorGone.then(async () => {
      if (isServing) return;
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
  return {
    server,
    previousListeners: found.kind === 'inherited' ? found.previousListeners : [],

    /** Takes over and begins to wait for a new process, once a state is applied. Only the first call has an effect. */
    async inPlace() {
      if (isServing || server.isClosed) return;
      isServing = true;
      await server.listen(found.file);
      if (found.kind !== 'inherited') return;
      const { pid } = found;
      // Until now, metrics and health would have reported that no state is applied yet.
      await activation.activate(pid);
      found.complete();
      log.info('Took over from the previous process', { pid });
    },
  };
}

/** Where service ports listen now, for a new process. */
function previousListeners(snapshot: readonly ServicePortSnapshot[]): PreviousListener[] {
  const shared = new Set<string>();
  return snapshot.flatMap(({ name, protocol, listeners }) => {
    const specs = listeners.map(({ listen }) => listen);
    const keys = slotKeys({ name, protocol }, specs);
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
