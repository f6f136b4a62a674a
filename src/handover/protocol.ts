/**
 * What two processes say to each other over the handover socket, line by line, in JSON:
 *
 *     successor    Hello
 *     predecessor  Offer, and with the bytes behind it the descriptors of its listeners
 *     successor    Left, and TAKEN, once it serves them
 *
 * The connection stays open as long as both live, so that each notices when the other has gone.
 */
import { readlinkSync } from 'node:fs';
import type { FormerListener } from '../proxysocket/core/inherited.ts';
import type { FormerFlow } from '../proxysocket/udp/former-flows.ts';

/** Changes when processes of different versions would not understand each other. */
export const HANDOVER_VERSION = 1;

export const TAKEN = 'taken\n';

/**
 * What a successor has been given and does not serve, by inode numbers. One of an earlier version does not
 * tell; then nothing can be said of any socket.
 */
export interface Left {
  readonly left: readonly number[];
}

/** All that a successor says at the end. */
export function takenText(left: readonly number[]): string {
  return `${JSON.stringify({ left } satisfies Left)}\n${TAKEN}`;
}

/** What a successor has said so far; undefined: it has not taken over yet. Throws at what is no message. */
export function readTaken(
  text: string,
): { readonly left: readonly number[] | undefined } | undefined {
  if (!text.endsWith(TAKEN)) return undefined;
  const line = text.slice(0, -TAKEN.length);
  return { left: line === '' ? undefined : (JSON.parse(line) as Left).left };
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
      /** How many descriptors follow. */
      readonly sockets: number;
      readonly former: readonly FormerListener[];
      /** UDP sessions; absent: a predecessor of an earlier version does not tell. */
      readonly flows?: readonly FormerFlow[];
    }
  | { readonly ok: false; readonly reason: string };

/** How long either side may take until it has said what it wants, and the sockets are with the successor. Milliseconds. */
export const EXCHANGE_LIMIT_MS = 10_000;

/** A line longer than this is no message: 10,000 listeners take about 2 MB. */
export const MAX_LINE_BYTES = 64 << 20;

/** Tells network namespaces apart. */
export function networkNamespace(): string {
  return readlinkSync('/proc/self/ns/net');
}

export function helloFrom(pid: number, network: string): Hello {
  return { handover: HANDOVER_VERSION, pid, network };
}

/** Why the sockets of one process are of no use to another one; undefined: they are. */
export function refusal(hello: Hello, network: string): string | undefined {
  if (hello.handover !== HANDOVER_VERSION) {
    return `it speaks version ${String(hello.handover)} of the handover, this one ${HANDOVER_VERSION}`;
  }
  if (hello.network !== network) return 'it runs in another network namespace';
  return undefined;
}

/** Only root and the user who runs this process may take part. */
export function mayTakePart(uid: number, own: number): boolean {
  return uid === 0 || uid === own;
}
