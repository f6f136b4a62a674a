import { processDescriptorLimit } from '../../proxysocket/core/descriptors.ts';
import type { ProblemView } from '../../admin/subject.ts';
import type { Log } from '../../observe/log.ts';
import type { Portal } from '../../portal/portal.ts';
import { Proxier } from '../../proxier/proxier.ts';
import type { Engine } from '../../proxysocket/engine.ts';
import { DEFAULT_LIMITS } from '../../proxysocket/limits.ts';
import { HealthCheckSink } from '../../sinks/healthchecks.ts';
import type { LocalSink } from '../../store/local-view.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import { socketHolder } from '../../util/listen-failure.ts';
import type { RunContext, RunningSink } from '../command.ts';
import { createEngine } from './userspace-engine.ts';
import type { UserspaceOptions } from './userspace-options.ts';
import { createPortal } from './userspace-portal.ts';

/** How long a stop waits for a new process that is about to take over, at most half the drain timeout. Milliseconds. */
const SETTLE_LIMIT_MS = 5000;

/** Assembles proxier, portal and engine. Rejects with KPNG_USAGE for flags that exclude each other. */
export async function startUserspace(
  options: UserspaceOptions,
  { log, globals, activation }: RunContext,
): Promise<RunningSink> {
  const { nodeName, portalTable, handoverSocket: path } = options;
  adviseOnDescriptors(log, options.limits.reservedDescriptors);
  // Shared: metrics, the status and the fallback engine read it as well.
  const limits = { ...options.limits };
  const served = (): Required<Engine> => engine;
  const handover =
    path === ''
      ? undefined
      : await (
          await import('../../handover/begin.ts')
        ).beginHandover(path, served, log, activation);
  const server = handover?.server;
  // The portal follows from the engine, and the engine's fallback from the portal.
  const chosen: { portal?: Portal } = {};
  // Identifies this process among others of the same user, across restarts.
  const { adminSocket, config } = globals;
  const instance = JSON.stringify([nodeName, adminSocket, config, path, portalTable]);
  const engine = await createEngine({ ...options, limits, instance }, chosen, log);
  const portal = await createPortal(options, log, {
    previous: handover?.previousListeners ?? [],
    engine: engine.kind,
  }).catch(async (error: unknown) => {
    await engine.destroy();
    throw error;
  });
  chosen.portal = portal;
  const proxier = new Proxier({
    engine,
    portal,
    holds: limits.holdTimeoutMs > 0,
    podNetworks: options.clusterCidr,
    nodePortsOnly: options.nodePortsOnly,
    holderOf: (place) => socketHolder(place),
  });
  /** Its rules and addresses stay if a new process uses them. */
  const closePortal = () => portal.close(options.cleanupOnExit && server?.newProcess === undefined);
  /** Whether the last change set was applied. */
  let isWorking = false;
  const checks = options.healthCheckNodePorts
    ? new HealthCheckSink({
        wanted: options.nodePortAddresses,
        host: () => portal.hostAddresses?.() ?? hostAddresses(),
        healthy: () => isWorking && !proxier.drains.isAllDrained,
      })
    : undefined;
  const sink: LocalSink = {
    async sync(change) {
      const applied = proxier.sync(change);
      isWorking = await applied.then(
        () => true,
        () => false,
      );
      await checks?.sync(change);
      await applied;
    },
  };
  const problems = (): ProblemView[] => {
    return [...proxier.snapshot().problems, ...(checks?.problems ?? [])].map((each) => {
      const { code, message, servicePort = null } = each;
      return { code, message, servicePort, count: 'count' in each ? each.count : 1 };
    });
  };
  return {
    sink,
    ...(handover && {
      inPlace: () => handover.inPlace(),
      ended: handover.server.handedOver,
      ...(options.handoverWait && { afterwards: (asked) => handover.server.wait(asked) }),
    }),
    proxy: {
      engine,
      proxier,
      portal: portal.kind,
      limits,
      desired: () => proxier.snapshot().servicePorts,
      problems,
    },
    setPodNetworks(networks) {
      const all = [...new Set([...options.clusterCidr, ...networks])];
      // A failure is reported and retried there.
      proxier.setPolicy({ podNetworks: all }).catch(() => undefined);
    },
    async setLimits(change) {
      Object.assign(limits, change);
      await engine.setLimits(change);
      if (change.holdTimeoutMs !== undefined) {
        await proxier.setPolicy({ holds: change.holdTimeoutMs > 0 });
      }
    },
    async close() {
      await server?.settled(Math.min(SETTLE_LIMIT_MS, globals.drainTimeout / 2));
      server?.close();
      const newProcess = server?.newProcess;
      const checksEnded = newProcess === undefined ? checks?.close() : checks?.leave();
      // In order: load balancers look elsewhere, no new state or clients arrive, then the connections end.
      if (newProcess === undefined) await checksEnded;
      const closeEngine = () => engine.close(newProcess && { served: newProcess.served });
      // Connections need the addresses that the portal has added.
      const [first, second] =
        portal.redirects === true ? [closePortal, closeEngine] : [closeEngine, closePortal];
      const ended = async (): Promise<void> => {
        try {
          await proxier.close();
          await first();
        } finally {
          await second();
        }
      };
      await Promise.all([checksEnded, ended()]);
    },
    async destroy() {
      await checks?.close();
      await engine.destroy();
      if (portal.redirects !== true) await closePortal();
    },
  };
}

/** With this many descriptors, the usual reserve leaves most of them to clients. */
const ENOUGH = 4 * DEFAULT_LIMITS.reservedDescriptors;

/** Warns at startup if the file descriptor limit allows few clients or none. `reserved`: for other uses. */
function adviseOnDescriptors(log: Log, reserved: number): void {
  const limit = processDescriptorLimit();
  const left = Math.max(0, limit - reserved);
  const keys = { limit, reserved, left };
  if (left === 0) {
    const message =
      'No file descriptors left for clients; raise ulimit -n or lower --reserved-descriptors';
    log.error(message, { ...keys, code: 'KPNG_LIMIT_REACHED' });
  } else if (limit < ENOUGH) {
    log.warn('Too few file descriptors for many clients; raise ulimit -n', keys);
  }
}
