import type { Engine, ServicePortSnapshot } from '../../proxysocket/engine.ts';
import type { FormerListener } from '../../proxysocket/core/inherited.ts';
import { MAX_LISTED } from '../../proxysocket/inspect.ts';
import { slotKeys } from '../../proxysocket/core/listener-slot.ts';
import type { FormerFlow } from '../../proxysocket/udp/former-flows.ts';

/** What a process hands over. */
export interface HandedOver {
  /** Where service ports listen. */
  snapshot(): ServicePortSnapshot[];
  /** UDP sessions. */
  flows(): Promise<readonly FormerFlow[]>;
  /** TCP ports of what else listens. */
  ports(): readonly number[];
}

/** Where service ports listen now, for a successor. */
export function formerListeners(snapshot: readonly ServicePortSnapshot[]): FormerListener[] {
  return snapshot.flatMap(({ name, protocol, listeners }) => {
    const keys = slotKeys(
      { name, protocol },
      listeners.map(({ listen }) => listen),
    );
    return listeners.flatMap((status, index): FormerListener[] => {
      if (status.state !== 'listening') return [];
      const { address, traffic, port: asked } = status.listen;
      const place = { servicePort: name, protocol, address, traffic };
      return [{ ...place, asked, port: status.boundPort, key: keys[index] ?? '' }];
    });
  });
}

/** UDP sessions now, up to as many as one question gets. None where the engine cannot tell. */
export async function formerFlows(
  engine: Pick<Engine, 'snapshot'> & Required<Pick<Engine, 'inspect'>>,
): Promise<FormerFlow[]> {
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
