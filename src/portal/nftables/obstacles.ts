/** What on this host may keep packets from transparent sockets: chains of other programs, other proxies, settings. */
import { readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Exec } from '../exec.ts';
import { nft } from './backend.ts';
import { MARKING_CHAIN } from './chains.ts';

export interface HostChain {
  /** With its family: `inet kpng-userspace`. */
  readonly table: string;
  readonly name: string;
  /** Undefined: other chains jump to it. */
  readonly hook: string | undefined;
  readonly policy: string | undefined;
}

/** The chains of all tables, without their rules. Rejects with KPNG_PORTAL_*. */
export async function hostChains(exec: Exec): Promise<HostChain[]> {
  const chains: HostChain[] = [];
  let table = '';
  for (const line of (await nft(exec, 'listing chains', ['list', 'chains'])).split('\n')) {
    const [, head] = /^table (.+) \{$/.exec(line) ?? [];
    if (head !== undefined) table = head;
    const [, name] = /^\tchain (\S+) \{/.exec(line) ?? [];
    if (name !== undefined) chains.push({ table, name, hook: undefined, policy: undefined });
    const [, hook, policy] = / hook (\w+) .*?(?:policy (\w+);)?$/.exec(line.trim()) ?? [];
    const last = chains.pop();
    if (last !== undefined) chains.push(hook === undefined ? last : { ...last, hook, policy });
  }
  return chains;
}

/** The portal that wrote a table, and the process; undefined: there is no such table. */
export function portalIn(
  chains: readonly HostChain[],
  table: string,
): { readonly kind: 'nftables' | 'transparent'; readonly owner: string } | undefined {
  const own = chains.filter((chain) => chain.table === `inet ${table}`);
  const owner = own.map(({ name }) => /^owner-(\w+)$/.exec(name)?.[1]).find(Boolean);
  if (owner === undefined) return undefined;
  const isTransparent = own.some(({ name }) => name === MARKING_CHAIN);
  return { kind: isTransparent ? 'transparent' : 'nftables', owner };
}

/** A table of another proxy that marks packets. `tables`: those of this one. */
export function otherMarkingTable(
  chains: readonly HostChain[],
  tables: readonly string[],
): string | undefined {
  const own = new Set(tables.map((table) => `inet ${table}`));
  return chains.find(({ table, name }) => name === MARKING_CHAIN && !own.has(table))?.table;
}

/**
 * Rules that cannot keep a packet from a socket of this host, as nft or iptables lists them. Of iptables' extensions, nft
 * shows only their names. kubelet's chain drops packets to 127.0.0.0/8 only.
 */
const HARMLESS =
  /^(?!xt\b)(?:(?! xt\b).)*\b(?:accept|ACCEPT|return|RETURN|(?:jump|goto|-j|-g) KUBE-FIREWALL)(?: comment ".*")?$/;

/** The chains that the kernel calls at a hook, with their rules as nft lists them. */
async function* rulesAt(
  exec: Exec,
  chains: readonly HostChain[],
  at: string,
): AsyncGenerator<{ found: string; policy: string | undefined; rules: string[] }> {
  for (const { table, name, hook, policy } of chains) {
    if (hook !== at || !/^(?:ip|ip6|inet) /.test(table)) continue;
    const found = `chain ${name} of the nftables table ${table}`;
    const args = ['list', 'chain', ...table.split(' '), name];
    const lines = (await nft(exec, `listing ${found}`, args)).split('\n');
    const rules = lines.filter((line) => /^\t\t(?!type |comment )/.test(line));
    yield { found, policy, rules: rules.map((rule) => rule.trim()) };
  }
}

/**
 * What filters packets to this host, if anything: maybe it accepts redirected connections (`ct status dnat`) but not
 * packets that only have the mark.
 */
export async function inputFilter(
  exec: Exec,
  chains: readonly HostChain[],
): Promise<string | undefined> {
  for await (const { found, policy, rules } of rulesAt(exec, chains, 'input')) {
    if (policy === 'drop' || !rules.every((rule) => HARMLESS.test(rule))) return found;
  }
  for (const version of ['', '6']) {
    if (await isFilteredByLegacy(exec, version)) return `ip${version}tables-legacy`;
  }
  return undefined;
}

/** Sets the mark to something that does not depend on what it was, or is iptables' and may do so. */
const REPLACES_MARK = /\bmeta mark set (?!\(*(?:meta )?mark\b)|\bxt target "(?:CONN)?MARK"/;

/** A chain that may take their mark from packets before they are routed, if any. Rules of iptables-legacy are not seen. */
export async function markReplacer(
  exec: Exec,
  chains: readonly HostChain[],
): Promise<string | undefined> {
  for await (const { found, rules } of rulesAt(exec, chains, 'prerouting')) {
    if (rules.some((rule) => REPLACES_MARK.test(rule))) return found;
  }
  return undefined;
}

/** nft does not show these rules. */
async function isFilteredByLegacy(exec: Exec, version: string): Promise<boolean> {
  // Some kernels lack it.
  const tables = await readFile(`/proc/net/ip${version}_tables_names`, 'utf8').catch(() => '');
  if (!/^filter$/m.test(tables)) return false;
  const command = { file: `ip${version}tables-legacy-save`, args: ['-t', 'filter'] };
  const { stdout = '' } = (await exec(command).catch(() => undefined)) ?? {};
  const rules = stdout.split('\n').filter((line) => line.startsWith('-A INPUT '));
  // Without a listing, there may be rules.
  return !/^:INPUT ACCEPT/m.test(stdout) || !rules.every((rule) => HARMLESS.test(rule.trim()));
}

/** The setting of this host that keeps packets from transparent sockets, as a sentence; undefined: none. */
export function conflictingSetting(root = '/'): string | undefined {
  const folder = join(root, 'proc/sys/net/ipv4/conf');
  const isOn = (name: string): boolean => {
    try {
      return readFileSync(join(folder, name, 'src_valid_mark'), 'utf8').trim() === '1';
    } catch {
      // The interface has gone.
      return false;
    }
  };
  // Interfaces, those to come (`default`), and all at once. What the host sends to itself is not checked.
  const names = readdirSync(folder).filter((name) => name !== 'lo');
  const found = ['all', ...names].find(isOn);
  if (found === undefined) return undefined;
  // As sysctl writes names that have dots.
  const setting = `net.ipv4.conf.${found.replaceAll('.', '/')}.src_valid_mark`;
  return `the kernel drops packets from outside as coming from a wrong address: set the sysctl ${setting} to 0`;
}
