import { KpngError } from '../../errors.ts';
import { type Exec, systemExec } from '../exec.ts';
import {
  canonicalAddress,
  type ChangeOutcome,
  hostHas,
  type HostListing,
  type InterfaceAddresses,
} from './addresses.ts';
import {
  asHostNetwork,
  CONCERNS_ALL,
  type Link,
  listLinks,
  MARK_ALIAS,
  MARK_METRIC,
  MAX_OUTPUT,
  removalOf,
  runBatch,
  lineFailure,
  IS_ABSENT,
  EXISTS,
  UNKNOWN_KIND,
} from './linux-tool.ts';

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
  const links = await listLinks(exec);
  const mine = links
    .filter((link) => name === undefined || link.name === name)
    .filter(({ isOurs, addresses }) => isOurs || addresses.some((each) => each.isOurs))
    .map((link) => link.name);
  for (const each of mine) await disposeOf(links, each, exec);
  return mine;
}

async function disposeOf(links: readonly Link[], name: string, exec: Exec): Promise<void> {
  const link = links.find((each) => each.name === name);
  if (link === undefined) return;
  const ours = link.addresses.filter(({ isOurs }) => isOurs).map(({ address }) => address);
  const foreign = link.addresses.some(({ isOurs, isLinkLocal }) => !isOurs && !isLinkLocal);
  const lines =
    link.isOurs && !foreign
      ? [`link delete dev ${name}`]
      : ours.map((address) => removalOf(address, name));
  const doing = `removing addresses from the interface ${name}`;
  for (const line of (await runBatch(exec, lines, doing)).values()) {
    if (!IS_ABSENT.test(line)) throw lineFailure(line, doing);
  }
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
    if (!links.some(({ name }) => name === this.name)) {
      if (this.#isForeign) {
        throw new KpngError(
          'KPNG_PORTAL_FAILED',
          `the interface ${this.name} is gone; another program created it and has to restore it`,
        );
      }
      await this.#create();
      links = await listLinks(this.#exec);
    }
    const link = links.find(({ name }) => name === this.name);
    this.#isForeign = link?.isOurs === false;
    if (link?.isUp === false) await this.#bringUp(link);
    return listingOf(links, this.name);
  }

  async change(add: readonly string[], unwanted: readonly string[]): Promise<ChangeOutcome> {
    const remove = await this.#ownedOf(unwanted);
    const lines = [
      ...remove.map((address) => removalOf(address, this.name)),
      ...add.map((address) => addition(address, this.name)),
    ];
    const doing = `changing addresses of the interface ${this.name}`;
    const errors = await runBatch(this.#exec, lines, doing);
    const existing: string[] = [];
    const refused = new Map<string, KpngError>();
    for (const [number, line] of errors) {
      if (CONCERNS_ALL.test(line)) throw lineFailure(line, doing);
      const index = number - 1;
      const isRemoval = index < remove.length;
      const address = isRemoval ? remove[index] : add[index - remove.length];
      if (address === undefined || (isRemoval && IS_ABSENT.test(line))) continue;
      if (!isRemoval && EXISTS.test(line)) existing.push(address);
      else {
        const verb = isRemoval ? 'removing' : 'adding';
        const what = `${verb} ${asHostNetwork(address)} on the interface ${this.name}`;
        refused.set(address, lineFailure(line, what));
      }
    }
    return { existing, refused };
  }

  async inUse(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const wanted = new Set(addresses);
    const args = ['-Htn', ...CARRYING.flatMap((state) => ['state', state])];
    if (wanted.size <= MAX_NAMED) {
      const sources = [...wanted].map((each) => `src = ${each.includes(':') ? `[${each}]` : each}`);
      args.push(`( ${sources.join(' or ')} )`);
    }
    const used = new Set<string>();
    const command = { file: 'ss', args, maxOutput: MAX_OUTPUT };
    // Without ss, the connections end with their address.
    const printed = await this.#exec(command).catch(() => undefined);
    for (const line of printed?.stdout.split('\n') ?? []) {
      const local = line.trim().split(/\s+/)[3] ?? '';
      const host = local.slice(0, local.lastIndexOf(':')).replace(/^\[|\]$/g, '');
      const address = canonicalAddress(host);
      if (wanted.has(address)) used.add(address);
    }
    return used;
  }

  async dispose(): Promise<void> {
    await disposeOf(await listLinks(this.#exec), this.name, this.#exec);
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

  async #create(): Promise<void> {
    const doing = `making the interface ${this.name}`;
    for (const kind of KINDS) {
      const errors = await runBatch(this.#exec, creation(this.name, kind), doing);
      const failed = [...errors].find(
        ([number, line]) => number !== OPTIONAL_STEP && !EXISTS.test(line),
      );
      if (failed === undefined) return;
      const [number, line] = failed;
      if (number !== 1 || !UNKNOWN_KIND.test(line)) throw lineFailure(line, doing);
    }
    throw new KpngError(
      'KPNG_PORTAL_UNSUPPORTED',
      `${doing}: the kernel has neither dummy interfaces (modprobe dummy) nor bridges; ` +
        'give --portal-interface the name of an existing one, such as lo',
    );
  }

  async #bringUp({ isOurs }: Link): Promise<void> {
    if (!isOurs) {
      throw new KpngError(
        'KPNG_PORTAL_FAILED',
        `the interface ${this.name} is down, so its addresses cannot be used; ` +
          `bring it up: ip link set dev ${this.name} up`,
      );
    }
    const doing = `bringing the interface ${this.name} up`;
    const errors = await runBatch(this.#exec, [`link set dev ${this.name} up`], doing);
    for (const line of errors.values()) throw lineFailure(line, doing);
  }
}

/** States in which a connection may still transfer data. */
const CARRYING = ['established', 'close-wait', 'fin-wait-1', 'fin-wait-2', 'last-ack'] as const;

/** An interface without ARP and duplicate address detection, so that adding many addresses is cheap. */
function creation(name: string, kind: (typeof KINDS)[number]): string[] {
  return [
    `link add name ${name} type ${kind}`,
    `link set dev ${name} addrgenmode none`,
    `link set dev ${name} alias ${MARK_ALIAS}`,
    `link set dev ${name} arp off`,
    `link set dev ${name} up`,
  ];
}

/** The step of `creation` that fails on a host without IPv6. */
const OPTIONAL_STEP = 2;

function addition(address: string, name: string): string {
  const kind = address.includes(':') ? 'nodad noprefixroute preferred_lft 0' : 'scope host';
  return `address add ${asHostNetwork(address)} dev ${name} ${kind} metric ${MARK_METRIC}`;
}

/** Addresses of interfaces that are down cannot be used, so they do not count. */
function listingOf(links: readonly Link[], name: string): HostListing {
  const ours = new Set<string>();
  const others: { address: string; loopback: boolean }[] = [];
  for (const link of links) {
    if (!link.isUp && link.name !== name) continue;
    for (const { address, loopback, isOurs } of link.addresses) {
      if (isOurs && link.name === name) ours.add(address);
      else others.push({ address, loopback });
    }
  }
  return { ours, others };
}
