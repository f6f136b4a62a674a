import { isIPv4, isIPv6 } from 'node:net';
import { Protocol, type PortMapping } from '../api/generated/localv1/api.ts';
import { KpngError, type ErrorCode } from '../errors.ts';
import type { Exec } from '../portal/exec.ts';
import { restoreRules, type Tools } from '../portal/iptables/tools.ts';
import { resolvePort } from '../proxier/endpoints.ts';
import type { LocalChange, LocalSink, LocalView, ServiceEntry } from '../store/local-view.ts';
import type { Family } from '../util/family.ts';
import { formatHostPort } from '../util/host-port.ts';
import { isPort } from '../util/port-range.ts';
import { extipProblem, newProblems } from './events.ts';

export interface ExtipOptions {
  /** What the names of the chains begin with. */
  readonly chainPrefix: string;
  /** Whether services of types other than LoadBalancer are left out. */
  readonly loadBalancersOnly: boolean;
}

export interface ExtipSinkOptions extends ExtipOptions {
  readonly exec: Exec;
  /** The iptables to use; called again after a failure. */
  readonly tools: () => Promise<Tools>;
}

/**
 * Redirects external IPs to endpoints with iptables chains, with one run of iptables-restore for each family whose
 * rules changed. The administrator has to add the jumps to these chains; they stay when the program ends.
 *
 * A sync rejects if the rules could not be written; the deliverer retries it.
 */
export class ExtipSink implements LocalSink {
  readonly #options: ExtipSinkOptions;
  readonly #written = new Map<Family, string>();
  readonly #onlyNew = newProblems();

  constructor(options: ExtipSinkOptions) {
    this.#options = options;
  }

  async sync({ view }: LocalChange): Promise<void> {
    const both = ([4, 6] as const).map((family) => extipRules(view, family, this.#options));
    const problems = both.flatMap((each) => each.problems);
    for (const error of this.#onlyNew(problems)) extipProblem.publish({ error });
    const outcomes = await Promise.allSettled(both.map((each) => this.#write(each)));
    // Each family has been tried; the first failure is thrown, and all are retried.
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  async #write({ family, text, any }: ReturnType<typeof extipRules>): Promise<void> {
    if (this.#written.get(family) === text) return;
    const { exec } = this.#options;
    const tools = await this.#options.tools();
    try {
      const doing = `writing the rules of IPv${family} external IPs`;
      await restoreRules(exec, tools, family, text, doing);
    } catch (error) {
      this.#written.delete(family);
      // A host without IPv6 has none of our rules either.
      if (family === 6 && !any && error instanceof KpngError && CANNOT.has(error.code)) return;
      throw error;
    }
    this.#written.set(family, text);
  }
}

const CANNOT = new Set<string>(['KPNG_PORTAL_UNSUPPORTED', 'KPNG_PORTAL_TOOL_MISSING']);

const PROTOCOLS: ReadonlyMap<number, string> = new Map([
  [Protocol.TCP, 'tcp'],
  [Protocol.UDP, 'udp'],
  [Protocol.SCTP, 'sctp'],
]);

/**
 * The rules of one family that redirect external IPs to endpoints, in three chains that nothing jumps to:
 *
 * - `forward` of the table filter accepts packets to endpoints
 * - `DNAT` of the table nat spreads each external IP and port over the endpoints, at random
 * - `SNAT` of the table nat has what endpoints send come from the lowest of the first external IPs of
 * their services
 *
 * As kpng's iptables-extip writes them, but for both families, and with named target ports.
 */
function extipRules(view: LocalView, family: Family, options: ExtipOptions) {
  const forward = new Set<string>();
  const dnat: string[] = [];
  const sources = new Map<string, string>();
  const holders = new Map<string, string>();
  /** What has no rules, and why. */
  const problems: KpngError[] = [];
  const { chainPrefix: prefix } = options;

  for (const entry of view.entries()) {
    if (options.loadBalancersOnly && entry.service.type !== 'LoadBalancer') continue;
    const ips = addresses(entry.service.ips?.externalIPs, family);
    const [firstIP] = ips;
    if (firstIP === undefined) continue;
    const endpoints = [...entry.endpoints.values()].flatMap((endpoint) => {
      // External traffic policies count: external IPs are for clients from outside.
      const isExternal = endpoint.scopes?.external ?? true;
      const [host] = addresses(endpoint.ips, family);
      return isExternal && host !== undefined ? { endpoint, host } : [];
    });
    for (const { host } of endpoints) {
      const previous = sources.get(host) ?? firstIP;
      if (collator.compare(firstIP, previous) <= 0) sources.set(host, firstIP);
    }
    const names = new Set(entry.service.ports.map(({ name }) => name));
    for (const port of entry.service.ports) {
      const protocol = PROTOCOLS.get(port.protocol);
      if (protocol === undefined || !isPort(port.port)) {
        const text = `: no external-IP rule for port ${port.port}, protocol ${port.protocol}: not supported`;
        problems.push(problemOf(entry, port, 'KPNG_SERVICE_INVALID', text));
        continue;
      }
      const targets = endpoints.flatMap(({ endpoint, host }) => {
        const number = resolvePort(port, endpoint, names);
        return number !== undefined && isPort(number) ? { host, port: number } : [];
      });
      for (const target of targets) {
        const match = `-p ${protocol} -m ${protocol} --dport ${target.port}`;
        forward.add(`-d ${target.host} ${match} -j ACCEPT`);
      }
      for (const ip of ips) {
        const match = `-d ${ip} -p ${protocol} -m ${protocol} --dport ${port.port}`;
        const holder = holders.get(match);
        if (holder !== undefined) {
          const text = ` cannot have port ${port.port} of the external IP ${ip}: ${holder} has it`;
          problems.push(problemOf(entry, port, 'KPNG_PORTAL_CONFLICT', text));
          continue;
        }
        holders.set(match, entry.key);
        for (const [index, target] of targets.entries()) {
          const chance = share(targets.length - index);
          dnat.push(`${match}${chance} -j DNAT --to-destination ${formatHostPort(target)}`);
        }
      }
    }
  }
  const snat = [...sources].map(([from, to]) => `-s ${from} -j SNAT --to-source ${to}`);
  const table = (name: string, chains: Readonly<Record<string, readonly string[]>>): string => {
    const rules = Object.entries(chains).flatMap(([chain, list]) =>
      list.map((rule) => `-A ${prefix}${chain} ${rule}\n`),
    );
    const heads = Object.keys(chains).map((chain) => `:${prefix}${chain} - [0:0]\n`);
    return `*${name}\n${heads.join('')}${rules.join('')}COMMIT\n`;
  };
  const text =
    table('filter', { forward: [...forward] }) + table('nat', { DNAT: dnat, SNAT: snat });
  /** Whether there are rules, besides the empty chains. */
  const any = sources.size > 0;
  return { family, text, any, problems };
}

/** Only valid addresses may enter a script. */
function addresses(
  ips: { readonly v4: readonly string[]; readonly v6: readonly string[] } | undefined,
  family: Family,
): string[] {
  if (ips === undefined) return [];
  return family === 4
    ? ips.v4.filter((ip) => isIPv4(ip))
    : ips.v6.filter((ip) => isIPv6(ip) && !ip.includes('%'));
}

/** Equal shares of the remaining endpoints; the last one takes the rest. */
function share(left: number): string {
  return left === 1 ? '' : ` -m statistic --mode random --probability ${(1 / left).toFixed(10)}`;
}

/** Numbers in the texts by their value. */
const collator = new Intl.Collator('en', { numeric: true });

/** `text`: the rest of the message, after the service port. */
function problemOf(
  { key }: ServiceEntry,
  { name }: PortMapping,
  code: ErrorCode,
  text: string,
): KpngError {
  const servicePort = name === '' ? key : `${key}:${name}`;
  return new KpngError(code, servicePort + text, { servicePort });
}
