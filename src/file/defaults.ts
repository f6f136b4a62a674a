/** Defaults of state files. Not with the messages: the thread that parses needs none of their code. */
import type { Protocol } from '../api/generated/localv1/api.ts';
import type * as raw from './raw.ts';

const PROTOCOLS = { TCP: 1, UDP: 2, SCTP: 3 } as const satisfies Record<string, Protocol>;

/** The service's namespace, with the default of state files. */
export function namespaceOf({ namespace }: raw.RawService): string {
  return namespace === undefined || namespace === null || namespace === '' ? 'default' : namespace;
}

/** The number of a protocol; TCP unless given. */
export function protocolOf(protocol: raw.RawPort['protocol']): Protocol {
  return typeof protocol === 'string' ? PROTOCOLS[protocol] : (protocol ?? PROTOCOLS.TCP);
}
