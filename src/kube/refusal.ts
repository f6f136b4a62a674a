/** Who asks, and why there is no answer, with the remedy. */
import { X509Certificate } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { messageOf } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { readBody } from './body.ts';
import { KubeFailure, type Cause } from './failure.ts';
import { list, object, text, type Json } from './json.ts';
import type { KubeLimits } from './limits.ts';

/** The user of the requests, as far as the credentials name it. */
export interface Identity {
  /** Such as `system:serviceaccount:kube-system:kpng`; for people. */
  readonly user: string;
  readonly by: 'token' | 'certificate' | 'password' | 'nothing';
  /** When the credentials expire; milliseconds since the epoch. */
  readonly expiresAt: number | undefined;
}

/** Reads tokens and certificates without verifying them; that is up to the server. */
export function identify(
  authorization: unknown,
  certificate: unknown,
  configured: string,
): Identity {
  const unknown = { user: configured, expiresAt: undefined };
  const token = /^Bearer (.*)$/.exec(text(authorization))?.[1];
  if (token !== undefined) return { ...unknown, by: 'token', ...claims(token) };
  if (authorization !== undefined) return { ...unknown, by: 'password' };
  if (certificate === undefined) return { ...unknown, user: 'system:anonymous', by: 'nothing' };
  try {
    const { subject, validTo } = new X509Certificate(certificate as string | Buffer);
    const user = /^CN=(.*)$/m.exec(subject)?.[1] ?? configured;
    return { user, by: 'certificate', expiresAt: Date.parse(validTo) };
  } catch {
    // The TLS handshake reports any problem with it.
    return { ...unknown, by: 'certificate' };
  }
}

function claims(token: string): Partial<Identity> {
  try {
    const payload = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8');
    const { sub, exp } = object(JSON.parse(payload));
    return {
      ...(text(sub) !== '' && { user: text(sub) }),
      ...(typeof exp === 'number' && { expiresAt: exp * 1000 }),
    };
  } catch {
    // Not every token is a JWT.
    return {};
  }
}

/** A problem with the credentials' expiry; undefined: none known. */
export function expiryOf({ by, expiresAt }: Identity, now: number): string | undefined {
  if (expiresAt === undefined || Number.isNaN(expiresAt) || expiresAt > now) return undefined;
  const what = by === 'certificate' ? 'client certificate' : 'token';
  return `the ${what} expired at ${new Date(expiresAt).toISOString()}`;
}

/** Node's codes for an untrusted certificate. */
const CERTIFICATE_CODES =
  /^(?:CERT_|ERR_TLS_CERT|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|INVALID_CA|PATH_LENGTH|HOSTNAME_MISMATCH|ERR_SSL_|ERR_TLS_)/;

/** Why there was no response. */
export function noAnswer(what: string, error: unknown): KubeFailure {
  const code = codeOf(error) ?? '';
  const kind = CERTIFICATE_CODES.test(code) ? 'tls' : 'unreachable';
  const isClosed = code === 'ECONNRESET' && what.includes(' at http://');
  const hint = isClosed ? CLOSED : HINTS[code];
  if (hint !== undefined) return new KubeFailure(kind, `${what}: ${hint}`);
  return new KubeFailure(kind, `${what}: ${wordsOf(error)}`, { cause: error });
}

const CLOSED =
  'the server closed the connection without an answer; use https:// in its URL if it requires TLS';

const UNTRUSTED =
  'API server certificate is not signed by a trusted CA; set certificate-authority in the kubeconfig';

const HINTS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'API server certificate has expired; renew it',
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  EPROTO:
    'the server does not speak TLS, or not a version in common; use http:// in its URL if it serves plain HTTP',
};

/** After trying several addresses, the messages are in a list. */
function wordsOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(messageOf).join(', ');
  }
  return messageOf(error);
}

export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined;
}

/** Maximum bytes read of the body of a refusal. */
const MAX_BODY = 64 * 1024;

/** Why the server refused a request, and the remedy. */
export async function refusal(
  answer: IncomingMessage,
  { what, path }: { readonly what: string; readonly path: string },
  { server, identity }: { readonly server: URL; readonly identity: Identity },
  { limits, clock }: { readonly limits: KubeLimits; readonly clock: Clock },
): Promise<KubeFailure> {
  const code = answer.statusCode ?? 0;
  const status = await statusOf(answer, limits.responseTimeoutMs, clock);
  const message = text(status['message']) || (answer.statusMessage ?? '');
  const kind = causeOf(code, status);
  const seconds = Number(answer.headers['retry-after']);
  const retryAfterMs = seconds > 0 ? Math.min(seconds * 1000, limits.maxRetryAfterMs) : undefined;
  // What servers of Go answer to plain HTTP.
  const isPlain = code === 400 && server.protocol === 'http:';
  const remedy = isPlain
    ? '; use https:// in its URL if it requires TLS'
    : advice(kind, path, identity);
  const full = `${what} at ${server.origin}: ${code} ${message}${remedy}`;
  return new KubeFailure(kind, full, { retryAfterMs });
}

/** The cause of a status, of a response or an event. */
export function causeOf(code: number, status: Json): Cause {
  const reason = text(status['reason']);
  if (code === 410 || reason === 'Expired' || reason === 'Gone') return 'gone';
  if (code === 401) return 'unauthorized';
  if (code === 403) return 'forbidden';
  if (code === 429) return 'throttled';
  // The server has been restored from a backup: it does not know a version that it sent before.
  const causes = list(object(status['details'])['causes']).map(object);
  const ahead = causes.some(({ reason: cause }) => cause === 'ResourceVersionTooLarge');
  if (ahead || /too (?:old|large) resource version/i.test(text(status['message']))) return 'gone';
  return 'server';
}

function advice(kind: Cause, path: string, identity: Identity): string {
  const user = JSON.stringify(identity.user);
  if (kind === 'unauthorized') {
    const expired = expiryOf(identity, Date.now());
    return `; ${expired ?? `the server does not accept the ${identity.by} of ${user}`}`;
  }
  if (kind !== 'forbidden') return '';
  const resource = path.slice(path.lastIndexOf('/') + 1);
  const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(identity.user) ?? [];
  const subject =
    name === undefined ? `--user=${identity.user}` : `--serviceaccount=${namespace}:${name}`;
  return (
    `; allow ${user} to list and watch ${resource}, such as with: kubectl create ` +
    `clusterrolebinding kpng --clusterrole=system:node-proxier ${subject}`
  );
}

/** The Status object of the body; empty when there is none. */
async function statusOf(answer: IncomingMessage, totalMs: number, clock: Clock): Promise<Json> {
  const limits = { maxBytes: MAX_BODY, silenceMs: totalMs, totalMs };
  try {
    return object(JSON.parse((await readBody('', answer, limits, clock)) ?? ''));
  } catch {
    // The status code is enough.
    return {};
  }
}
