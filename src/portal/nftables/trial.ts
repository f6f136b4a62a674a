/** Whether this host delivers packets unchanged to transparent sockets: one connection of its own, as a client's. */
import { randomInt } from 'node:crypto';
import { connect, type Server } from 'node:net';
import { text } from 'node:stream/consumers';
import { messageOf } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import { formatHostPort, type HostPort } from '../../util/host-port.ts';
import { TRIAL_LIMIT_MS } from '../bounds.ts';
import type { Exec } from '../exec.ts';
import { Elements, type TransparentRoute } from '../rules/backend.ts';
import { openServer, portOf } from '../rules/canary.ts';
import { nft, removeNftables } from './backend.ts';
import { PolicyRoute } from './policy-route.ts';
import { block, HEADER, hooked } from './chains.ts';
import { addressKey, renderFull, setName } from './table.ts';

export interface TrialOptions {
  readonly exec: Exec;
  readonly table: string;
  readonly route: TransparentRoute;
  readonly families: readonly Family[];
  /** Makes a transparent socket on a loopback address; resolves with its descriptor. */
  readonly socket: (family: Family) => Promise<number>;
}

export type TrialResult = { readonly families: readonly Family[] } | { readonly problem: string };

interface Attempt {
  readonly family: Family;
  /** The address of no host (documentation). */
  readonly to: HostPort;
  readonly server: Server;
}

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
 * Never rejects. Packets of the trial do not leave the host.
 */
export async function tryTransparent(options: TrialOptions): Promise<TrialResult> {
  const { exec, route, families } = options;
  const table = trialTable(options.table);
  const hurried: Exec = (command) => exec({ ...command, timeoutMs: TRIAL_LIMIT_MS });
  const attempts: Attempt[] = [];
  const undo: (() => Promise<unknown>)[] = [];
  let result: TrialResult;
  try {
    for (const family of families) attempts.push(await prepare(family, options.socket));
    const policyRoute = new PolicyRoute(hurried, route);
    await policyRoute.refuseEarlierRules(families);
    const isAdded = await policyRoute.ensure(families);
    if (isAdded) undo.push(() => new PolicyRoute(exec, route).remove());
    undo.push(() => removeNftables(exec, table));
    const script = render(table, route, attempts);
    await nft(hurried, 'writing the rules of a trial', ['-f', '-'], script);
    result = await tryAll(attempts);
  } catch (error) {
    result = { problem: messageOf(error) };
  }
  for (const { server } of attempts) server.close();
  for (const step of undo) {
    await step().catch((error: unknown) => {
      result = { problem: messageOf(error) };
    });
  }
  return result;
}

/** Removes the table of a trial that was killed; returns whether there was one. Rejects with KPNG_PORTAL_*. */
export async function removeTrial(exec: Exec, table: string): Promise<boolean> {
  const name = trialTable(table);
  // To list tables, nft reads all rules of the host, and again whenever one changes. To list chains, it reads none.
  const tables = await nft(exec, 'listing tables', ['list', 'chains', 'inet']);
  if (!tables.split('\n').includes(`table inet ${name} {`)) return false;
  await removeNftables(exec, name);
  return true;
}

/** Opens a server that sends each client the address to which it has connected. */
async function prepare(family: Family, socket: TrialOptions['socket']): Promise<Attempt> {
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
  elements.set(
    'trial',
    attempts.flatMap(({ family, to: { host, port }, server }) => {
      const key = addressKey(host, 'TCP', port);
      return [
        { set: setName('services', family), key, value: '' },
        { set: setName('listeners', family), key: 'tcp', value: String(portOf(server)) },
      ];
    }),
  );
  const none = { 4: undefined, 6: undefined };
  const config = {
    owner: 'trial',
    families: attempts.map(({ family }) => family),
    targets: none,
    nodePortNetworks: { 4: [], 6: [] },
    route,
  };
  const kept = block('chain kept', [
    hooked('filter', 'postrouting', 0),
    ...attempts.map(({ family, to }) => `${HEADER[family]} daddr ${to.host} oif != lo drop`),
  ]);
  return `${renderFull(table, config, elements)}table inet ${table} {\n${kept}}\n`;
}

async function tryAll(attempts: readonly Attempt[]): Promise<TrialResult> {
  const families: Family[] = [];
  const outcomes = await Promise.all(attempts.map(async ({ to }) => answerOf(to)));
  for (const [index, { family, to }] of attempts.entries()) {
    const outcome = outcomes[index];
    const place = formatHostPort(to);
    if (outcome === place) families.push(family);
    else if (outcome !== undefined) return { problem: `a connection to ${place}: ${outcome}` };
  }
  if (families.length > 0) return { families };
  return { problem: 'this host has no route to service addresses' };
}

/** The server's answer, or the error; undefined: the host has no route there. */
async function answerOf(to: HostPort): Promise<string | undefined> {
  const socket = connect(to);
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), TRIAL_LIMIT_MS);
  try {
    return await text(socket);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code !== undefined && NO_ROUTE.has(code) ? undefined : message;
  } finally {
    clearTimeout(timer);
  }
}
