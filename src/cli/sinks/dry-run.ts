import { fileInvalid, fileReadFailed } from '../../file/events.ts';
import { dryExec } from '../../portal/exec.ts';
import type { RuleCanary } from '../../portal/rules/backend.ts';
import { Proxier } from '../../proxier/proxier.ts';
import { newCounters } from '../../proxysocket/counters.ts';
import type { Engine, ServicePortSnapshot } from '../../proxysocket/engine.ts';
import type { ListenerStatus } from '../../proxysocket/spec.ts';
import { healthCheckOf } from '../../sinks/healthchecks.ts';
import { streamWriter } from '../../sinks/json.ts';
import type { LocalChange } from '../../store/local-view.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { RunContext, RunningSink } from '../command.ts';
import type { UserspaceOptions } from './userspace-options.ts';
import { createPortal, type PortalContext } from './userspace-portal.ts';

/** Placeholders for values that differ from run to run. */
const PARTS = {
  owner: '000000000000',
  random: () => 0,
  canary: (): RuleCanary => ({
    open: async () => [],
    probe: async () => 'alive',
    close: () => undefined,
  }),
} satisfies PortalContext['dry'];

/**
 * Prints the commands that the portal would run for the first complete state and the addresses where the engine would
 * listen, then resolves. Nothing is run or opened. The output is the same for the same state and host.
 */
export async function startDryRun(
  options: UserspaceOptions,
  { log, stdout }: RunContext,
): Promise<RunningSink> {
  const done = Promise.withResolvers<void>();
  const write = streamWriter(stdout, () => done.resolve());
  const portal = await createPortal(options, log, { exec: dryExec(write), dry: PARTS });
  const proxier = new Proxier({
    engine: dryEngine(write),
    portal,
    holds: options.limits.holdTimeoutMs > 0,
    podNetworks: options.clusterCidr,
    nodePortsOnly: options.nodePortsOnly,
  });
  let outcome: Promise<void> | undefined;
  let hasFailed = false;
  // A preview does not wait for the file to appear or to be corrected.
  const failed = ({ path }: { readonly path: string }): void => {
    if (outcome !== undefined || hasFailed) return;
    hasFailed = true;
    log.error('Nothing to preview: the state file could not be loaded', { path });
    done.resolve();
  };
  fileReadFailed.subscribe(failed);
  fileInvalid.subscribe(failed);
  const printAll = async (change: LocalChange): Promise<void> => {
    await write(head(portal.kind, options));
    await proxier.sync(change);
    const checks = options.healthCheckNodePorts
      ? Array.from(change.view.entries(), healthCheckOf).filter((each) => each !== undefined)
      : [];
    for (const { port, service } of checks) {
      await write(`# answer load balancers on port ${port} for ${service}\n`);
    }
    const { problems } = proxier.snapshot();
    await write(problems.map(({ code, message }) => `# ${code}: ${message}\n`).join(''));
  };
  const destroy = async (): Promise<void> => {
    fileReadFailed.unsubscribe(failed);
    fileInvalid.unsubscribe(failed);
    await proxier.close();
    await portal.close();
  };
  return {
    sink: {
      sync(change) {
        outcome ??= printAll(change).finally(() => done.resolve());
        return outcome;
      },
    },
    // The state has to be what the proxy itself would get.
    setPodNetworks: (networks) => {
      const all = [...new Set([...options.clusterCidr, ...networks])];
      if (outcome === undefined) void proxier.setPolicy({ podNetworks: all });
    },
    ended: done.promise,
    afterwards: async () => (hasFailed ? 1 : 0),
    async close() {
      await destroy();
      // Any error means a failed run.
      await outcome;
    },
    destroy,
  };
}

function head(kind: string, { portal, portRange }: UserspaceOptions): string {
  const lines = [`portal ${kind}: commands for this state on a host without any of our rules`];
  if (portal === 'auto') lines.push('(auto tries the portals first, and may choose another one)');
  if (kind !== 'address' && portRange === undefined) {
    lines.push(`ports from ${FIRST_ASSUMED_PORT} on stand for those that the kernel would choose`);
  }
  return lines.map((line) => `# ${line}\n`).join('');
}

/** First placeholder for ports that the kernel would choose. */
const FIRST_ASSUMED_PORT = 50_000;

/**
 * An engine that opens nothing and prints its listeners, one comment each. Kernel-chosen ports are replaced by
 * placeholders that are the same in each run. It gets one batch, for the first state.
 */
function dryEngine(write: (text: string) => Promise<void>): Engine {
  let all: ServicePortSnapshot[] = [];
  const assumed = new Map<string, number>();
  return {
    kind: 'node',
    async apply(changes) {
      const lines: string[] = [];
      all = changes.flatMap((change) => {
        if (change.kind !== 'set') return [];
        const { name, protocol, listen, endpoints } = change.spec;
        const listeners = listen.map((each): ListenerStatus => {
          const { address, port, traffic, transparent, sourceRanges = [] } = each;
          // Transparent listeners share their socket.
          const key = transparent === undefined ? `${name} ${address} ${traffic}` : address;
          const boundPort = port || (assumed.get(key) ?? FIRST_ASSUMED_PORT + assumed.size);
          if (port === 0) assumed.set(key, boundPort);
          const only = sourceRanges.length === 0 ? '' : `, from ${sourceRanges.join(' ')} only`;
          const place = formatHostPort({ host: address, port: boundPort });
          lines.push(`# listen on ${place}/${protocol} for ${name} (${traffic}${only})\n`);
          return { state: 'listening', listen: each, boundPort };
        });
        const known = { endpoints: endpoints.length, counters: newCounters() };
        return { name, protocol, listeners, ...known };
      });
      await write(lines.join(''));
    },
    snapshot: (names) => all.filter(({ name }) => names?.has(name) ?? true),
    close: async () => {},
    destroy: async () => {},
  };
}
