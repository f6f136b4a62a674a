import type { Portal } from '../../portal/portal.ts';
import { AddressPortal } from '../../portal/address.ts';
import { NonePortal } from '../../portal/none.ts';
import { PortAllocator } from '../../portal/port-allocator.ts';
import { Proxier } from '../../proxier/proxier.ts';
import { createNodeEngine } from '../../proxysocket/node-engine.ts';
import type { RunningSink } from '../command.ts';
import type { UserspaceOptions } from './to-userspace.ts';

/** Puts proxier, portal and engine together. */
export function startUserspace(options: UserspaceOptions): RunningSink {
  const { limits } = options;
  const engine = createNodeEngine({ limits });
  const portal = createPortal(options);
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
      await portal.close();
      await engine.close();
    },
    destroy: () => engine.destroy(),
  };
}

function createPortal(options: UserspaceOptions): Portal {
  const { portal, bindAddress, portRange, nodePortAddresses } = options;
  if (portal === 'address') return new AddressPortal({ nodePortAddresses });
  return new NonePortal({ bindAddress, allocator: new PortAllocator(portRange, Math.random) });
}
