import type { IncomingMessage } from 'node:http';
import type { Clock } from '../util/clock.ts';
import type { Access } from './access.ts';
import { readBody } from './body.ts';
import { KubeFailure, type Cause } from './failure.ts';
import { expiryOf, type Identity } from './identity.ts';
import { list, object, text, type Json } from './json.ts';
import type { KubeLimits } from './limits.ts';

/** Maximum bytes read of the body of a refusal. */
const MAX_BODY = 64 * 1024;

/** Why the server refused a request, and the remedy. */
export async function refusal(
  answer: IncomingMessage,
  { what, path }: { readonly what: string; readonly path: string },
  { server, identity }: Access,
  { maxRetryAfterMs, responseTimeoutMs }: KubeLimits,
  clock: Clock,
): Promise<KubeFailure> {
  const code = answer.statusCode ?? 0;
  const status = await statusOf(answer, responseTimeoutMs, clock);
  const message = text(status['message']) || (answer.statusMessage ?? '');
  const kind = causeOf(code, status);
  const where = `${what} at ${server.origin}`;
  const seconds = Number(answer.headers['retry-after']);
  const retryAfterMs =
    Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds * 1000, maxRetryAfterMs) : undefined;
  // What servers of Go answer to plain HTTP.
  const isPlain = code === 400 && server.protocol === 'http:';
  const remedy = isPlain
    ? '; use https:// in its URL if it requires TLS'
    : advice(kind, path, identity);
  return new KubeFailure(kind, `${where}: ${code} ${message}${remedy}`, {
    retryAfterMs,
  });
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
  if (kind === 'unauthorized') {
    const expired = expiryOf(identity, Date.now());
    return `; ${expired ?? `the server does not accept the ${identity.by} of ${quote(identity.user)}`}`;
  }
  if (kind !== 'forbidden') return '';
  const resource = path.slice(path.lastIndexOf('/') + 1);
  const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(identity.user) ?? [];
  const subject =
    name === undefined ? `--user=${identity.user}` : `--serviceaccount=${namespace}:${name}`;
  return (
    `; allow ${quote(identity.user)} to list and watch ${resource}, such as with: kubectl create ` +
    `clusterrolebinding kpng --clusterrole=system:node-proxier ${subject}`
  );
}

function quote(user: string): string {
  return JSON.stringify(user);
}

/** The Status object of the body; empty when there is none. */
async function statusOf(answer: IncomingMessage, totalMs: number, clock: Clock): Promise<Json> {
  const limits = { maxBytes: MAX_BODY, silenceMs: totalMs, totalMs };
  try {
    return object(JSON.parse((await readBody(answer, limits, clock)) ?? ''));
  } catch {
    // The status code is enough.
    return {};
  }
}
