/**
 * The messages of two processes over the handover socket, in lines of JSON:
 *
 * - new process: HELLO
 * - predecessor: OFFER, followed by bytes that carry the descriptors of its listeners, or REFUSAL
 * - new process: TAKEN, once it serves
 *
 * The connection stays open as long as both live, so that each notices when the other ends.
 */
import { readlinkSync } from 'node:fs';
import { KpngError } from '../errors.ts';
import type { Protocol, Traffic } from '../proxysocket/spec.ts';
import type { PreviousFlow } from '../proxysocket/udp/known-clients.ts';

export const HANDOVER_VERSION = 1;

const LISTENER = {
  servicePort: '',
  protocol: 'TCP' as Protocol,
  address: '',
  traffic: 'internal' as Traffic,
  /** The requested port: 0 if the kernel chooses. */
  asked: 0,
  port: 0,
  key: '',
};
export type PreviousListener = Readonly<typeof LISTENER>;

const FLOW: PreviousFlow = { servicePort: '', client: '', endpoint: '' };

/** What of HELLO every version has. */
export const GREETING = { handover: HANDOVER_VERSION };
/** `network`: the network namespace, whose addresses and ports the sockets belong to. */
export const HELLO = { ...GREETING, pid: 0, network: '' };
export const OFFER = { ok: true as const, pid: 0, sockets: 0, former: [LISTENER], flows: [FLOW] };
export const REFUSAL = { ok: false as const, reason: '' };
/** `left`: the sockets that the new process received and does not serve, by inode number. */
export const TAKEN = { left: [0] };

/** Parses a message like one of the examples, see `isLike`. Throws KPNG_HANDOVER_FAILED. */
export function parseMessage<Message>(
  what: string,
  line: string,
  ...examples: readonly Message[]
): Message {
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch (cause) {
    throw new KpngError('KPNG_HANDOVER_FAILED', `the ${what} is not JSON`, { cause });
  }
  if (examples.some((example) => isLike(message, example))) return message as Message;
  throw new KpngError('KPNG_HANDOVER_FAILED', `the ${what} lacks a field, or has a wrong one`);
}

/** Whether a value has the fields of the example, of its types; items of lists are like its first one. */
function isLike(value: unknown, example: unknown): boolean {
  if (typeof example === 'boolean') return value === example;
  if (typeof example === 'number') return Number.isSafeInteger(value) && Number(value) >= 0;
  if (Array.isArray(example)) {
    return Array.isArray(value) && value.every((item) => isLike(item, example[0]));
  }
  if (typeof example !== 'object' || example === null) return typeof value === typeof example;
  const fields = new Map(Object.entries(value ?? {}));
  return Object.entries(example).every(([name, each]) => isLike(fields.get(name), each));
}

export function networkNamespace(): string {
  return readlinkSync('/proc/self/ns/net');
}

/** Why a new process cannot use the sockets of this one; undefined: it can. */
export function refusal(
  { handover, network }: Partial<typeof HELLO>,
  own = networkNamespace(),
): string | undefined {
  if (handover !== HANDOVER_VERSION) {
    return `it speaks version ${String(handover)} of the handover, this one ${HANDOVER_VERSION}`;
  }
  return network === own ? undefined : 'it runs in another network namespace';
}

/** Only root and the user of this process may take part. */
export function isAllowedUser(uid: number | undefined, own = process.geteuid?.()): boolean {
  return uid !== undefined && (uid === 0 || uid === own);
}
