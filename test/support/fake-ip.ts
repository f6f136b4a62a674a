import type { Command } from '../../src/portal/exec.ts';
import { exits, FakeExec, type Reaction } from './fake-exec.ts';

/** An address as the kernel would have it. */
export interface FakeAddress {
  readonly address: string;
  readonly prefix: number;
  readonly metric?: number;
  readonly scope?: string;
}

/** An interface as the kernel would have it. */
export interface FakeLink {
  kind: string;
  up: boolean;
  alias?: string;
  addresses: FakeAddress[];
}

/**
 * ip and the kernel behind it, as far as our commands go: it carries them out line by line, continues
 * after a line that fails, and says what the real one says. `ss` lists the connections that it is given.
 */
export class FakeIp extends FakeExec {
  readonly links = new Map<string, FakeLink>([
    ['lo', link('loopback', '127.0.0.1/8', '::1/128')],
    ['eth0', link('ether', '192.0.2.5/24', '2001:db8::5/64')],
  ]);
  /** Kinds of interface that the kernel knows. */
  readonly kinds = new Set(['dummy', 'bridge']);
  /** What the kernel says when it does not take an address; undefined: it takes it. */
  refuses: (address: string) => string | undefined = () => undefined;
  /** What the kernel says when it does not let an address go; undefined: it does. */
  keeps: (address: string) => string | undefined = () => undefined;
  /** Local addresses of TCP connections. */
  readonly connections = new Set<string>();
  /** Instead of doing anything, react so. */
  broken: Reaction | undefined;

  /** The batches that were run, as lists of lines. */
  get batches(): string[][] {
    return this.commands.flatMap(({ args, stdin = '' }) =>
      args.includes('-batch') ? [stdin.trim().split('\n')] : [],
    );
  }

  link(name: string): FakeLink {
    const found = this.links.get(name);
    if (found === undefined) throw new Error(`no interface ${name}`);
    return found;
  }

  /** The addresses of an interface, with their prefixes; none when there is no such interface. */
  addresses(name: string): string[] {
    return (this.links.get(name)?.addresses ?? [])
      .map(({ address, prefix }) => `${address}/${prefix}`)
      .sort();
  }

  /** Whether a socket could be bound to an address. */
  has(address: string): boolean {
    return [...this.links.values()].some(
      ({ up, addresses }) => up && addresses.some((each) => each.address === address),
    );
  }

  protected override react({ file, args, stdin = '' }: Command): Reaction {
    if (this.broken !== undefined) return this.broken;
    if (file === 'ss') return this.#connections();
    if (file !== 'ip') return {};
    if (args.includes('show')) return this.#show();
    // Rules and routes: there are none.
    if (args.includes('-j')) return {};
    let stderr = '';
    for (const [index, line] of stdin.trim().split('\n').entries()) {
      const problem = this.#carryOut(line);
      if (problem !== undefined) stderr += `Error: ${problem}\nCommand failed -:${index + 1}\n`;
    }
    return stderr === '' ? {} : exits(stderr);
  }

  #connections(): Reaction {
    const lines = [...this.connections].map((address) => {
      const host = address.includes(':') ? `[${address}]` : address;
      return `ESTAB 0      0      ${host}:80      192.0.2.9:41000\n`;
    });
    return { stdout: lines.join('') };
  }

  #show(): Reaction {
    const links = [...this.links].map(([ifname, each]) => ({
      ifname,
      flags: [...(each.up ? ['UP'] : []), ...(each.kind === 'loopback' ? ['LOOPBACK'] : [])],
      ifalias: each.alias,
      addr_info: each.addresses.map(({ address, prefix, metric, scope = 'global' }) => ({
        family: address.includes(':') ? 'inet6' : 'inet',
        local: address,
        prefixlen: prefix,
        metric,
        scope,
      })),
    }));
    return { stdout: JSON.stringify(links) };
  }

  /** What ip says when a line fails. */
  #carryOut(line: string): string | undefined {
    const words = line.split(' ');
    const [object, verb] = words;
    if (object === 'link') return this.#link(verb ?? '', words);
    const [, , network = ''] = words;
    const [address = '', prefix] = network.split('/');
    const found = this.links.get(after(words, 'dev') ?? '');
    if (found === undefined) return `Cannot find device "${after(words, 'dev')}"`;
    const at = found.addresses.findIndex((each) => each.address === address);
    if (verb === 'delete') {
      if (at === -1) return 'ipv4: Address not found.';
      const kept = this.keeps(address);
      if (kept !== undefined) return kept;
      found.addresses.splice(at, 1);
      return undefined;
    }
    if (at !== -1) return 'ipv4: Address already assigned.';
    const problem = this.refuses(address);
    if (problem !== undefined) return problem;
    const metric = after(words, 'metric');
    const known = { address, prefix: Number(prefix) };
    found.addresses.push(metric === undefined ? known : { ...known, metric: Number(metric) });
    return undefined;
  }

  #link(verb: string, words: readonly string[]): string | undefined {
    const name = after(words, verb === 'add' ? 'name' : 'dev') ?? '';
    if (verb === 'add') {
      const kind = after(words, 'type') ?? '';
      if (this.links.has(name)) return 'File exists.';
      if (!this.kinds.has(kind)) return 'Unknown device type.';
      this.links.set(name, { kind, up: false, addresses: [] });
      return undefined;
    }
    const found = this.links.get(name);
    if (found === undefined) return `Cannot find device "${name}"`;
    if (verb === 'delete') this.links.delete(name);
    const alias = after(words, 'alias');
    if (alias !== undefined) found.alias = alias;
    if (words.includes('up')) found.up = true;
    return undefined;
  }
}

function link(kind: string, ...networks: string[]): FakeLink {
  const addresses = networks.map((network) => {
    const [address = '', prefix] = network.split('/');
    return { address, prefix: Number(prefix) };
  });
  return { kind, up: true, addresses };
}

function after(words: readonly string[], word: string): string | undefined {
  const at = words.indexOf(word);
  return at === -1 ? undefined : words[at + 1];
}
