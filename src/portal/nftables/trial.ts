/**
 * Whether this host delivers packets unchanged to transparent sockets: what on it may prevent that (chains of other programs,
 * other proxies, settings), and a trial with one connection, as a client's.
 */
import { randomInt } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Family } from '../../util/family.ts';
import { formatHostPort } from '../../util/host-port.ts';
import { TRIAL } from '../bounds.ts';
import type { Exec } from '../exec.ts';
import { Elements, type TransparentRoute, trialConfig } from '../rules/backend.ts';
import { contact, openServer, portOf } from '../rules/canary.ts';
import {
  type HostChain,
  hostChains,
  nft,
  portalIn,
  removeNftables,
  type TransparentOptions,
} from './backend.ts';
import { policyRoute } from './policy-route.ts';
import { block, HEADER, hooked } from './chains.ts';
import { addressKey, listenerElement, renderFull, setName } from './table.ts';

/**
 * Rules that cannot keep a packet from a socket of this host, as nft or iptables lists them. Of iptables' extensions, nft
 * shows only their names. kubelet's chain drops packets to 127.0.0.0/8 only.
 */
const HARMLESS =
  /^(?!xt\b)(?:(?! xt\b).)*\b(?:accept|ACCEPT|return|RETURN|(?:jump|goto|-j|-g) KUBE-FIREWALL)(?: comment ".*")?$/;

/** Sets the mark to something that does not depend on what it was, or is iptables' and may do so. */
const REPLACES_MARK = /\bmeta mark set (?!\(*(?:meta )?mark\b)|\bxt target "(?:CONN)?MARK"/;

/**
 * The chain that may keep marked packets from sockets of this host, if any, as part of a sentence. A filter may accept
 * redirected connections (`ct status dnat`) but not packets that only have the mark; another chain may take their mark
 * from packets before they are routed (rules of iptables-legacy are not seen).
 */
export async function obstructingChain(
  exec: Exec,
  chains: readonly HostChain[],
): Promise<string | undefined> {
  const mayDrop = (what: string): string =>
    `${what} may drop what transparent delivers; give --portal transparent if it does not`;
  for (const { table, name, hook = '', policy } of chains) {
    if (!/^(?:input|prerouting)$/.test(hook) || !/^(?:ip|ip6|inet) /.test(table)) continue;
    const what = `chain ${name} of the nftables table ${table}`;
    const args = ['list', 'chain', ...table.split(' '), name];
    const lines = (await nft(exec, `listing ${what}`, args)).split('\n');
    const rules = lines.filter((line) => /^\t\t(?!type |comment )/.test(line));
    const isHarmless = policy !== 'drop' && rules.every((rule) => HARMLESS.test(rule.trim()));
    if (hook === 'input' && !isHarmless) return mayDrop(what);
    if (hook === 'prerouting' && rules.some((rule) => REPLACES_MARK.test(rule))) {
      return `${what} may replace the mark of packets`;
    }
  }
  for (const version of ['', '6']) {
    if (await isFilteredByLegacy(exec, version)) return mayDrop(`ip${version}tables-legacy`);
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

type Attempt = Awaited<ReturnType<typeof prepare>>;

/** The port "discard". No other trial has the same address and port at the same time. */
const PORT = 9;

/** The kernel's words for a host without a route to the address: clients on it reach no service of that family. */
const NO_ROUTE = new Set(['ENETUNREACH', 'EHOSTUNREACH', 'EADDRNOTAVAIL']);

export function trialTable(table: string): string {
  return `${table}-trial`;
}

/**
 * Writes the rules and the route of a transparent portal for one address that no host has, connects to it, and removes
 * them. The connection, and each program, has a second. What a trial that was killed has left is replaced and removed.
 *
 * Resolves with the families whose connections arrive. Rejects with the reason if there is none, or if one is stopped.
 * Packets of the trial do not leave the host.
 */
export async function tryTransparent(
  exec: Exec,
  portalTable: string,
  families: readonly Family[],
  { route, socket }: TransparentOptions,
): Promise<readonly Family[]> {
  const table = trialTable(portalTable);
  const hurried: Exec = (command) => exec({ ...command, timeoutMs: TRIAL.limitMs });
  const attempts: Attempt[] = [];
  const undo: (() => Promise<unknown>)[] = [];
  try {
    for (const family of families) attempts.push(await prepare(family, socket));
    const found = await policyRoute(hurried, route).ensure(families, true);
    undo.push(() => policyRoute(exec, route).removeAdded(found));
    undo.push(() => removeNftables(exec, table));
    const script = render(table, route, attempts);
    await nft(hurried, 'writing the rules of a trial', ['-f', '-'], script);
    return await tryAll(attempts);
  } finally {
    for (const { server } of attempts) server.close();
    const steps = undo.map((step) => step());
    await Promise.allSettled(steps);
    await Promise.all(steps);
  }
}

/** Removes the table of a trial that was killed; returns whether there was one. Rejects with KPNG_PORTAL_*. */
export async function removeTrial(exec: Exec, table: string): Promise<boolean> {
  const name = trialTable(table);
  if (portalIn(await hostChains(exec), name) === undefined) return false;
  await removeNftables(exec, name);
  return true;
}

/** Opens a server that sends each client the address to which it has connected: one of no host (documentation). */
async function prepare(family: Family, socket: TransparentOptions['socket']) {
  const server = await openServer(await socket(family), ({ localAddress = '', localPort = 0 }) =>
    formatHostPort({ host: localAddress, port: localPort }),
  );
  const part = randomInt(1, 255);
  const host = family === 4 ? `198.51.100.${part}` : `2001:db8::${part.toString(16)}`;
  return { family, to: { host, port: PORT }, server };
}

/** The table of a portal with one service for each family, and a chain that keeps its packets on the host. */
function render(table: string, route: TransparentRoute, attempts: readonly Attempt[]): string {
  const elements = new Elements();
  for (const { family, to, server } of attempts) {
    const key = addressKey(to.host, 'TCP', to.port);
    elements.set(`trial ${family}`, [
      { set: setName('services', family), key, value: '' },
      listenerElement({ family, protocol: 'TCP', port: portOf(server) }),
    ]);
  }
  const config = { ...trialConfig(attempts.map(({ family }) => family)), route };
  const kept = block('chain kept', [
    hooked('filter', 'postrouting', 0),
    ...attempts.map(({ family, to }) => `${HEADER[family]} daddr ${to.host} oif != lo drop`),
  ]);
  return `${renderFull(table, config, elements)}table inet ${table} {\n${kept}}\n`;
}

async function tryAll(attempts: readonly Attempt[]): Promise<Family[]> {
  const contacts = await Promise.all(attempts.map(({ to }) => contact(to, true, TRIAL.limitMs)));
  const reached = attempts.flatMap(({ family, to }, index) => {
    const { text = '', error } = contacts[index] ?? {};
    if (NO_ROUTE.has(error?.code ?? '')) return [];
    const place = formatHostPort(to);
    const answer = error?.message ?? (text || 'no answer');
    if (answer !== place) throw new Error(`a connection to ${place}: ${answer}`);
    return family;
  });
  if (reached.length === 0) throw new Error('this host has no route to service addresses');
  return reached;
}
