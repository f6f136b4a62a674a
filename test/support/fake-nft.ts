import { isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Command } from '../../src/portal/exec.ts';
import { exits, FakeExec, type Reaction } from './fake-exec.ts';
import type { Protocol } from '../../src/proxysocket/spec.ts';

/** A table as the kernel would have it. */
export interface FakeTable {
  readonly chains: Map<string, string[]>;
  /** Declarations of the sets: `map type inet_proto : inet_service;`. */
  readonly types: Map<string, string>;
  /** Elements by set, as key and value; the value is empty in a set. */
  readonly sets: Map<string, Map<string, string>>;
}

class NftError extends Error {}

/**
 * nft and the kernel behind it, as far as our scripts go: it reads scripts, carries them out as one
 * transaction, and refuses what the kernel would refuse. `landing` then reports where a packet goes.
 * Other programs end well and do nothing.
 */
export class FakeNft extends FakeExec {
  tables = new Map<string, FakeTable>();
  /** Elements for which this returns true are not taken. */
  refuses: (element: string) => boolean = () => false;
  /** Instead of doing anything, react so. */
  broken: Reaction | undefined;

  /** Scripts that were carried out, or would have been. */
  get scripts(): string[] {
    return this.commands.flatMap(({ file, args, stdin }) =>
      file === 'nft' && args.join(' ') === '-f -' && stdin !== undefined ? [stdin] : [],
    );
  }

  table(name = 'kpng-userspace'): FakeTable {
    const table = this.tables.get(name);
    if (table === undefined) throw new Error(`no table ${name}`);
    return table;
  }

  protected override react({ file, args, stdin = '' }: Command): Reaction {
    if (file !== 'nft') return {};
    if (this.broken !== undefined) return this.broken;
    const words = args.join(' ');
    if (words.startsWith('list table inet ')) return this.#list(args.at(-1) ?? '');
    if (words === 'list chains') {
      const all = [...this.tables].map(([name, { chains }]) => {
        const blocks = Array.from(chains.keys(), (chain) => `\tchain ${chain} {\n\t}\n`);
        return `table inet ${name} {\n${blocks.join('')}}\n`;
      });
      return { stdout: all.join('') };
    }
    try {
      const tables = this.#carryOut(stdin);
      if (words === '-f -') this.tables = tables;
      return {};
    } catch (error) {
      if (error instanceof NftError) return exits(`/dev/stdin:1:1-2: Error: ${error.message}\n`);
      throw error;
    }
  }

  #list(name: string): Reaction {
    const table = this.tables.get(name);
    if (table === undefined) return exits('Error: No such file or directory\n');
    const block = (head: string, lines: readonly string[]): string =>
      `\t${head} {\n${lines.map((line) => `\t\t${line}\n`).join('')}\t}\n`;
    const sets = [...table.sets].map(([set, elements]) => {
      const list = [...elements].map(([key, value]) => (value === '' ? key : `${key} : ${value}`));
      const [kind = '', ...type] = (table.types.get(set) ?? '').split(' ');
      const lines = type.join(' ').replace(/;$/, '').split('; ');
      if (list.length > 0) lines.push(`elements = { ${list.join(',\n\t\t\t     ')} }`);
      return block(`${kind} ${set}`, lines);
    });
    const chains = [...table.chains].map(([chain, rules]) => block(`chain ${chain}`, rules));
    return { stdout: `table inet ${name} {\n${[...sets, ...chains].join('\n')}}\n` };
  }

  #carryOut(script: string): Map<string, FakeTable> {
    const tables = structuredClone(this.tables);
    const lines = script
      .split('\n')
      .filter((line) => line !== '')
      .values();
    for (const line of lines) {
      const [verb = '', object = '', third = '', fourth = '', item = ''] = line.split(' ');
      const name = verb === 'table' ? third : fourth;
      if (verb === 'table' || line.startsWith('add table')) {
        const table = tables.get(name) ?? { chains: new Map(), types: new Map(), sets: new Map() };
        tables.set(name, table);
        if (verb === 'table') readTable(lines, table);
        continue;
      }
      const table = tables.get(name) ?? missing();
      const { chains, sets } = table;
      if (object === 'element') {
        const set = sets.get(item) ?? missing();
        for (const element of blockOf(lines)) this.#element(verb, set, element.replace(/,$/, ''));
      } else if (line.startsWith('add chain')) chains.set(item, chains.get(item) ?? []);
      else if (line.startsWith('delete table')) tables.delete(name);
      else if (verb === 'delete') deleteFrom(table, object, item);
      else if (verb === 'flush' && object === 'table') {
        for (const [chain, rules] of chains) chains.set(chain, rules.filter(isHook));
      } else if (verb === 'flush') {
        chains.set(item, (chains.get(item) ?? missing()).filter(isHook));
      } else throw new NftError(`syntax error, unexpected ${verb}`);
    }
    return tables;
  }

  #element(verb: string, set: Map<string, string>, element: string): void {
    if (this.refuses(element)) throw new NftError('Could not process rule: Invalid argument');
    const [key = '', value = ''] = element.split(' : ');
    if (verb === 'delete') {
      if (!set.delete(key)) missing();
    } else if ((set.get(key) ?? value) !== value) exists();
    else set.set(key, value);
  }
}

function missing(): never {
  throw new NftError('Could not process rule: No such file or directory');
}

function inUse(): never {
  throw new NftError('Could not process rule: Device or resource busy');
}

function exists(): never {
  throw new NftError('Could not process rule: File exists');
}

/** Whether a line of a chain is the hook of a base chain. */
function isHook(line: string): boolean {
  return line.startsWith('type ');
}

function deleteFrom({ chains, types, sets }: FakeTable, object: string, name: string): void {
  const rules = [...chains.values()].flat();
  if (object === 'chain') {
    const own = chains.get(name) ?? missing();
    const isTarget = rules.some((rule) => new RegExp(`(?:jump|goto) ${name}$`).test(rule));
    if (isTarget || own.some((line) => !isHook(line))) inUse();
    chains.delete(name);
  } else {
    if (!sets.delete(name) || types.get(name)?.startsWith(`${object} `) !== true) missing();
    if (rules.some((rule) => new RegExp(`@${name}(?: |$)`).test(rule))) inUse();
    types.delete(name);
  }
}

/** Lines up to the closing brace, without their indent. */
function* blockOf(lines: Iterator<string>): Generator<string> {
  for (let next = lines.next(); next.done !== true; next = lines.next()) {
    const line = next.value.trim();
    if (line === '}') return;
    if (line !== '') yield line;
  }
  throw new NftError('syntax error, unexpected end of file');
}

/** Declares chains and sets, and adds rules to those that are there already. */
function readTable(lines: Iterator<string>, { chains, types, sets }: FakeTable): void {
  for (const head of blockOf(lines)) {
    const [kind = '', name = ''] = head.split(' ');
    const body = [...blockOf(lines)];
    if (kind === 'chain') {
      const before = chains.get(name);
      const hook = body.find((line) => isHook(line));
      if (before !== undefined && before.find(isHook) !== hook) exists();
      chains.set(name, [
        ...(before ?? body.filter(isHook)),
        ...body.filter((line) => !isHook(line)),
      ]);
    } else {
      const type = `${kind} ${body.join(' ')}`;
      if ((types.get(name) ?? type) !== type) exists();
      types.set(name, type);
      if (!sets.has(name)) sets.set(name, new Map());
    }
  }
}

/** The first packet of a connection. */
export interface Packet {
  /** Where it comes from: another machine, a pod of this node, or the node itself. */
  readonly from: 'outside' | 'pod' | 'host';
  readonly source: string;
  readonly protocol: Protocol;
  readonly destination: string;
  readonly port: number;
}

/**
 * Where a packet ends: at a proxy port, refused (TCP reset, ICMP port unreachable), dropped without a
 * word, or not our business.
 */
export type Landing = `proxy port ${number}` | 'refused' | 'dropped' | 'passed on';

/** Elements by set, as key and value. */
type Sets = ReadonlyMap<string, ReadonlyMap<string, string>>;

/**
 * Sends a packet through the rules of the nftables table in thought. `local` are the addresses of the
 * node besides loopback ones. A system test compares this with the kernel.
 */
export function landing(sets: Sets, packet: Packet, local: ReadonlySet<string>): Landing {
  const { from, source, protocol, destination, port } = packet;
  const family = isIPv6(destination) ? 6 : 4;
  const set = (name: string): ReadonlyMap<string, string> =>
    sets.get(`${name}${family}`) ?? NOTHING;
  const portKey = `${protocol.toLowerCase()} . ${port}`;
  const key = `${destination} . ${portKey}`;
  if (set('guarded').has(key) && !isAllowed(set('allowed'), key, source)) return 'dropped';
  const isOutside = (pods: string, clients: string): boolean =>
    from !== 'host' && !isAllowed(set(pods), clients, source);
  if (set('no-local').has(key) && isOutside('pods', key)) return 'dropped';
  const service = set('services').get(key);
  if (service !== undefined) return `proxy port ${Number(service)}`;
  if (set('empty').has(key)) return 'refused';
  const isLocal = local.has(destination) || ipaddr.parse(destination).range() === 'loopback';
  if (!isLocal) return 'passed on';
  if (contains(set('node-networks').keys(), destination)) {
    if (set('no-local-node-ports').has(portKey) && isOutside('node-port-pods', portKey)) {
      return 'dropped';
    }
    const nodePort = set('node-ports').get(portKey);
    if (nodePort !== undefined) return `proxy port ${Number(nodePort)}`;
    if (set('empty-node-ports').has(portKey)) return 'refused';
  }
  return from !== 'host' && set('proxy-ports').has(portKey) ? 'refused' : 'passed on';
}

const NOTHING: ReadonlyMap<string, string> = new Map();

function isAllowed(allowed: ReadonlyMap<string, string>, key: string, source: string): boolean {
  const networks = [...allowed.keys()]
    .filter((element) => element.startsWith(`${key} . `))
    .map((element) => element.slice(key.length + 3));
  return contains(networks, source);
}

function contains(networks: Iterable<string>, address: string): boolean {
  const parsed = ipaddr.parse(address);
  for (const network of networks) {
    const [start, bits] = ipaddr.parseCIDR(network);
    if (start.kind() === parsed.kind() && parsed.match(start, bits)) return true;
  }
  return false;
}
