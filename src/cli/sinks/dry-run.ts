import { fileInvalid, fileReadFailed } from '../../file/events.ts';
import { dryExec } from '../../portal/exec.ts';
import type { BoundPorts } from '../../portal/portal.ts';
import type { RuleCanary } from '../../portal/rules/backend.ts';
import { portalProblem } from '../../proxier/report.ts';
import { desiredServicePorts, portalInput } from '../../proxier/wanted.ts';
import type { ListenSpec } from '../../proxysocket/spec.ts';
import { healthCheckOf } from '../../sinks/healthchecks.ts';
import { streamWriter } from '../../sinks/json.ts';
import type { LocalChange } from '../../store/local-view.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { RunContext, RunningSink } from '../command.ts';
import type { PortalHost } from './rule-portals.ts';
import type { UserspaceOptions } from './userspace-options.ts';
import { createPortal } from './userspace-portal.ts';

/** Placeholders for values that differ from run to run. */
const PARTS = {
  owner: '000000000000',
  random: () => 0,
  canary: (): RuleCanary => ({
    open: async () => [],
    probe: async () => 'alive',
    close: () => undefined,
  }),
} satisfies PortalHost['dry'];

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
  let podNetworks: readonly string[] = options.clusterCidr;
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
  const printAll = async ({ view, changed }: LocalChange): Promise<void> => {
    await write(head(portal.kind, options));
    const services = [...changed].flatMap((key) => view.get(key) ?? []);
    const desired = services.map((each) => desiredServicePorts(each, options.nodePortsOnly));
    const ports = desired.flatMap((each) => each.ports);
    const holds = options.limits.holdTimeoutMs > 0;
    const policy = { redirects: portal.redirects === true, holds, podNetworks };
    const inputs = ports.map((each) => portalInput(each, policy));
    portal.plan(inputs, []);
    await portal.prepare?.();
    const portOf = assumedPorts();
    const lines: string[] = [];
    const bound = ports.map(({ spec: { name, protocol } }): BoundPorts => {
      const listeners = portal.listen(name).map((listen) => {
        const { address, traffic, sourceRanges = [] } = listen;
        const boundPort = portOf(name, listen);
        const only = sourceRanges.length === 0 ? '' : `, from ${sourceRanges.join(' ')} only`;
        const place = formatHostPort({ host: address, port: boundPort });
        lines.push(`# listen on ${place}/${protocol} for ${name} (${traffic}${only})\n`);
        return { listen, boundPort };
      });
      return [name, listeners];
    });
    await write(lines.join(''));
    await portal.commit(bound);
    const checks = options.healthCheckNodePorts
      ? services.flatMap((each) => healthCheckOf(each) ?? [])
      : [];
    for (const { port, service } of checks) {
      await write(`# answer load balancers on port ${port} for ${service}\n`);
    }
    const missing = Map.groupBy(portal.problems(), ({ code }) => code).values();
    const invalid = desired.flatMap((each) => each.problems);
    const problems = [...invalid, ...Array.from(missing, portalProblem)];
    await write(problems.map(({ code, message }) => `# ${code}: ${message}\n`).join(''));
  };
  const destroy = async (): Promise<void> => {
    fileReadFailed.unsubscribe(failed);
    fileInvalid.unsubscribe(failed);
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
      podNetworks = [...new Set([...options.clusterCidr, ...networks])];
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

/** The ports of listeners; placeholders for those that the kernel would choose, the same in each run. */
function assumedPorts() {
  const assumed = new Map<string, number>();
  return (name: string, { address, port, traffic, transparent }: ListenSpec): number => {
    if (port !== 0) return port;
    // Transparent listeners share their socket.
    const key = transparent === undefined ? `${name} ${address} ${traffic}` : address;
    const known = assumed.get(key) ?? FIRST_ASSUMED_PORT + assumed.size;
    assumed.set(key, known);
    return known;
  };
}
