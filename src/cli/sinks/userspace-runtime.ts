import type { Log } from '../../observe/log.ts';
import { Proxier } from '../../proxier/proxier.ts';
import { createNodeEngine } from '../../proxysocket/node-engine.ts';
import type { RunningSink } from '../command.ts';
import type { UserspaceOptions } from './to-userspace.ts';
import { createPortal } from './userspace-portal.ts';

/** Closes one after the other, whatever becomes of the first one. */
async function both(
  first: { close(): Promise<void> },
  second: { close(): Promise<void> },
): Promise<void> {
  try {
    await first.close();
  } finally {
    await second.close();
  }
}

/** Puts proxier, portal and engine together. Rejects with KPNG_USAGE for flags that do not go together. */
export async function startUserspace(options: UserspaceOptions, log: Log): Promise<RunningSink> {
  const { limits } = options;
  const portal = await createPortal(options, log);
  const engine = createNodeEngine({
    limits,
    ...(portal.hostAddresses !== undefined && {
      hostAddresses: () => portal.hostAddresses?.() ?? [],
    }),
  });
  const proxier = new Proxier({ engine, portal });
  return {
    sink: proxier,
    dataPath: {
      engine: engine.kind,
      portal: portal.kind,
      limits,
      snapshot: () => engine.snapshot(),
      problems: () => proxier.snapshot().problems,
    },
    async close() {
      // Nothing new from the source, then nothing new from clients, then the connections end.
      await proxier.close();
      if (portal.redirects === true) await both(portal, engine);
      // Connections need the addresses that such a portal has added.
      else await both(engine, portal);
    },
    async destroy() {
      await engine.destroy();
      if (portal.redirects !== true) await portal.close();
    },
  };
}
