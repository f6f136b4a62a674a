import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';

export interface FakeApiAuth {
  /** Bearer tokens that are good, with the user that they stand for. May be changed at any time. */
  readonly tokens?: Map<string, string>;
}

/** The user of a request; undefined: not known, to be refused. Without rules everybody is anonymous. */
export function userOf(
  request: IncomingMessage,
  auth: FakeApiAuth | undefined,
): string | undefined {
  if (auth === undefined) return 'system:anonymous';
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
  if (token !== undefined) return auth.tokens?.get(token);
  const socket = request.socket as Partial<TLSSocket>;
  if (socket.authorized !== true || socket.getPeerCertificate === undefined) return undefined;
  const { CN } = socket.getPeerCertificate().subject;
  return Array.isArray(CN) ? CN[0] : CN;
}
