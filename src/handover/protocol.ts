/**
 * The messages of two processes over the handover socket, in lines of JSON:
 *
 * - new process: Hello
 * - predecessor: Offer, followed by bytes that carry the descriptors of its listeners
 * - new process: which of them it does not serve, once it serves the others
 *
 * The connection stays open as long as both live, so that each notices when the other ends.
 */
import { readlinkSync } from 'node:fs';
import { KpngError } from '../errors.ts';
import type { PreviousListener } from '../proxysocket/core/inherited.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';

export const HANDOVER_VERSION = 1;

/**
 * The last message of a new process. `left`: the sockets that it received and does not serve, by inode number. Earlier
 * releases wait for a second line.
 */
export function takenText(left: readonly number[]): string {
  return `${JSON.stringify({ left })}\ntaken\n`;
}

/** The `left` of its last message. Throws KPNG_HANDOVER_FAILED. */
export function readTaken(line: string): readonly number[] {
  const message = checked('list of sockets', line, ({ left }) => isList(left, isCount));
  return (message as { readonly left: readonly number[] }).left;
}

export interface Hello {
  readonly handover: number;
  readonly pid: number;
  /** The network namespace, whose addresses and ports the sockets belong to. */
  readonly network: string;
}

export type Offer =
  | {
      readonly ok: true;
      readonly pid: number;
      readonly sockets: number;
      readonly former: readonly PreviousListener[];
      readonly flows: readonly PreviousFlow[];
    }
  | { readonly ok: false; readonly reason: string };

/** The first line of a new process. Throws KPNG_HANDOVER_FAILED. */
export function readHello(line: string): Hello {
  const hello = checked('greeting', line, ({ handover, pid, network }) => {
    // Another version, possibly with other fields, is refused.
    if (handover !== HANDOVER_VERSION) return typeof handover === 'number';
    return isCount(pid) && typeof network === 'string';
  });
  return hello as Hello;
}

/** The answer of a predecessor. Throws KPNG_HANDOVER_FAILED. */
export function readOffer(line: string): Offer {
  const offer = checked('offer', line, ({ ok, reason, pid, sockets, former, flows }) => {
    if (ok !== true) return ok === false && typeof reason === 'string';
    const hasLists = isList(former, isListener) && isList(flows, isFlow);
    return isCount(pid) && isCount(sockets) && hasLists;
  });
  return offer as Offer;
}

type Unchecked = Readonly<Record<string, unknown>>;

function checked(what: string, line: string, isValid: (message: Unchecked) => boolean): unknown {
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch (cause) {
    throw new KpngError('KPNG_HANDOVER_FAILED', `the ${what} is not JSON`, { cause });
  }
  if (isValid((message ?? {}) as Unchecked)) return message;
  throw new KpngError('KPNG_HANDOVER_FAILED', `the ${what} lacks a field, or has a wrong one`);
}

function isListener({ protocol, asked, port, ...texts }: Unchecked): boolean {
  if (protocol !== 'TCP' && protocol !== 'UDP') return false;
  return isCount(asked) && isCount(port) && hasTexts(texts, ['servicePort', 'address', 'key']);
}

function isFlow(flow: Unchecked): boolean {
  return hasTexts(flow, ['servicePort', 'client', 'endpoint']);
}

function hasTexts(value: Unchecked, names: readonly string[]): boolean {
  return names.every((name) => typeof value[name] === 'string');
}

function isList(value: unknown, isItem: (item: never) => boolean): boolean {
  return Array.isArray(value) && value.every((item) => isItem((item ?? {}) as never));
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Time limit for each side, from the connection until the new process has the sockets. Milliseconds. */
export const EXCHANGE_LIMIT_MS = 10_000;

/** Maximum length of a line: 10,000 listeners take about 2 MB. */
export const MAX_LINE_BYTES = 64 << 20;

export function networkNamespace(): string {
  return readlinkSync('/proc/self/ns/net');
}

export function helloFrom(pid = process.pid, network = networkNamespace()): Hello {
  return { handover: HANDOVER_VERSION, pid, network };
}

/** Why another process cannot use the sockets of this one; undefined: it can. */
export function refusal(hello: Hello, network = networkNamespace()): string | undefined {
  if (hello.handover !== HANDOVER_VERSION) {
    return `it speaks version ${String(hello.handover)} of the handover, this one ${HANDOVER_VERSION}`;
  }
  if (hello.network !== network) return 'it runs in another network namespace';
  return undefined;
}

/** Only root and the user of this process may take part. */
export function isAllowedUser(uid: number | undefined, own = process.geteuid?.()): boolean {
  return uid !== undefined && (uid === 0 || uid === own);
}
