import { KpngError } from '../../errors.ts';
import { hostNetwork } from '../../util/family.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { ADDRESS_WRITE_MS, MAX_ADDRESS_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import {
  diagnose,
  type Exec,
  ExecError,
  NOT_PERMITTED,
  quoted,
  systemExec,
  type Tool,
  type ToolError,
  toolFailure,
} from '../exec.ts';
import {
  type ChangeOutcome,
  hostHas,
  type HostListing,
  hostOf,
  type InterfaceAddresses,
  type Verb,
} from './addresses.ts';

/**
 * Marks our addresses: the metric of an address, which the kernel keeps in both families since Linux 4.18. A /32 or
 * /128 address has no route that the metric would apply to. Labels are IPv4 only; `proto` needs Linux 5.18 and
 * iproute2 6.3.
 */
export const MARK_METRIC = 27_504;

/** Marks the interfaces that this program has created. */
const MARK_ALIAS = 'kpng-userspace';

/** The fields used from the JSON of `ip -j -d address show`. */
interface Link {
  readonly ifname?: string;
  readonly flags?: readonly string[];
  readonly ifalias?: string;
  readonly addr_info?: readonly LinkAddress[];
}

interface LinkAddress {
  readonly local?: string;
  readonly prefixlen?: number;
  readonly metric?: number;
  readonly scope?: string;
}

/** Parses the output of `ip -j -d address show`. Throws if it is no list. */
export function readLinks(json: string): Link[] {
  return (JSON.parse(json) as Link[]).filter(({ ifname }) => ifname !== undefined);
}

const isUp = ({ flags }: Link): boolean => flags?.includes('UP') === true;

const isOurLink = ({ ifalias }: Link): boolean => ifalias === MARK_ALIAS;

const isOurs = ({ local = '', prefixlen, metric }: LinkAddress): boolean =>
  metric === MARK_METRIC && hostNetwork(local) === `${local}/${prefixlen}`;

/** Maximum number of listings if something changes during them. */
const LISTINGS = 3;

/** ip has no translations, and prints the messages of strerror or of the kernel. */
const IP: Tool = {
  program: 'ip',
  remedy: 'install the package iproute2, or leave --portal-interface out',
  diagnoses: [
    // To ip, `Permission denied` means something else.
    { ...NOT_PERMITTED, pattern: /Operation not permitted/ },
    {
      pattern: /Permission denied|IPv6 is disabled/,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'IPv6 is switched off on the interface (sysctl net.ipv6.conf.*.disable_ipv6)',
    },
    {
      pattern: /garbage|unknown option|invalid option|unrecognized option/i,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'the ip of iproute2 4.19 or later is needed',
    },
    {
      pattern: /not supported|Unknown device type/i,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'the kernel lacks what is needed',
    },
  ],
};

function lineFailure(line: string, doing: string, cause?: unknown): ToolError {
  return diagnose(line, quoted(line), doing, IP, cause);
}

/** Messages that concern the process or the interface rather than an address. */
const CONCERNS_ALL = /Operation not permitted|Cannot find device|No such device|does not exist/;
const EXISTS = /File exists|already assigned/i;
const IS_ABSENT = /Cannot assign requested address|address not found/i;
const UNKNOWN_KIND = /Unknown device type|not supported/i;

/** The interfaces of the host with their addresses. Rejects with KPNG_PORTAL_*. */
async function listLinks(exec: Exec): Promise<Link[]> {
  const args = ['-j', '-d', 'address', 'show'];
  for (let left = LISTINGS; ; left -= 1) {
    try {
      const { stdout, stderr } = await exec({ file: 'ip', args, maxOutput: MAX_ADDRESS_LIST });
      if (left > 1 && /Dump was interrupted/.test(stderr)) continue;
      return readLinks(stdout);
    } catch (cause) {
      throw toolFailure(cause, 'listing the addresses of the host', IP);
    }
  }
}

/** Runs a batch. Returns the lines that failed, with their messages. Rejects if ip stops early. */
async function runBatch(exec: Exec, lines: readonly string[], doing: string) {
  const failed = new Map<string, string>();
  if (lines.length === 0) return failed;
  const args = ['-force', '-batch', '-'];
  const stdin = `${lines.join('\n')}\n`;
  const timeoutMs = WRITE_TIMEOUT_MS + lines.length * ADDRESS_WRITE_MS;
  try {
    await exec({ file: 'ip', args, stdin, timeoutMs, maxOutput: MAX_ADDRESS_LIST });
    return failed;
  } catch (cause) {
    if (!(cause instanceof ExecError) || cause.failure !== 'exit') {
      throw toolFailure(cause, doing, IP);
    }
    let message: string[] = [];
    for (const text of cause.stderr.split('\n')) {
      const line = text.trim().replace(/^(?:Error: |RTNETLINK answers: )/, '');
      const [, number] = /^Command failed .*:(\d+)$/.exec(line) ?? [];
      if (number !== undefined) {
        failed.set(lines[Number(number) - 1] ?? '', message.join('; '));
        message = [];
      } else if (line !== '') message.push(line);
    }
    if (message.length === 0 && failed.size > 0) return failed;
    throw lineFailure(message.join('; ') || cause.message, doing, cause);
  }
}

function checkInterfaceName(name: string): void {
  if (/^(?!-|\.\.?$)[\w.+@-]{1,15}$/.test(name)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(name)} cannot be the name of a network interface: up to 15 letters, digits and ` +
      'any of _ . + @ -',
  );
}

/**
 * Removes our addresses and interfaces, all or of one interface. Returns the names of changed interfaces. Rejects
 * with KPNG_PORTAL_*.
 */
export async function removeInterfaceAddresses(exec: Exec, name?: string): Promise<string[]> {
  if (name !== undefined) checkInterfaceName(name);
  const changed: string[] = [];
  for (const link of await listLinks(exec)) {
    const { ifname = '', addr_info = [] } = link;
    const addresses = addr_info.filter(({ local }) => local !== undefined);
    const ours = addresses.filter(isOurs);
    if (ifname !== (name ?? ifname) || (!isOurLink(link) && ours.length === 0)) continue;
    const isForeign = addresses.some((each) => !isOurs(each) && each.scope !== 'link');
    const lines =
      isOurLink(link) && !isForeign
        ? [`link delete dev ${ifname}`]
        : ours.map(({ local = '' }) => removal(local, ifname));
    const doing = `removing addresses from the interface ${ifname}`;
    for (const line of (await runBatch(exec, lines, doing)).values()) {
      if (!IS_ABSENT.test(line)) throw lineFailure(line, doing);
    }
    changed.push(ifname);
  }
  return changed;
}

/** Maximum number of addresses queried individually instead of listing all connections. */
const MAX_NAMED = 32;

/** Preferred first. Some small kernels lack dummies; an empty bridge works as well. */
const KINDS = ['dummy', 'bridge'] as const;

/**
 * Addresses of a Linux interface, through the program `ip`.
 *
 * Addresses are marked with a metric and our interfaces with an alias, so no file is needed. Scope `host` (IPv4) or
 * deprecation (IPv6) keeps the kernel from using them as source addresses. Throws KPNG_USAGE for an invalid name.
 */
export class LinuxInterface implements InterfaceAddresses {
  readonly name: string;
  readonly has = hostHas;
  readonly #exec: Exec;
  /** Whether the interface belongs to another program, which then has to restore it. */
  #isForeign = false;

  /** `name`: of the interface, which is created if missing. */
  constructor(name: string, exec: Exec = systemExec) {
    checkInterfaceName(name);
    this.name = name;
    this.#exec = exec;
  }

  async open(): Promise<HostListing> {
    let links = await listLinks(this.#exec);
    const find = (): Link | undefined => links.find(({ ifname }) => ifname === this.name);
    let link = find();
    if (link === undefined && this.#isForeign) {
      this.#fail('is gone; another program created it and has to restore it');
    }
    if (link === undefined || (isOurLink(link) && !isUp(link))) {
      await this.#create();
      links = await listLinks(this.#exec);
      link = find();
    }
    this.#isForeign = link !== undefined && !isOurLink(link);
    if (link !== undefined && !isUp(link)) {
      const advice = `bring it up: ip link set dev ${this.name} up`;
      this.#fail(`is down, so its addresses cannot be used; ${advice}`);
    }
    return listingOf(links, this.name);
  }

  async change(verb: Verb, given: readonly string[]): Promise<ChangeOutcome> {
    const addresses = verb === 'add' ? given : await this.#ownedOf(given);
    const lineOf = verb === 'add' ? addition : removal;
    const lines = new Map(addresses.map((each) => [lineOf(each, this.name), each]));
    const doing = `${verb === 'add' ? 'adding' : 'removing'} addresses on the interface ${this.name}`;
    const existing: string[] = [];
    const refused = new Map<string, KpngError>();
    for (const [line, message] of await runBatch(this.#exec, [...lines.keys()], doing)) {
      const address = lines.get(line);
      if (address === undefined || CONCERNS_ALL.test(message)) throw lineFailure(message, doing);
      if (verb === 'add' && EXISTS.test(message)) existing.push(address);
      else if (verb === 'add' || !IS_ABSENT.test(message)) {
        const what = doing.replace('addresses', hostNetwork(address));
        refused.set(address, lineFailure(message, what));
      }
    }
    return { existing, refused };
  }

  async inUse(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const args = ['-Htn', ...CARRYING.flatMap((state) => ['state', state])];
    if (addresses.length <= MAX_NAMED) {
      const sources = addresses.map((each) => `src = ${each.includes(':') ? `[${each}]` : each}`);
      args.push(`( ${sources.join(' or ')} )`);
    }
    const command = { file: 'ss', args, maxOutput: MAX_ADDRESS_LIST };
    // Without ss, the connections end with their address.
    const printed = await this.#exec(command).catch(() => undefined);
    const lines = printed?.stdout.split('\n') ?? [];
    return new Set(lines.flatMap((line) => hostOf(line.trim().split(/\s+/)[3] ?? '')));
  }

  async dispose(): Promise<void> {
    await removeInterfaceAddresses(this.#exec, this.name);
  }

  /**
   * Addresses with our mark: `ip` ignores the metric on removal, and on a foreign interface the address may be
   * foreign.
   */
  async #ownedOf(addresses: readonly string[]): Promise<readonly string[]> {
    if (!this.#isForeign || addresses.length === 0) return addresses;
    const { ours } = listingOf(await listLinks(this.#exec), this.name);
    return addresses.filter((address) => ours.has(address));
  }

  #fail(why: string): never {
    throw new KpngError('KPNG_PORTAL_FAILED', `the interface ${this.name} ${why}`);
  }

  /** Creates the interface, or brings it up again. */
  async #create(): Promise<void> {
    const doing = `making the interface ${this.name}`;
    for (const kind of KINDS) {
      // Without ARP and duplicate address detection, adding many addresses is cheap.
      const settings = ['addrgenmode none', `alias ${MARK_ALIAS}`, 'arp off', 'up'];
      const lines = settings.map((setting) => `link set dev ${this.name} ${setting}`);
      lines.unshift(`link add name ${this.name} type ${kind}`);
      const errors = await runBatch(this.#exec, lines, doing);
      // A host without IPv6 has no such mode.
      const failed = [...errors].find(
        ([line, message]) => !line.endsWith(' addrgenmode none') && !EXISTS.test(message),
      );
      if (failed === undefined) return;
      const [line, message] = failed;
      if (!line.startsWith('link add ') || !UNKNOWN_KIND.test(message))
        throw lineFailure(message, doing);
    }
    throw new KpngError(
      'KPNG_PORTAL_UNSUPPORTED',
      `${doing}: the kernel has neither dummy interfaces (modprobe dummy) nor bridges; ` +
        'give --portal-interface the name of an existing one, such as lo',
    );
  }
}

/** States in which a connection may still transfer data. */
const CARRYING = ['established', 'close-wait', 'fin-wait-1', 'fin-wait-2', 'last-ack'] as const;

function addition(address: string, name: string): string {
  const kind = address.includes(':') ? 'nodad noprefixroute preferred_lft 0' : 'scope host';
  return `address add ${hostNetwork(address)} dev ${name} ${kind} metric ${MARK_METRIC}`;
}

function removal(address: string, name: string): string {
  return `address delete ${hostNetwork(address)} dev ${name}`;
}

/** Addresses of interfaces that are down cannot be used, so they do not count. */
function listingOf(links: readonly Link[], name: string): HostListing {
  const ours = new Set<string>();
  const others: HostAddress[] = [];
  for (const link of links) {
    if (!isUp(link) && link.ifname !== name) continue;
    for (const each of link.addr_info ?? []) {
      const { local: address } = each;
      if (address === undefined) continue;
      if (isOurs(each) && link.ifname === name) ours.add(address);
      else others.push({ address, loopback: link.flags?.includes('LOOPBACK') === true });
    }
  }
  return { ours, others };
}
